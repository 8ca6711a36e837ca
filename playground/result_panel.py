"""The result of a run, as HTML: the text, the verdict, the figures, the phases and the shape.

Knows how a `GenerationResult` reads for somebody who has never heard of tracing. Must not know
components or events.
"""

from __future__ import annotations

from dataclasses import dataclass

from playground import quantities
from playground.markup import escape
from playground.outcomes import MEANING, badge
from xla_backend import CacheKey, CacheOutcome, GenerationResult, Prediction, Timing
from xla_backend.timing import PHASES

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
_MOST_CELLS = 160


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
    return _report(
        "",
        "Press Generate twice: the first call of a shape compiles, the second one only runs.",
        '<div class="explain">'
        "<p>XLA compiles a function for one exact <strong>shape</strong>: this many prompt tokens, "
        "this many beams, this many new tokens. The first time a shape is used, XLA must compile "
        "it. Afterwards it is kept.</p>"
        '<div class="versus drawing" aria-hidden="true">'
        '<div class="versus-row"><span>First call</span><span class="versus-track">'
        '<i class="phase-trace" style="width:30%"><em>trace</em></i>'
        '<i class="phase-compile" style="width:50%"><em>compile</em></i>'
        '<i class="phase-decode" style="width:14%"><em>run</em></i></span></div>'
        '<div class="versus-row"><span>Later calls</span><span class="versus-track">'
        '<i class="phase-decode" style="width:14%"><em>run</em></i></span></div></div>'
        "<p>Prompts are <strong>padded</strong> to a few fixed lengths, so that different prompts "
        "share one compiled function. Padding never changes the text.</p>"
        '<div class="slots" aria-hidden="true">'
        + _cells([("padding", 11, ""), ("prompt", 5, ""), ("room", 16, "")])
        + '</div><ul class="legend" aria-hidden="true">'
        '<li><i class="slot slot-padding"></i><span>padding</span></li>'
        '<li><i class="slot slot-prompt"></i><span>prompt</span></li>'
        '<li><i class="slot slot-room"></i><span>room for new tokens</span></li></ul></div>',
    )


def waiting_report(prediction: Prediction | None, ahead: int) -> str:
    """The report while the request waits, compiles or runs: what is known beforehand."""
    if ahead:
        what = f"Waiting for {quantities.count(ahead, 'other run')} to finish."
    elif prediction and prediction.outcome in (CacheOutcome.HIT, CacheOutcome.REUSED):
        what = "The function for this shape is there. Running it."
    else:
        what = "Making the function for this shape. The line at the top says how far it is."
    body = '<div class="bar working"></div>'
    if prediction:
        key = prediction.key
        parts = [
            ("padding", max(0, key.padded_length - prediction.prompt_tokens), "padding"),
            ("prompt", prediction.prompt_tokens, "prompt"),
            ("room", key.max_new_tokens, "room for new tokens"),
        ]
        body += _slots(_shape_caption(key), parts)
    return _report('<span class="badge outcome-none">RUNNING</span>', what, body, busy=True)


def report(shown: Shown) -> str:
    """Verdict, figures, phases and shape of a finished run."""
    result = shown.result
    timing = result.timing
    figures = [
        ("Total", quantities.seconds(timing.total_s)),
        ("Speed", f"{quantities.rate(result.tokens_per_second)} <small>tokens/s</small>"),
        ("First token", quantities.seconds(timing.first_token_s)),
    ]
    return _report(
        badge(result.cache),
        MEANING[result.cache],
        _figures(figures)
        + _comparison(result)
        + _phases(timing)
        + _result_slots(result)
        + _remarks(shown),
    )


def _report(badge_html: str, verdict: str, body: str, busy: bool = False) -> str:
    return (
        f'<section class="report{" busy" if busy else ""}" aria-label="What this run cost">'
        f'<div class="verdict">{badge_html}<p role="status">{verdict}</p></div>{body}</section>'
    )


def _figures(figures: list[tuple[str, str]]) -> str:
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{cells}</dl>'


def _faster(ratio: str, than: str) -> str:
    return f'<p class="faster"><strong>{ratio}</strong> {than}</p>'


