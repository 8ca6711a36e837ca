"""`Work`: a request to an engine, as it travels to a replica; `Reply`: what comes back.

Knows the shape of both. Must not know who sends or serves them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xla_backend.interface.options import DEFAULT_MAX_SECONDS, AudioInput, GenerationOptions
from xla_backend.interface.prompt import Prompt

Reply = tuple[str, Any]
"""(kind, value). Any number of ("chunk", chunk), then one ("result", value), ("dropped", None) for
what was stopped before the engine took it up, or ("error", (class name in `errors`, sentence))."""


@dataclass(frozen=True)
class Work:
    """A request to an engine.

    Attributes:
        id: the client's name for it, with which it can be stopped.
        is_streaming: whether the client wants the chunks as they come.
        options: None, for the model's own choice, only where there is a recording.
        exact_key, cache_salt: see `Backend.generate`.
        recording: None where there is a prompt.
    """

    id: str
    model: str
    prompt: Prompt = ""
    options: GenerationOptions | None = field(default_factory=GenerationOptions)
    is_streaming: bool = True
    exact_key: bool = False
    cache_salt: str = ""
    recording: AudioInput | None = None
    language: str | None = None
    max_seconds: float = DEFAULT_MAX_SECONDS
