"""The retrace doctor of the Functions tab: two calls, and which difference made TensorFlow trace.

Knows the components, and which arguments they stand for. Must not know how anything looks, nor how
it is tried. No code of a visitor's runs on a page for strangers: a file can be named on one's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.runs import reporting_errors
from playground.tabs.functions import doctor_report
from playground.ui import components as ui
from xla_backend import BackendError, InvalidRequest
from xla_backend.retracing.doctor import diagnose
from xla_backend.retracing.question import GENERATE, WEIGHTED, Argument, Trial

_FILE = "file"
_CALLS: dict[str, tuple[Sequence[Argument], Mapping[str, Argument]]] = {
    WEIGHTED: (
        (
            Argument("x", "float32", (5, 10)),
            Argument("factor", value=2.0),
            Argument("mask"),
        ),
        {
            "6 rows of x": Argument("x", "float32", (6, 10)),
            "x in float64": Argument("x", "float64", (5, 10)),
            "Factor 3.0": Argument("factor", value=3.0),
            "Factor as a tensor": Argument("factor", "float32"),
            "With a mask": Argument("mask", "bool", (10,)),
        },
    ),
    GENERATE: (
        (
            Argument("input_ids", "int32", (1, 8)),
            Argument("attention_mask", "int32", (1, 8)),
            Argument("max_new_tokens", value=4),
            Argument("num_beams", value=1),
        ),
        {
            "16 prompt slots": Argument("input_ids", "int32", (1, 16)),
            "No attention mask": Argument("attention_mask"),
            "6 new tokens": Argument("max_new_tokens", value=6),
            "2 beams": Argument("num_beams", value=2),
        },
    ),
}
"""The first call of each function, and what the second one can change; the last change of an
argument counts."""


_TENSORS = (
    Argument("x", "float32", (5, 10)),
    Argument("factor", "float32"),
    Argument("mask", "bool", (10,)),
)
"""The first call of a function that is declared for any number of rows: it only takes tensors."""


def _second(first: Sequence[Argument], changed: Sequence[Argument]) -> tuple[Argument, ...]:
    """The second call's arguments."""
    by_name = {each.name: each for each in changed}
    second = {each.name: by_name.get(each.name, each) for each in first}
    mask = second.get("attention_mask")
    if mask and mask.dtype:  # it has the length of its prompt
        second["attention_mask"] = replace(mask, shape=second["input_ids"].shape)
    return tuple(second.values())


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
        self.changes = gr.CheckboxGroup(
            [*_CALLS[WEIGHTED][1]],
            label="What differs in the second call",
            elem_id="doctor_changes",
        )
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
        self.sent_function = gr.State(WEIGHTED)
        self._connect()

    def _connect(self) -> None:
        parts: list[ui.Field] = [self.function, self.jit_compile, self.any_rows, self.file]
        parts.append(self.changes)
        question: set[gr.blocks.Block] = {*parts}
        changes = [part.change for part in parts]
        ui.empty_on_change(self.notice, changes)
        gr.on(
            [self._page.in_sight["functions"].click, *changes],
            self._follow,
            {self.sent_function, *question},
            [self.sent_function, self.code, self.changes, self.file, self.any_rows],
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

    def _follow(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """The two calls as code, and the fields of another function."""
        function = values[self.function]
        updates: dict[Any, Any] = {self.code: self._code(values)}
        if function == values[self.sent_function]:
            return updates
        return {
            **updates,
            self.sent_function: function,
            self.changes: gr.update(
                choices=[*_CALLS[function][1]] if function in _CALLS else [],
                value=[],
                visible=function in _CALLS,
            ),
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
        if function not in _CALLS:
            raise InvalidRequest("There is no such function here.")
        first, changes = _CALLS[function]
        any_rows = values[self.any_rows] and function == WEIGHTED
        if any_rows:
            first = _TENSORS
        differs = [changes[name] for name in values[self.changes] if name in changes]
        second = _second(first, differs)
        return Trial(function, tuple(first), second, jit_compile, any_rows)

    def _code(self, values: dict[Any, Any]) -> str:
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
