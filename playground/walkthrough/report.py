"""A walkthrough as HTML: the headline, and a bar, a badge and a sentence for each step.

Knows how the results read for a visitor who has never heard of tracing. Must not know components,
events or how anything was measured. The headline divides the very numbers that stand at the bars.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from playground.context.status_line import ACTIVITY
from playground.ui import quantities
from playground.ui.families import model_name
from playground.ui.markup import escape
from playground.ui.outcomes import badge, no_badge
from playground.ui.report_parts import phase_names
from playground.walkthrough.runs import Step, Walkthrough
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
"""Of a call: a phase that took less is told to screen readers, but not drawn."""


def walkthrough_report(run: Walkthrough, is_busy: bool, remark: str = "") -> str:
    """The whole panel, with the same layout while the steps go on and afterwards.

    Args:
        run: what was measured so far.
        is_busy: whether it still goes on.
        remark: what to say of its end; empty for nothing.
    """
    calls = {step: _typical(results) for step, results in run.results.items()}
    longest_s = max((call.timing.total_s for call in calls.values()), default=1.0)
    columns = "".join(
        _measured(step, calls[step], len(run.results[step]), longest_s)
        if step in calls
        else _awaited(step, run, is_busy)
        for step in run.planned
    )
    said = _headline(calls.get(Step.FIRST), calls.get(Step.AGAIN))
    step = _progress(run) if is_busy else remark
    return (
        f'<section class="walkthrough{" busy" if is_busy else ""}" aria-label="What XLA does">'
        '<div class="walkthrough-head"><h2>What XLA does</h2><ul class="origin">'
        f'<li dir="auto">{escape(last_text(run.prompt))}</li>'
        f'<li translate="no">{escape(model_name(run.model))}</li>'
        f"<li>New tokens {run.options.max_new_tokens}</li></ul></div>"
        f'<p class="walkthrough-said" role="status">{said or step}</p>'
        f'<p class="walkthrough-step">{step if said else ""}</p>'
        f'<ol class="walkthrough-calls">{columns}</ol>{_remarks(run)}</section>'
    )


def _typical(results: Sequence[GenerationResult]) -> GenerationResult:
    """The call that took the median time."""
    median_s = statistics.median_low(result.timing.total_s for result in results)
    return next(result for result in results if result.timing.total_s == median_s)


def _headline(first: GenerationResult | None, again: GenerationResult | None) -> str:
    """How much the function saves; empty where it cannot be said."""
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
    if not run.has_begun:
        return "Waiting until the engine is idle, so that nothing disturbs the measurement."
    if run.current is None:
        return "Two fresh processes are starting. Nothing is compiled, and nothing is on disk."
    number = run.planned.index(run.current) + 1
    return f"Step {number} of {len(run.planned)}: {NAMES[run.current]}"


def _measured(step: Step, call: GenerationResult, calls: int, longest_s: float) -> str:
    timing = call.timing
    names = phase_names(timing, call.cache)
    seconds = {name: getattr(timing, f"{name}_s") for name in PHASES}
    label = ", ".join(f"{names[name]} {quantities.seconds(s)}" for name, s in seconds.items())
    drawn = {name: s for name, s in seconds.items() if s >= _MIN_SHARE * timing.total_s}
    bar = "".join(
        f'<i class="phase-{name}" style="flex-basis:{s / longest_s:.2%}"></i>'
        for name, s in drawn.items()
    )
    legend = "".join(
        f'<li><i class="phase-{name}"></i><span>{names[name]}</span>'
        f"<b>{quantities.seconds(s)}</b></li>"
        for name, s in drawn.items()
    )
    note = f" <small>{quantities.of_calls(calls)}</small>" if calls > 1 else ""
    return _column(
        step,
        badge(call.cache),
        f"{quantities.seconds(timing.total_s)}{note}",
        f'<div class="walkthrough-track" role="img" aria-label="{label}">{bar}</div>',
        legend,
        _sentence(step, call),
    )


def _awaited(step: Step, run: Walkthrough, is_busy: bool) -> str:
    is_current = step is run.current
    mark = "NOW" if is_current else "WAITS" if is_busy else "–"
    doing = ""
    if is_current:
        clock = f'<span class="status-clock">{quantities.elapsed(run.current_s)}</span>'
        doing = f"{ACTIVITY[run.status.state]} {clock}"
    return _column(
        step,
        no_badge(mark),
        "–",
        '<div class="walkthrough-track"></div>',
        "",
        doing,
    )


def _column(step: Step, mark: str, time: str, track: str, legend: str, says: str) -> str:
    return (
        f'<li class="walkthrough-call call-{step.name.lower()}"><h3>{NAMES[step]}</h3>{mark}'
        f'<b class="walkthrough-time">{time}</b>{track}'
        f'<p>{says}</p><ul class="legend">{legend}</ul></li>'
    )


def _sentence(step: Step, call: GenerationResult) -> str:
    """What happened, by what the engine reported."""
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


def _remarks(run: Walkthrough) -> str:
    raised = ""
    if run.is_raised:
        raised = " Yours is the smallest size, so the first step asks for one token more."
    return (
        '<p class="remarks">Measured in two fresh processes with a store of their own: nobody’s '
        "functions are used or changed. Importing TensorFlow and loading the weights are not part "
        f"of a call.{raised}</p>"
    )
