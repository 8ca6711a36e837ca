"""Tables as HTML: any sheet of rows, and that of the compiled functions that the engine holds.

Knows how a table is written and how `CacheEntry` values read. Must not know the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from playground.ui import quantities
from playground.ui.markup import escape
from xla_backend import CacheEntry, CacheKey, CacheOutcome

_HEADINGS = (
    "Model",
    "Prompt slots",
    "Beams",
    "New slots",
    "First call",
    "Since then",
    "Gain",
    "Hits",
)


def sheet(
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    classes: str = "sheet",
    elem_id: str | None = None,
) -> str:
    """A table; on a narrow screen each row is a block, with the headings beside its values.

    Args:
        headings: one for each column; empty for a column of buttons.
        rows: the cells of each row, in HTML.
        classes: those of the table.
        elem_id: its id, if it has one.
    """
    headings = tuple(headings)
    head = "".join(
        f'<th scope="col">{name or "<span class=unseen>Actions</span>"}</th>' for name in headings
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{name}"><div>{value}</div></td>'
            for name, value in zip(headings, values, strict=True)
        )
        + "</tr>"
        for values in rows
    )
    named = f' id="{elem_id}"' if elem_id else ""
    return (
        f'<table class="{classes}"{named}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def sizes(key: CacheKey) -> str:
    """A shape in a cell: slots of the prompt, beams, new slots."""
    if key.is_pooled:
        return f"all lengths to {key.padded_length}"
    return f"{key.padded_length} · {key.num_beams} · {key.max_new_tokens}"


def cached_functions_table(entries: Sequence[CacheEntry]) -> str:
    """The entries as an HTML table, or what an empty cache means."""
    if not entries:
        return (
            '<p class="nothing">Nothing is compiled yet. Each shape that you use appears here with '
            "what its first call cost and what it costs since.</p>"
        )
    return sheet(_HEADINGS, map(_row, entries))


def _prompts(key: CacheKey) -> str:
    return f"all to {key.padded_length}" if key.is_pooled else str(key.padded_length)


def _side_by_side(entry: CacheEntry) -> str:
    if entry.batch_size == 1:
        return ""
    return f" <small>in {entry.batch_size} rows</small>"


def _row(entry: CacheEntry) -> tuple[str, ...]:
    key = entry.key
    assert isinstance(key, CacheKey)  # The engine's own: only `jit` keeps functions under others.
    first = entry.first_call
    cached = entry.cached
    since = "–"
    gain = "–"
    if cached is not None:
        of = quantities.of_calls(cached.n)
        since = f"{quantities.seconds(cached.p50_s)} <small>{of}</small>"
        # What restoring took is no first call: a result counts from the call that compiled.
        if cached.p50_s > 0 and first.outcome is not CacheOutcome.DISK:
            gain = quantities.times(first.total_s / cached.p50_s)
    trace_s, compile_s = map(quantities.seconds, (first.trace_s, first.compile_s))
    parts = f"trace {trace_s} · compile {compile_s}"
    if first.outcome is CacheOutcome.DISK:
        parts = f"restored: graph {trace_s} · code {compile_s}"
    first_call = f"{quantities.seconds(first.total_s)} <small>{parts}</small>"
    return (
        escape(entry.model),
        " ".join([_prompts(key), *(f"<small>{each}</small>" for each in key.variants)]),
        f"{key.num_beams}{_side_by_side(entry)}",
        "–" if key.is_pooled else str(key.max_new_tokens),
        first_call,
        since,
        gain,
        str(entry.hits),
    )
