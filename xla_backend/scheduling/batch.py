"""`Batch`: the requests that one run of a compiled function serves, side by side.

Knows whose text stands in which row, how long each one's text was in the making, and who has left.
Must not know models, keys or where functions come from: `backend` puts batches together.

Nobody owns a batch: a caller that wants more text and finds none takes a turn on the
engine and writes a chunk, for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xla_backend.interface.timing import Stopwatch
from xla_backend.scheduling.scheduler import Scheduler, Ticket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xla_backend.model.generation import Generation

BATCH_SIZES = (1, 2, 4, 8)
"""How many texts compiled functions write side by side."""
MAX_AT_ONCE = 2 * max(BATCH_SIZES)
"""How many requests for texts shall be inside an engine: while a full batch runs, the next one
gathers."""

# A chunk should last about this long: often enough to look alive and to let go of those who have
# ended, rarely enough that the cost of a call does not show.
CHUNK_S = 0.15


def fitting(wanted: int, sizes: Collection[int]) -> int:
    """The size for a number of requests: the smallest that holds all, or else the largest."""
    return min((size for size in sizes if size >= wanted), default=max(sizes))


class RequestSlot(Ticket):
    """One request's place: first in the order of arrival, then in a batch."""

    def __init__(self, scheduler: Scheduler, watch: Stopwatch) -> None:
        """Waits for a batch.

        Args:
            scheduler: the engine's.
            watch: the request's; while its batch is at work, it is in the batch's phase.
        """
        super().__init__(scheduler)
        self._watch = watch
        self._phase: str | None = "queue"
        self._read = self._tokens = 0
        self._stopped = threading.Event()
        self.run: Batch | None = None
        self.text = 0

    @property
    def batch(self) -> Batch | None:
        """Where it was in a batch; None while it waits."""
        return self.run

    @property
    def is_stopped(self) -> bool:
        """Whether the end was asked for."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Asks for the end; from any thread."""
        self._stopped.set()
        self._scheduler.wake()

    def enter(self, phase: str | None) -> None:
        """What the request does now, as long as its batch is not at work."""
        with self._scheduler.changed:
            self._phase = phase
            if self.batch is None or not self.batch.is_at_work_for(self):
                self._watch.enter(phase)

    def work(self, phase: str | None) -> None:
        """The phase of the batch at work; None once it pauses."""
        self._watch.enter(self._phase if phase is None else phase)

    def count(self, tokens: int) -> None:
        """How many tokens its text has by now."""
        self._watch.count(tokens - self._tokens)
        self._tokens = tokens

    def has_news(self) -> bool:
        """Whether its batch has written (or failed) since `look`, or the end was asked for."""
        batch = self.batch
        return self.is_stopped or (
            batch is not None and (batch.chunks > self._read or batch.error is not None)
        )

    def look(self) -> None:
        """Counts what is there as read.

        Raises:
            Exception: what ended the batch.
        """
        batch = self.batch
        assert batch is not None, "nothing is written before it is in a batch"
        if batch.error is not None:
            raise batch.error
        self._read = batch.chunks


class Batch:
    """A run and the requests of those it writes for.

    Attributes:
        size: how many requests began together.
        chunks: how many times the run was advanced.
        error: what ended it before its end.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        """Nobody is seated yet."""
        self._scheduler = scheduler
        self._live: list[RequestSlot] = []
        self._left: list[int] = []
        self._phase: str | None = None
        self._steps = 1
        self.run: Generation | None = None
        self.size = 0
        self.chunks = 0
        self.error: Exception | None = None

    def seat(self, request: RequestSlot) -> None:
        """Gives a request the next row; before the run is there, and with the engine held."""
        with self._scheduler.changed:
            request.run, request.text = self, self.size
            self._live.append(request)
            self.size += 1
            if self._phase is not None:
                request.work(self._phase)

    @property
    def goes_on(self) -> bool:
        """Whether there is somebody to write for, and more to write."""
        return bool(self._live) and self.error is None

    def is_at_work_for(self, request: RequestSlot) -> bool:
        """Whether this request's text is in the making at this moment."""
        return self._phase is not None and request in self._live

    def begin(self, start: Callable[[], Generation]) -> None:
        """Runs the prompts and writes the first tokens; the engine is held."""
        with self._at_work("prefill"):
            self.run = start()
            self._write(self.run, 1)

    def more(self, request: RequestSlot, whole: int | None) -> None:
        """Returns when there is more of the request's text, or it has ended.

        Args:
            request: who wants more.
            whole: the number of tokens to write at once where nobody else is served; None for
                chunks.
        """
        request.enter("queue")
        with self._scheduler.acquire(request, unless=request.has_news) as is_held:
            if is_held and not request.has_news():
                with self._at_work("decode"):
                    self._advance(whole if self.size == 1 else None)

    def has_ended(self, request: RequestSlot) -> bool:
        """Whether the request's text is complete."""
        return self.run is not None and bool(self.run.is_done[request.text])

    def leave(self, request: RequestSlot) -> None:
        """Writes nothing more for a request: from the next chunk on, where one is in the making."""
        with self._scheduler.changed:
            if request in self._live:
                request.work(None)
                self._live.remove(request)
                self._left.append(request.text)
            self._scheduler.wake()

    def _advance(self, whole: int | None) -> None:
        with self._scheduler.changed:
            left, self._left = self._left, []
        assert self.run is not None, "begin() comes first"
        for text in left:
            self.run.end(text)
        # A text that has all its tokens is not kept waiting for the others'.
        steps = min(self._steps, self.run.steps_to_first_end()) if whole is None else whole
        self._write(self.run, steps)

    def _write(self, run: Generation, steps: int) -> None:
        """Goes on by some steps; the next chunk will have as many as fit at this one's speed."""
        started = time.perf_counter()
        run.advance(steps)
        each_s = (time.perf_counter() - started) / steps
        self._steps = max(1, round(CHUNK_S / each_s))

    @contextmanager
    def _at_work(self, phase: str) -> Iterator[None]:
        with self._scheduler.changed:
            self._phase = phase
            for request in self._live:
                request.work(phase)
        try:
            yield
            self.chunks += 1
        except Exception as error:
            self.error = error
            raise
        finally:
            with self._scheduler.changed:
                self._phase = None
                for request in self._live:
                    if self.run is not None:
                        request.count(self.run.length(request.text))
                    request.work(None)
                if self.run is not None:
                    self._live = [request for request in self._live if not self.has_ended(request)]
