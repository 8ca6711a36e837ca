"""`Host`: what the API needs of the server that offers it.

Knows who decides what: the server says which models there are, what may be asked and who waits.
Must not know the protocol.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from xla_backend.interface.backend import AnyStream
    from xla_backend.interface.options import GenerationOptions
    from xla_backend.interface.prompt import Prompt
    from xla_backend.interface.requests import SpeechRequest, TextRequest
    from xla_backend.interface.results import (
        GenerationResult,
        ModelInfo,
        TranscribedWindow,
        Transcription,
    )


class Answering(Protocol):
    """What the API asks of an engine; see `ServedBackend`, which has more."""

    @property
    def submit(self) -> Callable[[TextRequest], AnyStream[str, GenerationResult]]:
        """Takes a request for a text."""

    @property
    def submit_speech(
        self,
    ) -> Callable[[SpeechRequest], AnyStream[TranscribedWindow, Transcription]]:
        """Takes a request for the text of a recording, a file's path."""

    @property
    def identity(self) -> Callable[[str], str]:
        """A name for a model's weights and settings."""


class Turn(Protocol):
    """A run's place in the server's waiting line."""

    @abstractmethod
    async def wait(self) -> float:
        """Waits until the run may begin; returns the seconds that it waited for others."""

    @abstractmethod
    def leave(self) -> None:
        """Gives up the place, or says that the run is over; may be called twice."""


class Host(Protocol):
    """The server that offers the API.

    Attributes:
        backend: the engine.
        new_tokens: most tokens that one run may write.
        audio_s: longest recording, in seconds.
        at_once: most runs that have their turn at the same time.
    """

    backend: Answering
    at_once: int
    new_tokens: int
    audio_s: float

    @abstractmethod
    def models(self) -> list[ModelInfo]:
        """The models that may be used, for text and for speech."""

    def address(self, request: Request) -> str:
        """Where a request comes from."""
        return request.client.host if request.client else ""

    @abstractmethod
    def check(
        self, model: str, prompt: Prompt = "", options: GenerationOptions | None = None
    ) -> None:
        """Refuses what is not offered here, even if the engine could do it.

        Raises:
            ModelUnavailable: the model is not offered.
            InvalidRequest: a limit is exceeded.
        """

    @abstractmethod
    def enter(self, request: Request, runs: int, alone: bool = False) -> Sequence[Turn]:
        """Takes places in the waiting line; called on the event loop.

        Args:
            request: the HTTP request, which says whose they are.
            runs: how many.
            alone: whether nothing else may run meanwhile.

        Raises:
            NoRoom: too many wait.
        """
