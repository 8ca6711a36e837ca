"""The line that says what the engine is doing.

Knows how an `EngineStatus` reads. Must not know who asked for the work.
"""

from __future__ import annotations

import time

import htpy as h

from playground.context.runs import Occupation
from playground.ui.markup import rendered
from playground.ui.quantities import about, count, elapsed
from playground.ui.report_parts import download, progress_bar
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
    "downloading": "Stopping. The download finishes first, and is kept.",
    "tracing": "Stopping. The compile cannot be interrupted; its result is cached.",
    "compiling": "Stopping. The compile cannot be interrupted; its result is cached.",
}
TAKES_LONGER = "longer than expected"
AT_REST = ("ready", "stopped")
"""States that are shown without a clock."""


@rendered
def status_line(
    status: EngineStatus,
    prefetching: int = 0,
    before: int = 0,
    occupation: Occupation | None = None,
    now: float | None = None,
) -> h.Node:
    """The status: a dot, the activity, its object and its duration.

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
    detail = "" if at_rest else status.detail
    if status.state == "ready" and prefetching:
        detail = f"compiling {count(prefetching, 'shape')} in the background"
    if status.state == "starting":
        detail = "TensorFlow is loading; you can already press Generate"
        if status.detail:
            activity, detail = "Restarting the engine", status.detail
    if status.note and not detail:
        detail = status.note
    seconds = (time.perf_counter() if now is None else now) - since
    left = _left(occupation)
    said = {"role": "status", "aria-live": "off"}
    return h.div(f".status.status-{status.state}", said)[
        h.span(".status-dot", aria_hidden="true"),
        h.span(".status-activity")[activity],
        h.span(".status-detail")[detail],
        status.progress is not None and progress_bar("Download", status.progress),
        not at_rest and h.span(".status-clock")[elapsed(seconds)],
        left and h.span(".status-left")[left],
        before > 0 and h.span(".status-before")[f"{count(before, 'request')} before yours"],
    ]


@rendered
def runs_now(status: EngineStatus, occupation: Occupation) -> h.Node:
    """What keeps the engine and how long that should last, for somebody who waits for it."""
    left = _left(occupation)
    activity = occupation.activity or ACTIVITY[status.state]
    more = f" · {left}" if left else ""
    bar = left and progress_bar("Expected", occupation.share())
    return download(f"Runs now: {activity}{more}", bar)


def _left(occupation: Occupation | None) -> str:
    if occupation is None or occupation.left_s is None:
        return ""
    return f"about {about(occupation.left_s)} left" if occupation.left_s > 0 else TAKES_LONGER


def stopping_note(status: EngineStatus) -> str:
    """What delays the end of a stopped run, as a sentence; empty if nothing does."""
    return _ENDS_FIRST.get(status.state, "")
