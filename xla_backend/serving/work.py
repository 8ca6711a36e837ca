"""`Work`: a request to an engine, as it travels to a replica; `Reply`: what comes back.

Knows the shape of both. Must not know who sends or serves them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xla_backend.audio import DEFAULT_MAX_SECONDS, AudioInput
from xla_backend.options import GenerationOptions

Reply = tuple[str, Any]
"""(kind, value). Any number of ("chunk", piece), then one ("result", value), ("dropped", None) for
what was stopped before the engine took it up, or ("error", (class name in `errors`, sentence))."""


@dataclass(frozen=True)
class Work:
    """A request to an engine.

    Attributes:
        id: the client's name for it, with which it can be stopped.
        is_chunked: whether the client wants the pieces as they come.
        options: None, for the model's own choice, only where there is a recording.
        recording: None where there is a prompt.
    """

    id: str
    model: str
    prompt: str = ""
    options: GenerationOptions | None = field(default_factory=GenerationOptions)
    is_chunked: bool = True
    exact_key: bool = False
    recording: AudioInput | None = None
    language: str | None = None
    max_seconds: float = DEFAULT_MAX_SECONDS
