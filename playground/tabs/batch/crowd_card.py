"""The card of the Batch tab in which a crowd of visitors arrives.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
crowd is run.
"""

from collections.abc import Iterator

import gradio as gr

from playground.context.page_context import PageContext
from playground.tabs.batch import crowd_report
from playground.tabs.batch.crowd import MAX_APART_MS, Crowd, beside, crowd, most_visitors
from playground.ui import components as ui
from playground.ui.option_controls import labelled, slider_end
from xla_backend import BackendError

_APART_MS = 150
_NEW_TOKENS = 100
_LABEL = "(visitors) => `${visitors} visitors arrive`"


class CrowdCard:
    def __init__(self, page: PageContext, prompts: gr.Textbox) -> None:
        self._page = page
        ui.heading(
            "Many visitors at once",
            "Each sends one of the prompts above, without reusing prefixes of the others. They run "
            "as rows of one batch, which join and leave at any time.",
        )
        most = most_visitors(page)
        with gr.Row():
            self.model = ui.model_dropdown(page.models_in("crowd_model"), "crowd_model")
            self.visitors = ui.slider(1, slider_end(most), most, "Visitors", "crowd_visitors")
            self.apart = ui.slider(0, MAX_APART_MS, _APART_MS, "Apart (ms)", "crowd_apart")
            limit = page.limits.new_tokens
            self.new_tokens = ui.slider(
                1, slider_end(limit), min(_NEW_TOKENS, limit), "New tokens", "crowd_new"
            )
        with gr.Row(elem_classes="actions"):
            self.together = gr.Button(
                f"{most} visitors arrive", variant="primary", elem_id="crowd_together"
            )
            self.alone = gr.Button("One at a time", elem_id="crowd_alone")
            self.stop = gr.Button("Stop", interactive=False, elem_id="crowd_stop")
        self.notice = ui.html("", "crowd_notice")
        self.report = ui.html(crowd_report.EMPTY, "crowd_report")
        self.crowds = gr.State(())
        self._connect(prompts)

    def _connect(self, prompts: gr.Textbox) -> None:
        request = [self.crowds, self.model, prompts, self.visitors, self.new_tokens]
        buttons = [self.together, self.alone, self.stop]
        fields = (self.model, prompts, self.visitors, self.apart, self.new_tokens)
        ui.empty_on_change(self.notice, [field.change for field in fields])
        self.visitors.change(None, self.visitors, self.together, js=_LABEL, **ui.QUIET)
        for button, begin, inputs in (
            (self.together, self._begin, [*request, self.apart]),
            (self.alone, self._begin, request),
        ):
            button.click(
                begin, inputs, [self.notice, self.report, self.crowds, *buttons], **ui.QUIET
            ).then(
                self._run,
                self.crowds,
                [self.notice, self.report, *buttons, self._page.status],
                **ui.FOLLOWING,
                **self._page.beside_others,
            )
        ui.stop_by(self.stop, self._page.stop, self.notice)

    def _begin(
        self,
        request: gr.Request,
        crowds: tuple[Crowd, ...],
        model: str,
        prompts: str,
        visitors: object,
        new_tokens: int,
        apart_ms: object = None,
    ) -> ui.Updates:
        """Checks the request at once; the crowd of the other kind stays if it asked the same."""
        try:
            begun = crowd(self._page, model, prompts, visitors, new_tokens, apart_ms)
            self._page.begin(str(request.session_hash), begun)
        except BackendError as error:
            return {self.notice: ui.notice(labelled(str(error)))}
        shown = beside(begun, crowds)
        return {
            self.notice: "",
            self.report: crowd_report.report(shown),
            self.crowds: shown,
            self.together: gr.update(interactive=False),
            self.alone: gr.update(interactive=False),
            self.stop: gr.update(value="Stop", interactive=True),
        }

    def _run(self, request: gr.Request, crowds: tuple[Crowd, ...]) -> Iterator[ui.Updates]:
        """Runs the visitor's crowd, which ends when its visitor leaves."""
        session = str(request.session_hash)
        run = self._page.runs.take(session, Crowd)
        if run is None:  # `_begin` refused. A generator without a yield empties its outputs.
            yield {self.notice: gr.skip()}
            return
        with self._page.runs.carrying_out(session) as ending:
            for _ in run.updates(self._page):
                yield {self.report: crowd_report.report(crowds)}
        yield {
            self.notice: ui.notice(ending.problem),
            self.report: crowd_report.report(crowds),
            self.together: gr.update(interactive=True),
            self.alone: gr.update(interactive=True),
            self.stop: gr.update(value="Stop", interactive=False),
            self._page.status: self._page.engine_line(),
        }
