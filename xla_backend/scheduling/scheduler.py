"""`Scheduler`: who uses the engine now, and who comes next.

Knows the order of arrival, and that a run may take many scheduler. Must not know what is done in a
turn. The engine does one thing at a time, or timings would contaminate each other.

A run gives the engine back between two chunks, so that a caller who reads slowly, or never again,
keeps nobody waiting. Callers who read at once should not be interrupted either: two runs that
alternate are both late. So a run that goes on keeps the engine for a moment.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

PATIENCE_S = 0.05
"""How long the engine is kept for a run whose callers are reading what it wrote."""


class LongRun(Protocol):
    """What takes more than one turn."""

    @property
    def goes_on(self) -> bool:
        """Whether it wants further turns."""


class Ticket:
    """A ticket in the order of arrival.

    Attributes:
        run: what it takes turns for, shared by all whose tickets are side by side; None for one
            turn.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        """Behind all that exist."""
        self._scheduler = scheduler
        self.number = next(scheduler.numbers)
        self.run: LongRun | None = None

    def go_behind(self) -> None:
        """Lets all go first that have a ticket by now."""
        with self._scheduler.changed:
            self.number = next(self._scheduler.numbers)


class Scheduler:
    """Gives the engine to one ticket at a time, the earliest that waits. Thread-safe.

    Attributes:
        numbers: of tickets, in the order of arrival.
        changed: a condition; its lock also guards what those who wait are waiting for.
    """

    def __init__(self) -> None:
        """The engine is free."""
        self.numbers = itertools.count()
        self.changed = threading.Condition()
        # Guarded by the condition:
        self._waiting: list[Ticket] = []
        self._is_taken = False
        self._kept_for: LongRun | None = None
        self._kept_until = 0.0

    @contextmanager
    def acquire(
        self, ticket: Ticket | None = None, unless: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Waits for the engine, and has it inside the block.

        Args:
            ticket: whose turn it shall be; None for a new ticket.
            unless: makes waiting pointless; asked whenever there is reason to wait.

        Yields:
            Whether the engine is held; False where `unless` came true first.
        """
        is_held = self._wait(ticket or Ticket(self), unless)
        try:
            yield is_held
        finally:
            if is_held:
                self._release(ticket)

    def waiting(self) -> list[Ticket]:
        """The tickets that wait, in the order of arrival."""
        with self.changed:
            return sorted(self._waiting, key=lambda ticket: ticket.number)

    def wake(self) -> None:
        """Has all who wait look again at what they wait for."""
        with self.changed:
            self.changed.notify_all()

    def _wait(self, ticket: Ticket, unless: Callable[[], bool]) -> bool:
        with self.changed:
            self._waiting.append(ticket)
            try:
                while True:
                    rest = self._rest(ticket)
                    if rest == 0.0:
                        self._is_taken = True
                        self._kept_for = None
                        return True
                    if unless():
                        return False
                    self.changed.wait(rest)
            finally:
                self._waiting.remove(ticket)
                # Somebody else may be the first now.
                if not self._is_taken:
                    self.changed.notify_all()

    def _rest(self, ticket: Ticket) -> float | None:
        """Seconds until a ticket may take its turn; None until something has changed."""
        if self._is_taken:
            return None
        if self._kept_for is not None:
            if ticket.run is self._kept_for:
                return 0.0
            rest = self._kept_until - time.monotonic()
            if rest > 0.0 and self._kept_for.goes_on:
                return rest
        first = min(self._waiting, key=lambda other: other.number)
        return 0.0 if ticket is first else None

    def _release(self, ticket: Ticket | None) -> None:
        with self.changed:
            self._is_taken = False
            run = ticket.run if ticket is not None else None
            if run is not None and run.goes_on:
                self._kept_for, self._kept_until = run, time.monotonic() + PATIENCE_S
            self.changed.notify_all()
