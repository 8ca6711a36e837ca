"""The line that says what the engine is doing.

Knows the texts for an `EngineStatus`. Must not know who requested the work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import htpy as h

from playground.context.runs import MAKING, Occupation, QueuedRun, TextRun, VisitorRun
from playground.ui.markup import rendered
from playground.ui.quantities import about, count, file_size
from playground.ui.report_parts import COMPILING, RESTORING, clock, progress_bar
from playground.ui.wording import model_name
from xla_backend import CacheKey, EngineStatus
from xla_backend.interface.results import Progress

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
    occupation: Occupation | None = None,
    phase: Phase | None = None,
    now: float | None = None,
) -> h.Node:
    """The status: a dot, the activity, what it is about and its duration.

    Args:
        status: what the engine reports.
        prefetching: number of functions that are compiled in the background.
        occupation: what occupies the engine for more than a moment.
        phase: of this visitor's run, which is then the activity; the page's script also shows it in
            place of the result.
        now: a `time.perf_counter()` reading; the present by default.
    """
    now = time.perf_counter() if now is None else now
    if phase:
        copied = h.template(
            "#phase",
            data_name=phase.name,
            data_more=phase.more,
            data_share=f"{phase.share:.2f}",
            data_badge=phase.badge,
        )
        return _line(status, phase.name, phase.more, clock(now - phase.since), copied)
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
    left = h.span(".status-left")[time_left(occupation.left_s)] if occupation else ""
    return _line(status, activity, detail, None if at_rest else clock(now - since), left)


def _line(
    status: EngineStatus, activity: str, detail: str, spent: h.Node, *more: h.Node
) -> h.Element:
    spoken = {"role": "status", "aria-live": "off"}
    return h.div(f".status.status-{status.state}", spoken)[
        h.span(".status-dot", aria_hidden="true"),
        h.span(".status-activity")[activity],
        h.span(".status-detail")[detail],
        status.progress is not None and progress_bar("Done", status.progress),
        spent and h.span(".status-clock")[spent],
        more,
    ]


class Phase(NamedTuple):
    """The phase of a visitor's run, in the same words wherever it is shown.

    Attributes:
        name: "Compiling this shape".
        since: the click, as `time.perf_counter()`: one clock for the whole run.
        more: details that change, such as the time that is left.
        share: how much is done, 0 to 1; 0 if unknown.
    """

    name: str
    since: float
    more: str = ""
    share: float = 0.0

    @property
    def badge(self) -> str:
        """The word where the outcome will stand."""
        return "QUEUED" if self.name.startswith(("Queued", "Waiting")) else "RUNNING"


def waits_for_others(progress: Progress) -> bool:
    """Whether a request waits for others."""
    return progress.state == "queued" and progress.ahead > 0


def queued(
    run: QueuedRun, progress: Progress, status: EngineStatus, occupation: Occupation | None
) -> Phase:
    """The phase of a queued run.

    Args:
        run: the run.
        progress: its place in the queue.
        status: what the engine reports.
        occupation: as in `status_line`.
    """
    activity = occupation.activity if occupation else progress.waits_for
    detail = "" if activity or status.state in AT_REST else model_name(status.detail)
    runs = " ".join(filter(None, [activity or ACTIVITY[status.state], detail]))
    wait = f"about {about(progress.wait_s)}" if progress.wait_s else ""
    now = "" if status.state in AT_REST and not activity else f"Runs now: {runs}"
    more = " · ".join(filter(None, [wait, now]))
    return Phase(f"Queued: {count(progress.ahead, 'request')} ahead", run.pressed_at, more)


def phase_of(
    run: VisitorRun[Any, Any],
    status: EngineStatus,
    model_bytes: int | None,
    in_background: Sequence[tuple[str, CacheKey]] = (),
) -> Phase:
    """The phase of a run that has started.

    Args:
        run: the run.
        status: what the engine reports.
        model_bytes: size of the run's model on disk.
        in_background: models and keys that are compiled in the background.
    """

    def phase(name: str, more: str = "", share: float = 0.0) -> Phase:
        return Phase(name, run.pressed_at, more, share)

    if status.state == "starting":
        return phase("Starting the engine")
    if isinstance(run, TextRun) and run.text:
        return phase("Generating")  # whatever else the engine does
    state = "queued" if run.request_progress is None else run.request_progress.state
    loading = phase("Loading the model", file_size(model_bytes) if model_bytes else "")
    if state == "loading":
        if status.state == "downloading":
            return phase("Downloading the model", status.detail, status.progress or 0.0)
        return loading
    if state == "restoring":
        return phase(RESTORING)
    if state in MAKING:
        occupation = run.occupation(status)
        return phase(COMPILING, time_left(occupation.left_s if occupation else None))
    if state == "reading" and isinstance(run, TextRun):
        share = status.progress or 0.0
        return phase("Reading the prompt", f"{share:.0%}" if share else "", share)
    if state in ("reading", "writing"):
        return phase("Generating")
    predicted = run.prediction
    if status.state in MAKING:
        return phase(f"Waiting: the engine is compiling another shape, {status.detail}")
    if status.state == "loading":  # at its start the engine loads the default model
        if status.detail == run.model:
            return loading
        return phase("Waiting: another model is being loaded")
    if in_background:
        if predicted is not None and (run.model, predicted.key) in in_background:
            return phase(COMPILING, "begun in the background")
        return phase(f"Waiting: {count(len(in_background), 'shape')} being compiled")
    return phase("Starting")


def time_left(left_s: float | None) -> str:
    """Expected remaining seconds; empty if unknown."""
    if left_s is None:
        return ""
    return f"about {about(left_s)} left" if left_s > 0 else TAKES_LONGER


def stopping_note(status: EngineStatus) -> str:
    """What delays the end of a stopped run, as a sentence; empty if nothing does."""
    return _ENDS_FIRST.get(status.state, "")
