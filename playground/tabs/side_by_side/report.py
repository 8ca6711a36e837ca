"""Two requests as HTML: each side while it runs and at its end, and what differs.

Knows how a side's state, text and figures are drawn. Must not know components, events or the queue.
"""

from collections.abc import Sequence
from typing import NamedTuple

import htpy as h

from playground.context.runs import STOPPED
from playground.context.runs_together import Member
from playground.context.status_line import ACTIVITY, Phase, phase_of
from playground.history.records import Record
from playground.history.report import comparison, verdict
from playground.ui import quantities, report_parts
from playground.ui.markup import caret, nothing, remarks, rendered
from playground.ui.outcomes import badge, ended_by, no_badge
from playground.ui.word_differences import marked_pair
from playground.ui.wording import model_name
from xla_backend import CacheOutcome, EngineStatus

NAMES = ("A", "B")
_MIN_COMPILE_S = 0.05
"""Of compiling beside a run: what is worth telling."""


class Seen(NamedTuple):
    """A side's state: the word in front, what it does, its text."""

    word: h.Node
    sentence: h.Node
    text: h.Node


@rendered
def empty(name: str) -> h.Node:
    """A side before the first run."""
    sentence = h.span(".story-prompt")["The text appears here, word by word."]
    return _side(name, Seen(no_badge("…"), "", sentence), ("–",) * 4, is_busy=False)


@rendered
def side(name: str, member: Member, phase: Phase, text: h.Node = None) -> h.Node:
    """A side that runs or has ended.

    Args:
        name: of the side.
        member: its request.
        phase: what becomes of it, as long as it runs.
        text: its text with the differences marked; None for what was written until now.
    """
    run, result = member.run, member.run.result if member.is_over else None
    written = h.span(".story-new")[run.text if text is None else text]
    if result is not None:
        ended = ended_by(result.finish, result.new_tokens)
        more = "" if result.cache is CacheOutcome.HIT else _once(member)
        seen = Seen(badge(result.cache), f"{ended[0].upper()}{ended[1:]}.{more}", written)
        figures = (
            quantities.seconds(result.timing.total_s),
            quantities.seconds_or_dash(result.ttft_s),
            quantities.seconds_or_dash(result.tpot_s),
            f"{result.new_tokens:,}",
        )
        return _side(name, seen, figures, is_busy=False)
    if member.is_over:
        partial = " This is what was written until then." if run.text else ""
        sentence = h.span(".problem-text")[(member.problem or STOPPED) + partial]
        seen = Seen(no_badge("FAILED" if member.problem else "STOPPED"), sentence, written)
        return _side(name, seen, ("–",) * 4, is_busy=False)
    status_html = report_parts.phase(phase.name, phase.more)
    elapsed = report_parts.clock(run.clicked_s)
    seen = Seen(no_badge(phase.badge), status_html, [written, caret(bool(run.text))])
    return _side(name, seen, (elapsed, "–", "–", "–"), is_busy=True)


def _side(name: str, seen: Seen, figures: Sequence[str | h.Element], *, is_busy: bool) -> h.Element:
    names = ("End to end", "TTFT", "TPOT", "Tokens")
    return h.section(class_=["side", is_busy and "busy"], aria_label=f"Result of {name}")[
        h.div(".verdict")[seen.word, h.p(role="status")[seen.sentence]],
        report_parts.text_box(f"Text of {name}", seen.text, is_busy),
        report_parts.figures(zip(names, figures, strict=True), "variant-figures"),
    ]


def _once(member: Member) -> str:
    """What had to be done once, as a sentence."""
    result = member.run.result
    assert result is not None
    made_s = result.timing.trace_s + result.timing.compile_s
    return {
        CacheOutcome.MISS: f" Compiling took {quantities.seconds(made_s)}.",
        CacheOutcome.DISK: f" Restoring the function took {quantities.seconds(made_s)}.",
        CacheOutcome.REUSED: " A larger function served it.",
        CacheOutcome.HIT: "",
    }[result.cache]


def phase(
    member: Member, other: Member, in_turn: bool, status: EngineStatus, model_bytes: int | None
) -> Phase:
    """What becomes of a side: also that it waits for the other one."""
    run = member.run
    since = run.pressed_at
    if not member.was_sent:
        return Phase("Waiting for the other side to end" if in_turn else "Starting", since)
    if run.taken_at is not None:
        return phase_of(run, status, model_bytes)
    now = " ".join(filter(None, [ACTIVITY[status.state], model_name(status.detail)]))
    whom = (
        "the other side" if not other.is_over and other.run.taken_at is not None else "the engine"
    )
    return Phase(f"Waiting for {whom}", since, f"Runs now: {now}")


@rendered
def nothing_compared() -> h.Node:
    """Before two texts are there."""
    return nothing("Which side was faster, by how much and why, and what differs appears here.")


@rendered
def compared(members: Sequence[Member], chosen: Sequence[Record], at_once: bool) -> h.Node:
    """Which of two runs was faster and why, and all values that differ."""
    heads = [h.th(scope="col")[name] for name in NAMES]
    one, other = (run["text"] for run in chosen)
    sentence = (
        "Both wrote the same text." if one == other else "Words that differ are marked above."
    )
    results = [result for member in members if (result := member.run.result)]
    compiling_s = max(result.compile_beside_s for result in results)
    if at_once:
        sentence += " Both ran at once and shared the processor: alone each would be faster."
    if compiling_s > _MIN_COMPILE_S:
        seconds = quantities.seconds(compiling_s)
        sentence += f" Up to {seconds} of loading and compiling beside a run slowed it down."
    table = comparison(h.thead[h.tr[h.td, heads]], chosen, {})
    return h.section(".pinned-runs", aria_label="Differences")[
        verdict(chosen, NAMES) or h.p(".faster")["Stopped: the times are those until then."],
        remarks(sentence),
        table,
    ]


def texts(members: Sequence[Member]) -> tuple[h.Node, h.Node]:
    """Both texts with their differences marked; nothing where one has none."""
    one, other = (member.run.text for member in members)
    return marked_pair(one, other) if one and other else (None, None)
