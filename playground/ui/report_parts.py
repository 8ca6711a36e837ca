"""The parts of every report: frame, figures, comparison, phases and slots.

Knows how measured times and compiled shapes are drawn. Must not know whose result it is: a text's
is `tabs.generate.report`'s, a recording's `tabs.speech.report`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

import htpy as h
from markupsafe import Markup

from playground.ui import quantities
from playground.ui.charts import bar_row, part
from playground.ui.markup import remarks
from playground.ui.outcomes import no_badge
from playground.ui.prediction_line import expected
from playground.ui.quantities import elapsed, seconds
from xla_backend import CacheOutcome, FirstCall, GenerationResult, Prediction, Timing
from xla_backend.interface.timing import PHASES
from xla_backend.interface.timing import RESTORING as RESTORING_NAMES
from xla_backend.process import trace
from xla_backend.process.trace import TracedRequest

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
"""The page's names for the phases of a text's timing."""
PHASE_HINTS = {
    "queue": "waiting for other requests, or for a shape that is compiled in the background",
    "tokenize": "text to token numbers",
    "trace": "TensorFlow records the computation as a graph",
    "compile": "XLA turns the graph into machine code",
    "decode": "all further tokens",
    "detokenize": "token numbers to text",
}
"""Explanations of the phases; that of prefill depends on the model."""
_RESTORING_HINTS = {
    "trace": "the graph is read from disk",
    "compile": "machine code is read from disk",
}
_SHARED_TRACE = "Trace, shared"
_WITH_GRAMMAR = "Tokenize, build grammar"
COMPILING = "Compiling this shape"
RESTORING = "Restoring this shape from disk"
BETWEEN = "Queue after the first token"
_MIN_WAITING_S, _MIN_WAITING = 0.1, 0.1
"""Waiting is shown from this time and this share of the total on."""
_MIN_LOAD_S = 0.001
"""Seconds; looking up a loaded model takes less."""
_MIN_TRACE_S = 0.001
"""Seconds; tracing takes longer, so a graph that took less had been traced before."""


def text_box(name: str, content: h.Node, is_busy: bool, style: str = "story") -> h.Element:
    """A box with a text that grows, which stays scrolled to its end."""
    return h.div(
        class_=style, tabindex="0", role="region", aria_label=name, aria_busy=str(is_busy).lower()
    )[h.div(".story-text", dir="auto")[content]]


def frame(badge: h.Node, verdict: h.Node, *body: h.Node, busy: bool = False) -> h.Element:
    """The whole report, with the verdict on top."""
    return h.section(class_=["report", busy and "busy"], aria_label="What this run cost")[
        h.div(".verdict")[badge, h.p(role="status")[verdict]], body
    ]


def waiting(
    prediction: Prediction | None, ahead: int, clicked_s: float, body: h.Node = None
) -> h.Element:
    """The report while the request waits, compiles or runs.

    Args:
        prediction: None where nothing can be predicted.
        ahead: how many other runs come first.
        clicked_s: seconds since the click; the page's script continues the count.
        body: to show below the bar.
    """
    outcome = prediction.outcome if prediction else None
    if ahead:
        what = queued(ahead)
    elif outcome in (CacheOutcome.HIT, CacheOutcome.REUSED):
        what = phase("Already compiled", "generating")
    elif outcome is None:
        what = phase("Loading the model", "then compiling")
    else:
        # True whatever the engine does now, which the page's script shows within a second.
        is_stored = outcome is CacheOutcome.DISK
        what = (
            phase("On disk", "restored first")
            if is_stored
            else phase("New shape", "compiled first")
        )
    named: list[tuple[str, str | h.Element]] = [("Elapsed", clock(clicked_s))]
    bar = working_bar()
    if prediction and prediction.expected_s:
        named.append(("Work expected", expected(prediction)))
        if not ahead and outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
            bar = _timed_bar(prediction.high_s or prediction.expected_s)
    mark = no_badge("QUEUED" if ahead else "RUNNING")
    done = meter("Done", {"hidden": ""}, style="progress.phase-share")[h.i]
    return frame(mark, what, figures(named), bar, done, body, busy=True)


def working_bar() -> h.Element:
    """A bar of work of unknown length."""
    return h.div(".bar.working")


def clock(spent_s: float) -> h.Element:
    """Seconds that the page's script continues to count."""
    return h.span(data_spent=f"{spent_s:.1f}")[elapsed(spent_s)]


