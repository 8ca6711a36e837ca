"""The Batch tab: many prompts, one after the other, and a crowd of visitors at once.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
prompt is run.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.tabs.batch import report
from playground.tabs.batch.crowd_card import CrowdCard
from playground.tabs.batch.prompts import prompts_in, text_of_file
from playground.tabs.batch.runs import Batch, checked
from playground.tabs.generate.examples import examples_for
from playground.ui import components as ui
from playground.ui.option_controls import OptionControls, labelled, options_from, with_seed
from xla_backend import BackendError, InvalidRequest

_EXAMPLE = """Once upon a time
One day a small rabbit
The old bear went to the river
Once upon a time there was a little fox who lived near the river with his sister. He had a red \
kite, and he wanted to fly it on the hill. But one morning
A girl named Mia found a key"""


class BatchTab:
    name = "Batch"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_request()
            with gr.Column(elem_classes="card"):
                ui.heading("Results", "Shape is prompt or input slots · beams · new slots.")
                self.report = ui.html(report.EMPTY, "batch_report")
                self.files = ui.html("", "batch_files")
        with gr.Column(elem_classes="card"):
            CrowdCard(page, self.prompts)
        self.batch = gr.State(None)
        # Its change makes the browser ask for the next turn: a batch ends when its visitor leaves.
        self.turn = gr.Number(0, visible=False)
        self._connect()

    def _build_request(self) -> None:
        ui.heading(
            "Many prompts",
            "One on each line, or CSV or JSON with a column “prompt”; 50 at most. {{name}} in a "
            "prompt stands for the column “name” of its row.",
        )
        models = self._page.models_that_continue_first()
        self.model = ui.model_dropdown(models, "batch_model")
        self.prompts = gr.Textbox(
            value=_EXAMPLE, label="Prompts", lines=8, max_lines=14, elem_id="batch_prompts"
        )
        self.upload = gr.UploadButton(
            "Upload text or CSV",
            file_types=[".txt", ".csv"],
            type="filepath",
            size="sm",
            elem_id="batch_upload",
        )
        with gr.Row(elem_classes="actions"):
            self.run = gr.Button("Run all", variant="primary", elem_id="batch_run")
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop_batch")
        self.notice = ui.html("", "batch_notice")
        first = models[0] if models else None
        self.controls = OptionControls(
            self._page.limits.within(examples_for(first)[0].options),
            "batch_",
            self._page.limits.new_tokens,
        )
        self.exact_key = gr.Checkbox(
            label="Exact shape only",
            info="Do not reuse a larger compiled function.",
            elem_id="batch_exact_key",
        )

    def _connect(self) -> None:
        request: list[ui.Field] = [self.model, self.prompts, self.exact_key, *self.controls.inputs]
        changes = [component.change for component in request]
        ui.empty_on_change(self.notice, changes)
        self.controls.connect()
        self.upload.upload(self._read, self.upload, [self.prompts, self.notice], **ui.QUIET)
        self.run.click(
            self._begin,
            [self.turn, self.controls.hold, *request],
            [
                *(self.notice, self.report, self.files, self.batch, self.turn),
                *(self.run, self.stop, self.controls.seed),
            ],
            **ui.QUIET,
        )
        self.turn.change(
            self._take_turn,
            [self.turn, self.batch],
            [self.report, self.files, self.turn, self.run, self.stop, self._page.status],
            **ui.FOLLOWING,
        )
        ui.stop_by(self.stop, lambda batch: batch and batch.stop(), None, self.batch)

    def _read(self, path: str) -> ui.Updates:
        """Puts a file's text into the field, where the visitor can check it."""
        file = Path(path)
        try:
            return {self.prompts: text_of_file(file.name, file.read_bytes()), self.notice: ""}
        except InvalidRequest as error:
            return {self.notice: ui.notice(str(error))}
        finally:
            file.unlink(missing_ok=True)

    def _begin(
        self, turn: float, holds_seed: bool, model: str, prompts: str, exact_key: bool, *values: Any
    ) -> ui.Updates:
        """Checks all prompts first, so that no mistake is found halfway."""
        try:
            options = with_seed(options_from(values), holds_seed)
            found, without_prompt = prompts_in(prompts)
            batch = checked(self._page, model, found, options, exact_key)
            batch.skipped = without_prompt
        except BackendError as error:
            return {self.notice: ui.notice(labelled(str(error)))}
        return {
            self.notice: "",
            self.report: report.report(batch),
            self.files: "",
            self.batch: batch,
            self.turn: turn + 1,
            self.run: gr.update(value="Running", interactive=False),
            self.stop: gr.update(value="Stop", interactive=True),
            self.controls.seed: options.seed,
        }

    async def _take_turn(self, turn: float, batch: Batch | None) -> AsyncIterator[ui.Updates]:
        """Runs one prompt, then asks for the next turn behind the requests that came meanwhile."""
        if batch is None:  # The server was restarted meanwhile.
            yield {
                self.run: gr.update(value="Run all", interactive=True),
                self.stop: gr.update(value="Stop", interactive=False),
            }
            return
        async for _ in batch.turn(self._page):
            yield {self.report: report.report(batch)}
        updates: ui.Updates = {self.report: report.report(batch)}
        if batch.is_over:
            updates[self.files] = report.files(batch)
            updates[self.run] = gr.update(value="Run all", interactive=True)
            updates[self.stop] = gr.update(value="Stop", interactive=False)
            updates[self._page.status] = self._page.engine_line()
        else:
            updates[self.turn] = turn + 1
        yield updates
