"""The line that says what the engine is doing.

Knows the texts for an `EngineStatus`. Must not know who requested the work.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import htpy as h

from playground.context.runs import MAKING, Occupation, TextRun, VisitorRun
from playground.ui.families import model_name
from playground.ui.markup import rendered
from playground.ui.quantities import about, count, elapsed, file_size
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
    phase: Phase | None = None,
    now: float | None = None,
) -> h.Node:
    """The status: a dot, the activity, what it is about and its duration.

    Args:
        status: what the engine reports.
        prefetching: number of functions that are compiled in the background.
        before: number of requests ahead of this visitor's.
        occupation: what occupies the engine for more than a moment.
        phase: of this visitor's run; the page's script also shows it in place of the result.
        now: a `time.perf_counter()` reading; the present by default.
    """
    activity, since = ACTIVITY[status.state], status.since
    at_rest = status.state in AT_REST
    if occupation and occupation.activity:
        # Its processes are busy, whatever the engine does.
        status, at_rest = EngineStatus("measuring"), False
        activity, since = occupation.activity, occupation.since
    detail = "" if at_rest else model_name(status.detail)  # a folder's name is its path
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
        status.progress is not None and progress_bar("Done", status.progress),
        not at_rest and h.span(".status-clock")[elapsed(seconds)],
        left and h.span(".status-left")[left],
        before > 0 and h.span(".status-before")[f"{count(before, 'request')} before yours"],
        phase
        and h.template(
            "#phase", data_said=phase.said, data_more=phase.more, data_share=f"{phase.share:.2f}"
        ),
    ]


class Phase(NamedTuple):
    """The phase of a visitor's run."""

    said: str  # its name
    more: str = ""  # details that change, such as the time
    share: float = 0.0  # how much is done, 0 to 1; 0 if unknown


def queued(
    before: int, status: EngineStatus, occupation: Occupation | None, wait_s: float | None
) -> Phase:
    """The phase of a queued run.

    Args:
        before: how many requests are ahead.
        status: what the engine reports.
        occupation: as in `status_line`.
        wait_s: seconds until all of them should have ended; None if unknown.
    """
    activity = occupation.activity if occupation else ""
    detail = "" if activity or status.state in AT_REST else model_name(status.detail)
    runs = " ".join(filter(None, [activity or ACTIVITY[status.state], detail]))
    wait = f"about {about(wait_s)}" if wait_s else ""
    now = "" if status.state in AT_REST and not activity else f"Runs now: {runs}"
    return Phase(f"Queued: {count(before, 'request')} ahead", " · ".join(filter(None, [wait, now])))


def phase_of(
    run: VisitorRun[Any, Any], status: EngineStatus, model_bytes: int | None
) -> Phase | None:
    """The phase of a run that has started; None if the engine does nothing for it.

    Args:
        run: the run.
        status: what the engine reports.
        model_bytes: size of the run's model on disk.
    """
    spent = elapsed(time.perf_counter() - status.since)
    if status.state == "starting":
        return Phase("Starting the engine", spent)
    if isinstance(run, TextRun) and run.text:
        return Phase("Generating")  # whatever the engine does beside it
    if status.state == "downloading":
        return Phase("Downloading the model", status.detail, status.progress or 0.0)
    if status.state == "loading":
        if status.detail != run.model:
            return Phase("Waiting: another model is being loaded", spent)
        size = [file_size(model_bytes)] if model_bytes else []
        return Phase("Loading the model", " · ".join([*size, spent]))
    if status.state in MAKING:
        said = run.prediction
        is_own = said is None or status.detail == str(said.key)
        what = "Compiling this shape" if is_own else "Waiting: another shape is being compiled"
        return Phase(what, _left(run.occupation(status)) or spent)
    if status.state != "generating":
        return None
    if isinstance(run, TextRun):
        share = status.progress or 0.0
        return Phase("Reading the prompt", f"{share:.0%}" if share else "", share)
    return Phase("Generating")


def _left(occupation: Occupation | None) -> str:
    return time_left(None if occupation is None else occupation.left_s)


def time_left(left_s: float | None) -> str:
    """Expected remaining seconds; empty if unknown."""
    if left_s is None:
        return ""
    return f"about {about(left_s)} left" if left_s > 0 else TAKES_LONGER


def stopping_note(status: EngineStatus) -> str:
    """What delays the end of a stopped run, as a sentence; empty if nothing does."""
    return _ENDS_FIRST.get(status.state, "")
