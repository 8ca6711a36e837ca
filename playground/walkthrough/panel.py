"""The components of a walkthrough: its button and its panel.

Knows the components and what each event does to them. Must not know how anything looks, nor how it
is measured.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr
from gradio.blocks import Block

from playground.context.page_context import PageContext
from playground.context.request_fields import FilledRequest
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.ui.components import QUIET, Updates, html
from playground.ui.components import notice as notice_of
from playground.ui.quantities import about
from playground.ui.report_parts import queued
from playground.walkthrough.report import walkthrough_report
from playground.walkthrough.runs import Walkthrough, walkthrough_of
from playground.walkthrough.stored import stored


class WalkthroughPanel:
    """The mode builds the parts in their places, and then connects them."""

    button: gr.Button  # starts a walkthrough

    def __init__(self, page: PageContext, prefix: str = "", at_rest: str = "") -> None:
        """Builds nothing yet.

        Args:
            prefix: of the element ids.
            at_rest: the panel's HTML while no walkthrough is shown.
        """
        self._page, self._prefix, self._at_rest = page, prefix, at_rest
        self._took_s: dict[str, float] = {}  # of each model's last walkthrough

    def build_button(self, label: str = "Show what XLA does") -> None:
        """Builds the button where it is called; it says how long a walkthrough takes."""
        takes = f"{label} (about {about(stored().took_s)})"
        self.button = gr.Button(takes, elem_id=f"{self._prefix}walkthrough_show")

    def build_panel(self, close: str = "Back to the result") -> None:
        """Builds the panel where it is called, and the button that closes it."""
        self._panel = html(self._at_rest, f"{self._prefix}walkthrough")
        self._close = gr.Button(
            close, size="sm", elem_id=f"{self._prefix}walkthrough_close", scale=0
        )

    def connect(
        self,
        inputs: set[Block],
        request: Callable[[Mapping[Any, Any]], FilledRequest],
        stop: gr.Button,
        notice: gr.HTML,
        disabled: gr.Button | None = None,
    ) -> None:
        """Connects the parts to those of the mode.

        Args:
            inputs: the fields of the request.
            asked: the request that they have.
            stop: also ends a walkthrough.
            notice: shows problems.
            beside: disabled meanwhile; it brings the result back.
        """
        self._request = request
        others = [disabled] if disabled else []
        events = RunEvents[Walkthrough](
            self._page,
            notice,
            {self.button: "", **dict.fromkeys(others, "")},
            stop,
            shows=[self._panel, notice],
            shown=lambda run: {
                self._panel: walkthrough_report(run, is_busy=True),
                notice: self._queued(run),
            },
            ends=[],
            ended=self._run_ended,
        )
        events.connect(self.button.click, self._run_of, inputs)
        closing = [self._close.click, *(each.click for each in others)]
        at_rest = json.dumps(self._at_rest)
        gr.on(closing, None, None, self._panel, js=f"() => {at_rest}", **QUIET)

    def _run_of(self, values: dict[Any, Any]) -> tuple[Walkthrough, Updates]:
        request = self._request(values)
        run = walkthrough_of(self._page, request.model, request.prompt, request.options)
        run.expected_s = self._took_s.get(run.model, stored().took_s)
        return run, {}

    def _queued(self, run: Walkthrough) -> str:
        return notice_of(queued(run.ahead), "calm") if run.ahead and run.taken_at is None else ""

    def _run_ended(self, run: Walkthrough, ending: Ending) -> Updates:
        """The results. Without any, the earlier content comes back."""
        if run.taken_at is not None and not (ending.stopped or ending.problem):
            self._took_s[run.model] = time.perf_counter() - run.taken_at
        remark = "Stopped. What was measured stays." if ending.stopped else ""
        if not run.results:
            return {self._panel: self._at_rest}
        return {self._panel: walkthrough_report(run, is_busy=False, remark=remark)}
