"""`RowScheduler`: which rows of a pool are read or extended next, and who waits for a row.

Knows the order of arrival, how many rows there are functions for, and how long steps take. Must not
know TensorFlow, requests or texts: a test gives it a pool of its own and a clock.

In each round one chunk of a prompt is read and one chunk of text is generated. Prompts are read in
turns, a chunk each, so that a long one starves nobody and is not starved. Rows join and leave
between two chunks. Where more rows go on than the functions at hand take, groups of them alternate.
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
"""How many rows compiled functions take. Two in a function for four take as long as in their own,
because products skip rows that are not there; eight in one for 16 take 1.17 times as long."""
MAX_ROWS = max(ROW_COUNTS)
MAX_AT_ONCE = 4 * MAX_ROWS
"""How many requests for texts shall be inside an engine: those beyond its rows wait there."""

CHUNK_S = 0.08
"""A chunk of text should last about this long: often enough that text flows, rarely enough that the
cost of a call does not show."""
SHORT_CHUNK_S = 0.04
"""The same while somebody waits for a first token."""

logger = logging.getLogger(__name__)


class AnyPool(Protocol):
    """What the scheduler needs of a pool; see `pool.Pool`."""

    def has_room(self, row: Row) -> bool: ...

    def admit(self, row: Row) -> None: ...

    def read(self, rows: Sequence[Row], functions: PoolFunctions) -> None: ...

    def decode(self, rows: list[Row], functions: PoolFunctions, steps: int) -> None: ...

    def leave(self, row: Row) -> None: ...

    def suspend(self, row: Row) -> None: ...


class Functions(Protocol):
    """Which functions there are for rows."""

    def of(self, rows: int, drafts: int = 0) -> PoolFunctions | None:
        """Those for so many rows, if they are in memory."""

    def make(self, rows: int) -> None:
        """Has those for so many rows made in the background."""


@dataclass(eq=False)
class Seat:
    """A row and who wants its text.

    Attributes:
        row: the text.
        watch: of the request; it is told the phases.
        drafts: how many a pass may verify while the row is alone.
        begins: asked once, when it is the row's turn; where it says no, the row is not run.
        on_read: called after each chunk of the prompt.
        on_tokens: called after each chunk that brought tokens; returns whether more are wanted.
        is_stopped: whether its end was asked for.
        error: what ended it.
        rows_at_most: the most rows that ran beside it, itself included.
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
    """The rows of one pool and those who wait for one. For one thread."""

    def __init__(self, pool: AnyPool, functions: Functions, clock: Callable[[], float]) -> None:
        """Nobody waits yet; `clock` reads seconds."""
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
        """Lets a row wait for its turn."""
        self._waiting.append(seat)

    def seats(self) -> list[Seat]:
        """All, those that run first."""
        return [*self._decoding, *self._reading, *self._waiting]

    def give_up(self, error: Exception) -> list[Seat]:
        """Ends all with an error."""
        seats = self.seats()
        for seat in seats:
            seat.error = error
            with contextlib.suppress(Exception):  # what failed once may fail again
                self._remove(seat)
        self._waiting.clear()
        self._reading.clear()
        self._decoding.clear()
        return seats

    def pause(self) -> None:
        """Says that something else runs now."""
        self._enter([], "queue")

    def round(self) -> list[Seat]:
        """Admits, reads a chunk, generates a chunk; returns the seats that have ended."""
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
                if not seat.has_begun and not seat.begins():
                    refused.append(seat)
                    continue
                seat.has_begun = True
                self._pool.admit(seat.row)
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
        assert functions is not None, "a row joins when there are functions for one"
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
            steps = 1  # who waits for a first token has it at once
        else:
            steps = max(1, round(budget_s / self._step_s.get(functions.rows, budget_s)))
        steps = min(
            steps, *(seat.row.options.max_new_tokens - seat.row.generated for seat in group)
        )
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
        """The rows that go on now, on which functions."""
        count = len(self._decoding)
        if count == 1 and (drafts := self._decoding[0].drafts):
            with_drafts = self._functions.of(1, drafts)
            if with_drafts is not None:
                return [*self._decoding], with_drafts
        wanted = min(size for size in ROW_COUNTS if size >= min(count, MAX_ROWS))
        # Larger ones serve, too; else the largest that there are.
        larger = [size for size in ROW_COUNTS if size >= wanted]
        smaller = [size for size in reversed(ROW_COUNTS) if size < wanted]
        found = next(
            functions for size in larger + smaller if (functions := self._functions.of(size))
        )
        if found.rows < count and found.rows < MAX_ROWS:
            self._functions.make(MAX_ROWS)  # which serve any number
        if found.rows != wanted:
            self._functions.make(wanted)
        group = self._decoding[: found.rows]
        if len(group) < count:  # the others are next
            self._decoding = self._decoding[found.rows :] + group
        return group, found

    def _make_room(self) -> None:
        """Takes the memory of the row that came last; it is read again when there is room."""
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
        """Says what the rows of a group do now; the others wait for them.

        The first token belongs to the prompt's phase.
        """
        for seat in self.seats():
            if seat not in group:
                seat.watch.enter("queue")
        for seat in group:
            seat.watch.enter("prefill" if seat.row.logits is not None else phase)
