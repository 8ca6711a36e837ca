"""`Script`: where requests to the fake engine wait, and what comes of them, as a test says.

Knows steps, pieces of text and seconds that pass when a test says so. Must not know requests, nor
the page. A test holds steps before it presses anything; then nothing goes on without it, however
slow or fast the machine is.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TypeVar

STEPS = ("turn", "load", "make", "prefill", "text", "end")
"""What a request goes through: it waits for others, loads its model, makes its function, reads its
prompt, writes and ends."""
UNSTOPPABLE = ("load", "make")
"""Steps that end before a stop counts, as a download and a compile do."""

REACHED_WITHIN_S = 60.0
"""On a busy machine; only what hangs takes so long."""

Piece = TypeVar("Piece")


class Clock:
    """Seconds that pass when a test says so. Stands for the module `time` where a test wants it to.

    Attributes:
        now_s: what it shows.
    """

    def __init__(self) -> None:
        self.now_s = 0.0

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.now_s += seconds

    def perf_counter(self) -> float:
        """What it shows, as `time.perf_counter` does."""
        return self.now_s


class Script:
    """What a test has decided. Holds nothing at first.

    Attributes:
        clock: what passes on it while a request waits at a step counts as that step's.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self._held: set[str] = set()
        self._written: deque[str | None] = deque()
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition()

    def hold(self, *steps: str) -> None:
        """From now on requests wait before these steps; before "text" for every piece of it."""
        assert set(steps) <= set(STEPS)
        with self._changed:
            self._held.update(steps)

    def release(self, *steps: str) -> None:
        """Lets requests through these steps; through all, where none is named."""
        with self._changed:
            self._held.difference_update(steps or STEPS)
            self._changed.notify_all()

    def write(self, *pieces: str) -> None:
        """Has the text that is held go on with these pieces."""
        self._say(*pieces)

    def end(self) -> None:
        """Has the text that is held end, at its limit of tokens."""
        self._say(None)

    def reached(self, step: str) -> None:
        """Waits until a request waits at a step."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting[step], REACHED_WITHIN_S), step

    def tell(self) -> None:
        """Has those that wait look whether they were given up."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, step: str, is_given_up: Callable[[], bool] = lambda: False) -> float:
        """Waits while a step is held; returns the seconds that passed on the clock."""
        began = self.clock.now_s
        with self._changed:
            self._waiting[step] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: step not in self._held or is_given_up())
            self._waiting[step] -= 1
        return self.clock.now_s - began

    def next(
        self, own: Iterator[Piece], heard: Callable[[str], Piece], is_given_up: Callable[[], bool]
    ) -> Piece | None:
        """The next piece; None at the end.

        Args:
            own: what comes where a test does not hold the text.
            heard: makes a piece of what a test has written.
            is_given_up: whether nobody wants more.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._written or "text" not in self._held or is_given_up()
            )
            if is_given_up():
                return None
            if not self._written:
                return next(own, None)
            said = self._written.popleft()
        return None if said is None else heard(said)

    def _say(self, *pieces: str | None) -> None:
        with self._changed:
            self._written.extend(pieces)
            self._changed.notify_all()
