"""A crowd: several visitors' requests to one engine, together or one at a time.

Knows how they are sent, and the figures of a run, which come from the engine's own spans. Must not
know components or HTML. Each request has a salt of its own, so that nothing is reused.
"""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, ClassVar

from playground.context.runs import TextRun
from playground.tabs.batch.prompts import prompts_in
from playground.tabs.batch.runs import checked
from playground.ui.families import model_name
from playground.ui.quantities import as_shown
from xla_backend import EngineStatus, GenerationOptions, GenerationResult, InvalidRequest, Prompt
from xla_backend.interface.timing import Span
from xla_backend.rows.scheduler import MAX_ROWS

if TYPE_CHECKING:
    from playground.context.page_context import PageContext
    from playground.context.runs import Occupation

UPDATE_S = 0.5
MAX_APART_MS = 1000


class Visitor:
    """One of a crowd.

    Attributes:
        said: the prompt as it was typed.
        run: the request.
        problem: why it failed; empty otherwise.
    """

    def __init__(self, model: str, said: str, prompt: Prompt, options: GenerationOptions) -> None:
        self.said = said
        self.run = TextRun(model, prompt, options, cache_salt=secrets.token_hex(16))
        self.problem = ""
        self._steps: list[float] = []  # when it was sent, was begun and had its first text

    @property
    def was_sent(self) -> bool:
        """Whether it has arrived at the engine."""
        return bool(self._steps)

    @property
    def whole(self) -> GenerationResult | None:
        """The result; None before it is there, and where it was stopped or failed."""
        result = self.run.result
        return None if result is None or result.finish == "stopped" else result

    def send(self, page: PageContext) -> None:
        """Runs the request. Raises nothing."""
        self._steps = [time.perf_counter()]
        with page.runs.reporting_errors() as ending:
            for text in self.run.texts(page.backend, 0.0):
                if len(self._steps) < (3 if text else 2):
                    self._steps.append(time.perf_counter())
        self.problem = ending.problem

    def spans(self) -> tuple[Span, ...]:
        """The engine's; until they are there with the result, what is known up to now."""
        if (result := self.run.result) is not None:
            return result.spans
        if self.problem:
            return ()
        steps = [*self._steps, time.perf_counter()]
        return tuple(
            Span(name, start, end - start)
            for name, start, end in zip(
                ("queue", "prefill", "decode"), steps, steps[1:], strict=False
            )
        )


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


class Crowd:
    """Requests that arrive a given time apart, or each when the one before has ended.

    Attributes:
        visitors: in the order of their arrival.
        apart_s: seconds between two arrivals; None for one at a time.
        is_over: whether it has ended, or was stopped.
        taken_at, waited_for, left_s: see `QueuedRun`.
    """

    left_s: ClassVar[float | None] = None

    def __init__(
        self,
        model: str,
        prompts: Sequence[tuple[str, Prompt]],
        options: GenerationOptions,
        apart_s: float | None,
    ) -> None:
        """Sends nothing yet; each prompt is given as it was typed and as it is sent."""
        self.taken_at: float | None = None
        self.waited_for = False
        self.visitors = [Visitor(model, *prompt, options) for prompt in prompts]
        self.apart_s = apart_s
        self.is_over = False
        self._asked = model, tuple(prompts), options
        self._stopping = threading.Event()

    def compares_with(self, other: Crowd) -> bool:
        """Whether they ask the same, one of them one at a time and the other not."""
        return self._asked == other._asked and (self.apart_s is None) != (other.apart_s is None)

    def occupation(self, status: EngineStatus) -> Occupation | None:
        """Others' requests run beside these."""

    def stop(self) -> None:
        """Stops all requests. May be called from any thread."""
        self._stopping.set()
        for visitor in self.visitors:
            visitor.run.stop()

    def updates(self, page: PageContext) -> Iterator[None]:
        """Sends the requests; yields about twice a second. Ends when all have, also when left."""
        with ThreadPoolExecutor(len(self.visitors)) as threads:
            if self.apart_s is None:
                works = [threads.submit(self._one_at_a_time, page)]
            else:
                begun = time.perf_counter()
                works = [
                    threads.submit(self._arrive, page, visitor, begun + i * self.apart_s)
                    for i, visitor in enumerate(self.visitors)
                ]
            try:
                while wait(works, UPDATE_S).not_done:
                    yield
            finally:
                self.stop()
        self.is_over = True

    def summary(self) -> Summary | None:
        """The figures; None unless every request has its whole text."""
        results = [result for visitor in self.visitors if (result := visitor.whole)]
        return summary(results) if len(results) == len(self.visitors) else None

    def _arrive(self, page: PageContext, visitor: Visitor, due: float) -> None:
        if not self._stopping.wait(max(0.0, due - time.perf_counter())):
            visitor.send(page)

    def _one_at_a_time(self, page: PageContext) -> None:
        for visitor in self.visitors:
            self._arrive(page, visitor, 0.0)


def beside(crowd: Crowd, earlier: Sequence[Crowd]) -> tuple[Crowd, ...]:
    """A crowd and that of the earlier ones which compares with it; one at a time is the last."""
    others = [other for other in earlier if crowd.compares_with(other)]
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
    prompts = [(row.prompt.prompt, row.asked) for row in islice(cycle(rows), number)]
    return Crowd(model, prompts, options, apart_s)


def _within(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidRequest(f"{name} must be a number from {least} to {most}.")
    return round(value)


def _median_and_largest(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (statistics.median(known), max(known)) if known else None
