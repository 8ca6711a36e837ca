"""Statistics of a visitor's runs, as HTML.

Knows how they are drawn. Must not know components.
"""

from collections.abc import Sequence

import htpy as h

from playground.history.records import Record
from playground.history.statistics import ShapeStatistics, by_shape, cached, run_s
from playground.ui import charts, quantities
from playground.ui.charts import Dot
from playground.ui.markup import nothing, rendered
from playground.ui.tables import sheet, sizes
from playground.ui.wording import model_name
from xla_backend import CacheOutcome
from xla_backend.interface.timing import summarize

_HEADINGS = ("Model", "Shape", "Cached runs", "First call", "p50", "p95", "p99", "Tokens/s")
_NO_P95 = h.span(title="A guess below 20 runs")["–"]
_NO_P99 = h.span(title="A guess below 100 runs")["–"]


@rendered
def visitor_statistics(runs: Sequence[Record]) -> h.Node:
    """Histogram, percentiles by shape, and speed over time, of the visitor's own runs."""
    if not runs:
        return nothing(
            "Nothing to count yet. Runs that had to compile are counted apart from those that only "
            "ran."
        )
    return _speeds(runs), _histogram(runs), _table(by_shape(runs))


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
