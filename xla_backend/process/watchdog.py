"""`Watchdog`: how long an engine may give no sign of life before it counts as hung.

Knows phases and seconds of a monotonic clock; clocks that are set back or forward do not matter.
Must not know processes: the caller ends the engine.
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
    "downloading": "a download that stands still",
    "loading": "loading a model",
    "ready": "taking up a request",
    "tracing": "tracing",
    "compiling": "compiling",
    "generating": "a step of these sizes",
    "measuring": "a measurement",
}


@dataclass(frozen=True)
class Patience:
    """The longest that each phase may go without a sign of life, in seconds.

    Far above what any of them takes on a slow machine: a limit that is met by work is a fault of
    its own. Signs of life are a change of phase, a chunk of text, a chunk of a download.

    Attributes:
        generating_s: for a chunk of a text, to which comes
        step_s: for every token and beam that the request may ask for: a text that is not streamed
            is one chunk.
        ready_s: until a request is taken up; reading a recording is part of it.
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
            status: says the phase.
            options: of the request at work; None where it has none.
            is_warming: whether functions are being made in the background, for which a request may
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
    """Counts the time since the last sign of life, in a thread of its own."""

    def __init__(
        self, allowed_s: Callable[[], float | None], on_hang: Callable[[float], None]
    ) -> None:
        """Prepares; `watch` is what the thread runs.

        Args:
            allowed_s: how long the silence may last now; None while nothing is waited for.
            on_hang: called once with the seconds of silence that were too many.
        """
        self._allowed_s = allowed_s
        self._on_hang = on_hang
        self._silent_s = 0.0
        self._ending = threading.Event()

    def sign_of_life(self) -> None:
        """Starts counting anew."""
        self._silent_s = 0.0

    def end(self) -> None:
        """Ends the watch."""
        self._ending.set()

    def watch(self) -> None:
        """Watches until it is ended, or until it has called `on_hang`."""
        before = time.monotonic()
        while not self._ending.wait(TICK_S):
            now = time.monotonic()
            # A machine that slept, or a debugger that held this process, is nobody's hang.
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
        f"nothing came from it for {silent_s:.0f} s, too long for {_WORDS[state]}, "
        "so it was ended as hung"
    )
