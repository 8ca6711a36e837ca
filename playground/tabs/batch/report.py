"""A batch's results so far, as HTML: progress, one row for each prompt, and files.

Knows how results read side by side. Must not know components, events or the engine.
"""

import htpy as h

from playground.tabs.batch.runs import Batch, BatchMember
from playground.ui import quantities
from playground.ui.markup import nothing, remarks, rendered
from playground.ui.outcomes import badge, no_badge
from playground.ui.report_parts import figures, file_link, progress_bar, trace_link
from playground.ui.tables import sheet, sizes
from xla_backend import CacheOutcome

EMPTY = nothing(
    "A row for each prompt appears here as it is done: whether its function was there or had to be "
    "compiled, and how long it took."
)
_HEADINGS = ("Line", "Outcome", "Prompt and text", "Shape", "End to end", "Tokens/s")
_MAX_SKIPPED = 3
"""Skipped lines that are named one by one."""
_MIN_ONCE_S = 0.05
"""Of loading and compiling: what is worth telling."""
_COUNTED = {
    CacheOutcome.MISS: "compiled",
    CacheOutcome.DISK: "from disk",
    CacheOutcome.REUSED: "on a larger function",
    CacheOutcome.HIT: "from memory",
}


@rendered
def report(batch: Batch) -> h.Node:
    """The progress and the table."""
    done = sum(member.is_done for member in batch.members)
    total = len(batch.members)
    if batch.stopped and done < total:
        state = f"Stopped after {done} of {total}. What was done is kept."
    elif done == total:
        state = f"All {quantities.count(total, 'prompt')} done."
    else:
        state = f"{done} of {total} done. Other visitors' requests come in between."
    counts = [
        h.span[badge(outcome), f" {batch.outcomes[outcome]} {words}"]
        for outcome, words in _COUNTED.items()
        if batch.outcomes[outcome]
    ]
    skipped = [
        f"Line {line} has no prompt and was skipped." for line in batch.skipped[:_MAX_SKIPPED]
    ]
    if (more := len(batch.skipped) - _MAX_SKIPPED) > 0:
        skipped.append(f"{quantities.count(more, 'further line')} skipped.")
    rows = [_row(member) for member in batch.members]
    return (
        h.div(".batch-progress")[
            h.p(role="status")[state],
            progress_bar("Batch", done / total),
            h.p(".batch-counts")[[(each, " ") for each in counts]],
            [h.p(".caption")[sentence] for sentence in skipped],
        ],
        _together(batch) if batch.visitors else None,
        sheet(_HEADINGS, rows, "sheet runs batch"),
    )


def _together(batch: Batch) -> h.Node:
    """The figures of many visitors, once all have their whole text."""
    link = h.a(href="?tab=requests")["Requests"]
    where = remarks([link, " shows what was read and decoded for whom at each moment."])
    if (found := batch.summary()) is None:
        return where
    ttft, tpot = (
        " / ".join(map(reads, pair)) if pair else "–"
        for reads, pair in (
            (quantities.seconds, found.ttft_s),
            (quantities.fine_seconds, found.tpot_s),
        )
    )
    shown = figures(
        [
            ("Rows at once", str(found.rows)),
            ("TTFT median / largest", ttft),
            ("TPOT median / largest", tpot),
            ("All done after", quantities.seconds(found.elapsed_s)),
            ("Tokens/s in all", quantities.rate(found.tokens_per_second)),
        ]
    )
    if found.once_s <= _MIN_ONCE_S:
        return shown, where
    once = quantities.seconds(found.once_s)
    sentence = (
        f"Up to {once} of loading and compiling fell into a run and slowed it down; TTFT leaves "
        "out loading. Run it again for figures without that."
    )
    return shown, remarks(sentence), where


@rendered
def files(batch: Batch) -> h.Node:
    """Links to the results as files. They are in the page itself: the server keeps nothing."""
    return (
        file_link("batch.csv", "text/csv", "\ufeff" + batch.to_csv(), "Results as CSV"),
        file_link("batch.json", "application/json", batch.to_json(), "Results as JSON"),
        trace_link(batch.traced()),
    )


def _row(member: BatchMember) -> tuple[h.Node, ...]:
    result, line = member.result, str(member.prompt.line)
    if result is None:
        is_running = member.was_sent and not member.is_over
        state = "RUNNING" if is_running else "PROBLEM" if member.problem else ""
        return line, no_badge(state) if state else "–", _text(member), "", "", ""
    return (
        line,
        badge(result.cache),
        _text(member),
        h.span(".number")[sizes(result.key)],
        h.span(".number")[quantities.seconds(result.timing.total_s)],
        quantities.rate(result.tokens_per_second),
    )


def _text(member: BatchMember) -> h.Node:
    given = h.span(".story-prompt")[member.typed]
    if member.problem:
        return given, h.br, h.span(".problem-text")[member.problem]
    text = member.run.text
    # A continuation starts with its own space; an answer does not.
    return h.div(dir="auto")[given, " " if text[:1].isalnum() else "", text]