def _comparison(result: GenerationResult) -> str:
    """The first call and a cached call of one shape, drawn on one scale."""
    run_s = result.timing.run_s
    first = result.first_call
    speedup = result.speedup
    if speedup is None:
        one_time = result.timing.trace_s + result.timing.compile_s
        sentence = _faster(
            quantities.seconds(one_time), "of this went into making the function, once"
        )
        rows = [("This call", one_time, run_s), ("Running alone", 0.0, run_s)]
    else:
        sentence = _faster(
            f"{quantities.times(speedup)} faster", "than the first call of this shape"
        )
        rows = [
            ("First call", first.trace_s + first.compile_s, first.run_s),
            ("This call", 0.0, run_s),
        ]
    scale = max(once + run for _, once, run in rows) or 1.0
    bars = "".join(_comparison_row(name, once, run, scale) for name, once, run in rows)
    return f'{sentence}<div class="versus">{bars}</div>'


def _comparison_row(name: str, once_s: float, run_s: float, scale_s: float) -> str:
    total = quantities.seconds(once_s + run_s)
    return (
        f'<div class="versus-row"><span>{name}</span>'
        f'<span class="versus-track" role="img" aria-label="{name}: {total}">'
        f'<i class="phase-compile" style="width:{once_s / scale_s:.2%}"></i>'
        f'<i class="phase-decode" style="width:{run_s / scale_s:.2%}"></i></span>'
        f"<b>{total}</b></div>"
    )


def _phases(timing: Timing) -> str:
    seconds = {name: getattr(timing, f"{name}_s") for name in PHASES}
    whole = sum(seconds.values()) or 1.0
    label = ", ".join(
        f"{PHASE_NAMES[name]} {quantities.seconds(value)}" for name, value in seconds.items()
    )
    segments = "".join(
        f'<i class="{_phase_class(name)}" style="width:{value / whole:.2%}"></i>'
        for name, value in seconds.items()
        if value > 0
    )
    legend = "".join(
        f'<li title="{_PHASE_HINTS[name]}"><i class="{_phase_class(name)}"></i>'
        f"<span>{PHASE_NAMES[name]}</span>"
        f"<b>{quantities.seconds(value) if value > 0 else '–'}</b></li>"
        for name, value in seconds.items()
    )
    return (
        '<figure class="phases"><figcaption>Where the time of this call went</figcaption>'
        f'<div class="bar" role="img" aria-label="{label}">{segments}</div>'
        f'<ul class="legend">{legend}</ul></figure>'
    )


def _phase_class(name: str) -> str:
    return f"phase-{name.replace('_', '-')}"


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
    return _slots(caption, parts)


def _shape_caption(key: CacheKey) -> str:
    beams = quantities.count(key.num_beams, "beam")
    return (
        f"The compiled shape: {key.padded_length} prompt slots, {beams}, "
        f"{key.max_new_tokens} new slots."
    )


def _slots(caption: str, parts: list[tuple[str, int, str]]) -> str:
    """The compiled shape, slot by slot; in proportion when there are too many to draw."""
    slots = sum(number for _, number, _ in parts)
    strip = _cells(parts) if slots <= _MOST_CELLS else _proportions(parts, slots)
    legend = "".join(
        f'<li><i class="slot slot-{name}"></i><b>{number}</b><span>{label}</span></li>'
        for name, number, label in parts
    )
    label = ", ".join(f"{number} {label}" for _, number, label in parts)
    return (
        f'<figure class="shape"><figcaption>{caption}</figcaption>'
        f'<div class="slots" role="img" aria-label="{label}">{strip}</div>'
        f'<ul class="legend">{legend}</ul></figure>'
    )


def _cells(parts: list[tuple[str, int, str]]) -> str:
    return "".join(f'<i class="slot slot-{name}"></i>' * number for name, number, _ in parts)


def _proportions(parts: list[tuple[str, int, str]], slots: int) -> str:
    return "".join(
        f'<i class="slot wide slot-{name}" style="width:{number / slots:.2%}"></i>'
        for name, number, _ in parts
        if number
    )


def _remarks(shown: Shown) -> str:
    """What a careful reader would ask: how it ended, and what is not in the total."""
    result = shown.result
    ending = {
        "eos": "The model ended its text.",
        "length": "The text ended at max new tokens.",
        "stopped": "You stopped it; what was written is kept.",
    }[result.finish]
    outside = []
    if result.load_s > 0.05:
        outside.append(f"loading the model ({quantities.seconds(result.load_s)})")
    if shown.other_s > 0.5:
        outside.append(f"waiting for the engine to start ({quantities.seconds(shown.other_s)})")
    beyond = f" Not in the total: {' and '.join(outside)}." if outside else ""
    return f'<p class="remarks">{ending}{beyond}</p>'
