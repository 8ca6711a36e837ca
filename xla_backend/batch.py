"""`Batch`: the requests that one run of a compiled function serves, side by side.

Knows whose text stands in which row, how long each one's text was in the making, and who has left.
Must not know models, keys or where functions come from: `backend` puts batches together.

Nobody owns a batch: whoever of its callers wants more text and finds none takes a turn on the
engine and writes a chunk, for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xla_backend.timing import Stopwatch
from xla_backend.turns import Place, Turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xla_backend.engine import Run

BATCH_SIZES = (1, 2, 4, 8)
"""How many texts compiled functions write side by side."""
MOST_AT_ONCE = 2 * max(BATCH_SIZES)
"""How many requests for texts shall be inside an engine: while a full batch runs, the next one
gathers."""

# A chunk should last about this long: often enough to look alive and to let go of those who have
# ended, rarely enough that the cost of a call does not show.
CHUNK_S = 0.15


def fitting(wanted: int, sizes: Sequence[int]) -> int:
    """The size for a number of requests: the smallest that holds all, or else the largest."""
    return min((size for size in sizes if size >= wanted), default=max(sizes))


class Seat(Place):
    """One request's place: first in the order of arrival, then in a batch."""

    def __init__(self, turns: Turns, watch: Stopwatch) -> None:
        """Waits for a batch.

        Args:
            turns: the engine's.
            watch: the request's; while its batch is at work, it is in the batch's phase.
        """
        super().__init__(turns)
        self._turns = turns
        self._watch = watch
        self._phase: str | None = "queue"
        self._read = 0
        self._stopped = threading.Event()
        self.run: Batch | None = None
        self.text = 0

    @property
    def batch(self) -> Batch | None:
        """Where it was seated; None while it waits."""
        return self.run

    @property
    def is_stopped(self) -> bool:
        """Whether the end was asked for."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Asks for the end; from any thread."""
        self._stopped.set()
        self._turns.wake()

    def enter(self, phase: str | None) -> None:
        """What the request does now, as long as its batch is not at work."""
        with self._turns.changed:
            self._phase = phase
            if self.batch is None or not self.batch.is_at_work_for(self):
                self._watch.enter(phase)

    def work(self, phase: str | None) -> None:
        """The phase of the batch at work; None once it pauses."""
        self._watch.enter(self._phase if phase is None else phase)

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
        if self.batch.error is not None:
            raise self.batch.error
        self._read = self.batch.chunks


class Batch:
    """A run and the seats of those it writes for.

    Attributes:
        size: how many requests began together.
        chunks: how many times the run was advanced.
        error: what ended it before its end.
    """

    def __init__(self, turns: Turns, seats: Sequence[Seat]) -> None:
        """Seats requests; the engine is held."""
        self._turns = turns
        self._live = list(seats)
        self._left: list[int] = []
        self._phase: str | None = None
        self._steps = 1
        self.run: Run | None = None
        self.size = len(seats)
        self.chunks = 0
        self.error: Exception | None = None
        with turns.changed:
            for text, seat in enumerate(seats):
                seat.run, seat.text = self, text

    @property
    def goes_on(self) -> bool:
        """Whether there is somebody to write for, and more to write."""
        return bool(self._live) and self.error is None

    def is_at_work_for(self, seat: Seat) -> bool:
        """Whether this seat's text is in the making at this moment."""
        return self._phase is not None and seat in self._live

    def begin(self, start: Callable[[], Run]) -> None:
        """Runs the prompts and writes the first tokens; the engine is held."""
        with self._at_work("first_token"):
            self.run = start()
            self._write(1)

    def more(self, seat: Seat, whole: int | None) -> None:
        """Returns when there is more of the seat's text, or it has ended.

        Args:
            seat: who wants more.
            whole: the number of tokens to write at once where nobody else is served; None for
                chunks.
        """
        seat.enter("queue")
        with self._turns.hold(seat, unless=seat.has_news) as is_held:
            if is_held and not seat.has_news():
                with self._at_work("decode"):
                    self._advance(whole if self.size == 1 else None)

    def has_ended(self, seat: Seat) -> bool:
        """Whether the seat's text is complete."""
        return self.run is not None and bool(self.run.is_done[seat.text])

    def leave(self, seat: Seat) -> None:
        """Writes nothing more for a seat: from the next chunk on, where one is in the making."""
        with self._turns.changed:
            if seat in self._live:
                seat.work(None)
                self._live.remove(seat)
                self._left.append(seat.text)
            self._turns.wake()

    def _advance(self, whole: int | None) -> None:
        with self._turns.changed:
            left, self._left = self._left, []
        for text in left:
            self.run.end(text)
        # A text that has all its tokens is not kept waiting for the others'.
        self._write(min(self._steps, self.run.steps_to_an_end()) if whole is None else whole)

    def _write(self, steps: int) -> None:
        """Goes on by some steps; the next chunk will have as many as fit at this one's speed."""
        started = time.perf_counter()
        self.run.advance(steps)
        each_s = (time.perf_counter() - started) / steps
        self._steps = max(1, round(CHUNK_S / each_s))

    @contextmanager
    def _at_work(self, phase: str) -> Iterator[None]:
        with self._turns.changed:
            self._phase = phase
            for seat in self._live:
                seat.work(phase)
        try:
            yield
            self.chunks += 1
        except Exception as error:
            self.error = error
            raise
        finally:
            with self._turns.changed:
                self._phase = None
                for seat in self._live:
                    seat.work(None)
                if self.run is not None:
                    self._live = [seat for seat in self._live if not self.has_ended(seat)]
