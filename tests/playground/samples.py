"""Made-up results for tests of what writes HTML: plain values, no engine."""

from typing import Any

from xla_backend import (
    CacheEntry,
    CacheKey,
    CacheOutcome,
    FirstCall,
    FunctionComparison,
    FunctionRequest,
    GenerationOptions,
    GenerationResult,
    Timing,
    Token,
    TranscribedWindow,
    Transcription,
    Way,
)
from xla_backend.interface.function_comparison import CallPhases, WayResult
from xla_backend.interface.timing import summarize

KEY = CacheKey(padded_length=16, num_beams=1, max_new_tokens=32)
FIRST_CALL = FirstCall(CacheOutcome.MISS, trace_s=1.0, compile_s=2.0, run_s=0.2, made_at=1.764e9)
SPEECH_TIMING = Timing(
    tokenize_s=0.04, prefill_s=0.1, decode_s=0.05, detokenize_s=0.01, total_s=0.2
)
NO_PHASES = CallPhases(0.0, 0.0, 0.0)
INJECTIONS = (
    "${7*7}",
    "{{7*7}}",
    "<img src=x onerror=alert(1)>",
    "</span><script>alert(1)</script>",
    '" autofocus onfocus=alert(1) x="',
    "'; alert(1) //",
    "<!-- &lt;b&gt; -->",
)


def result(**changes: Any) -> GenerationResult:
    """A cached call: 5 prompt tokens, 3 new ones, 0.1 s of running."""
    values: dict[str, Any] = {
        "model": "gpt2-stories",
        "text": " there was a fox",
        "tokens": tuple(Token(i, text, -0.5) for i, text in enumerate((" there", " was", " a"))),
        "prompt_tokens": 5,
        "key": KEY,
        "requested_key": KEY,
        "cache": CacheOutcome.HIT,
        "finish": "length",
        "timing": Timing(
            tokenize_s=0.001, prefill_s=0.02, decode_s=0.08, detokenize_s=0.001, total_s=0.102
        ),
        "since_first_token_s": 0.08,
        "first_call": FIRST_CALL,
        "options": GenerationOptions(),
    }
    return GenerationResult(**{**values, **changes})


def miss(**changes: Any) -> GenerationResult:
    """A first call of the same request."""
    timing = Timing(
        trace_s=1.0, compile_s=2.0, prefill_s=0.1, decode_s=0.1, total_s=3.2, tokenize_s=0.001
    )
    values = {"cache": CacheOutcome.MISS, "timing": timing, "since_first_token_s": 0.1}
    return result(**{**values, **changes})


def entry(**changes: Any) -> CacheEntry:
    """A compiled function that served three calls since its first."""
    values: dict[str, Any] = {
        "model": "gpt2-stories",
        "key": KEY,
        "first_call": FIRST_CALL,
        "hits": 3,
        "cached": summarize([0.09, 0.1, 0.11]),
    }
    return CacheEntry(**{**values, **changes})


def window(**changes: Any) -> TranscribedWindow:
    """One window that ran for 0.15 s on a function that was there."""
    values: dict[str, Any] = {
        "start_s": 0.0,
        "end_s": 2.4,
        "text": "turn it off",
        "new_tokens": 4,
        "cache": CacheOutcome.HIT,
        "timing": SPEECH_TIMING,
    }
    return TranscribedWindow(**{**values, **changes})


def transcription(**changes: Any) -> Transcription:
    """A recording of 2.4 s, one window, on a function that was there: 0.2 s of work."""
    key = CacheKey(padded_length=200, num_beams=1, max_new_tokens=64)
    values: dict[str, Any] = {
        **{name: getattr(result(), name) for name in ("tokens", "cache", "first_call", "options")},
        "model": "whisper-commands",
        "text": "turn it off",
        "prompt_tokens": 120,
        "key": key,
        "requested_key": key,
        "finish": "eos",
        "timing": SPEECH_TIMING,
        "audio_s": 2.4,
        "windows": (window(),),
    }
    return Transcription(**{**values, **changes})


def comparison(
    xla_s: float = 0.0002,
    cache: CacheOutcome = CacheOutcome.MISS,
    difference: float = 3e-8,
    request: FunctionRequest = FunctionRequest("dense", 5),  # noqa: B008 (immutable)
    queue_s: float = 0.0,
) -> FunctionComparison:
    """Eager at 1 ms a call, tf.function at 0.5 ms; first calls of 2 ms, 50 ms and 0.5 s."""

    def result(way: Way, first: CallPhases, later_s: float, differs: float = 0.0) -> WayResult:
        cached = summarize([later_s] * 200)
        assert cached is not None
        return WayResult(way, None if way is Way.EAGER else cache, first, cached, differs)

    results = (
        result(Way.EAGER, CallPhases(0.0, 0.0, 0.002), 0.001),
        result(Way.GRAPH, CallPhases(0.02, 0.0, 0.03), 0.0005),
        result(Way.XLA, CallPhases(0.1, 0.39, 0.01), xla_s, difference),
    )
    return FunctionComparison(request, results, queue_s)
