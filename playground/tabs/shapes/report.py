"""Chosen shapes in a sentence, and an order's progress.

Knows how `Shape` and `Progress` values read. Must not know the engine.
"""

from collections.abc import Sequence

import htpy as h

from playground.tabs.shapes.shapes import OrderProgress, Shape, seconds_to_make
from playground.ui.charts import part
from playground.ui.markup import rendered
from playground.ui.quantities import count, elapsed
from playground.ui.report_parts import meter
from xla_backend import CacheOutcome


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
