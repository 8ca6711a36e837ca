"""The table of compiled functions that the engine holds.

Knows how `CacheEntry` values read. Must not know the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from playground import quantities
from playground.markup import escape
from xla_backend import CacheEntry

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


def entries_table(entries: Sequence[CacheEntry]) -> str:
    """The entries as an HTML table, or what an empty cache means."""
    if not entries:
        return (
            '<p class="nothing">Nothing is compiled yet. Each shape that you use appears here with '
            "what its first call cost and what it costs since.</p>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEADINGS)
    rows = "".join(_row(entry) for entry in entries)
    return f'<table class="sheet"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _side_by_side(entry: CacheEntry) -> str:
    if entry.batch_size == 1:
        return ""
    return f" <small>for {entry.batch_size} requests at once</small>"


def _row(entry: CacheEntry) -> str:
    first = entry.first_call
    cached = entry.cached
    since = "–"
    gain = "–"
    if cached is not None:
        of = quantities.of_calls(cached.n)
        since = f"{quantities.seconds(cached.p50_s)} <small>{of}</small>"
        gain = quantities.times(first.total_s / cached.p50_s) if cached.p50_s > 0 else "–"
    first_call = (
        f"{quantities.seconds(first.total_s)} <small>trace {quantities.seconds(first.trace_s)}"
        f" · compile {quantities.seconds(first.compile_s)}</small>"
    )
    values = (
        escape(entry.model),
        str(entry.key.padded_length),
        f"{entry.key.num_beams}{_side_by_side(entry)}",
        str(entry.key.max_new_tokens),
        first_call,
        since,
        gain,
        str(entry.hits),
    )
    cells = "".join(
        f'<td data-label="{name}"><div>{value}</div></td>'
        for name, value in zip(_HEADINGS, values, strict=True)
    )
    return f"<tr>{cells}</tr>"
