"""Statistics of a visitor's runs, as HTML.

Knows how they are drawn. Must not know components.
"""

from collections.abc import Sequence

import htpy as h

from playground.history.records import Record
from playground.history.statistics import ShapeStatistics, by_shape
from playground.ui import quantities
from playground.ui.markup import nothing, rendered
from playground.ui.tables import sheet, sizes
from playground.ui.wording import model_name

_HEADINGS = ("Model", "Shape", "Cached runs", "First call", "p50", "p95", "p99", "Tokens/s")
_NO_P95 = h.span(title="A guess below 20 runs")["–"]
_NO_P99 = h.span(title="A guess below 100 runs")["–"]


@rendered
def visitor_statistics(runs: Sequence[Record]) -> h.Node:
    """Percentiles and speed of the visitor's own runs by shape."""
    if not (shapes := by_shape(runs)):
        return nothing("No cached run yet: generate twice with the same settings.")
    return (
        sheet(_HEADINGS, map(_row, shapes)),
        h.p(".caption")[
            "p95 needs 20 runs and p99 needs 100: below that they would be guesses. First call: "
            "trace, compile (or restoring) and run. p50, p95, p99: prefill and decode."
        ],
    )


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
