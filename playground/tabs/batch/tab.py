"""The Batch tab: many prompts, one after the other or arriving while others run.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
prompt is run.
"""

from pathlib import Path
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.tabs.batch import report
from playground.tabs.batch.prompts import text_of_file
from playground.tabs.batch.runs import APART_S, Batch, checked, most_visitors
from playground.ui import components as ui
from playground.ui.option_controls import slider_end, with_seed
from xla_backend import InvalidRequest

IN_TURN, TOGETHER = "turn", "together"
_WAYS = [("One after the other", IN_TURN), ("Many visitors at once", TOGETHER)]
_SHOW = """(way) => ({__type__: "update", visible: way === "together"})"""
_QUESTIONS = """What is the capital of France?
Give me three tips for a good night's sleep.
Name five animals that live in the sea.
Write one sentence about a lighthouse, and one about the keeper who has lived there alone for years.
What is photosynthesis?"""
_OPENINGS = """Once upon a time
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
        self._connect()

    def _build_request(self) -> None:
        ui.heading(
            "Many prompts",
            "One on each line, or CSV or JSON with a column “prompt”; 50 at most. {{name}} in a "
            "prompt stands for the column “name” of its row.",
        )
        models = self._page.models()
        example = _QUESTIONS if models and models[0].is_instruct else _OPENINGS
        self.prompts = gr.Textbox(
            value=example, label="Prompts", lines=8, max_lines=14, elem_id="batch_prompts"
        )
        self.upload = gr.UploadButton(
            "Upload text or CSV",
            file_types=[".txt", ".csv"],
            type="filepath",
            size="sm",
            elem_id="batch_upload",
        )
        self.way = gr.Radio(
            _WAYS,
            value=IN_TURN,
            label="Sent",
            info=f"Visitors come {APART_S * 1000:.0f} ms apart and send the prompts in turn, as "
            "rows that join and leave at any time, without reusing each other’s prefixes.",
            elem_id="batch_way",
        )
        most = most_visitors(self._page)
        self.visitors = ui.slider(1, slider_end(most), most, "Visitors", "batch_visitors")
        self.visitors.visible = False
        with gr.Row(elem_classes="actions"):
            self.run = gr.Button("Run all", variant="primary", elem_id="batch_run")
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop_batch")
        self.notice = ui.html("", "batch_notice")

    def _connect(self) -> None:
        settings = self._page.settings
        own: list[ui.Field] = [self.prompts, self.way, self.visitors]
        request = [*own, *settings.inputs]
        ui.empty_on_change(self.notice, [component.change for component in request])
        self.way.change(None, self.way, self.visitors, js=_SHOW, **ui.QUIET)
        self.upload.upload(self._read, self.upload, [self.prompts, self.notice], **ui.QUIET)
        events = RunEvents[Batch](
            self._page,
            self.notice,
            {self.run: "Running"},
            self.stop,
            shows=[self.report],
            shown=lambda batch: {self.report: report.report(batch)},
            ends=[self.files],
            ended=self._run_ended,
        )
        events.connect(
            self.run.click,
            self._run_of,
            {*request},
            [self.files, settings.controls.seed],
        )
        events.connect_stop()

    def _read(self, path: str) -> ui.Updates:
        """Puts a file's text into the field, where the visitor can check it."""
        file = Path(path)
        try:
            return {self.prompts: text_of_file(file.name, file.read_bytes()), self.notice: ""}
        except InvalidRequest as error:
            return {self.notice: ui.notice(str(error))}
        finally:
            file.unlink(missing_ok=True)

    def _run_of(self, values: dict[Any, Any]) -> tuple[Batch, ui.Updates]:
        """All prompts, checked first, so that no mistake is found halfway."""
        settings, is_together = self._page.settings, values[self.way] == TOGETHER
        visitors = values[self.visitors] if is_together else 0
        if is_together and not (isinstance(visitors, int) and visitors > 0):
            raise InvalidRequest("Visitors must be a whole number above 0.")
        options = settings.options_of_text(values, "A batch")
        options = with_seed(options, values[settings.controls.hold])
        batch = checked(
            self._page,
            values[settings.model],
            values[self.prompts],
            options,
            values[settings.system] or "",
            visitors,
        )
        return batch, {self.files: "", settings.controls.seed: options.seed}

    def _run_ended(self, batch: Batch, ending: Ending) -> ui.Updates:
        del ending
        return {self.report: report.report(batch), self.files: report.files(batch)}
