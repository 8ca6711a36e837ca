"""The components of a walkthrough: its button and its panel.

Knows the components and what each event does to them. Must not know how anything looks, nor how it
is measured.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr
from gradio.blocks import Block

from playground.context.page_context import PageContext
from playground.context.request_fields import Asked
from playground.ui.components import FOLLOWING, QUIET, Updates, html, notice
from playground.ui.option_controls import labelled
from playground.ui.report_parts import queued
from playground.walkthrough.report import walkthrough_report
from playground.walkthrough.runs import Walkthrough, walkthrough_of
from xla_backend import BackendError


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
        """Builds the button where it is called."""
        self.button = gr.Button(label, elem_id=f"{self._prefix}walkthrough_show")

    def build_panel(self, close: str = "Back to the result") -> None:
        """Builds the panel where it is called, and the button that closes it."""
        self._panel = html(self._at_rest, f"{self._prefix}walkthrough")
        self._close = gr.Button(
            close, size="sm", elem_id=f"{self._prefix}walkthrough_close", scale=0
        )

    def connect(
        self,
        inputs: set[Block],
        asked: Callable[[Mapping[Any, Any]], Asked],
        stop: gr.Button,
        notice: gr.HTML,
        beside: gr.Button | None = None,
    ) -> None:
        """Connects the parts to those of the mode.

        Args:
            inputs: the fields of the request.
            asked: the request that they have.
            stop: also ends a walkthrough.
            notice: shows problems.
            beside: disabled meanwhile; it brings the result back.
        """
        self._asked, self._stop, self._notice = asked, stop, notice
        self._others = [beside] if beside else []
        buttons = [self._notice, self.button, self._stop, *self._others]
        self.button.click(self._begin, inputs, [self._panel, *buttons], **QUIET).then(
            self._run, None, [self._panel, *buttons], **FOLLOWING, **self._page.alone
        )
        closing = [self._close.click, *(each.click for each in self._others)]
        at_rest = json.dumps(self._at_rest)
        gr.on(closing, None, None, self._panel, js=f"() => {at_rest}", **QUIET)

    def _begin(self, request: gr.Request, values: dict[Any, Any]) -> Updates:
        """Checks the request at once, so that errors show without queueing."""
        try:
            asked = self._asked(values)
            run = walkthrough_of(self._page, asked.model, asked.prompt, asked.options)
            ahead = self._page.begin(str(request.session_hash), run)
        except BackendError as error:
            return {self._notice: notice(labelled(str(error)))}
        return {
            self._panel: walkthrough_report(run, is_busy=True),
            self._notice: notice(queued(ahead), "calm") if ahead else "",
            self.button: gr.update(interactive=False),
            **{each: gr.update(interactive=False) for each in self._others},
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
        is_empty = not run.results  # then the earlier content comes back
        yield {
            self._panel: self._at_rest
            if is_empty
            else walkthrough_report(run, is_busy=False, remark=remark),
            self._notice: notice(labelled(ending.problem)),
            self.button: gr.update(interactive=True),
            **{each: gr.update(interactive=True) for each in self._others},
            self._stop: gr.update(value="Stop", interactive=False),
        }
