"""The Functions tab: the guide's first example, called in three ways.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
function is called or timed.
"""

from collections.abc import Generator

import gradio as gr

from playground.context.measuring import MeasuringRun
from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.tabs.functions import report
from playground.tabs.functions.code import code
from playground.tabs.functions.doctor import RetraceDoctor
from playground.ui import components as ui
from playground.ui.markup import copied_code
from playground.ui.prediction_line import no_prediction_line
from xla_backend import (
    BackendError,
    CacheOutcome,
    FunctionComparison,
    FunctionRequest,
    SharedBackend,
)
from xla_backend.interface.function_comparison import EXAMPLE_FUNCTIONS, MAX_BATCH_SIZE
from xla_backend.interface.request_queue import RESERVATION

_FIRST = FunctionRequest("dense", 5)


class FunctionRun(MeasuringRun):
    """One comparison of a function's three ways.

    Attributes:
        request: what is compared.
        met: the predicted outcome of the compiled ways.
        result: what came of it; None before.
    """

    activity = "Comparing"

    def __init__(self, request: FunctionRequest, met: CacheOutcome) -> None:
        super().__init__()
        self.request = request
        self.met = met
        self.result: FunctionComparison | None = None

    def measure(self, backend: SharedBackend) -> Generator[None, None, None]:
        """Compares them, at once."""
        yield
        request = self.request
        RESERVATION.set(getattr(self.held, "entry", None))
        self.result = backend.compare_function(
            request.function, request.batch_size, pad=request.pad
        )


class FunctionsTab:
    name = "Functions"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        with gr.Row(elem_classes="columns two ways-columns"):
            with gr.Column(elem_classes="stack"):
                with gr.Column(elem_classes="card"):
                    self._build_request()
                with gr.Column(elem_classes="card comes-last"):
                    self._build_code()
            with gr.Column(elem_classes="stack"):
                with gr.Column(elem_classes="card"):
                    self.report = ui.html(report.empty_report(), "functions_report")
                    self.shown = gr.State(None)
                with gr.Column(elem_classes="card"):
                    self._build_shapes()
        with gr.Column(elem_classes="card"):
            RetraceDoctor(page)
        self._connect()

    def _build_request(self) -> None:
        ui.heading(
            "One function, three ways", "The first example of the XLA guide, and a larger one."
        )
        self.function = gr.Radio(
            [(example.title, example.name) for example in EXAMPLE_FUNCTIONS.values()],
            value=_FIRST.function,
            label="Function",
            elem_id="functions_function",
        )
        first, info = _FIRST.batch_size, "Part of the input's shape."
        self.batch_size = ui.slider(
            1, MAX_BATCH_SIZE, first, "Batch size", "functions_batch_size", info
        )
        self.pad = gr.Checkbox(
            label="Pad the batch to the next power of two",
            info="Several batch sizes then share one shape; the output is sliced back.",
            elem_id="functions_pad",
        )
        self.run = gr.Button("Compare", variant="primary", elem_id="functions_run")
        self.prediction = ui.html(report.prediction(_FIRST, []), "functions_prediction")
        self.notice = ui.html("", "functions_notice")

    def _build_code(self) -> None:
        ui.heading("In your own code", "For the function and batch size that are chosen.")
        self.code = ui.html(copied_code(code(_FIRST)), "functions_code")

    def _build_shapes(self) -> None:
        ui.heading("Shapes compiled so far", "What each first call cost. All visitors share them.")
        self.shapes = ui.html("", "functions_shapes")  # filled in sight
        self.sent = gr.State(None)

    def _connect(self) -> None:
        request: list[ui.Field] = [self.function, self.batch_size, self.pad]
        changes = [component.change for component in request]
        ui.empty_on_change(self.notice, changes)
        gr.on(
            [self._page.in_sight["functions"].click, *changes],
            self._refresh,
            [*request, self.sent],
            [self.prediction, self.code, self.shapes, self.sent],
            **ui.LATEST,
        )
        events = RunEvents[FunctionRun](
            self._page,
            self.notice,
            {self.run: "Comparing"},
            None,
            shows=[self.report],
            shown=lambda run: {self.report: report.waiting_report(self._backend.status, run.met)},
            ends=[self.shown],
            ended=self._run_ended,
            state=[self.shown],
        )
        events.connect(self.run.click, self._run_of, request)

    def _refresh(self, function: str, batch_size: int, pad: bool, sent: int | None) -> ui.Updates:
        """Everything that depends on the choice and the engine; sent only if it changed."""
        shapes = self._backend.stored_keys()
        new = hash((function, batch_size, pad, tuple(shapes)))
        if new == sent:
            return {self.sent: sent}
        try:
            request = FunctionRequest(function, batch_size, pad)
        except BackendError as error:
            return {self.prediction: no_prediction_line(str(error)), self.sent: new}
        return {
            self.prediction: report.prediction(request, shapes),
            self.code: str(copied_code(code(request))),
            self.shapes: report.shapes_table(shapes),
            self.sent: new,
        }

    def _run_of(self, function: str, batch_size: int, pad: bool) -> tuple[FunctionRun, ui.Updates]:
        request = FunctionRequest(function, batch_size, pad)
        return FunctionRun(request, report.outcome(request, self._backend.stored_keys())), {}

    def _run_ended(
        self, run: FunctionRun, ending: Ending, before: FunctionComparison | None
    ) -> ui.Updates:
        """What it cost. After an error the last result stays."""
        del ending
        shown = run.result or before
        return {
            self.report: report.report(shown) if shown else report.empty_report(),
            self.shown: shown,
        }
