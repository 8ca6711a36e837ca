"""A batch's results so far, as HTML: progress, one row for each prompt, and files.

Knows how results read side by side. Must not know components, events or the engine.
"""

from __future__ import annotations

from playground.batch.runs import Batch, BatchRow
from playground.ui import quantities
from playground.ui.markup import escape
from playground.ui.outcomes import badge, no_badge
from playground.ui.report_parts import file_link, progress_bar, trace_link
from playground.ui.tables import sheet, sizes
from xla_backend import CacheOutcome

_HEADINGS = ("Line", "Outcome", "Prompt and text", "Shape", "End to end", "Tokens/s")
_MAX_SKIPPED = 3
"""Skipped lines that are named one by one."""
_COUNTED = {
    CacheOutcome.MISS: "compiled",
    CacheOutcome.DISK: "from disk",
    CacheOutcome.REUSED: "on a larger function",
    CacheOutcome.HIT: "already there",
}


def empty() -> str:
    """Before the first batch."""
    return (
        '<p class="nothing">A row for each prompt appears here as it is done: whether its function '
        "was there or had to be compiled, and how long it took.</p>"
    )


def report(batch: Batch) -> str:
    """The progress and the table."""
    done = sum(row.is_done for row in batch.rows)
    total = len(batch.rows)
    if batch.stopped and done < total:
        state = f"Stopped after {done} of {total}. What was done is kept."
    elif done == total:
        state = f"All {quantities.count(total, 'prompt')} done."
    else:
        state = f"{done} of {total} done. Other visitors' requests come in between."
    counts = [
        f"{badge(outcome)} {batch.outcomes[outcome]} {words}"
        for outcome, words in _COUNTED.items()
        if batch.outcomes[outcome]
    ]
    skipped = "".join(
        f'<p class="caption">Line {line} has no prompt and was skipped.</p>'
        for line in batch.skipped[:_MAX_SKIPPED]
    )
    if (more := len(batch.skipped) - _MAX_SKIPPED) > 0:
        skipped += f'<p class="caption">{quantities.count(more, "further line")} skipped.</p>'
    rows = [_row(row, row is batch.current and not batch.is_over) for row in batch.rows]
    return (
        f'<div class="batch-progress"><p role="status">{state}</p>'
        f"{progress_bar('Batch', done / total)}"
        f'<p class="batch-counts">{" ".join(f"<span>{each}</span>" for each in counts)}</p>'
        f"{skipped}</div>"
        f"{sheet(_HEADINGS, rows, 'sheet runs batch')}"
    )


def files(batch: Batch) -> str:
    """Links to the results as files. They are in the page itself: the server keeps nothing."""
    csv = file_link("batch.csv", "text/csv", "\ufeff" + batch.to_csv(), "Results as CSV")
    json = file_link("batch.json", "application/json", batch.to_json(), "Results as JSON")
    return csv + json + trace_link(batch.traced())


def _row(row: BatchRow, is_current: bool) -> tuple[str, ...]:
    result = row.result
    if result is None:
        state = "RUNNING" if is_current else "PROBLEM" if row.problem else "–"
        mark = no_badge(state) if state != "–" else state
        return str(row.prompt.line), mark, _text(row), "", "", ""
    return (
        str(row.prompt.line),
        badge(result.cache),
        _text(row),
        f'<span class="number">{sizes(result.key)}</span>',
        f'<span class="number">{quantities.seconds(result.timing.total_s)}</span>',
        quantities.rate(result.tokens_per_second),
    )


def _text(row: BatchRow) -> str:
    given = f'<span class="story-prompt">{escape(row.prompt.prompt)}</span>'
    if row.problem:
        return f'{given}<br><span class="problem-text">{escape(row.problem)}</span>'
    # A continuation starts with its own space; an answer does not.
    space = " " if row.text[:1].isalnum() else ""
    return f'<div dir="auto">{given}{space}{escape(row.text)}</div>'
