"""The pieces that every report is made of: frame, figures, comparison, phases and slots, as HTML.

Knows how measured times and compiled shapes are drawn. Must not know whose result it is: a text's
is `generate.result_panel`'s, a recording's `speech.panel`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from playground.ui import quantities
from playground.ui.markup import escape
from playground.ui.outcomes import no_badge
from playground.ui.prediction_line import expected
from playground.ui.quantities import elapsed, seconds
from xla_backend import CacheOutcome, FirstCall, Prediction, Timing
from xla_backend.interface import trace
from xla_backend.interface.timing import PHASES, RESTORING
from xla_backend.interface.trace import TracedRequest

_MAX_CELLS = 160

PHASE_NAMES = {
    "queue": "Queue",
    "tokenize": "Tokenize",
    "trace": "Trace",
    "compile": "Compile",
    "prefill": "Prefill",
    "decode": "Decode",
    "detokenize": "Detokenize",
}
"""The phases of a text's timing, as the page calls them."""
_RESTORING_HINTS = {
    "trace": "the graph is read from disk",
    "compile": "machine code is read from disk",
}
_SHARED_TRACE = "Trace, shared"
_MIN_WAITING_S, _MIN_WAITING = 0.1, 0.1
"""Waiting is worth telling when it is so long, and such a part of the whole."""
_MIN_TRACE_S = 0.001
"""Tracing takes longer than that: a graph that is there in less had been traced before."""


def frame(badge_html: str, verdict: str, body: str, busy: bool = False) -> str:
    """The whole report: the verdict on top, the rest below it."""
    return (
        f'<section class="report{" busy" if busy else ""}" aria-label="What this run cost">'
        f'<div class="verdict">{badge_html}<p role="status">{verdict}</p></div>{body}</section>'
    )


def waiting(prediction: Prediction | None, ahead: int, clicked_s: float, body: str = "") -> str:
    """The report while the request waits, compiles or runs.

    Args:
        prediction: None where nothing can be predicted.
        ahead: how many other runs come first.
        clicked_s: seconds since the click; the page's script goes on from there.
        body: HTML to show below the bar.
    """
    outcome = prediction.outcome if prediction else None
    if ahead:
        what = waiting_for_others()
    elif outcome in (CacheOutcome.HIT, CacheOutcome.REUSED):
        what = "Already compiled. Generating."
    elif outcome is None:
        what = "Loading the model, then compiling. The line at the top says how far it is."
    else:
        what = "Compiling this shape. The line at the top says how far it is."
    running = no_badge("WAITS" if ahead else "RUNNING")
    named = [("Since the click", clock(clicked_s))]
    bar = '<div class="bar working"></div>'
    if prediction and prediction.expected_s:
        named.append(("Work expected", expected(prediction)))
        if not ahead and outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
            bar = _timed_bar(prediction.high_s or prediction.expected_s)
    return frame(running, what, f"{figures(named)}{bar}{body}", busy=True)


def clock(spent_s: float) -> str:
    """Seconds that the page's script counts on."""
    return f'<span data-spent="{spent_s:.1f}">{elapsed(spent_s)}</span>'


def _timed_bar(expected_s: float) -> str:
    """A bar that the page's script fills in the expected time."""
    return (
        '<div class="progress" role="progressbar" aria-label="Expected" aria-valuemin="0" '
        f'aria-valuemax="100" data-spent="0" data-expected="{expected_s:.2f}"><i></i></div>'
    )


def work_and_waiting(timing: Timing) -> list[tuple[str, str]]:
    """The headline's first figures: end to end, or, where others came first, work and waiting."""
    if not has_waited(timing.queue_s, timing.total_s):
        return [("End to end", seconds(timing.total_s))]
    return [("Work", seconds(timing.total_s - timing.queue_s)), ("Waited", seconds(timing.queue_s))]


def waited(timing: Timing, ttft_s: float | None = None, ttft_queue_s: float = 0.0) -> str:
    """The figures with waiting in them; empty where nobody came first.

    Args:
        timing: of the run.
        ttft_s: where waiting is a good part of it; `ttft_queue_s` is how much.
    """
    total, queue = seconds(timing.total_s), seconds(timing.queue_s)
    sentences = []
    if ttft_s is not None and seconds(ttft_queue_s) == queue:
        both = f"End to end {total} and TTFT {seconds(ttft_s)}"
        sentences = [f"{both} include {queue} of waiting for others."]
    else:
        if has_waited(timing.queue_s, timing.total_s):
            sentences = [f"End to end {total} includes {queue} of waiting for others."]
        if ttft_s is not None:
            waits = f"TTFT {seconds(ttft_s)} includes {seconds(ttft_queue_s)}"
            sentences.append(f"{waits} of waiting for others.")
    return f'<p class="remarks">{" ".join(sentences)}</p>' if sentences else ""


