"""The Playground tab: one prompt in, one text out, and what it cost.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how text is generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground import history
from playground.components import (
    FOLLOWING,
    QUIET,
    empty_on_change,
    model_description,
    model_dropdown,
    notice,
)
from playground.entries_table import entries_table
from playground.examples import are_example_options, examples_for, is_example_prompt
from playground.families import Family, family_of
from playground.history_panel import HistoryPanel, RequestFields
from playground.linked_request import LinkedRequest
from playground.option_controls import OptionControls, options_from, values_for
from playground.prediction_line import (
    awaited_prediction_line,
    no_prediction_line,
    prediction_line,
)
from playground.preset_buttons import PresetButtons
from playground.result_panel import (
    Shown,
    downloading,
    empty_report,
    empty_story,
    report,
    story,
    waiting_report,
)
from playground.runs import Run
from playground.status_line import stopping_note
from playground.token_view import SCRIPT as TOKEN_SCRIPT
from playground.token_view import empty_token_view, token_view
from playground.view_code import ViewCode
from xla_backend import BackendError, ModelInfo, ModelUnavailable, Prediction

if TYPE_CHECKING:
    from playground.page import PageContext

Updates = dict[gr.components.Component, Any]


class PlaygroundTab:
    """Builds the tab inside the current `gr.Tab` and connects it."""

    name = "Playground"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        models = page.models()
        self._first = models[0] if models else None
        with gr.Row(elem_classes="columns"):
            with gr.Column(elem_classes="card area-request"):
                self._build_request()
            with gr.Column(elem_classes="card area-result"):
                self._build_result()
            with gr.Column(elem_classes="card area-options"):
                self.presets = PresetButtons(page)
                self.controls = OptionControls(
                    page.limits.within(examples_for(self._first)[0].options),
                    most_new_tokens=page.limits.new_tokens,
                )
                self.exact_key = gr.Checkbox(
                    label="Exact shape only",
                    info="A larger function that is there may not serve. To see a first call.",
                    elem_id="exact_key",
                )
        with gr.Column(elem_classes="card"):
            self.view_code = ViewCode(page)
        self._build_tables()
        self.presets.connect(self._request)
        self.link.connect(self.model, self.prompt, self.exact_key, self.controls, self.generate)
        self._connect_request()
        self.controls.connect()
        self.view_code.connect(self._request)
        self._connect_run()
        self._connect_tables()

    # ---- what is on the tab

    def _build_request(self) -> None:
        family, examples = family_of(self._first), examples_for(self._first)
        self.link = LinkedRequest(self._page)
        self.model = model_dropdown(self._page.models(), "model", is_described=True)
        self.prompt = gr.Textbox(
            value=examples[0].prompt,
            label=family.input_label,
            lines=4,
            max_lines=12,
            placeholder=family.placeholder,
            elem_id="prompt",
        )
        self.examples = gr.Dataset(
            components=[gr.Textbox(visible=False)],
            samples=[[example.prompt] for example in examples],
            sample_labels=[example.name for example in examples],
            type="index",
            label="Examples",
            elem_id="examples",
            elem_classes="examples",
        )
        with gr.Row(elem_classes="actions"):
            self.generate = gr.Button("Generate", variant="primary", elem_id="generate")
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop")
        self.prediction = gr.HTML(
            awaited_prediction_line("Counting tokens"),
            elem_id="prediction",
            apply_default_css=False,
        )
        self.notice = gr.HTML("", elem_id="notice", apply_default_css=False)

    def _build_result(self) -> None:
        family = family_of(self._first)
        # The style sheet shows one of the two: switching asks nobody.
        self.view = gr.Radio(
            # Values that are no words: Gradio translates a value that stands in the table.
            [("Text", "as_text"), ("Tokens", "as_tokens")],
            value="as_text",
            show_label=False,
            label="Result as",
            container=False,
            interactive=True,  # Gradio would not let what is no event's input be changed.
            elem_id="result_view",
        )
        self.story = gr.HTML(empty_story(family), elem_id="story", apply_default_css=False)
        self.tokens = gr.HTML(
            empty_token_view(family),
            elem_id="tokens",
            apply_default_css=False,
            js_on_load=TOKEN_SCRIPT,
        )
        self.download = gr.HTML("", elem_id="download", apply_default_css=False)
        self.report = gr.HTML(empty_report(family), elem_id="report", apply_default_css=False)
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
            self.history = HistoryPanel(self._page)

    # ---- what happens

    @property
    def _request(self) -> list[gr.components.Component]:
        return [self.model, self.prompt, self.exact_key, *self.controls.inputs]

    def _connect_request(self) -> None:
        empty_on_change(self.notice, [component.change for component in self._request])
        self.model.change(
            self._follow_model,
            [self.model, self.prompt, self.shown, self.link.model, *self.controls.inputs],
            [
                self.link.model,
                self.model,
                self.prompt,
                self.examples,
                self.story,
                self.tokens,
                self.report,
                *self.controls.inputs,
            ],
            trigger_mode="always_last",
            **QUIET,
        )
        self.examples.click(
            self._fill_in,
            [self.examples, self.model],
            [self.prompt, *self.controls.inputs],
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
            # Only what changes while it runs: with every piece of text that comes, Gradio's page
            # looks every output up and tells it what goes on.
            self._run,
            None,
            [self.story, self.report],
            show_progress="hidden",
            api_visibility="private",
            **FOLLOWING,
            **self._page.beside_others,
        ).then(
            self._finish,
            [self.shown, self._page.runs_of_visitor],
            [
                self.story,
                self.tokens,
                self.download,
                self.report,
                self.notice,
                self.shown,
                self.entries,
                self._page.status,
                *self.history.outputs,
                self.generate,
                self.stop,
            ],
            **FOLLOWING,
            **QUIET,
        )
        self.stop.click(self._stop, None, [self.stop, self.notice], **QUIET)

    def _connect_tables(self) -> None:
        gr.on(
            [self._page.load, self._page.status_is_new.click],
            self._look_at_status,
            None,
            [self._page.status, self.download],
            trigger_mode="always_last",
            **QUIET,
        )
        gr.on(
            [self._page.load, self._page.engine_is_new.click],
            self._look_at_engine,
            self.entries_sent,
            [self.entries, self.entries_sent],
            trigger_mode="always_last",
            **QUIET,
        )
        self.history.connect(
            RequestFields(self.model, self.prompt, self.exact_key, self.controls, self.link.model)
        )

    def _info(self, name: str) -> ModelInfo | None:
        return next((model for model in self._page.models() if model.name == name), None)

    def _family(self, name: str) -> Family:
        return family_of(self._info(name))

    def _follow_model(
        self,
        request: gr.Request,
        name: str,
        prompt: str,
        shown: Shown | None,
        linked: str | None,
        *values: Any,
    ) -> Updates:
        """Words and examples of the chosen model. What the visitor wrote or set stays as it is."""
        model = self._info(name)
        if model is None:
            return {self.model: gr.skip()}
        family, examples = family_of(model), examples_for(model)
        own = [examples]
        is_linked = name == linked
        updates: Updates = {
            self.link.model: None,
            self.model: gr.update(info=model_description(model)),
            self.prompt: gr.update(label=family.input_label, placeholder=family.placeholder),
            self.examples: gr.Dataset(
                samples=[[example.prompt] for example in examples],
                sample_labels=[example.name for example in examples],
            ),
        }
        if not is_linked and is_example_prompt(prompt) and not is_example_prompt(prompt, own):
            updates[self.prompt]["value"] = examples[0].prompt
        try:
            options = None if is_linked else options_from(values)
        except BackendError:  # A number is being typed.
            options = None
        limits = self._page.limits
        is_untouched = options and are_example_options(options, limits)
        if is_untouched and not are_example_options(options, limits, own):
            defaults = values_for(limits.within(examples[0].options))
            updates.update(zip(self.controls.inputs, defaults, strict=True))
        if shown is None and self._page.runs.of(str(request.session_hash)) is None:
            updates[self.story] = empty_story(family)
            updates[self.tokens] = empty_token_view(family)
            updates[self.report] = empty_report(family)
        return updates

    def _fill_in(self, index: int, model: str) -> list[Any]:
        example = examples_for(self._info(model))[index]
        return [example.prompt, *values_for(self._page.limits.within(example.options))]

    def _look_at_status(self, request: gr.Request) -> tuple[str, str]:
        run = self._page.runs.of(str(request.session_hash))
        download = downloading(self._backend.status) if isinstance(run, Run) else ""
        return self._page.engine_line(str(request.session_hash)), download

    def _look_at_engine(self, sent: int | None) -> tuple[Any, int]:
        """The table, when it is another than the one last sent."""
        entries = tuple(self._backend.entries())
        new = hash((entries, self._page.times_forgotten))
        return (gr.skip() if new == sent else self._entries_table()), new

    def _entries_table(self) -> str:
        # The table's change is what has the next request predicted anew, so it must also change
        # when only the disk has forgotten something.
        mark = f"<!-- {self._page.times_forgotten} -->"
        return entries_table(self._backend.entries()) + mark

    def _predict(self, model: str, prompt: str, exact_key: bool, *options: Any) -> str:
        try:
            wanted = options_from(options)
            self._page.check_request(model, prompt, wanted)
            prediction = self._backend.predict(model, prompt, wanted, exact_key=exact_key)
            return prediction_line(prediction, self._family(model))
        except BackendError as error:
            return no_prediction_line(str(error))

    def _begin(
        self, request: gr.Request, model: str, prompt: str, exact_key: bool, *options: Any
    ) -> Updates:
        """Checks the request at once, so that a mistake need not wait for somebody's compile."""
        try:
            run = Run(model, prompt, options_from(options), exact_key)
            self._page.check_request(model, prompt, run.options)
            prediction = self._prediction_of(run)
            ahead = self._page.begin(str(request.session_hash), run)
        except BackendError as error:
            return {self.notice: notice(str(error))}
        family = self._family(model)
        return {
            self.notice: "",
            self.story: story(prompt, "", writing=True, family=family),
            self.report: waiting_report(prediction, ahead, family),
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

    def _run(self, request: gr.Request) -> Iterator[Updates]:
        """Streams the visitor's run; what it cost is shown by `_finish`, which follows."""
        session = str(request.session_hash)
        run = self._page.runs.take(session, Run)
        if run is not None:  # else `_begin` found a mistake and has said so
            family = self._family(run.model)
            with self._page.runs.handing_over(session):
                for text in run.texts(self._backend, self._page.line.waited_s()):
                    if text:
                        yield {self.story: story(run.prompt, text, writing=True, family=family)}
                    elif run.waited_for:
                        yield {self.report: waiting_report(self._prediction_of(run), 0, family)}
        yield {self.report: gr.skip()}  # A generator that yields nothing empties its outputs.

    def _finish(self, before: Shown | None, runs: Any, request: gr.Request) -> Updates:
        """Shows what the visitor's run came to and what it cost. An error keeps the last result."""
        ended = self._page.runs.ended(str(request.session_hash), Run)
        if ended is None:  # It never began.
            return {self.notice: gr.skip()}
        run, problem = ended
        family = self._family(run.model)
        shown = run.shown()
        if shown is None:
            problem = problem or "Stopped before it began."
            return {**self._at_rest(before, family), self.notice: notice(problem)}
        runs = history.add(runs, shown, family)
        return {**self._at_rest(shown, family), **self.history.updates(runs)}

    def _at_rest(self, shown: Shown | None, empty: Family) -> Updates:
        """A result, or the page as it was before the first one, and the buttons as they start."""
        if shown:
            family = self._family(shown.result.model)
            texts = (
                story(shown.prompt, shown.result.text, family=family),
                token_view(shown, family),
                report(shown, family),
            )
        else:
            texts = empty_story(empty), empty_token_view(empty), empty_report(empty)
        return {
            self.shown: shown,
            self.story: texts[0],
            self.tokens: texts[1],
            self.report: texts[2],
            self.download: "",
            self.generate: gr.update(value="Generate", interactive=True),
            self.stop: gr.update(value="Stop", interactive=False),
            self.notice: "",
            self.entries: self._entries_table(),
            self._page.status: self._page.engine_line(),
        }

    def _stop(self, request: gr.Request) -> tuple[Any, Any]:
        run = self._page.runs.of(str(request.session_hash))
        ends_at_once = isinstance(run, Run) and run.waits_at_engine
        if not self._page.runs.stop(str(request.session_hash)) or ends_at_once:
            return gr.skip(), gr.skip()  # There is no run, or it ends at once.
        note = stopping_note(self._backend.status)
        return gr.update(value="Stopping", interactive=False), note and notice(note, "calm")
