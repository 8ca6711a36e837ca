"""The walkthrough on the Playground tab: its button, and the panel in place of the result.

Knows the components and what each event does to them. Must not know how anything looks, nor how it
is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground.ui.components import FOLLOWING, QUIET, Updates, html, notice
from playground.ui.option_controls import labelled
from playground.ui.report_parts import queued
from playground.walkthrough.report import walkthrough_report
from playground.walkthrough.runs import Walkthrough, walkthrough_of
from xla_backend import BackendError

if TYPE_CHECKING:
    from playground.context.page_context import PageContext
    from playground.context.request_fields import RequestFields


class WalkthroughPanel:
    """The tab builds the parts, each in its place, and connects them last.

    Attributes:
        button: starts a walkthrough.
    """

    button: gr.Button

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._took_s: dict[str, float] = {}  # of each model's last walkthrough

    def build_button(self) -> None:
        """Builds the button where it is called."""
        self.button = gr.Button("Show what XLA does", elem_id="walkthrough_show")

    def build_panel(self) -> None:
        """Builds the panel where it is called; the style sheet shows it in place of the result."""
        self._panel = html("", "walkthrough")
        self._close = gr.Button(
            "Back to the result", size="sm", elem_id="walkthrough_close", scale=0
        )

    def connect(
        self, request: RequestFields, generate: gr.Button, stop: gr.Button, notice: gr.HTML
    ) -> None:
        """Connects the parts to those of the tab.

        Args:
            request: the fields of the request.
            generate: disabled meanwhile; it brings the result back.
            stop: also ends a walkthrough.
            notice: shows problems.
        """
        self._request = request
        self._generate, self._stop, self._notice = generate, stop, notice
        buttons = [self._notice, self.button, self._generate, self._stop]
        self.button.click(self._begin, {*request.inputs}, [self._panel, *buttons], **QUIET).then(
            self._run, None, [self._panel, *buttons], **FOLLOWING, **self._page.alone
        )
        gr.on([self._close.click, generate.click], None, None, self._panel, js="() => ''", **QUIET)

    def _begin(self, request: gr.Request, values: dict[Any, Any]) -> Updates:
        """Checks the request at once, so that errors show without queueing."""
        try:
            asked = self._request.asked(values)
            run = walkthrough_of(self._page, asked.model, asked.prompt, asked.options)
            ahead = self._page.begin(str(request.session_hash), run)
        except BackendError as error:
            return {self._notice: notice(labelled(str(error)))}
        return {
            self._panel: walkthrough_report(run, is_busy=True),
            self._notice: notice(queued(ahead), "calm") if ahead else "",
            self.button: gr.update(interactive=False),
            self._generate: gr.update(interactive=False),
            self._stop: gr.update(interactive=True),
        }

    def _run(self, request: gr.Request) -> Iterator[Updates]:
        """Runs the visitor's walkthrough; after an error, finished measurements stay."""
        session = str(request.session_hash)
        run = self._page.runs.take(session, Walkthrough)
        if run is None:  # `_begin` refused; a generator without a yield would empty its outputs
            yield {self._notice: gr.skip()}
            return
        stopped = False
        began = time.perf_counter()
        if run.model in self._took_s:
            run.ends_at = began + self._took_s[run.model]
        with self._page.runs.carrying_out(session) as ending:
            yield {self._notice: ""}
            for _ in run.steps(self._page.backend):
                yield {self._panel: walkthrough_report(run, is_busy=True)}
            stopped = run.stopped  # before the end of the block, which stops the run
            if not stopped:
                self._took_s[run.model] = time.perf_counter() - began
        remark = "Stopped. What was measured stays." if stopped else ""
        is_empty = not run.results  # then the result comes back
        yield {
            self._panel: "" if is_empty else walkthrough_report(run, is_busy=False, remark=remark),
            self._notice: notice(labelled(ending.problem)),
            self.button: gr.update(interactive=True),
            self._generate: gr.update(interactive=True),
            self._stop: gr.update(value="Stop", interactive=False),
        }
