"""Tables as HTML: any rows, and the compiled functions in the engine's memory.

Knows the form of a table and the words for `CacheEntry` values. Must not know the engine.
"""

from collections.abc import Iterable, Sequence

import htpy as h
from markupsafe import Markup

from playground.ui import quantities
from playground.ui.markup import nothing, rendered, with_note
from playground.ui.wording import model_name
from xla_backend import CacheEntry, CacheKey, CacheOutcome

_HEADINGS = (
    "Model",
    "Prompt slots",
    "Beams",
    "New slots",
    "Compiled or restored",
    "Since then",
    "Gain",
    "Hits",
)


def sheet(
    headings: Iterable[str],
    rows: Iterable[Iterable[h.Node]],
    classes: str = "sheet",
    elem_id: str | None = None,
) -> h.Element:
    """A table; on a narrow screen each row is a block, with the headings beside its values.

    Args:
        headings: one for each column; empty for a column of buttons.
        rows: the cells of each row.
        classes: those of the table.
        elem_id: its id, if it has one.
    """
    headings = tuple(headings)
    head = [h.th(scope="col")[name or h.span(".unseen")["Actions"]] for name in headings]
    # Each row becomes text at once, because htpy passes each part through all outer elements.
    body = [
        Markup(h.tr[[h.td(data_label=name)[h.div[value]] for name, value in cells]])
        for cells in (zip(headings, values, strict=True) for values in rows)
    ]
    return h.table(class_=classes, id=elem_id)[h.thead[h.tr[head]], h.tbody[body]]


def sizes(key: CacheKey) -> str:
    """A shape in a cell: slots of the prompt, beams, new slots."""
    if key.is_pooled:
        return f"all lengths to {key.padded_length}"
    return f"{key.padded_length} · {key.num_beams} · {key.max_new_tokens}"


@rendered
def cached_functions_table(entries: Sequence[CacheEntry]) -> h.Node:
    """The entries as an HTML table, or a sentence for an empty cache."""
    if not entries:
        return nothing(
            "No function is in memory yet; those saved on disk are restored when they are needed. "
            "Each shape that you use appears here with what its first call cost and what it costs "
            "since."
        )
    return sheet(_HEADINGS, map(_row, entries))


def _row(entry: CacheEntry) -> tuple[h.Node, ...]:
    key = entry.key
    assert isinstance(key, CacheKey)  # The engine's own: only `jit` keeps functions under others.
    first = entry.first_call
    cached = entry.cached
    since: h.Node = "–"
    gain = "–"
    if cached is not None:
        since = with_note(quantities.seconds(cached.p50_s), quantities.of_calls(cached.n))
        # Restoring is no first call: results compare with the call that compiled.
        if first.outcome is not CacheOutcome.DISK and (times := first.gain(cached.p50_s)):
            gain = quantities.times(times)
    trace_s, compile_s = map(quantities.seconds, (first.trace_s, first.compile_s))
    parts = f"trace {trace_s} · compile {compile_s}"
    if first.outcome is CacheOutcome.DISK:
        parts = f"restored: graph {trace_s} · code {compile_s}"
    if first.run_s:
        parts += f" · run {quantities.seconds(first.run_s)}"
    together = f"in {entry.batch_size} rows" if entry.batch_size > 1 else ""
    return (
        model_name(entry.model),
        with_note(f"{'all to ' * key.is_pooled}{key.padded_length}", *key.variants),
        with_note(str(key.num_beams), together),
        "–" if key.is_pooled else str(key.max_new_tokens),
        with_note(quantities.seconds(first.total_s), parts),
        since,
        gain,
        str(entry.hits),
    )
