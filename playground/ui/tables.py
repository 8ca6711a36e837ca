"""Tables as HTML: any rows, and the compiled functions in the engine's memory.

Knows the form of a table and the words for `CacheEntry` values. Must not know the engine.
"""

import json
from collections.abc import Iterable, Sequence

import htpy as h
from markupsafe import Markup

from playground.ui import quantities
from playground.ui.markup import nothing, rendered, with_note
from playground.ui.wording import model_name
from xla_backend import CacheEntry, CacheKey, CacheOutcome
from xla_backend.interface.results import KeyHistory, Past

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
_MAX_EARLIER = 12
_MAKING = h.span(".badge.making")["compiling"]
_WAITING = h.span(".badge.in-line")["queued"]


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
    body = [Markup(sheet_row(headings, values)) for values in rows]
    return h.table(class_=classes, id=elem_id)[h.thead[h.tr[head]], h.tbody[body]]


def sheet_row(
    headings: Iterable[str], values: Iterable[h.Node], **attributes: str | int
) -> h.Element:
    """A row of a table, with the table's headings."""
    cells = zip(headings, values, strict=True)
    return h.tr(**attributes)[[h.td(data_label=name)[h.div[value]] for name, value in cells]]


def sizes(key: CacheKey) -> str:
    """A shape in a cell: slots of the prompt, beams, new slots."""
    if key.is_pooled:
        return f"all lengths to {key.padded_length}"
    return f"{key.padded_length} · {key.num_beams} · {key.max_new_tokens}"


@rendered
def functions_table(
    entries: Sequence[CacheEntry],
    past: Past,
    making: Sequence[tuple[str, CacheKey]] = (),
    removable: bool = False,
) -> h.Node:
    """What the engine holds, as an HTML table, or a sentence if there is nothing.

    Args:
        entries: in memory.
        past: of earlier requests; those that are not in memory follow, by how often they were
            requested.
        making: what is being compiled, and then what waits for it, by model and key.
        removable: whether rows have a button to remove a function.
    """
    known = {*making, *((entry.model, entry.key) for entry in entries)}
    earlier = [
        (model, key, was)
        for model, keys in past.items()
        for key, was in keys.items()
        if (model, key) not in known and (was.miss_s or was.disk_s or was.run_s)
    ]
    earlier.sort(key=lambda each: (-each[2].times, each[:2]))
    if not entries and not earlier and not making:
        return nothing(
            "No function is in memory yet; those saved on disk are restored when they are needed. "
            "Each shape that you use appears here with what its first call cost and what it costs "
            "since."
        )
    more = len(earlier) - _MAX_EARLIER
    made = [
        (model, key, (model_name(model), *_shape(key), mark, "–", "–", "–"))
        for (model, key), mark in zip(making, [_MAKING, *[_WAITING] * len(making)], strict=False)
    ]
    held = [(e.model, e.key if e.batch_size == 1 else None, _row(e)) for e in entries]
    before = [(*each[:2], _earlier_row(*each)) for each in earlier[:_MAX_EARLIER]]
    rows: list[tuple[h.Node, ...]] = [row for _, _, row in (*made, *held, *before)]
    if removable:
        rows = [(*row, None) for _, _, row in made] + [
            (*row, _remove(model, key) if isinstance(key, CacheKey) else None)
            for model, key, row in (*held, *before)
        ]
    caption = h.p(".caption")[f"And {quantities.count(more, 'shape')} less used."]
    return sheet((*_HEADINGS, *[""] * removable), rows), more > 0 and caption


def _remove(model: str, key: CacheKey) -> h.Element:
    """The button of a row; its value is read back by whoever removes the function."""
    value = json.dumps([model, key.to_dict()])
    return h.button(".row-action", type="button", data_remove=value)["Remove…"]


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
        *_shape(key, together),
        with_note(quantities.seconds(first.total_s), parts),
        since,
        gain,
        str(entry.hits),
    )


def _earlier_row(model: str, key: CacheKey, was: KeyHistory) -> tuple[h.Node, ...]:
    first, how = (was.miss_s, "compiled") if was.miss_s else (was.disk_s, "restored")
    # A run that was the first call's own is no later one.
    is_own = was.compiled is not None and was.run_s == was.compiled.run_s
    later_s = None if is_own else was.run_s
    return (
        with_note(model_name(model), "not in memory"),
        *_shape(key),
        with_note(quantities.seconds(first), how) if first else "–",
        with_note(quantities.seconds(later_s), "last run") if later_s else "–",
        "–",
        with_note("–", f"requested {quantities.count(was.times, 'time')}"),
    )


def _shape(key: CacheKey, together: str = "") -> tuple[h.Node, ...]:
    """The cells of a key."""
    return (
        with_note(f"{'all to ' * key.is_pooled}{key.padded_length}", *key.variants),
        with_note(str(key.num_beams), together),
        "–" if key.is_pooled else str(key.max_new_tokens),
    )
