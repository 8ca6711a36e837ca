"""What an answer's latency was, in sentences that a person can quote.

Knows how the figures read together. The page's script copies the sentence.
"""

from datetime import UTC, datetime

import htpy as h

from playground.context import machine
from playground.ui.quantities import count, rate, seconds
from playground.ui.wording import model_name
from xla_backend import CacheOutcome, GenerationResult
from xla_backend.interface.results import PrefixMiss

_MADE = {
    CacheOutcome.MISS: "of this was tracing and compiling, once",
    CacheOutcome.DISK: "of this was restoring the function from disk",
}


def latency(result: GenerationResult) -> str:
    """The sentence; empty where nothing was written."""
    if result.ttft_s is None:
        return ""
    first = f"First token after {seconds(result.ttft_s)}"
    if result.cached_tokens:
        first += (
            f" ({result.cached_tokens:,} of {result.prompt_tokens:,} prompt tokens were cached)"
        )
    if result.tokens_per_second is not None:
        first += f", then {rate(result.tokens_per_second)} tokens/s"
    if made := _MADE.get(result.cache):
        return f"{first}; {seconds(result.timing.trace_s + result.timing.compile_s)} {made}."
    made_at = result.first_call.made_at
    when = f" on {datetime.fromtimestamp(made_at, UTC):%-d %b %Y}" if made_at else ""
    once = "restoring" if result.first_call.outcome is CacheOutcome.DISK else "compiling"
    return f"{first}; {once} this shape took {seconds(result.first_call.once_s)}{when}."


def read_again(miss: PrefixMiss | None) -> str:
    """Why a part of a prompt was read again, and what that cost; empty where nothing was."""
    if miss is None or not miss.tokens:
        return ""
    took = f", about {seconds(miss.seconds)}" if miss.seconds else ""
    return f"{count(miss.tokens, 'token')} read again{took}. {miss.reason}"


def about(result: GenerationResult, ended_s: float) -> str:
    """What was measured: model, machine and date, on one line."""
    at = datetime.fromtimestamp(ended_s, UTC)
    return f"{model_name(result.model)} on {machine.summary()}, {at:%Y-%m-%d}"


def quote(sentence: str, about: str) -> h.Node:
    """A button that copies the sentence with what was measured."""
    if not sentence:
        return None
    return h.button(
        ".file.quote", data_quote=f"{sentence}\n{about}", type="button", title=sentence
    )["Copy in words"]
