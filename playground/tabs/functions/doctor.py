"""The retrace doctor of the Functions tab: two calls, and which difference made TensorFlow trace.

Knows the components, and which arguments they stand for. Must not know how anything looks, nor how
it is tried. No code of a visitor's runs on a page for strangers: a file can be named on one's own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import htpy as h

from playground.context.page_context import PageContext
from playground.context.runs import reporting_errors
from playground.tabs.functions import doctor_report
from playground.ui import components as ui
from xla_backend import BackendError, InvalidRequest
from xla_backend.retracing.doctor import diagnose
from xla_backend.retracing.question import GENERATE, WEIGHTED, Argument, Trial

_FILE = "file"
_NONE, _GIVEN, _TENSOR = 0, 1, 0.0
_CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    WEIGHTED: {
        "Rows of x": {"5": 5, "6": 6, "8": 8},
        "dtype of x": {"float32": "float32", "float64": "float64"},
        "Factor": {"2.0": 2.0, "3.0": 3.0, "A tensor": _TENSOR},
        "Mask": {"None": _NONE, "Given": _GIVEN},
    },
    GENERATE: {
        "Prompt slots": {"8": 8, "16": 16},
        "Attention mask": {"Given": _GIVEN, "None": _NONE},
        "New tokens": {"4": 4, "6": 6},
        "Beams": {"1": 1, "2": 2},
    },
}
"""What can differ of each function, its first value the one to begin with."""


def _arguments(function: str, values: Sequence[Any]) -> tuple[Argument, ...]:
    if function == GENERATE:
        slots, mask, max_new_tokens, num_beams = values
        ids = Argument("input_ids", "int32", (1, slots))
        attended = Argument("attention_mask", "int32", (1, slots))
        return (
            ids,
            attended if mask else Argument("attention_mask"),
            Argument("max_new_tokens", value=max_new_tokens),
            Argument("num_beams", value=num_beams),
        )
    rows, dtype, factor, mask = values
    return (
        Argument("x", dtype, (rows, 10)),
        Argument("factor", "float32")
        if factor == _TENSOR
        else Argument("factor", value=float(factor)),
        Argument("mask", "bool", (10,)) if mask else Argument("mask"),
    )


class RetraceDoctor:
    def __init__(self, page: PageContext) -> None:
        self._page = page
        ui.heading(
            "What makes tf.function trace again?",
            "Two calls of a fresh function: choose what differs.",
        )
        functions = [
            ("A function of three arguments", WEIGHTED),
            ("generate of Transformers", GENERATE),
        ]
        if page.admin:
            functions.append(("Your own file", _FILE))
        self.function = gr.Radio(
            functions, value=WEIGHTED, label="Function", elem_id="doctor_function"
        )
        self._calls: dict[str, list[list[gr.Radio]]] = {}
        self._groups: dict[str, gr.Row] = {}
        for function, choices in _CHOICES.items():
            with gr.Row(visible=function == WEIGHTED) as self._groups[function]:
                self._calls[function] = [
                    self._build_call(function, number, choices) for number in (1, 2)
                ]
        self.file = gr.Textbox(
            label="A Python file with function and calls (two dicts of arguments)",
            visible=False,
            elem_id="doctor_file",
        )
        self.jit_compile = gr.Checkbox(True, label="jit_compile=True", elem_id="doctor_jit")
        self.any_rows = gr.Checkbox(
            label="Declare it for any number of rows", elem_id="doctor_any_rows"
        )
        self.code = ui.html("", "doctor_code")
        with gr.Row():
            self.run = gr.Button(
                "Try", variant="primary", elem_id="doctor_run", scale=0, min_width=200
            )
        self.notice = ui.html("", "doctor_notice")
        self.report = ui.html(doctor_report.empty(), "doctor_report")
        self.sent = gr.State(None)
        self._connect()

    def _build_call(
        self, function: str, number: int, choices: dict[str, dict[str, Any]]
    ) -> list[gr.Radio]:
        with gr.Column(min_width=220):
            which = ("First", "Second")[number - 1]
            ui.html(h.h3(".doctor-call")[f"{which} call"])
            return [
                gr.Radio(
                    list(values.items()),
                    value=next(iter(values.values())),
                    label=label,
                    elem_id=f"doctor_{function}_{number}_{place}",
                )
                for place, (label, values) in enumerate(choices.items())
            ]

    def _connect(self) -> None:
        radios = [radio for calls in self._calls.values() for call in calls for radio in call]
        parts: list[ui.Field] = [self.function, self.jit_compile, self.any_rows, self.file, *radios]
        question: set[gr.blocks.Block] = {*parts}
        changes = [part.change for part in parts]
        ui.empty_on_change(self.notice, changes)
        gr.on(
            [self._page.in_sight["functions"].click, *changes],
            self._show_code,
            question,
            self.code,
            **ui.QUIET,
        )
        self.function.change(
            self._turn,
            self.function,
            [*self._groups.values(), self.file, self.any_rows],
            **ui.QUIET,
        )
        self.run.click(
            self._begin,
            question,
            [self.notice, self.report, self.run, self.sent],
            **ui.QUIET,
        ).then(
            self._try,
            self.sent,
            [self.report, self.notice, self.run],
            **ui.FOLLOWING,
            **ui.SEPARATE_PROCESS,
        )

    def _turn(self, function: str) -> dict[Any, Any]:
        return {
            **{row: gr.update(visible=name == function) for name, row in self._groups.items()},
            self.file: gr.update(visible=function == _FILE),
            self.any_rows: gr.update(visible=function == WEIGHTED),
        }

    def _question(self, values: dict[Any, Any]) -> Trial:
        """What is asked.

        Raises:
            InvalidRequest: it cannot be.
        """
        function, jit_compile = values[self.function], values[self.jit_compile]
        if function == _FILE and self._page.admin:
            # Not any file: a visitor could upload one, and know where it lies.
            path = Path((values[self.file] or "").strip()).resolve()
            if not (path.is_file() and path.is_relative_to(Path.cwd())):
                raise InvalidRequest(
                    "There is no such file: name one in the folder in which the page was started."
                )
            return Trial("", jit_compile=jit_compile, file=path)
        if function not in self._calls:
            raise InvalidRequest("There is no such function here.")
        first, second = (
            _arguments(function, [values[radio] for radio in call])
            for call in self._calls[function]
        )
        any_rows = values[self.any_rows] and function == WEIGHTED
        return Trial(function, first, second, jit_compile, any_rows)

    def _show_code(self, values: dict[Any, Any]) -> str:
        """The two calls as code; nothing where they cannot be made, which pressing says."""
        try:
            question = self._question(values)
        except BackendError:
            return ""
        return doctor_report.code(question) if question.file is None else ""

    def _begin(self, values: dict[Any, Any]) -> ui.Updates:
        """Checks the question at once."""
        try:
            question = self._question(values)
        except BackendError as error:
            return {self.notice: ui.notice(str(error)), self.sent: None}
        return {
            self.notice: "",
            self.report: doctor_report.working(question),
            self.run: gr.update(value="Trying", interactive=False),
            self.sent: question,
        }

    def _try(self, question: Trial | None) -> ui.Updates:
        if question is None:  # `_begin` found a mistake and reported it.
            return {self.report: gr.skip()}
        report_html = ""
        with reporting_errors() as ending:
            report_html = doctor_report.report(diagnose(question))
        return {
            self.report: report_html or doctor_report.empty(),
            self.notice: ui.notice(ending.problem),
            self.run: gr.update(value="Try", interactive=True),
        }
