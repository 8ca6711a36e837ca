"""The figures of requests that arrived together, from the engine's own spans.

Must not know components, HTML or how requests were sent.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from playground.ui.quantities import as_shown
from xla_backend import GenerationResult


@dataclass(frozen=True)
class Summary:
    """The figures of a run in which every request has its whole text.

    Attributes:
        rows: the most requests that ran together.
        ttft_s, tpot_s: median and largest; None where no text was long enough.
        elapsed_s: from the first arrival to the last end.
        once_s: of it, loading the model and making functions.
    """

    requests: int
    tokens: int
    rows: int
    ttft_s: tuple[float, float] | None
    tpot_s: tuple[float, float] | None
    elapsed_s: float
    once_s: float

    @property
    def tokens_per_second(self) -> float:
        """Of all requests together, in the elapsed time as the page shows it."""
        return self.tokens / as_shown(self.elapsed_s)


def summary(results: Sequence[GenerationResult]) -> Summary:
    """The figures of at least one result with spans."""
    arrivals = [result.spans[0].started for result in results]
    ends = [span.started + span.duration_s for result in results for span in result.spans]
    return Summary(
        requests=len(results),
        tokens=sum(result.new_tokens for result in results),
        rows=max(result.batch_size for result in results),
        ttft_s=_median_and_largest([result.ttft_s for result in results]),
        tpot_s=_median_and_largest([result.tpot_s for result in results]),
        elapsed_s=max(ends) - min(arrivals),
        once_s=max(
            result.load_s
            + result.timing.trace_s
            + result.timing.compile_s
            + result.background_compile_s
            for result in results
        ),
    )


def _median_and_largest(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (statistics.median(known), max(known)) if known else None
