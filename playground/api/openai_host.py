"""`OpenAiHost`: this page as the server of OpenAI's protocol.

Knows the page's models and limits, which also apply here. Must not know the protocol.
"""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from playground.context.address import address_of
from playground.context.page_context import PageContext
from xla_backend import GenerationOptions, ModelInfo, Prompt
from xla_backend.openai_api.host import Host


class OpenAiHost(Host):
    """The page that offers the API."""

    def __init__(
        self, page: PageContext, health: Callable[[], dict[str, Any]], behind_proxy: bool
    ) -> None:
        self._page = page
        self._behind_proxy = behind_proxy
        self._health = health
        self.backend = page.backend
        self.new_tokens = page.limits.new_tokens
        self.audio_s = page.limits.audio_s

    def models(self) -> list[ModelInfo]:
        return [*self._page.models(), *self._page.speech_models()]

    def check(
        self, model: str, prompt: Prompt = "", options: GenerationOptions | None = None
    ) -> None:
        self._page.check_request(model, prompt, options)

    def health(self) -> dict[str, Any]:
        return self._health()

    def running(self) -> int:
        return self._page.backend.queue.running

    def address(self, request: Request) -> str:
        return address_of(request, self._behind_proxy)
