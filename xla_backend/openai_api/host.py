"""`Host`: what the API needs of the server that offers it, and which model a request means.

Knows who decides what: the server says which models there are, what may be asked and who waits.
Must not know the protocol.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from xla_backend.interface.errors import ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from xla_backend.checkpoints.tokenization import Tokenizer
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
    def tokenizer(self) -> Callable[[str], Tokenizer]:
        """The tokenizer of a model, which for one of the Hub has to be loaded."""

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

    def health(self) -> dict[str, Any]:
        """What /health answers; with 503 where `status` is not "ok"."""
        return {"status": "ok"}

    def running(self) -> int:
        """Requests that have their turn."""
        return 0

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


def meant(name: str | None, models: Sequence[ModelInfo], fits: Callable[[ModelInfo], bool]) -> str:
    """The model that a request means.

    Args:
        name: as the request has it. Its owner on the Hub can be left out, or be there for a model
            that has none here. Without a name, the first model here that fits.
        models: all that may be used.
        fits: whether a model can serve such a request.

    Returns:
        Its name; `name` itself where there is none, which is refused later.

    Raises:
        ModelUnavailable: there is no name and no model.
    """
    if not name:
        here = [info for info in models if info.source != "hub" or info.on_disk]
        first = next(iter((*filter(fits, here), *here, *models)), None)
        if first is None:
            raise ModelUnavailable("There is no model here.")
        return first.name
    if any(info.name == name for info in models):
        return name
    owner, _, short = name.lower().rpartition("/")
    alike = []
    for info in models:
        other, _, last = info.name.lower().rpartition("/")
        is_same = not owner or not other or owner == other or info.source == "folder"
        alike += [info.name] if last == short and is_same else []
    return alike[0] if len(alike) == 1 else name