def _timed_bar(expected_s: float) -> h.Element:
    """A bar that the page's script fills in the expected time."""
    attributes = {"data-spent": "0", "data-expected": f"{expected_s:.2f}"}
    return meter("Expected", attributes)[h.i]


def meter(
    label: str, attributes: Mapping[str, str], most: int = 100, style: str = "progress"
) -> h.Element:
    """An empty bar; `attributes` tell screen readers its value."""
    ends = {"aria-valuemin": "0", "aria-valuemax": str(most)}
    return h.div(f".{style}", attributes, ends, role="progressbar", aria_label=label)


def work_and_waiting(timing: Timing) -> list[tuple[str, str | h.Element]]:
    """The headline's first figures: end to end, or work and waiting if others came first."""
    if not has_waited(timing.queue_s, timing.total_s):
        return [("End to end", seconds(timing.total_s))]
    return [("Work", seconds(timing.work_s)), ("Waited", seconds(timing.queue_s))]


def waited(
    timing: Timing,
    ttft_s: float | None = None,
    ttft_queue_s: float = 0.0,
    awaited_background: bool = False,
) -> h.Node:
    """The figures with waiting; empty if it did not wait.

    Args:
        timing: of the run.
        ttft_s: shown if waiting, `ttft_queue_s`, is a large part of it.
        awaited_background: as in `Shown`.
    """
    total, queue = seconds(timing.total_s), seconds(timing.queue_s)
    sentences = []
    if ttft_s is not None and seconds(ttft_queue_s) == queue:
        both = f"End to end {total} and TTFT {seconds(ttft_s)}"
        sentences = [f"{both} include {queue} in the queue."]
    else:
        if has_waited(timing.queue_s, timing.total_s):
            sentences = [f"End to end {total} includes {queue} in the queue."]
        if ttft_s is not None:
            waits = f"TTFT {seconds(ttft_s)} includes {seconds(ttft_queue_s)}"
            sentences.append(f"{waits} in the queue.")
    if sentences and awaited_background:
        sentences.append("No request was ahead: this shape was being compiled in the background.")
    return sentences and remarks(" ".join(sentences))


def has_waited(waited_s: float, of_s: float) -> bool:
    """Whether waiting is shown separately from work."""
    return waited_s >= max(_MIN_WAITING_S, _MIN_WAITING * of_s)


def phase(name: str, more: str = "") -> h.Element:
    """The phase of a run; the page's script copies the status line's `#phase` into it."""
    return h.span(".phase")[
        h.b(".phase-name")[name], " ", h.span(".phase-more", aria_live="off")[more]
    ]


def queued(ahead: int) -> h.Element:
    """The notice for a visitor whose request is queued."""
    return phase(f"Queued: {quantities.count(ahead, 'request')} ahead")


def progress_bar(label: str, share: float) -> h.Element:
    return meter(label, {"aria-valuenow": f"{share * 100:.0f}"})[part("", share)]


def downloading(detail: str, share: float) -> h.Element:
    """The progress of a download from the Hub."""
    what = h.p["Downloading from the Hugging Face Hub, once. ", h.b[detail]]
    return h.div(".download")[what, progress_bar("Download", share)]


def drawing() -> h.Element:
    """The phases of a first call and of later ones, drawn without numbers."""
    run = part("phase-decode", 0.14)[h.em["run"]]
    first = (
        part("phase-trace", 0.3)[h.em["trace"]],
        part("phase-compile", 0.5)[h.em["compile"]],
        run,
    )
    return h.div(".versus.drawing", aria_hidden="true")[
        (
            h.div(".versus-row")[h.span[name], h.span(".versus-track")[parts]]
            for name, parts in (("First call", first), ("Later calls", run))
        )
    ]


