"""The line that says what the engine is doing.

Knows how an `EngineStatus` reads. Must not know who asked for the work.
"""

from __future__ import annotations

import time

from playground.context.runs import Occupation
from playground.ui.markup import escape
from playground.ui.quantities import about, count, elapsed
from playground.ui.report_parts import progress_bar
from xla_backend import EngineStatus

ACTIVITY = {
    "starting": "Starting the engine",
    "downloading": "Downloading",
    "loading": "Loading",
    "ready": "Engine ready",
    "tracing": "Tracing",
    "compiling": "Compiling",
    "generating": "Generating",
    "measuring": "Measuring",
    "stopped": "Engine stopped; the next request starts it again",
}
_ENDS_FIRST = {
    "downloading": "Stopping. The download ends first, and is kept.",
    "tracing": "Stopping. XLA finishes the compile first, and keeps it.",
    "compiling": "Stopping. XLA finishes the compile first, and keeps it.",
}
TAKES_LONGER = "longer than expected"
AT_REST = ("ready", "stopped")
"""States that are shown without a clock."""


def status_line(
    status: EngineStatus,
    prefetching: int = 0,
    before: int = 0,
    occupation: Occupation | None = None,
    now: float | None = None,
) -> str:
    """The status as HTML: a dot, the activity, its object and its duration.

    Args:
        status: what the engine reports.
        prefetching: number of functions that are compiled in the background.
        before: number of requests ahead of this visitor's.
        occupation: what keeps the engine, if it is for more than a moment.
        now: a `time.perf_counter()` reading; the present by default.
    """
    activity, since = ACTIVITY[status.state], status.since
    at_rest = status.state in AT_REST
    if occupation and occupation.activity:
        # Its processes are busy, whatever the engine itself does.
        status, at_rest = EngineStatus("measuring"), False
        activity, since = occupation.activity, occupation.since
    detail = "" if at_rest else escape(status.detail)
    if status.state == "ready" and prefetching:
        detail = f"making {count(prefetching, 'shape')} ready in the background"
    if status.state == "starting":
        detail = "TensorFlow is loading; you can already press Generate"
        if status.detail:
            activity, detail = "Restarting the engine", escape(status.detail)
    clock = ""
    if not at_rest:
        seconds = (time.perf_counter() if now is None else now) - since
        clock = f'<span class="status-clock">{elapsed(seconds)}</span>'
    if status.note and not detail:
        detail = escape(status.note)
    line = ""
    if before:
        line = f'<span class="status-before">{count(before, "request")} before yours</span>'
    bar = "" if status.progress is None else progress_bar("Download", status.progress)
    if left := _left(occupation):
        clock += f'<span class="status-left">{left}</span>'
    return (
        f'<div class="status status-{status.state}" role="status" aria-live="off">'
        f'<span class="status-dot" aria-hidden="true"></span>'
        f'<span class="status-activity">{activity}</span>'
        f'<span class="status-detail">{detail}</span>{bar}{clock}{line}</div>'
    )


def runs_now(status: EngineStatus, occupation: Occupation) -> str:
    """What keeps the engine and how long that should last, for somebody who waits for it."""
    left = _left(occupation)
    more = f" · {left}" if left else ""
    bar = progress_bar("Expected", occupation.share()) if left else ""
    activity = occupation.activity or ACTIVITY[status.state]
    return f'<div class="download"><p>Runs now: {activity}{more}</p>{bar}</div>'


def _left(occupation: Occupation | None) -> str:
    if occupation is None or occupation.left_s is None:
        return ""
    return f"about {about(occupation.left_s)} left" if occupation.left_s > 0 else TAKES_LONGER


def stopping_note(status: EngineStatus) -> str:
    """What delays the end of a stopped run, as a sentence; empty if nothing does."""
    return _ENDS_FIRST.get(status.state, "")
