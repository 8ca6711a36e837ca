"""`Host`: what the API needs from its server, and which model a request means.

Knows what the server decides: the models and the limits. Must not know the protocol.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from xla_backend.interface.errors import ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.interface.backend import EventStream
    from xla_backend.interface.options import GenerationOptions
    from xla_backend.interface.prompt import Prompt
    from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
    from xla_backend.interface.results import (
        GenerationResult,
        ModelInfo,
        TranscribedWindow,
        Transcription,
    )


class Answering(Protocol):
    """What the API needs from an engine; a part of `SharedBackend`."""

    def prepare(self, request: TextRequest) -> Prepared:
        """Checks and encodes a text request; a Hub model must be loaded."""

    def submit(self, request: TextRequest | Prepared) -> EventStream[str, GenerationResult]:
        """Starts a text request."""

    def submit_speech(
        self, request: SpeechRequest
    ) -> EventStream[TranscribedWindow, Transcription]:
        """Starts a transcription; the recording is a file's path."""

    def tokenizer(self, model: str) -> Tokenizer:
        """The tokenizer of a model; a Hub model must be loaded."""

    def identity(self, model: str) -> str:
        """A hash of a model's weights and settings."""


class Host(Protocol):
    """The server that offers the API.

    Attributes:
        backend: the engine.
        new_tokens: bound on the new tokens of one run.
        audio_s: longest recording, in seconds.
    """

    backend: Answering
    new_tokens: int
    audio_s: float

    @abstractmethod
    def models(self) -> list[ModelInfo]:
        """The offered models, for text and for speech."""

    def health(self) -> dict[str, Any]:
        """The answer of /health, with 503 if `status` is not "ok"."""
        return {"status": "ok"}

    def running(self) -> int:
        """Number of requests under way."""
        return 0

    def address(self, request: Request) -> str:
        """The client's address."""
        return request.client.host if request.client else ""

    @abstractmethod
    def check(
        self, model: str, prompt: Prompt = "", options: GenerationOptions | None = None
    ) -> None:
        """Refuses requests beyond what this server offers.

        Raises:
            ModelUnavailable: the model is not offered.
            InvalidRequest: a limit is exceeded.
        """


def public_name(info: ModelInfo, models: Sequence[ModelInfo]) -> str:
    """A model's name for callers: of a folder, as much of its path's end as no other model has."""
    if info.source != "folder":
        return info.name
    parts = PurePath(info.name).parts
    others = [PurePath(other.name).parts for other in models if other.name != info.name]
    sizes = range(1, len(parts))
    ends = (parts[-size:] for size in sizes if all(o[-size:] != parts[-size:] for o in others))
    return "/".join(next(ends, parts))


def without_paths(text: str, models: Sequence[ModelInfo]) -> str:
    """A sentence with the names of folders, as callers know them, instead of their paths."""
    for info in models:
        if info.source == "folder":
            text = text.replace(info.name, public_name(info, models))
    return text


def meant(name: str | None, models: Sequence[ModelInfo], fits: Callable[[ModelInfo], bool]) -> str:
    """The model that a request means.

    Args:
        name: from the request, with or without the owner on the Hub. Without a name, the first
            model that fits.
        models: the offered models.
        fits: whether a model can serve such a request.

    Returns:
        The model's name; `name` itself if there is no such model, which is refused later.

    Raises:
        ModelUnavailable: there is no name and no model.
    """
    if not name:
        here = [info for info in models if info.source != "hub" or info.on_disk]
        first = next(iter((*filter(fits, here), *here, *models)), None)
        if first is None:
            raise ModelUnavailable("There is no model here.")
        return first.name
    for info in models:
        if name in (info.name, public_name(info, models)):
            return info.name
    owner, _, short = name.lower().rpartition("/")
    alike = []
    for info in models:
        other, _, last = info.name.lower().rpartition("/")
        is_same = not owner or not other or owner == other or info.source == "folder"
        alike += [info.name] if last == short and is_same else []
    return alike[0] if len(alike) == 1 else name
