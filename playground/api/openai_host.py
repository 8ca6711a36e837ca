"""`OpenAiHost`: this page as the server of OpenAI's protocol.

Knows the page's queue, models and limits, which also apply here. Must not know the protocol.
"""

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request

from playground.context.page_context import PageContext
from playground.context.waiting_line import ALONE
from xla_backend import GenerationOptions, ModelInfo, Prompt
from xla_backend.openai_api.host import Host, QueueEntry
from xla_backend.rows.scheduler import MAX_AT_ONCE


class OpenAiHost(Host):
    """The page that offers the API."""

    def __init__(self, page: PageContext, health: Callable[[], dict[str, Any]]) -> None:
        self._page = page
        self._health = health
        self.backend = page.backend
        self.at_once = MAX_AT_ONCE
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
        return self._page.line.running

    def address(self, request: Request) -> str:
        return self._page.line.address(request)

    def enter(self, request: Request, runs: int, alone: bool = False) -> Sequence[QueueEntry]:
        return self._page.line.enter(request, runs, ALONE if alone else MAX_AT_ONCE)
