"""What an answer's latency was, in a sentence that a person can quote: copied, or as a picture.

Knows how the figures read together. The page's script copies the sentence and draws the picture.
"""

from datetime import UTC, datetime

import htpy as h

from playground.ui.quantities import rate, seconds
from xla_backend import CacheOutcome, GenerationResult

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


def quote(result: GenerationResult, about: str) -> h.Node:
    """Buttons that copy the sentence, copy it as Markdown, and save it as a picture.

    Args:
        about: what was measured: model, machine and date, on one line.
    """
    if not (sentence := latency(result)):
        return None
    return h.span(
        ".quote", data_sentence=sentence, data_about=about, data_outcome=result.cache.value
    )[
        [
            h.button(".file", data_quote=kind, type="button", title=hint)[label]
            for kind, label, hint in (
                ("text", "Copy in words", sentence),
                ("markdown", "Copy as Markdown", "For a chat or an issue"),
                ("picture", "Save as picture", "A PNG for a slide"),
            )
        ]
    ]
