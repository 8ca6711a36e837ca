"""A crowd: several visitors' requests to one engine, together or one at a time.

Knows which requests these are, and the figures of a run, which come from the engine's own spans.
Must not know components or HTML. Each request has a salt of its own, so that nothing is reused.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from playground.context.page_context import PageContext
from playground.context.runs import TextRun
from playground.context.runs_together import Member, RunsTogether
from playground.tabs.batch.prompts import prompts_in
from playground.tabs.batch.runs import checked
from playground.ui.quantities import as_shown
from playground.ui.wording import model_name
from xla_backend import GenerationOptions, GenerationResult, InvalidRequest, Prompt
from xla_backend.rows.scheduler import MAX_ROWS

MAX_APART_MS = 1000


@dataclass(frozen=True)
class Summary:
    """The figures of a run in which every request has its whole text.

    Attributes:
        rows: the most requests that ran together.
        ttft_s, tpot_s: median and largest; None where no text was long enough.
        arriving_s: from the first arrival to the last one.
        elapsed_s: from the first arrival to the last end.
        once_s: of it, loading the model and making functions.
    """

    requests: int
    tokens: int
    rows: int
    ttft_s: tuple[float, float] | None
    tpot_s: tuple[float, float] | None
    arriving_s: float
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
        arriving_s=max(arrivals) - min(arrivals),
        elapsed_s=max(ends) - min(arrivals),
        once_s=max(
            result.load_s
            + result.timing.trace_s
            + result.timing.compile_s
            + result.compile_beside_s
            for result in results
        ),
    )


class Crowd(RunsTogether):
    """Requests of visitors, each with a salt of its own.

    Attributes:
        asked: what they ask: model, prompts and options.
        compared: this crowd and, where there is one, that of the other kind.
    """

    def __init__(
        self,
        model: str,
        prompts: Sequence[tuple[str, Prompt]],
        options: GenerationOptions,
        apart_s: float | None,
    ) -> None:
        """Sends nothing yet; each prompt is given as it was typed and as it is sent."""
        runs = [
            (typed, TextRun(model, prompt, options, cache_salt=secrets.token_hex(16)))
            for typed, prompt in prompts
        ]
        super().__init__([Member(run, typed) for typed, run in runs], apart_s)
        self.request = model, tuple(prompts), options
        self.compared: tuple[Crowd, ...] = (self,)

    def summary(self) -> Summary | None:
        """The figures; None unless every request has its whole text."""
        results = [result for member in self.members if (result := member.whole)]
        return summary(results) if len(results) == len(self.members) else None


def comparable(crowd: Crowd, earlier: Sequence[Crowd]) -> tuple[Crowd, ...]:
    """A crowd and that of the earlier ones which compares with it; one at a time is the last."""
    alike = [other for other in earlier if other.request == crowd.request]
    others = [other for other in alike if (other.apart_s is None) != (crowd.apart_s is None)]
    return tuple(sorted([crowd, *others], key=lambda each: each.apart_s is None))


def most_visitors(page: PageContext) -> int:
    """How many a crowd may have here."""
    return min(MAX_ROWS, page.limits.waiting_each)


def crowd(
    page: PageContext,
    model: str,
    text: str,
    visitors: object,
    new_tokens: int,
    apart_ms: object | None,
) -> Crowd:
    """A crowd that asks the prompts of a text in turn, all of them checked.

    Args:
        visitors: how many; any value that a field may have, as are the next two.
        new_tokens: the most tokens of each.
        apart_ms: milliseconds between two arrivals; None for one at a time.

    Raises:
        InvalidRequest: a value is out of range, or the model has no pool.
        ModelUnavailable: the model is not offered.
    """
    number = _within("Visitors", visitors, 1, most_visitors(page))
    apart_s = None if apart_ms is None else _within("Apart (ms)", apart_ms, 0, MAX_APART_MS) / 1000
    info = page.info(model)
    if info is not None and info.family != "decoder-only":
        raise InvalidRequest(
            f"{model_name(model)} has no pool, so its requests cannot run as rows together. Choose "
            "a decoder-only model."
        )
    options = GenerationOptions(max_new_tokens=new_tokens)
    found, _ = prompts_in(text)
    rows = checked(page, model, found[:number], options, False).rows
    prompts = [(row.prompt.prompt, row.sent) for row in islice(cycle(rows), number)]
    return Crowd(model, prompts, options, apart_s)


def _within(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidRequest(f"{name} must be a number from {least} to {most}.")
    return round(value)


def _median_and_largest(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (statistics.median(known), max(known)) if known else None
