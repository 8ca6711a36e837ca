"""The card of the Batch tab in which a crowd of visitors arrives.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
crowd is run.
"""

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.tabs.batch import crowd_report
from playground.tabs.batch.crowd import MAX_APART_MS, Crowd, comparable, crowd, most_visitors
from playground.ui import components as ui
from playground.ui.option_controls import slider_end

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
        fields = (self.model, prompts, self.visitors, self.apart, self.new_tokens)
        ui.empty_on_change(self.notice, [field.change for field in fields])
        self.visitors.change(None, self.visitors, self.together, js=_LABEL, **ui.QUIET)
        events = RunEvents[Crowd](
            self._page,
            self.notice,
            {self.together: "", self.alone: ""},
            self.stop,
            shows=[self.report],
            shown=self._run_shown,
            ends=[],
            ended=lambda run, ending: {},
        )
        for button, inputs in ((self.together, [*request, self.apart]), (self.alone, request)):
            events.connect(button.click, self._run_of, inputs, [self.crowds])
        events.connect_stop()

    def _run_of(
        self,
        crowds: tuple[Crowd, ...],
        model: str,
        prompts: str,
        visitors: object,
        new_tokens: int,
        apart_ms: object = None,
    ) -> tuple[Crowd, ui.Updates]:
        """A crowd; that of the other kind stays beside it if it asked the same."""
        run = crowd(self._page, model, prompts, visitors, new_tokens, apart_ms)
        run.compared = comparable(run, crowds)
        return run, {self.crowds: run.compared}

    def _run_shown(self, run: Crowd) -> ui.Updates:
        return {self.report: crowd_report.report(run.compared)}
