"""The Playground tab: one prompt in, one text out, and what it cost.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how text is generated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground import history
from playground.components import QUIET, model_dropdown, notice
from playground.entries_table import entries_table
from playground.examples import DEFAULTS, EXAMPLES
from playground.option_controls import OptionControls, options_from, values_for
from playground.prediction_line import no_prediction_line, prediction_line
from playground.result_panel import (
    Shown,
    empty_report,
    empty_story,
    report,
    story,
    waiting_report,
)
from playground.runs import Run
from playground.status_line import status_line
from xla_backend import BackendError, ModelUnavailable, Prediction

if TYPE_CHECKING:
    from playground.page import PageContext

_UNEXPECTED = "Something went wrong that should not have; the server's log says what. Try again."

logger = logging.getLogger(__name__)

Updates = dict[gr.components.Component, Any]


class PlaygroundTab:
    """Builds the tab inside the current `gr.Tab` and connects it."""

    name = "Playground"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        with gr.Row(elem_classes="columns"):
            with gr.Column(elem_classes="card area-request"):
                self._build_request()
            with gr.Column(elem_classes="card area-result"):
                self._build_result()
            with gr.Column(elem_classes="card area-options"):
                self.controls = OptionControls(DEFAULTS)
                self.exact_key = gr.Checkbox(
                    label="Exact shape only",
                    info="A larger function that is there may not serve. To see a first call.",
                    elem_id="exact_key",
                )
        self._build_tables()
        self._connect_request()
        self._connect_run()
        self._connect_tables()

    # ---- what is on the tab

    def _build_request(self) -> None:
        self.model = model_dropdown(self._page.models(), "model")
        self.prompt = gr.Textbox(
            value=EXAMPLES[0].prompt,
            label="Prompt",
            lines=4,
            max_lines=12,
            placeholder="The beginning of a story",
            elem_id="prompt",
        )
        self.examples = gr.Dataset(
            components=[gr.Textbox(visible=False)],
            samples=[[example.prompt] for example in EXAMPLES],
            sample_labels=[example.name for example in EXAMPLES],
            type="index",
            label="Examples",
            elem_id="examples",
        )
        with gr.Row(elem_classes="actions"):
            self.generate = gr.Button("Generate", variant="primary", elem_id="generate")
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop")
        self.prediction = gr.HTML(
            no_prediction_line("Counting tokens"), elem_id="prediction", apply_default_css=False
        )
        self.notice = gr.HTML("", elem_id="notice", apply_default_css=False)

    def _build_result(self) -> None:
        self.story = gr.HTML(empty_story(), elem_id="story", apply_default_css=False)
        self.report = gr.HTML(empty_report(), elem_id="report", apply_default_css=False)
        self.shown = gr.State(None)

    def _build_tables(self) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML(
                '<h2>Compiled functions</h2><p class="caption">What the engine holds in memory, '
                "for everybody who uses this page.</p>",
                apply_default_css=False,
            )
            self.entries = gr.HTML(entries_table([]), elem_id="entries", apply_default_css=False)
            self.entries_sent = gr.State(None)
        with gr.Column(elem_classes="card"):
            with gr.Row(elem_classes="card-head"):
                gr.HTML(
                    '<h2>Your runs</h2><p class="caption">Shape is prompt slots · beams · new '
                    "slots.</p>",
                    apply_default_css=False,
                )
                self.clear = gr.Button("Clear", size="sm", elem_id="clear", scale=0, min_width=90)
            self.history = gr.HTML(
                history.history_table([]), elem_id="history", apply_default_css=False
            )

    # ---- what happens

    @property
    def _request(self) -> list[gr.components.Component]:
        return [self.model, self.prompt, self.exact_key, *self.controls.inputs]

    def _connect_request(self) -> None:
        self.examples.click(
            lambda index: [EXAMPLES[index].prompt, *values_for(EXAMPLES[index].options)],
            self.examples,
            [self.prompt, *self.controls.inputs],
            **QUIET,
        )
        # In the browser alone: what was wrong with the last request need not be with the next.
        gr.on(
            [component.change for component in self._request],
            None,
            None,
            self.notice,
            js="() => ''",
            **QUIET,
        )
        gr.on(
            [
                self._page.load,
                self.entries.change,
                *(component.change for component in self._request),
            ],
            self._predict,
            self._request,
            self.prediction,
            trigger_mode="always_last",
            **QUIET,
        )

    def _connect_run(self) -> None:
        self.generate.click(
            self._begin,
            self._request,
            [self.notice, self.story, self.report, self.generate, self.stop],
            **QUIET,
        ).then(
            self._run,
            [self.shown, self._page.runs_of_visitor],
            [
                self.story,
                self.report,
                self.notice,
                self.shown,
                self.entries,
                self._page.status,
                self._page.runs_of_visitor,
                self.history,
                self.generate,
                self.stop,
            ],
            show_progress="hidden",
            api_visibility="private",
            concurrency_id=self._page.engine_queue,
            concurrency_limit=1,
        )
        self.stop.click(self._stop, None, [self.stop, self.notice], **QUIET)

    def _connect_tables(self) -> None:
        gr.on(
            [self._page.load, self._page.timer.tick],
            self._look_at_engine,
            self.entries_sent,
            [self._page.status, self.entries, self.entries_sent],
            **QUIET,
        )
        self._page.load(history.history_table, self._page.runs_of_visitor, self.history, **QUIET)
        self.clear.click(
            lambda: ([], history.history_table([])),
            None,
            [self._page.runs_of_visitor, self.history],
            **QUIET,
        )

    def _look_at_engine(self, sent: int | None) -> tuple[Any, Any, int]:
        """The status, every second; the table only when it is another than the one last sent."""
        entries = tuple(self._backend.entries())
        new = hash((entries, self._page.times_forgotten))
        table = gr.skip() if new == sent else self._entries_table()
        return self._status(), table, new

    def _entries_table(self) -> str:
        # The table's change is what has the next request predicted anew, so it must also change
        # when only the disk has forgotten something.
        mark = f"<!-- {self._page.times_forgotten} -->"
        return entries_table(self._backend.entries()) + mark

    def _status(self) -> str:
        return status_line(self._backend.status, len(self._backend.warming()))

    def _predict(self, model: str, prompt: str, exact_key: bool, *options: Any) -> str:
        try:
            self._page.check_model(model)
            return prediction_line(
                self._backend.predict(model, prompt, options_from(options), exact_key=exact_key)
            )
        except BackendError as error:
            return no_prediction_line(str(error))

    def _begin(
        self, request: gr.Request, model: str, prompt: str, exact_key: bool, *options: Any
    ) -> Updates:
        """Checks the request at once, so that a mistake need not wait for somebody's compile."""
        try:
            self._page.check_model(model)
            run = Run(model, prompt, options_from(options), exact_key)
            prediction = self._prediction_of(run)
            ahead = self._page.runs.begin(str(request.session_hash), run)
        except BackendError as error:
            return {self.notice: notice(str(error))}
        return {
            self.notice: "",
            self.story: story(prompt, "", writing=True),
            self.report: waiting_report(prediction, ahead),
            self.generate: gr.update(value="Generating", interactive=False),
            self.stop: gr.update(interactive=True),
        }

    def _prediction_of(self, run: Run) -> Prediction | None:
        """None while the model's vocabulary is not here: the run itself will fetch it."""
        try:
            return self._backend.predict(
                run.model, run.prompt, run.options, exact_key=run.exact_key
            )
        except ModelUnavailable:
            return None

    def _run(self, before: Shown | None, runs: Any, request: gr.Request) -> Iterator[Updates]:
        """Streams the visitor's run, then shows what it cost. An error keeps the last result."""
        session = str(request.session_hash)
        run = self._page.runs.take(session, Run)
        if run is None:  # `_begin` found a mistake and has said so.
            yield {self.notice: gr.skip()}  # A generator that yields nothing empties its outputs.
            return
        shown, problem = None, "Stopped before it began."
        try:
            with self._page.runs.turn():
                for text in run.texts(self._backend, self._page.runs.engine_freed):
                    yield {self.story: story(run.prompt, text, writing=True)}
            shown = run.shown()
        except BackendError as error:
            problem = str(error)
        except Exception:
            # Without this the page would wait for ever, with its buttons switched off.
            logger.exception("A run failed unexpectedly")
            problem = _UNEXPECTED
        finally:
            self._page.runs.end(session)
        if shown is None:
            yield {**self._at_rest(before), self.notice: notice(problem)}
        else:
            runs = history.add(runs, shown)
            yield {
                **self._at_rest(shown),
                self._page.runs_of_visitor: runs,
                self.history: history.history_table(runs),
            }

    def _at_rest(self, shown: Shown | None) -> Updates:
        """A result, or the page as it was before the first one, and the buttons as they start."""
        return {
            self.shown: shown,
            self.story: story(shown.prompt, shown.result.text) if shown else empty_story(),
            self.report: report(shown) if shown else empty_report(),
            self.generate: gr.update(value="Generate", interactive=True),
            self.stop: gr.update(value="Stop", interactive=False),
            self.notice: "",
            self.entries: self._entries_table(),
            self._page.status: self._status(),
        }

    def _stop(self, request: gr.Request) -> tuple[Any, Any]:
        run = self._page.runs.of(str(request.session_hash))
        if run is None:
            return gr.skip(), gr.skip()
        run.stop()
        note = ""
        if self._backend.status.state in ("tracing", "compiling"):
            note = notice("Stopping. XLA finishes the compile first, and keeps it.", "calm")
        return gr.update(value="Stopping", interactive=False), note