def has_waited(waited_s: float, of_s: float) -> bool:
    """Whether waiting for others is told apart from work."""
    return waited_s >= max(_MIN_WAITING_S, _MIN_WAITING * of_s)


def waiting_for_others() -> str:
    """What a visitor reads whose turn has not come."""
    return "Queued. The line at the top says what runs now, and how many requests are ahead."


def progress_bar(label: str, share: float) -> str:
    """How much is done, 0 to 1."""
    return (
        f'<div class="progress" role="progressbar" aria-label="{label}" aria-valuemin="0" '
        f'aria-valuemax="100" aria-valuenow="{share * 100:.0f}">'
        f'<i style="width:{share:.2%}"></i></div>'
    )


def drawing() -> str:
    """What a first call and later ones consist of, drawn without numbers."""
    return (
        '<div class="versus drawing" aria-hidden="true">'
        '<div class="versus-row"><span>First call</span><span class="versus-track">'
        '<i class="phase-trace" style="width:30%"><em>trace</em></i>'
        '<i class="phase-compile" style="width:50%"><em>compile</em></i>'
        '<i class="phase-decode" style="width:14%"><em>run</em></i></span></div>'
        '<div class="versus-row"><span>Later calls</span><span class="versus-track">'
        '<i class="phase-decode" style="width:14%"><em>run</em></i></span></div></div>'
    )


def figures(named: Sequence[tuple[str, str]]) -> str:
    """The most important numbers, large."""
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in named)
    return f'<dl class="figures">{cells}</dl>'


def faster(ratio: str, than: str) -> str:
    """One comparison as a sentence that begins with its number."""
    return f'<p class="faster"><strong>{ratio}</strong> {than}</p>'


def against_first_call(
    timing: Timing,
    outcome: CacheOutcome,
    first: FirstCall,
    speedup: float | None,
    names: tuple[str, str],
    run_s: float,
) -> str:
    """The first call of a shape and one that had its function already, drawn on one scale.

    Args:
        timing: of the call that is shown.
        outcome: of this call.
        first: the first call: that which compiled, where it is known.
        speedup: how many times faster the call was than the first one.
        names: what the first call and a later one are called.
        run_s: what running costs now, in seconds.
    """
    once_s = timing.trace_s + timing.compile_s
    compiled = (names[0], first.trace_s + first.compile_s, first.run_s)
    if outcome is CacheOutcome.DISK:
        sentence = faster(quantities.seconds(once_s), "of this went into restoring the function")
        rows = [compiled] if first.outcome is CacheOutcome.MISS else []
        rows += [("Restored", once_s, run_s), ("Running alone", 0.0, run_s)]
    elif speedup is None:
        one_time = quantities.seconds(once_s)
        sentence = faster(one_time, "of this went into making the function, once")
        rows = [(names[0], once_s, first.run_s), ("Running alone", 0.0, run_s)]
    else:
        than = "than restoring this shape from disk"
        if first.outcome is CacheOutcome.MISS:
            than = f"than the {names[0].lower()} of this shape{_compiled_when(first)}"
        sentence = faster(f"{quantities.times(speedup)} faster", than)
        rows = [compiled, (names[1], 0.0, run_s)]
    return sentence + comparison(rows)


def _compiled_when(first: FirstCall) -> str:
    if first.made_at is None:
        return ""
    return f", compiled {datetime.fromtimestamp(first.made_at, UTC):%Y-%m-%d %H:%M} UTC"


def comparison(rows: Sequence[tuple[str, float, float]]) -> str:
    """Calls drawn on one scale: name, seconds spent once, seconds of running."""
    scale = max(once + run for _, once, run in rows) or 1.0
    bars = "".join(_comparison_row(name, once, run, scale) for name, once, run in rows)
    return f'<div class="versus">{bars}</div>'


