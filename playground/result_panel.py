"""The result of a run, as HTML: the text, the verdict, the figures, the phases and the shape.

Knows how a `GenerationResult` reads for somebody who has never heard of tracing. Must not know
components or events.
"""

from __future__ import annotations

from dataclasses import dataclass

from playground import quantities, report_parts
from playground.markup import escape
from playground.outcomes import MEANING, badge
from xla_backend import CacheKey, GenerationResult, Prediction

PHASE_NAMES = {
    "queue": "Queue",
    "tokenize": "Tokenize",
    "trace": "Trace",
    "compile": "Compile",
    "first_token": "First token",
    "decode": "Decode",
    "detokenize": "Detokenize",
}
_PHASE_HINTS = {
    "queue": "waiting for other requests",
    "tokenize": "text to token numbers",
    "trace": "TensorFlow records the computation as a graph",
    "compile": "XLA turns the graph into machine code",
    "first_token": "the prompt runs through the model",
    "decode": "all further tokens",
    "detokenize": "token numbers to text",
}


@dataclass(frozen=True)
class Shown:
    """What the result area shows.

    Attributes:
        prompt: what was asked.
        result: what the engine answered.
        other_s: seconds that the visitor waited beyond `result.timing` and `result.load_s`: the
            engine was still starting.
    """

    prompt: str
    result: GenerationResult
    other_s: float = 0.0


def story(prompt: str, text: str, writing: bool = False) -> str:
    """Prompt and continuation, in a box of fixed height that stays scrolled to its end."""
    caret = '<span class="caret" aria-hidden="true"></span>' if writing else ""
    return (
        f'<div class="story" tabindex="0" role="region" aria-label="Generated text"'
        f' aria-busy="{str(writing).lower()}"><div class="story-text" dir="auto">'
        f'<span class="story-prompt">{escape(prompt)}</span>'
        f'<span class="story-new">{escape(text)}</span>{caret}</div></div>'
    )


def empty_story() -> str:
    """The box before the first run."""
    return (
        '<div class="story" role="region" aria-label="Generated text"><div class="story-text">'
        '<span class="story-prompt">The text appears here, word by word.</span></div></div>'
    )


def empty_report() -> str:
    """The report before the first run: a drawing of what there will be to see, without numbers."""
    return report_parts.frame(
        "",
        "Press Generate twice: the first call of a shape compiles, the second one only runs.",
        '<div class="explain">'
        "<p>XLA compiles a function for one exact <strong>shape</strong>: this many prompt tokens, "
        "this many beams, this many new tokens. The first time a shape is used, XLA must compile "
        "it. Afterwards it is kept.</p>"
        + report_parts.drawing()
        + "<p>Prompts are <strong>padded</strong> to a few fixed lengths, so that different "
        "prompts share one compiled function. Padding never changes the text.</p>"
        '<div class="slots" aria-hidden="true">'
        + report_parts.cells([("padding", 11, ""), ("prompt", 5, ""), ("room", 16, "")])
        + '</div><ul class="legend" aria-hidden="true">'
        '<li><i class="slot slot-padding"></i><span>padding</span></li>'
        '<li><i class="slot slot-prompt"></i><span>prompt</span></li>'
        '<li><i class="slot slot-room"></i><span>room for new tokens</span></li></ul></div>',
    )


def waiting_report(prediction: Prediction | None, ahead: int) -> str:
    """The report while the request waits, compiles or runs: what is known beforehand."""
    body = ""
    if prediction:
        key = prediction.key
        parts = [
            ("padding", max(0, key.padded_length - prediction.prompt_tokens), "padding"),
            ("prompt", prediction.prompt_tokens, "prompt"),
            ("room", key.max_new_tokens, "room for new tokens"),
        ]
        body = report_parts.slots(_shape_caption(key), parts)
    return report_parts.waiting(prediction.outcome if prediction else None, ahead, body)


def report(shown: Shown) -> str:
    """Verdict, figures, phases and shape of a finished run."""
    result = shown.result
    timing = result.timing
    figures = [
        ("Total", quantities.seconds(timing.total_s)),
        ("Speed", f"{quantities.rate(result.tokens_per_second)} <small>tokens/s</small>"),
        ("First token", quantities.seconds(timing.first_token_s)),
    ]
    return report_parts.frame(
        badge(result.cache),
        MEANING[result.cache],
        report_parts.figures(figures)
        + _comparison(result)
        + report_parts.phases(timing, PHASE_NAMES, _PHASE_HINTS)
        + _result_slots(result)
        + _remarks(shown),
    )


def _comparison(result: GenerationResult) -> str:
    """The first call and a cached call of one shape, drawn on one scale."""
    run_s = result.timing.run_s
    first = result.first_call
    speedup = result.speedup
    if speedup is None:
        one_time = result.timing.trace_s + result.timing.compile_s
        sentence = report_parts.faster(
            quantities.seconds(one_time), "of this went into making the function, once"
        )
        rows = [("This call", one_time, run_s), ("Running alone", 0.0, run_s)]
    else:
        sentence = report_parts.faster(
            f"{quantities.times(speedup)} faster", "than the first call of this shape"
        )
        rows = [
            ("First call", first.trace_s + first.compile_s, first.run_s),
            ("This call", 0.0, run_s),
        ]
    return sentence + report_parts.comparison(rows)


def _result_slots(result: GenerationResult) -> str:
    key = result.key
    parts = [
        ("padding", max(0, key.padded_length - result.prompt_tokens), "padding"),
        ("prompt", result.prompt_tokens, "prompt"),
        ("new", result.new_tokens, "new"),
        ("room", max(0, key.max_new_tokens - result.new_tokens), "unused"),
    ]
    caption = _shape_caption(key)
    if key != result.requested_key:
        caption += f" The request alone would have needed {escape(result.requested_key)}."
    return report_parts.slots(caption, parts)


def _shape_caption(key: CacheKey) -> str:
    beams = quantities.count(key.num_beams, "beam")
    return (
        f"The compiled shape: {key.padded_length} prompt slots, {beams}, "
        f"{key.max_new_tokens} new slots."
    )


def _remarks(shown: Shown) -> str:
    """What a careful reader would ask: how it ended, and what is not in the total."""
    result = shown.result
    ending = {
        "eos": "The model ended its text.",
        "length": "The text ended at max new tokens.",
        "stopped": "You stopped it; what was written is kept.",
    }[result.finish]
    beyond = report_parts.not_in_total(result.load_s, shown.other_s)
    return f'<p class="remarks">{ending}{beyond}</p>'
