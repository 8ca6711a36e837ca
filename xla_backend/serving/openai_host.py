"""`ServiceHost`: the service on Ray Serve as the server of OpenAI's protocol.

Knows which models are offered. Must not know the protocol. Nobody waits in line here: Ray Serve
and the engines have queues of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import DEFAULT_MAX_SECONDS, MAX_NEW_TOKENS
from xla_backend.openai_api.host import Host, Turn

if TYPE_CHECKING:
    from starlette.requests import Request

    from xla_backend.interface.backend import ServedBackend
    from xla_backend.interface.options import GenerationOptions
    from xla_backend.interface.prompt import Prompt
    from xla_backend.interface.results import ModelInfo


class AtOnce(Turn):
    """A turn that has come already."""

    async def wait(self) -> float:
        return 0.0

    def leave(self) -> None:
        """Nobody waits for it."""


class ServiceHost(Host):
    """The ingress that offers the API."""

    new_tokens = MAX_NEW_TOKENS
    audio_s = DEFAULT_MAX_SECONDS

    def __init__(self, backend: ServedBackend, models: tuple[str, ...], at_once: int) -> None:
        """Offers models; none named offers all. `at_once` as in `Host`."""
        self.backend = backend
        self.at_once = at_once
        self._offers = models

    def models(self) -> list[ModelInfo]:
        return [
            info for info in self.backend.models() if not self._offers or info.name in self._offers
        ]

    def check(
        self, model: str, prompt: Prompt = "", options: GenerationOptions | None = None
    ) -> None:
        if self._offers and model not in self._offers:
            raise ModelUnavailable(f"There is no model {model[:80]!r} here; /v1/models lists them.")

    def enter(self, request: Request, runs: int, alone: bool = False) -> Sequence[Turn]:
        return [AtOnce() for _ in range(runs)]