_FIGURE = Markup("<div><dt>%s</dt><dd>%s</dd></div>")  # a hundred runs have thousands of them


def figures(named: Iterable[tuple[str, str | h.Element]], classes: str = "figures") -> h.Element:
    """Numbers with their names, by default large for the most important ones."""
    return h.dl(class_=classes)[Markup().join(_FIGURE % each for each in named)]


def faster(ratio: str, than: str) -> h.Element:
    """One comparison as a sentence that begins with its number."""
    return h.p(".faster")[h.strong[ratio], " ", than]


def against_first_call(
    result: GenerationResult, names: tuple[str, str] = ("First call", "This call")
) -> h.Node:
    """The first call of a shape and a later one up to the first token, drawn on one scale: whatever
    the length of their texts, that is the same work.

    Args:
        result: of the call that is shown.
        names: of the first call and of a later one.
    """
    timing, first, run_s = result.timing, result.first_call, result.first_token_run_s
    once_s = timing.trace_s + timing.compile_s
    compiled = (names[0], first.once_s, run_s)
    if result.cache is CacheOutcome.DISK:
        sentence = faster(quantities.seconds(once_s), "of this went into restoring the function")
        rows = [compiled] if first.outcome is CacheOutcome.MISS else []
        rows += [("Restored", once_s, run_s), ("Running alone", 0.0, run_s)]
    elif (gain := result.speedup) is None:
        one_time = quantities.seconds(once_s)
        sentence = faster(one_time, "of this went into tracing and compiling, once")
        rows = [compiled, ("Running alone", 0.0, run_s)]
    else:
        than = "than restoring this shape from disk"
        if first.outcome is CacheOutcome.MISS:
            than = f"than the {names[0].lower()} of this shape{_compiled_when(first)}"
        sentence = faster(f"{quantities.times(gain)} faster", f"to the first token {than}")
        rows = [compiled, (names[1], 0.0, run_s)]
    return sentence, comparison(rows, "To the first token, without queue and loading")


def _compiled_when(first: FirstCall) -> str:
    if first.made_at is None:
        return ""
    return f", compiled {datetime.fromtimestamp(first.made_at, UTC):%Y-%m-%d %H:%M} UTC"


def comparison(rows: Sequence[tuple[str, float, float]], caption: str) -> h.Element:
    """Calls drawn on one scale: name, seconds spent once, seconds of running."""
    scale_s = max(once + run for _, once, run in rows) or 1.0
    return h.div(".versus")[
        h.p(".caption")[caption],
        (
            bar_row(
                name,
                (total := quantities.seconds(once_s + run_s)),
                (part("phase-compile", once_s / scale_s), part("phase-decode", run_s / scale_s)),
                total,
            )
            for name, once_s, run_s in rows
        ),
    ]


def phase_names(
    result: GenerationResult, names: Mapping[str, str] = PHASE_NAMES
) -> Mapping[str, str]:
    """The names of a call's phases: two differ on DISK, a graph may be shared, and a grammar is
    built with the tokens."""
    if result.options.grammar:
        names = {**names, "tokenize": _WITH_GRAMMAR}
    if result.cache is CacheOutcome.DISK:
        return {**names, **RESTORING_NAMES}
    if result.cache is CacheOutcome.MISS and result.timing.trace_s < _MIN_TRACE_S:
        return {**names, "trace": _SHARED_TRACE}
    return names


