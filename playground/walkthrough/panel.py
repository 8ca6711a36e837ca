"""The components of a walkthrough: its button and its panel.

Knows the components and what each event does to them. Must not know how anything looks, nor how it
is measured.
"""

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
from playground.walkthrough.report import stored_report, walkthrough_report
from playground.walkthrough.runs import Walkthrough, walkthrough_of
from playground.walkthrough.stored import stored


class WalkthroughPanel:
    """The mode builds the parts in their places, and then connects them."""

    button: gr.Button  # starts a walkthrough
    panel: gr.HTML

    def __init__(self, page: PageContext) -> None:
        """Builds nothing yet."""
        self._page = page
        self._took_s: dict[str, float] = {}  # of each model's last walkthrough

    def build_button(self) -> None:
        """Builds the button where it is called; it says how long a walkthrough takes."""
        takes = f"Show what XLA does (about {about(stored().took_s)})"
        self.button = gr.Button(takes, elem_id="walkthrough_show")

    def build_panel(self) -> None:
        """Builds the panel where it is called, first with the stored walkthrough in the place of a
        result, and the button that closes it."""
        self.panel = html(stored_report(stored()), "walkthrough")
        self._close = gr.Button(
            "Back to the result", size="sm", elem_id="walkthrough_close", scale=0
        )

    def connect(
        self,
        inputs: set[Block],
        request: Callable[[Mapping[Any, Any]], FilledRequest],
        stop: gr.Button,
        notice: gr.HTML,
        generate: gr.Button,
        complaint: gr.HTML,
    ) -> None:
        """Connects the parts to those of the mode.

        Args:
            inputs: the fields of the request.
            request: the request that they have.
            stop: also ends a walkthrough.
            notice: shows problems.
            generate: disabled meanwhile; it brings the result back.
            complaint: about the link with which the page was opened.
        """
        self._request = request
        events = RunEvents[Walkthrough](
            self._page,
            notice,
            {self.button: "", generate: ""},
            stop,
            shows=[self.panel, notice],
            shown=lambda run: {
                self.panel: walkthrough_report(run, is_busy=True),
                notice: self._queued(run),
            },
            ends=[],
            ended=self._run_ended,
        )
        events.connect(self.button.click, self._run_of, inputs)
        closing = [self._close.click, generate.click]
        # The visitor has moved on: the complaint about the link goes, too.
        gr.on(closing, None, None, [self.panel, complaint], js="() => ['', '']", **QUIET)

    def _run_of(self, values: dict[Any, Any]) -> tuple[Walkthrough, Updates]:
        request = self._request(values)
        run = walkthrough_of(self._page, request.model, request.prompt, request.options)
        run.expected_s = self._took_s.get(run.model, stored().took_s)
        return run, {}

    def _queued(self, run: Walkthrough) -> str:
        return notice_of(queued(run.ahead), "calm") if run.ahead and run.taken_at is None else ""

    def _run_ended(self, run: Walkthrough, ending: Ending) -> Updates:
        """The results. Without any, the earlier result comes back."""
        if run.taken_at is not None and not (ending.stopped or ending.problem):
            self._took_s[run.model] = time.perf_counter() - run.taken_at
        remark = "Stopped. What was measured stays." if ending.stopped else ""
        if not run.results:
            return {self.panel: ""}
        return {self.panel: walkthrough_report(run, is_busy=False, remark=remark)}
