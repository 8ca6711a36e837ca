"""`RowScheduler`: which rows of a pool are read or decoded next, and which wait.

Knows the order of arrival, for how many rows there are functions, and how long steps take. Must not
know TensorFlow, requests or texts: tests pass their own pool and clock.

In each round one chunk of a prompt is read and one chunk of text is generated. Prompts are read in
turns, a chunk each, so that a long one neither blocks others nor is blocked. Rows join and leave
between two chunks. If more rows run than the available functions take, groups of rows alternate.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from xla_backend.interface.timing import Stopwatch
from xla_backend.model.kv_memory import OutOfBlocks

if TYPE_CHECKING:
    from xla_backend.model.functions import PoolFunctions
    from xla_backend.rows.pool import Row

ROW_COUNTS = (1, 4, 8, 16)
"""Numbers of rows for which functions are compiled. Two rows in a function for four take as long as
in one for two, because products skip unused rows; eight in one for 16 take 1.17 times as long."""
MAX_ROWS = max(ROW_COUNTS)
MAX_AT_ONCE = 4 * MAX_ROWS
"""Bound on the text requests in an engine; those without a row wait in it."""

CHUNK_S = 0.08
"""Target duration of a chunk of text: short enough for streaming, long enough that the cost of a
call does not matter."""
SHORT_CHUNK_S = 0.04
"""The same while a request waits for its first token."""

logger = logging.getLogger(__name__)


class AnyPool(Protocol):
    """What the scheduler needs from a pool; see `pool.Pool`."""

    def has_room(self, row: Row) -> bool: ...

    def admit(self, row: Row) -> None: ...

    def read(self, rows: Sequence[Row], functions: PoolFunctions) -> None: ...

    def decode(self, rows: list[Row], functions: PoolFunctions, steps: int) -> None: ...

    def leave(self, row: Row) -> None: ...

    def suspend(self, row: Row) -> None: ...


class Functions(Protocol):
    """The functions of a pool."""

    def of(self, rows: int, drafts: int = 0) -> PoolFunctions | None:
        """Those for this number of rows, if they are in memory."""

    def make(self, rows: int, drafts: int = 0) -> None:
        """Queues those for this number of rows to be compiled in the background."""


@dataclass(eq=False)
class Seat:
    """A row and the callbacks of its request.

    Attributes:
        row: the text.
        watch: the request's stopwatch, for the phases.
        drafts: how many a pass may verify while the row is alone.
        begins: called once, before the row starts; if it returns False, the row does not run.
        on_read: called before the first chunk of the prompt and after each.
        on_tokens: called after each chunk with new tokens; returns whether more are wanted.
        is_stopped: whether it was stopped.
        error: what ended it.
        rows_at_most: the largest number of rows that ran at once, itself included.
    """

    row: Row
    watch: Stopwatch
    drafts: int
    begins: Callable[[], bool]
    on_read: Callable[[], None]
    on_tokens: Callable[[], bool]
    is_stopped: Callable[[], bool]
    error: Exception | None = None
    rows_at_most: int = 0
    has_begun: bool = False


class RowScheduler:
    """The rows of one pool, running and waiting. For one thread."""

    def __init__(self, pool: AnyPool, functions: Functions, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._pool = pool
        self._functions = functions
        self._clock = clock
        self._waiting: deque[Seat] = deque()
        self._reading: deque[Seat] = deque()
        self._decoding: list[Seat] = []
        self._step_s: dict[int, float] = {}

    @property
    def goes_on(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting or self._reading or self._decoding)

    def join(self, seat: Seat) -> None:
        """Adds a waiting row."""
        self._waiting.append(seat)

    def seats(self) -> list[Seat]:
        """All rows, the running ones first."""
        return [*self._decoding, *self._reading, *self._waiting]

    def give_up(self, error: Exception) -> list[Seat]:
        """Ends all rows with an error."""
        seats = self.seats()
        for seat in seats:
            seat.error = error
            with contextlib.suppress(Exception):  # the pool that failed may fail again
                self._remove(seat)
        self._waiting.clear()
        self._reading.clear()
        self._decoding.clear()
        return seats

    def pause(self) -> None:
        """All rows wait, because another request runs."""
        self._enter([], "queue")

    def round(self) -> list[Seat]:
        """Admits rows, reads a chunk, generates a chunk; returns the rows that have ended."""
        ended = self._drop_stopped()
        ended += self._admit()
        ended += self._read()
        ended += self._decode()
        return ended

    def _drop_stopped(self) -> list[Seat]:
        stopped = [seat for seat in self.seats() if seat.is_stopped()]
        for seat in stopped:
            self._remove(seat)
        return stopped

    def _remove(self, seat: Seat) -> None:
        if seat in self._waiting:
            self._waiting.remove(seat)
            return
        if seat in self._reading:
            self._reading.remove(seat)
        else:
            self._decoding.remove(seat)
        self._pool.leave(seat.row)

    def _admit(self) -> list[Seat]:
        refused = []
        while self._waiting and len(self._reading) + len(self._decoding) < MAX_ROWS:
            seat = self._waiting[0]
            is_alone = not self._reading and not self._decoding
            if not is_alone and not self._pool.has_room(seat.row):
                break
            self._waiting.popleft()
            try:
                is_first = not seat.has_begun
                if is_first and not seat.begins():
                    refused.append(seat)
                    continue
                seat.has_begun = True
                self._pool.admit(seat.row)
                if is_first:
                    seat.on_read()
            except Exception as error:
                refused.append(self._failed(seat, error))
                continue
            if seat.row.is_read:
                self._decoding.append(seat)
            else:
                self._reading.append(seat)
        return refused

    def _read(self) -> list[Seat]:
        if not self._reading:
            return []
        seat = self._reading.popleft()
        functions = self._functions.of(1)
        assert functions is not None, "rows join only when there are functions for one row"
        self._enter([seat], "prefill")
        try:
            self._pool.read([seat.row], functions)
        except OutOfBlocks:
            self._reading.appendleft(seat)
            self._make_room()
            return []
        except Exception as error:
            return [self._failed(seat, error)]
        seat.watch.lap()
        seat.on_read()
        if seat.row.is_read:
            self._decoding.insert(0, seat)  # its first token comes next
        else:
            self._reading.append(seat)
        return []

    def _decode(self) -> list[Seat]:
        if not self._decoding:
            return []
        group, functions = self._group()
        budget_s = SHORT_CHUNK_S if self._reading or self._waiting else CHUNK_S
        if any(seat.row.logits is not None for seat in group):
            steps = 1  # a first token is handed out at once
        else:
            steps = max(1, round(budget_s / self._step_s.get(functions.rows, budget_s)))
        steps = min(steps, *(seat.row.most_steps for seat in group))
        before = [seat.row.generated for seat in group]
        self._enter(group, "decode")
        started = self._clock()
        try:
            self._pool.decode([seat.row for seat in group], functions, steps)
        except OutOfBlocks:
            self._make_room()
            return []
        except Exception as error:
            return [self._failed(seat, error) for seat in group]
        self._step_s[functions.rows] = max(1e-6, (self._clock() - started) / steps)
        ended = []
        for seat, count in zip(group, before, strict=True):
            seat.rows_at_most = max(seat.rows_at_most, len(group))
            seat.watch.lap(seat.row.generated - count)
            try:
                goes_on = seat.on_tokens() and not seat.row.is_done
            except Exception as error:
                ended.append(self._failed(seat, error))
                continue
            if not goes_on:
                self._remove(seat)
                ended.append(seat)
        return ended

    def _group(self) -> tuple[list[Seat], PoolFunctions]:
        """The rows that run now, and their functions."""
        count = len(self._decoding)
        if count == 1 and (drafts := self._decoding[0].drafts):
            with_drafts = self._functions.of(1, drafts)
            if with_drafts is not None:
                return [*self._decoding], with_drafts
            self._functions.make(1, drafts)
        wanted = min(size for size in ROW_COUNTS if size >= min(count, MAX_ROWS))
        # Larger functions serve, too; otherwise the largest available.
        larger = [size for size in ROW_COUNTS if size >= wanted]
        smaller = [size for size in reversed(ROW_COUNTS) if size < wanted]
        found = next(
            functions for size in larger + smaller if (functions := self._functions.of(size))
        )
        if found.rows < count and found.rows < MAX_ROWS:
            self._functions.make(MAX_ROWS)  # they serve any number
        if found.rows != wanted:
            self._functions.make(wanted)
        group = self._decoding[: found.rows]
        if len(group) < count:  # the others come next
            self._decoding = self._decoding[found.rows :] + group
        return group, found

    def _make_room(self) -> None:
        """Suspends the newest row; it is read again when there is room."""
        running = [*self._decoding, *self._reading]
        last = max(running, key=lambda seat: seat.watch.started)
        logger.info("KV memory is full: a row waits until there is room.")
        if last in self._reading:
            self._reading.remove(last)
        else:
            self._decoding.remove(last)
        self._pool.suspend(last.row)
        last.watch.enter("queue")
        self._waiting.appendleft(last)

    def _failed(self, seat: Seat, error: Exception) -> Seat:
        seat.error = error
        if seat in self._decoding or seat in self._reading:
            self._remove(seat)
        else:
            self._pool.leave(seat.row)
        return seat

    def _enter(self, group: list[Seat], phase: str) -> None:
        """Sets the phase of a group's rows; the others wait in the queue phase.

        The first token belongs to the prompt's phase.
        """
        for seat in self.seats():
            if seat not in group:
                seat.watch.enter("queue")
        for seat in group:
            seat.watch.enter("prefill" if seat.row.logits is not None else phase)
