"""The grid of shapes: where each one is, the totals, and an order's progress.

Knows how `Shape` and `Progress` values read. Must not know the engine.
"""

from collections.abc import Sequence
from itertools import groupby

import htpy as h

from playground.tabs.shapes.shapes import OrderProgress, Shape, seconds_to_make
from playground.ui.charts import part
from playground.ui.markup import nothing, rendered
from playground.ui.outcomes import badge
from playground.ui.quantities import count, elapsed
from playground.ui.report_parts import meter
from xla_backend import CacheKey, CacheOutcome


@rendered
def shape_map(shapes: Sequence[Shape], prefetching: Sequence[CacheKey] = ()) -> h.Node:
    """One table for each number of beams: prompt slots down, new slots across.

    Args:
        shapes: in the order of their sizes.
        prefetching: this model's keys that are being compiled, and those that wait.
    """
    if not shapes:
        return nothing("Choose at least one value in each of the three lists.")
    by_beams = sorted(shapes, key=lambda shape: (shape.size.num_beams, shape.size))
    tables = [
        _table(beams, list(group), prefetching)
        for beams, group in groupby(by_beams, key=lambda shape: shape.size.num_beams)
    ]
    return h.div(".shape-maps")[tables]


def _table(beams: int, shapes: list[Shape], prefetching: Sequence[CacheKey]) -> h.Element:
    new_slots = sorted({shape.size.max_new_tokens for shape in shapes})
    head = [h.th(scope="col")[f"{number} new"] for number in new_slots]
    rows = [
        h.tr[h.th(scope="row")[f"{padded} slots"], [h.td[_cell(each, prefetching)] for each in row]]
        for padded, row in groupby(shapes, key=lambda shape: shape.size.padded_length)
    ]
    return h.table(".shape-map")[
        h.caption[count(beams, "beam")], h.thead[h.tr[h.td, head]], h.tbody[rows]
    ]


def _cell(shape: Shape, prefetching: Sequence[CacheKey]) -> h.Element:
    if shape.key is None or shape.outcome is None:
        return h.span(".no-room", title="The model's context has no room for it")["–"]
    if shape.key in prefetching and shape.outcome is not CacheOutcome.HIT:
        if shape.key == prefetching[0]:
            return h.span(".badge.making")["compiling"]
        return h.span(".badge.in-line")["queued"]
    return badge(shape.outcome)


@rendered
def summary_line(shapes: Sequence[Shape]) -> h.Node:
    """How many shapes were chosen, where they are, and about how long the rest takes."""
    possible = [shape for shape in shapes if shape.key is not None]
    in_memory = sum(shape.outcome is CacheOutcome.HIT for shape in possible)
    on_disk = sum(shape.outcome is CacheOutcome.DISK for shape in possible)
    to_compile = len(possible) - in_memory - on_disk
    parts = f": {in_memory} in memory, {on_disk} on disk, {to_compile} to be compiled"
    if len(possible) < len(shapes):
        parts += f", {len(shapes) - len(possible)} too long for this model"
    expected_s = seconds_to_make(possible)
    time = f" About {elapsed(max(1.0, expected_s))} to compile." if expected_s else ""
    return h.p(".shape-summary")[h.strong[count(len(shapes), "shape")], f"{parts}.{time}"]


@rendered
def progress_line(progress: OrderProgress | None) -> h.Node:
    """The progress bar of an order with its text; empty without an order."""
    if progress is None:
        return None
    ready, total = progress.ready, progress.total
    if progress.under_way:
        what = f"{ready} of {count(total, 'shape')} ready"
    elif ready == total:
        what = f"{count(total, 'shape')} ready. Their next requests are HITs."
    elif progress.cancelled:
        what = f"Cancelled: {ready} of {count(total, 'shape')} ready."
    else:
        what = f"Ended: {ready} of {count(total, 'shape')} ready. Press Compile for the rest."
    bar = meter("Shapes ready", {"aria-valuenow": f"{ready}"}, total, "bar")[
        part("phase-decode", ready / total)
    ]
    return h.div(class_=["order", progress.under_way and "busy"])[h.p(role="status")[what], bar]
