"""`RowScheduler`: which rows of a pool are read or decoded next, and which wait.

Knows the order of arrival, for how many rows there are functions, and how long steps take. Must not
know TensorFlow, options or texts: tests pass their own pool and clock.

In each round one chunk of a prompt is read and one chunk of text is generated. Prompts are read in
turns, a chunk each, so that a long one neither blocks others nor is blocked. Rows join and leave
between two chunks. If more rows run than the available functions take, groups of rows alternate.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from xla_backend.interface.buckets import CHUNK_ROWS
from xla_backend.interface.timing import Stopwatch
from xla_backend.model.kv_memory import OutOfBlocks

if TYPE_CHECKING:
    from xla_backend.model.functions import PoolFunctions
    from xla_backend.rows.pool import Row

ROW_COUNTS = (1, 4, 8, 16)
"""Numbers of rows for which functions are compiled. Two rows in a function for four take as long as
in one for two, because products skip unused rows; eight in one for 16 take 1.17 times as long."""
MAX_ROWS = max(ROW_COUNTS)

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


class RowRequest(Protocol):
    """A request that has a row.

    Attributes:
        row: its text.
        watch: its stopwatch, for the phases.
        drafts: how many a pass may verify while the row is alone.
        rows_at_most: the largest number of rows that ran at once, itself included.
        error: what has ended it.
    """

    row: Row
    watch: Stopwatch
    drafts: int
    rows_at_most: int
    error: Exception | None

    def admit(self) -> bool:
        """Called before its row is admitted, also again; whether it may run."""

    def read(self) -> None:
        """Called before the first chunk of the prompt and after each."""

    def write(self) -> bool:
        """Called after each chunk with new tokens; whether more are wanted."""


Joined = TypeVar("Joined", bound=RowRequest)


class RowScheduler(Generic[Joined]):
    """The rows of one pool, running and waiting. For one thread."""

    def __init__(self, pool: AnyPool, functions: Functions, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._pool = pool
        self._functions = functions
        self._clock = clock
        self._waiting: deque[Joined] = deque()
        self._reading: deque[Joined] = deque()
        self._decoding: list[Joined] = []
        self._step_s: dict[int, float] = {}

    @property
    def goes_on(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting or self._reading or self._decoding)

    def join(self, request: Joined) -> None:
        """Adds a waiting row."""
        self._waiting.append(request)

    def requests(self) -> list[Joined]:
        """All rows, the running ones first."""
        return [*self._decoding, *self._reading, *self._waiting]

    def give_up(self, error: Exception) -> list[Joined]:
        requests = self.requests()
        for request in requests:
            request.error = error
            with contextlib.suppress(Exception):  # the pool that failed may fail again
                self.remove(request)
        self._waiting.clear()
        self._reading.clear()
        self._decoding.clear()
        return requests

    def pause(self) -> None:
        """All rows wait, because another request runs."""
        self._enter([], "queue")

    def round(self) -> list[Joined]:
        """Admits rows, reads a chunk, generates a chunk; returns the rows that have ended."""
        return [*self._admit(), *self._read(), *self._decode()]

    def remove(self, request: Joined) -> None:
        """Removes a row, running or waiting."""
        if request in self._waiting:
            self._waiting.remove(request)
            return
        if request in self._reading:
            self._reading.remove(request)
        else:
            self._decoding.remove(request)
        self._pool.leave(request.row)

    def _admit(self) -> list[Joined]:
        refused = []
        while self._waiting and len(self._reading) + len(self._decoding) < MAX_ROWS:
            request = self._waiting[0]
            is_alone = not self._reading and not self._decoding
            if not is_alone and not self._pool.has_room(request.row):
                break
            self._waiting.popleft()
            try:
                if not request.admit():
                    refused.append(request)
                    continue
                self._pool.admit(request.row)
                if not request.row.generated:
                    request.read()
            except Exception as error:
                refused.append(self._failed(request, error))
                continue
            if request.row.is_read:
                self._decoding.append(request)
            else:
                self._reading.append(request)
        return refused

    def _read(self) -> list[Joined]:
        if not self._reading:
            return []
        functions = self._functions.of(1)
        assert functions is not None, "rows join only when there are functions for one row"
        group = [self._reading.popleft()]
        room = max(functions.read) - group[0].row.unread  # others' short prompts come along
        while self._reading and len(group) < CHUNK_ROWS and self._reading[0].row.unread <= room:
            group.append(self._reading.popleft())
            room -= group[-1].row.unread
        self._enter(group, "prefill")
        try:
            self._pool.read([request.row for request in group], functions)
        except OutOfBlocks:
            self._reading.extendleft(reversed(group))
            self._make_room()
            return []
        except Exception as error:
            return [self._failed(request, error) for request in group]
        for request in group:
            request.watch.lap()
            request.read()
            if not request.row.is_read:
                self._reading.append(request)
        # Their first tokens come next.
        self._decoding = [request for request in group if request.row.is_read] + self._decoding
        return []

    def _decode(self) -> list[Joined]:
        if not self._decoding:
            return []
        group, functions = self._group()
        budget_s = SHORT_CHUNK_S if self._reading or self._waiting else CHUNK_S
        if any(request.row.logits is not None for request in group):
            steps = 1  # a first token is handed out at once
        else:
            steps = max(1, round(budget_s / self._step_s.get(functions.rows, budget_s)))
        steps = min(steps, *(request.row.most_steps for request in group))
        before = [request.row.generated for request in group]
        self._enter(group, "decode")
        started = self._clock()
        try:
            self._pool.decode([request.row for request in group], functions, steps)
        except OutOfBlocks:
            self._make_room()
            return []
        except Exception as error:
            return [self._failed(request, error) for request in group]
        self._step_s[functions.rows] = max(1e-6, (self._clock() - started) / steps)
        ended = []
        for request, count in zip(group, before, strict=True):
            request.rows_at_most = max(request.rows_at_most, len(group))
            request.watch.lap(request.row.generated - count)
            try:
                goes_on = request.write() and not request.row.is_done
            except Exception as error:
                ended.append(self._failed(request, error))
                continue
            if not goes_on:
                self.remove(request)
                ended.append(request)
        return ended

    def _group(self) -> tuple[list[Joined], PoolFunctions]:
        """The rows that run now, and their functions."""
        count = len(self._decoding)
        if count == 1 and (drafts := self._decoding[0].drafts):
            with_drafts = self._functions.of(1, drafts)
            if with_drafts is not None:
                return [*self._decoding], with_drafts
            self._functions.make(1, drafts)
        if count == 1 and (for_one := self._functions.of(1)) is not None:
            return [*self._decoding], for_one
        needed = min(size for size in ROW_COUNTS if size >= min(count, MAX_ROWS))
        # Larger functions serve, too; otherwise the largest available.
        larger = [size for size in ROW_COUNTS if size >= needed]
        smaller = [size for size in reversed(ROW_COUNTS) if size < needed]
        found = next(
            functions for size in larger + smaller if (functions := self._functions.of(size))
        )
        if found.rows < count and found.rows < MAX_ROWS:
            self._functions.make(MAX_ROWS)  # they serve any number
        if found.rows != needed:
            self._functions.make(needed)
        group = self._decoding[: found.rows]
        if len(group) < count:  # the others come next
            self._decoding = self._decoding[found.rows :] + group
        return group, found

    def _make_room(self) -> None:
        """Suspends the newest row; it is read again when there is room."""
        running = [*self._decoding, *self._reading]
        last = max(running, key=lambda request: request.watch.started)
        logger.info("KV memory is full: a row waits until there is room.")
        if last in self._reading:
            self._reading.remove(last)
        else:
            self._decoding.remove(last)
        self._pool.suspend(last.row)
        last.watch.enter("queue")
        self._waiting.appendleft(last)

    def _failed(self, request: Joined, error: Exception) -> Joined:
        request.error = error
        if request in self._decoding or request in self._reading:
            self.remove(request)
        else:
            self._pool.leave(request.row)
        return request

    def _enter(self, group: list[Joined], phase: str) -> None:
        """Sets the phase of a group's rows; the others wait in the queue phase.

        The first token belongs to the prompt's phase.
        """
        for request in self.requests():
            if request not in group:
                request.watch.enter("queue")
        for request in group:
            request.watch.enter("prefill" if request.row.logits is not None else phase)
