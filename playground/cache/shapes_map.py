"""The grid of shapes: where each one is, the totals, and an order's progress.

Knows how `Shape` and `Progress` values read. Must not know the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from playground.cache.shapes import Progress, Shape, seconds_to_make
from playground.ui.markup import escape
from playground.ui.outcomes import badge
from playground.ui.quantities import count, elapsed
from xla_backend import CacheKey, CacheOutcome


def shape_map(shapes: Sequence[Shape], prefetching: Sequence[CacheKey] = ()) -> str:
    """One table for each number of beams: prompt slots down, new slots across.

    Args:
        shapes: in the order of their sizes.
        prefetching: this model's keys that are being made ready, and those that wait.
    """
    if not shapes:
        return '<p class="nothing">Choose at least one value in each of the three lists.</p>'
    by_beams = sorted(shapes, key=lambda shape: (shape.size.num_beams, shape.size))
    tables = [
        _table(beams, list(group), prefetching)
        for beams, group in groupby(by_beams, key=lambda shape: shape.size.num_beams)
    ]
    return f'<div class="shape-maps">{"".join(tables)}</div>'


def no_shape_map(reason: str) -> str:
    """Shown instead when the model's shapes are not known; it says why."""
    return f'<p class="nothing">{escape(reason)}</p>'


def _table(beams: int, shapes: list[Shape], prefetching: Sequence[CacheKey]) -> str:
    new_slots = sorted({shape.size.max_new_tokens for shape in shapes})
    head = "".join(f'<th scope="col">{number} new</th>' for number in new_slots)
    rows = "".join(
        f'<tr><th scope="row">{padded} slots</th>'
        + "".join(f"<td>{_cell(shape, prefetching)}</td>" for shape in row)
        + "</tr>"
        for padded, row in groupby(shapes, key=lambda shape: shape.size.padded_length)
    )
    return (
        f'<table class="shape-map"><caption>{count(beams, "beam")}</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _cell(shape: Shape, prefetching: Sequence[CacheKey]) -> str:
    if shape.key is None or shape.outcome is None:
        return '<span class="no-room" title="The model\'s context has no room for it">–</span>'
    if shape.key in prefetching and shape.outcome is not CacheOutcome.HIT:
        is_next = shape.key == prefetching[0]
        return f'<span class="badge {"making" if is_next else "in-line"}">' + (
            "making</span>" if is_next else "waits</span>"
        )
    return badge(shape.outcome)


def summary_line(shapes: Sequence[Shape]) -> str:
    """How many shapes were chosen, where they are, and about how long the rest takes."""
    possible = [shape for shape in shapes if shape.key is not None]
    in_memory = sum(shape.outcome is CacheOutcome.HIT for shape in possible)
    on_disk = sum(shape.outcome is CacheOutcome.DISK for shape in possible)
    parts = [f"<strong>{count(len(shapes), 'shape')}</strong>: {in_memory} in memory"]
    parts.append(f"{on_disk} on disk")
    parts.append(f"{len(possible) - in_memory - on_disk} to be compiled")
    if len(possible) < len(shapes):
        parts.append(f"{len(shapes) - len(possible)} too long for this model")
    expected_s = seconds_to_make(possible)
    time = f" About {elapsed(max(1.0, expected_s))} to make ready." if expected_s else ""
    return f'<p class="shape-summary">{", ".join(parts)}.{time}</p>'


def progress_line(progress: Progress | None) -> str:
    """The progress bar of an order with its text; empty without an order."""
    if progress is None:
        return ""
    ready, total = progress.ready, progress.total
    if progress.under_way:
        what = f"{ready} of {count(total, 'shape')} ready"
    elif ready == total:
        what = f"{count(total, 'shape')} ready. Their next requests are HITs."
    elif progress.cancelled:
        what = f"Cancelled: {ready} of {count(total, 'shape')} ready."
    else:
        what = f"Ended: {ready} of {count(total, 'shape')} ready. Press Make ready for the rest."
    busy = " busy" if progress.under_way else ""
    return (
        f'<div class="order{busy}"><p role="status">{what}</p>'
        f'<div class="bar" role="progressbar" aria-label="Shapes ready" aria-valuemin="0" '
        f'aria-valuemax="{total}" aria-valuenow="{ready}">'
        f'<i class="phase-decode" style="width:{ready / total:.2%}"></i></div></div>'
    )
