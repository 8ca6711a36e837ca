"""A visitor's latest runs as a page that needs no server.

Knows what of a run is looked up for it: its model's words, and what XLA made of its function.
"""

import contextlib
from collections.abc import Sequence

from playground.context.page_context import PageContext
from playground.context.runs import Shown
from playground.record.document import RecordedRun, document
from playground.ui.wording import wording_of
from xla_backend import BackendError
from xla_backend.inspection.inspection import Inspection


def session_page(page: PageContext, runs: Sequence[Shown]) -> str:
    """The HTML file of the runs, in the order of their calls; empty without any."""
    return document([_recorded(page, shown) for shown in runs]) if runs else ""


def _recorded(page: PageContext, shown: Shown) -> RecordedRun:
    model, key = shown.result.model, shown.result.key
    inside: Inspection | None = None
    if page.inspector is not None and not key.is_pooled:
        with contextlib.suppress(BackendError):  # it is in no store
            inside = page.inspector.inspect(model, page.backend.identity(model), key)
    wording = wording_of(page.info(model), is_raw=isinstance(shown.prompt, str))
    return RecordedRun(shown, wording, inside)