def phases(
    result: GenerationResult, names: Mapping[str, str], hints: Mapping[str, str]
) -> h.Element:
    """The phases as a bar and its legend; both mappings have an entry for each phase.

    Loading the model is one more, and so is waiting after the first token, where they took any.
    """
    timing, load_s = result.timing, result.load_s
    names = {**phase_names(result, names), "load": "Load model", "between": BETWEEN}
    hints = {
        **hints,
        "load": "weights are read from disk into memory",
        "between": "waiting for the turns of other requests after the first token",
    }
    if result.cache is CacheOutcome.DISK:
        hints = {**hints, **_RESTORING_HINTS}
    elif names["trace"] == _SHARED_TRACE:
        hints = {**hints, "trace": "the graph was there: another shape had it traced"}
    seconds = {name: getattr(timing, f"{name}_s") for name in PHASES}
    if load_s > _MIN_LOAD_S:
        seconds = {"queue": seconds.pop("queue"), "load": load_s, **seconds}
    if (between_s := timing.queue_s - result.ttft_queue_s) > _MIN_LOAD_S:
        seconds |= {"queue": result.ttft_queue_s, "between": between_s}
    whole = sum(seconds.values()) or 1.0
    label = ", ".join(
        f"{names[name]} {quantities.seconds(value)}" for name, value in seconds.items()
    )
    drawn = [part(f"phase-{name}", value / whole) for name, value in seconds.items() if value > 0]
    legend = [
        h.li(title=hints[name])[
            h.i(f".phase-{name}"),
            h.span[names[name]],
            h.b[quantities.seconds(value) if value > 0 else "–"],
        ]
        for name, value in seconds.items()
    ]
    return h.figure(".phases")[
        h.figcaption["Where the time of this call went"],
        h.div(".bar", role="img", aria_label=label)[drawn],
        h.ul(".legend")[legend],
    ]


def slots(caption: str, parts: Sequence[tuple[str, int, str]]) -> h.Element:
    """The compiled shape, slot by slot; in proportion when there are too many to draw.

    Args:
        caption: what shape it is.
        parts: each one's style, number of slots and label.
    """
    whole = sum(number for _, number, _ in parts)
    strip: h.Node = cells(parts)
    if whole > _MAX_CELLS:
        strip = [part(f"slot wide slot-{name}", n / whole) for name, n, _ in parts if n]
    legend = [
        h.li[h.i(f".slot.slot-{name}"), h.b[number], h.span[label]] for name, number, label in parts
    ]
    label = ", ".join(f"{number} {label}" for _, number, label in parts)
    return h.figure(".shape")[
        h.figcaption[caption],
        h.div(".slots", role="img", aria_label=label)[strip],
        h.ul(".legend")[legend],
    ]


def cells(parts: Sequence[tuple[str, int, str]]) -> h.Node:
    """A box per slot."""
    return [[h.i(f".slot.slot-{name}")] * number for name, number, _ in parts]


def not_in_total(start_s: float) -> str:
    """A sentence on waiting for the engine's start; empty if there was none."""
    if start_s <= 0.5:
        return ""
    return f" Not in the total: {quantities.seconds(start_s)} until the engine had started."


def limit(result: GenerationResult) -> str:
    """How many tokens it could have and has: "Limit 128, written 8"."""
    return f"Limit {result.options.max_new_tokens}, written {result.new_tokens}"


def rounded(result: GenerationResult) -> str:
    """Sentences on rounded weights and activations; empty if there are none."""
    bits, activations = result.rounded_bits, result.activations
    notes = "" if bits is None else f" Weights were rounded to {bits} bits."
    return notes + (" Activations were rounded to 8 bits." if activations == "int8" else "")


def file_link(name: str, kind: str, content: str, label: str, hint: str | None = None) -> h.Element:
    """A link that saves a file whose content is in the page, not on the server."""
    address = f"data:{kind};charset=utf-8,{quote(content)}"
    return h.a(".file", download=name, title=hint, href=address)[label]


def trace_link(requests: Sequence[TracedRequest]) -> h.Element:
    """A link that saves a trace of requests."""
    hint = "For Perfetto and the trace viewer of Chrome"
    content = trace.document(requests)
    return file_link("trace.json", "application/json", content, "Save as a trace", hint)
