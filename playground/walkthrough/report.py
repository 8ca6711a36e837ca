"""A walkthrough as HTML: the headline, and a bar, a badge and a sentence for each step.

Knows how to explain the results to a visitor who has never heard of tracing. Must not know
components, events or how it was measured. The headline divides the numbers shown at the bars.
"""

import statistics
from collections.abc import Sequence

import htpy as h

from playground.context.status_line import ACTIVITY, time_left
from playground.ui import quantities
from playground.ui.charts import legend
from playground.ui.markup import remarks, rendered, with_note
from playground.ui.outcomes import badge, no_badge
from playground.ui.report_parts import phase_names
from playground.ui.wording import model_name
from playground.walkthrough.runs import Step, Walkthrough
from playground.walkthrough.stored import StoredWalkthrough
from xla_backend import CacheOutcome, GenerationResult
from xla_backend.interface.prompt import last_text
from xla_backend.interface.timing import PHASES

NAMES = {
    Step.FIRST: "First call",
    Step.AGAIN: "The same again",
    Step.SMALLER: "Fewer tokens",
    Step.NEW_PROCESS: "In a new process",
}
_MIN_SHARE = 0.01
"""Share of a call below which a phase is not drawn, only read by screen readers."""


@rendered
def walkthrough_report(run: Walkthrough, is_busy: bool, remark: str = "") -> h.Node:
    """The whole panel, with the same layout during the steps and afterwards.

    Args:
        run: the walkthrough so far.
        is_busy: whether it still runs.
        remark: about its end; may be empty.
    """
    calls = {step: _typical(results) for step, results in run.results.items()}
    longest_s = max((call.timing.total_s for call in calls.values()), default=1.0)
    columns = [
        _measured(step, calls[step], len(run.results[step]), longest_s)
        if step in calls
        else _awaited(step, run, is_busy)
        for step in run.planned
    ]
    headline = _headline(calls.get(Step.FIRST), calls.get(Step.AGAIN))
    step = _progress(run) if is_busy else remark
    return h.section(class_=["walkthrough", is_busy and "busy"], aria_label="What XLA does")[
        h.div(".walkthrough-head")[
            h.h2["What XLA does"],
            h.ul(".origin")[
                h.li(dir="auto")[last_text(run.prompt)],
                h.li(translate="no")[model_name(run.model)],
                h.li[f"Limit {quantities.count(run.options.max_new_tokens, 'token')}"],
            ],
        ],
        h.p(".walkthrough-said", role="status")[headline or step],
        h.p(".walkthrough-step")[headline and step],
        h.ol(".walkthrough-calls")[columns],
        _remarks(run),
    ]


@rendered
def stored_report(stored: StoredWalkthrough) -> h.Node:
    """The panel of a stored walkthrough, with its machine."""
    measured = f"Measured on {stored.machine}, {stored.day}."
    return h.div(".stored")[walkthrough_report(stored.run, is_busy=False, remark=measured)]


def _typical(results: Sequence[GenerationResult]) -> GenerationResult:
    """The call that took the median time."""
    median_s = statistics.median_low(result.timing.total_s for result in results)
    return next(result for result in results if result.timing.total_s == median_s)


def _headline(first: GenerationResult | None, again: GenerationResult | None) -> str:
    """The saving of the compiled function; empty if unknown."""
    if first is None or again is None:
        return ""
    if (first.cache, again.cache) != (CacheOutcome.MISS, CacheOutcome.HIT):
        return ""
    compiled_s, cached_s = first.timing.total_s, again.timing.total_s
    ratio = quantities.as_shown(compiled_s) / quantities.as_shown(cached_s)
    return (
        f"{quantities.times(ratio).removesuffix('×')} times faster once it is compiled: "
        f"{quantities.seconds(compiled_s)}, then {quantities.seconds(cached_s)}."
    )


def _progress(run: Walkthrough) -> str:
    if not run.has_started:
        return "Waiting until the engine is idle, so that nothing disturbs the measurement."
    if run.current is None:
        return "Two fresh processes are starting. Nothing is compiled, and nothing is on disk."
    number = run.planned.index(run.current) + 1
    step = f"Step {number} of {len(run.planned)}: {NAMES[run.current]}"
    return " · ".join(filter(None, [step, time_left(run.left_s)]))


def _measured(step: Step, call: GenerationResult, calls: int, longest_s: float) -> h.Element:
    timing = call.timing
    names = phase_names(call)
    seconds = {name: getattr(timing, f"{name}_s") for name in PHASES}
    label = ", ".join(f"{names[name]} {quantities.seconds(s)}" for name, s in seconds.items())
    drawn = {name: s for name, s in seconds.items() if s >= _MIN_SHARE * timing.total_s}
    parts = [
        h.i(f".phase-{name}", style=f"flex-basis:{s / longest_s:.2%}") for name, s in drawn.items()
    ]
    return _column(
        step,
        badge(call.cache),
        with_note(
            quantities.seconds(timing.total_s), quantities.of_calls(calls) if calls > 1 else ""
        ),
        h.div(".walkthrough-track", role="img", aria_label=label)[parts],
        _sentence(step, call),
        [(f"phase-{name}", names[name], quantities.seconds(s)) for name, s in drawn.items()],
    )


def _awaited(step: Step, run: Walkthrough, is_busy: bool) -> h.Element:
    is_current = step is run.current
    mark = "NOW" if is_current else "WAITS" if is_busy else "–"
    clock = h.span(".status-clock")[quantities.elapsed(run.current_s)]
    doing = is_current and [f"{ACTIVITY[run.status.state]} ", clock]
    return _column(step, no_badge(mark), "–", h.div(".walkthrough-track"), doing)


def _column(
    step: Step,
    mark: h.Node,
    time: h.Node,
    track: h.Node,
    text: h.Node,
    phases: Sequence[Sequence[str]] = (),
) -> h.Element:
    return h.li(f".walkthrough-call.call-{step.name.lower()}")[
        h.h3[NAMES[step]],
        mark,
        h.b(".walkthrough-time")[time],
        track,
        h.p[text],
        legend(phases),
    ]


def _sentence(step: Step, call: GenerationResult) -> str:
    """The outcome that the engine reported."""
    made = quantities.seconds(call.timing.trace_s + call.timing.compile_s)
    happened = {
        CacheOutcome.MISS: f"Traced and compiled: {made}. Paid once per shape.",
        CacheOutcome.HIT: "The function was in memory. The call only ran.",
        CacheOutcome.REUSED: (
            f"Only {quantities.count(call.options.max_new_tokens, 'new token')}: the function "
            f"compiled for {call.key.max_new_tokens} handled it."
        ),
        CacheOutcome.DISK: f"Restored from disk: {made}. Nothing was compiled.",
    }[call.cache]
    if call.cache is step.value:
        return happened
    expected, reported = step.value.value.upper(), call.cache.value.upper()
    return f"{expected} was expected; the engine reported {reported}. {happened}"


def _remarks(run: Walkthrough) -> h.Element:
    raised = ""
    if run.is_raised:
        raised = " Yours is the smallest size, so the first step asks for one token more."
    return remarks(
        "Measured in two fresh processes with their own store, so other visitors’ functions are "
        "neither used nor changed. Importing TensorFlow and loading the weights are not part of "
        "a call." + raised
    )
