"""`Watchdog`: how long an engine may send nothing before it counts as hung.

Knows phases and seconds of a monotonic clock. Must not know processes: the caller ends the engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import EngineStatus

TICK_S = 0.5
_WORDS = {
    "starting": "its start",
    "downloading": "a stalled download",
    "loading": "loading a model",
    "ready": "taking up a request",
    "tracing": "tracing",
    "compiling": "compiling",
    "generating": "a step of these sizes",
    "measuring": "a measurement",
}


@dataclass(frozen=True)
class Patience:
    """The longest time without a sign of life in each phase, in seconds.

    Far above what any phase takes on a slow machine, because ending a working engine is worse than
    waiting. Signs of life are a change of phase, a chunk of text, a chunk of a download.

    Attributes:
        generating_s: for a chunk of text, plus `step_s`
        step_s: for every token and beam of the request: a text that is not streamed is one chunk.
        ready_s: until a request starts, including reading a recording.
    """

    starting_s: float = 300.0
    downloading_s: float = 180.0
    loading_s: float = 300.0
    ready_s: float = 60.0
    tracing_s: float = 300.0
    compiling_s: float = 900.0
    generating_s: float = 60.0
    step_s: float = 1.0
    measuring_s: float = 600.0

    def allowed_s(
        self, status: EngineStatus, options: GenerationOptions | None, is_warming: bool
    ) -> float:
        """Seconds without a sign of life in a phase.

        Args:
            status: has the phase.
            options: of the running request, or None.
            is_warming: whether functions are compiled in the background, for which a request may
                have to wait.
        """
        allowed = getattr(self, f"{status.state}_s")
        if status.state == "generating":
            options = options or GenerationOptions()
            return allowed + self.step_s * options.max_new_tokens * options.num_beams
        if status.state == "ready" and is_warming:
            return allowed + self.tracing_s + self.compiling_s
        return allowed


class Watchdog:
    """Counts the time since the last sign of life, in its own thread."""

    def __init__(
        self, allowed_s: Callable[[], float | None], on_hang: Callable[[float], None]
    ) -> None:
        """`watch` is for the thread.

        Args:
            allowed_s: how long the silence may last now; None while nothing is expected.
            on_hang: called once with the seconds of silence.
        """
        self._allowed_s = allowed_s
        self._on_hang = on_hang
        self._silent_s = 0.0
        self._ending = threading.Event()

    def sign_of_life(self) -> None:
        """Resets the count."""
        self._silent_s = 0.0

    def end(self) -> None:
        self._ending.set()

    def watch(self) -> None:
        """Watches until it is ended, or until it has called `on_hang`."""
        before = time.monotonic()
        while not self._ending.wait(TICK_S):
            now = time.monotonic()
            # A sleeping machine or a debugger that stopped this process is not a hang.
            self._silent_s += min(now - before, 2 * TICK_S)
            before = now
            allowed = self._allowed_s()
            if allowed is None:
                self._silent_s = 0.0
            elif self._silent_s > allowed:
                self._on_hang(self._silent_s)
                return


def describe_hang(state: str, silent_s: float) -> str:
    """Why an engine was ended, as the middle of a sentence."""
    return (
        f"it sent nothing for {silent_s:.0f} s, too long for {_WORDS[state]}, "
        "so it was ended as hung"
    )
