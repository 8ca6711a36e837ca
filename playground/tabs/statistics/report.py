"""What the Statistics tab shows, as HTML.

Knows how statistics of runs and of the engine's functions are drawn. Must not know components.
"""

from collections.abc import Sequence

import htpy as h

from playground.history.records import Record
from playground.tabs.statistics.run_statistics import ShapeStatistics, by_shape, cached, run_s
from playground.ui import charts, quantities
from playground.ui.charts import Bar, Dot
from playground.ui.markup import nothing, rendered, with_note
from playground.ui.tables import sheet, sizes
from playground.ui.wording import model_name
from xla_backend import CacheEntry, CacheKey, CacheOutcome
from xla_backend.interface.results import KeyHistory, Past
from xla_backend.interface.timing import summarize

_MAX_SHAPES = 12
_HEADINGS = ("Model", "Shape", "Cached runs", "First call", "p50", "p95", "p99", "Tokens/s")
_NO_P95 = h.span(title="A guess below 20 runs")["–"]
_NO_P99 = h.span(title="A guess below 100 runs")["–"]


@rendered
def engine_statistics(entries: Sequence[CacheEntry], past: Past) -> h.Node:
    """First call and cached call of each shape, on one scale; the shapes most asked for."""
    known = {
        (entry.model, entry.key): entry
        for entry in entries
        if isinstance(entry.key, CacheKey) and entry.batch_size == 1
    }
    pasts = {(model, key): was for model, keys in past.items() for key, was in keys.items()}
    drawn = {}
    for shape in {**pasts, **known}:
        if rows := _rows(known.get(shape), pasts.get(shape, KeyHistory())):
            drawn[shape] = rows
    if not drawn:
        return nothing(
            "The engine has made no function yet. Each shape appears here with what its first "
            "call cost and what a cached call costs."
        )
    times = {shape: pasts.get(shape, KeyHistory()).times for shape in drawn}
    chosen = sorted(drawn, key=lambda shape: (-times[shape], shape))[:_MAX_SHAPES]
    longest = max(bar.value for shape in chosen for bar in drawn[shape])
    parts = [
        h.figure(".shape-times")[
            h.figcaption[
                with_note(
                    model_name(model),
                    f"{sizes(key)} · {_calls(known.get((model, key)), times[model, key])}",
                )
            ],
            charts.bars(drawn[model, key], longest, quantities.seconds),
        ]
        for model, key in chosen
    ]
    left = len(drawn) - len(chosen)
    more = left > 0 and h.p(".caption")[f"And {quantities.count(left, 'shape')} less used."]
    return h.div(".shapes-times")[parts], more


@rendered
def visitor_statistics(runs: Sequence[Record]) -> h.Node:
    """Histogram, percentiles by shape, and speed over time, of the visitor's own runs."""
    if not runs:
        return nothing(
            "Nothing to count yet. Generate a few times on Playground: your runs are "
            "counted here, those that had to compile apart from those that only ran."
        )
    return _speeds(runs), _histogram(runs), _table(by_shape(runs))


def _calls(entry: CacheEntry | None, requests: int) -> str:
    """How often it was called in this process, or requested before."""
    if entry is None:
        return f"requested {quantities.count(requests, 'time')}"
    later = entry.cached.n if entry.cached else 0
    return f"first call and {quantities.count(later, 'later one')}"


def _rows(entry: CacheEntry | None, was: KeyHistory) -> list[Bar]:
    first = {CacheOutcome.MISS: was.miss_s, CacheOutcome.DISK: was.disk_s}
    cached_s, of = was.run_s, "last run"
    if entry is not None or (was.compiled and was.run_s == was.compiled.run_s):
        cached_s = None  # that run was the first call's own
    if entry is not None:
        first[entry.first_call.outcome] = entry.first_call.total_s
        if entry.cached is not None:
            cached_s, of = entry.cached.p50_s, quantities.of_calls(entry.cached.n)
    rows = [
        ("First call, compiled", first[CacheOutcome.MISS], "miss", ""),
        ("First call, from disk", first[CacheOutcome.DISK], "disk", ""),
        ("Cached", cached_s, "hit", of),
    ]
    return [Bar(name, value, style, note) for name, value, style, note in rows if value]


def _speeds(runs: Sequence[Record]) -> h.Node:
    series = [
        Dot(
            run["tokens_per_second"],
            CacheOutcome(run["cache"]),
            f"Run {run['run']}: {quantities.rate(run['tokens_per_second'])} tokens/s, "
            f"{run['cache'].upper()}",
        )
        for run in sorted(runs, key=lambda run: (run["time"], run["run"]))
        if run["tokens_per_second"]
    ]
    if not series:
        return None
    values = [dot.value for dot in series]
    return charts.dots(
        series,
        "Tokens a second, first run to last",
        f"{quantities.count(len(series), 'run')}, from {quantities.rate(min(values))} to "
        f"{quantities.rate(max(values))} tokens a second",
        lambda value: f"{value:,g}",
    )


def _histogram(runs: Sequence[Record]) -> h.Node:
    seconds = [run_s(run) for run in cached(runs)]
    summary = summarize(seconds)
    if summary is None:
        return nothing("No cached run yet: generate once more with the same settings.")
    lines = [("p50, half are faster", summary.p50_s)]
    if summary.p95_s is not None:
        lines.append(("p95", summary.p95_s))
    if summary.p99_s is not None:
        lines.append(("p99", summary.p99_s))
    return charts.histogram(
        seconds,
        f"{quantities.count(len(seconds), 'cached run')} by time, prefill and decode",
        quantities.seconds,
        lines,
    )


def _table(shapes: Sequence[ShapeStatistics]) -> h.Node:
    if not shapes:
        return None
    return h.figure(".chart")[
        h.figcaption["Cached runs by shape"],
        sheet(_HEADINGS, map(_row, shapes)),
        h.p(".caption")[
            "p95 needs 20 runs and p99 needs 100: below that they would be guesses. First call: "
            "trace, compile (or restoring) and run."
        ],
    ]


def _row(shape: ShapeStatistics) -> tuple[h.Node, ...]:
    p95, p99 = shape.run_s.p95_s, shape.run_s.p99_s
    return (
        model_name(shape.model),
        sizes(shape.key),
        str(shape.run_s.n),
        quantities.seconds(shape.first_call_s),
        quantities.seconds(shape.run_s.p50_s),
        _NO_P95 if p95 is None else quantities.seconds(p95),
        _NO_P99 if p99 is None else quantities.seconds(p99),
        quantities.rate(shape.tokens_per_second),
    )