def _comparison_row(name: str, once_s: float, run_s: float, scale_s: float) -> str:
    total = quantities.seconds(once_s + run_s)
    return (
        f'<div class="versus-row"><span>{name}</span>'
        f'<span class="versus-track" role="img" aria-label="{name}: {total}">'
        f'<i class="phase-compile" style="width:{once_s / scale_s:.2%}"></i>'
        f'<i class="phase-decode" style="width:{run_s / scale_s:.2%}"></i></span>'
        f"<b>{total}</b></div>"
    )


def phase_names(
    timing: Timing, outcome: CacheOutcome, names: Mapping[str, str] = PHASE_NAMES
) -> Mapping[str, str]:
    """What the phases of a call are called: on DISK two are others, and a graph may be shared."""
    if outcome is CacheOutcome.DISK:
        return {**names, **RESTORING}
    if outcome is CacheOutcome.MISS and timing.trace_s < _MIN_TRACE_S:
        return {**names, "trace": _SHARED_TRACE}
    return names


def phases(
    timing: Timing, outcome: CacheOutcome, names: Mapping[str, str], hints: Mapping[str, str]
) -> str:
    """Where the time went: a bar and its legend; both mappings have an entry for each phase."""
    names = phase_names(timing, outcome, names)
    if outcome is CacheOutcome.DISK:
        hints = {**hints, **_RESTORING_HINTS}
    elif names["trace"] == _SHARED_TRACE:
        hints = {**hints, "trace": "the graph was there: another shape had it traced"}
    seconds = {name: getattr(timing, f"{name}_s") for name in PHASES}
    whole = sum(seconds.values()) or 1.0
    label = ", ".join(
        f"{names[name]} {quantities.seconds(value)}" for name, value in seconds.items()
    )
    segments = "".join(
        f'<i class="phase-{name}" style="width:{value / whole:.2%}"></i>'
        for name, value in seconds.items()
        if value > 0
    )
    legend = "".join(
        f'<li title="{hints[name]}"><i class="phase-{name}"></i>'
        f"<span>{names[name]}</span>"
        f"<b>{quantities.seconds(value) if value > 0 else '–'}</b></li>"
        for name, value in seconds.items()
    )
    return (
        '<figure class="phases"><figcaption>Where the time of this call went</figcaption>'
        f'<div class="bar" role="img" aria-label="{label}">{segments}</div>'
        f'<ul class="legend">{legend}</ul></figure>'
    )


def slots(caption: str, parts: Sequence[tuple[str, int, str]]) -> str:
    """The compiled shape, slot by slot; in proportion when there are too many to draw.

    Args:
        caption: HTML.
        parts: each one's style, number of slots and label.
    """
    number_of_slots = sum(number for _, number, _ in parts)
    strip = cells(parts) if number_of_slots <= _MAX_CELLS else _proportions(parts, number_of_slots)
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


def cells(parts: Sequence[tuple[str, int, str]]) -> str:
    """One little box a slot."""
    return "".join(f'<i class="slot slot-{name}"></i>' * number for name, number, _ in parts)


def _proportions(parts: Sequence[tuple[str, int, str]], whole: int) -> str:
    return "".join(
        f'<i class="slot wide slot-{name}" style="width:{number / whole:.2%}"></i>'
        for name, number, _ in parts
        if number
    )


def not_in_total(load_s: float, other_s: float) -> str:
    """A sentence on what a careful reader would miss in the total; empty when there is nothing.

    Args:
        load_s: seconds of loading the model.
        other_s: seconds of waiting for the engine's start.
    """
    outside = []
    if load_s > 0.05:
        outside.append(f"loading the model ({quantities.seconds(load_s)})")
    if other_s > 0.5:
        outside.append(f"waiting for the engine to start ({quantities.seconds(other_s)})")
    return f" Not in the total: {' and '.join(outside)}." if outside else ""


def rounded(bits: int | None) -> str:
    """A sentence on weights that were rounded, as results have it; empty where none were."""
    return "" if bits is None else f" Weights were rounded to {bits} bits."


def file_link(name: str, kind: str, content: str, label: str, hint: str = "") -> str:
    """A link that saves a file, whose content is in the page itself: the server keeps nothing."""
    title = f' title="{escape(hint)}"' if hint else ""
    return (
        f'<a class="file" download="{name}"{title}'
        f' href="data:{kind};charset=utf-8,{quote(content)}">{label}</a>'
    )


def trace_link(requests: Sequence[TracedRequest]) -> str:
    """A link that saves a trace of requests."""
    hint = "For Perfetto and the trace viewer of Chrome"
    content = trace.document(requests)
    return file_link("trace.json", "application/json", content, "Save as a trace", hint)
