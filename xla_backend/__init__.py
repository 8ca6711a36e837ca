"""Text generation with XLA-compiled functions, their cache and their timings.

`Backend` runs the engine in this process, `BackendProcess` in a child process; `AnyBackend` is
their interface. Importing this package does not import TensorFlow; the first use of `Backend` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xla_backend.interface.backend import AnyBackend, AnyStream, AnyTextStream, SharedBackend
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.errors import (
    BackendError,
    EngineStopped,
    InvalidRequest,
    ModelUnavailable,
    NoRoom,
    OutOfMemory,
)
from xla_backend.interface.function_comparison import (
    FunctionComparison,
    FunctionRequest,
    StoredKey,
    Way,
)
from xla_backend.interface.grammar import Grammar
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.prompt import Message, Prompt, TokenIds, question
from xla_backend.interface.results import (
    CacheEntry,
    CacheOutcome,
    EngineStatus,
    FirstCall,
    GenerationResult,
    ModelInfo,
    Prediction,
    Signature,
    Token,
    TopLogprob,
    TranscribedWindow,
    Transcription,
)
from xla_backend.interface.timing import Statistics, Timing

if TYPE_CHECKING:
    from xla_backend.compilation.any_function import CallResult, CallTiming, CompiledFunction, jit
    from xla_backend.engine.backend import Backend
    from xla_backend.engine.text import TextStream
    from xla_backend.process.backend_process import BackendProcess

__version__ = "0.3.0"

_LAZY = {
    "Backend": "xla_backend.engine.backend",
    "TextStream": "xla_backend.engine.text",
    "BackendProcess": "xla_backend.process.backend_process",
    "CallResult": "xla_backend.compilation.any_function",
    "CallTiming": "xla_backend.compilation.any_function",
    "CompiledFunction": "xla_backend.compilation.any_function",
    "jit": "xla_backend.compilation.any_function",
}

__all__ = [
    "AnyBackend",
    "AnyStream",
    "AnyTextStream",
    "Backend",
    "BackendError",
    "BackendProcess",
    "BucketRules",
    "CacheEntry",
    "CacheKey",
    "CacheOutcome",
    "CallResult",
    "CallTiming",
    "CompiledFunction",
    "EngineStatus",
    "EngineStopped",
    "FirstCall",
    "FunctionComparison",
    "FunctionRequest",
    "GenerationOptions",
    "GenerationResult",
    "Grammar",
    "InvalidRequest",
    "Message",
    "ModelInfo",
    "ModelUnavailable",
    "NoRoom",
    "OutOfMemory",
    "Prediction",
    "Prompt",
    "SharedBackend",
    "Signature",
    "Statistics",
    "StoredKey",
    "TextStream",
    "Timing",
    "Token",
    "TokenIds",
    "TopLogprob",
    "TranscribedWindow",
    "Transcription",
    "Way",
    "jit",
    "question",
]


def __getattr__(name: str) -> Any:
    """Imports the engine's classes when they are first used."""
    if name in _LAZY:
        import importlib

        from xla_backend.compilation.startup import captured_native_stderr

        with captured_native_stderr():  # TensorFlow's import prints
            return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
