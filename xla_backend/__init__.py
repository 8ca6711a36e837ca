"""Text generation through XLA-compiled functions that are kept, timed and accounted for.

`Backend` runs the engine in this process, `BackendProcess` in a child process with the same
methods. Importing this package does not import TensorFlow; the first use of `Backend` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xla_backend.buckets import BucketRules, CacheKey
from xla_backend.errors import (
    BackendError,
    EngineStopped,
    InvalidRequest,
    ModelUnavailable,
    OutOfMemory,
)
from xla_backend.function_comparison import (
    FunctionComparison,
    FunctionRequest,
    KeptShape,
    Way,
)
from xla_backend.options import GenerationOptions
from xla_backend.results import (
    CacheEntry,
    CacheOutcome,
    EngineStatus,
    FirstCall,
    GenerationResult,
    LikelyToken,
    ModelInfo,
    Prediction,
    Signature,
    Token,
    TranscribedWindow,
    Transcription,
)
from xla_backend.timing import Statistics, Timing

if TYPE_CHECKING:
    from xla_backend.any_function import CallResult, CallTiming, CompiledFunction, jit
    from xla_backend.backend import Backend, TextStream
    from xla_backend.process import BackendProcess

__version__ = "0.1.0"

_LAZY = {
    "Backend": "xla_backend.backend",
    "TextStream": "xla_backend.backend",
    "BackendProcess": "xla_backend.process",
    "CallResult": "xla_backend.any_function",
    "CallTiming": "xla_backend.any_function",
    "CompiledFunction": "xla_backend.any_function",
    "jit": "xla_backend.any_function",
}

__all__ = [
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
    "InvalidRequest",
    "KeptShape",
    "LikelyToken",
    "ModelInfo",
    "ModelUnavailable",
    "OutOfMemory",
    "Prediction",
    "Signature",
    "Statistics",
    "TextStream",
    "Timing",
    "Token",
    "TranscribedWindow",
    "Transcription",
    "Way",
    "jit",
]


def __getattr__(name: str) -> Any:
    """Imports the engine's classes when they are first asked for."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
