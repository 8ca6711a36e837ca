"""The Playground tab: one prompt in, one text out, and what it cost.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how text is generated.
"""

import contextlib
from typing import Any

import gradio as gr
import htpy as h

from playground.context.draft import TEXT, YES_NO
from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.context.run_events import RunEvents
from playground.context.runs import Ending, Shown, TextRun, page_mode
from playground.history import records
from playground.tabs.generate import report
from playground.tabs.generate.answer_as import AnswerAs
from playground.tabs.generate.answers import decisions_view, form_view
from playground.tabs.generate.examples import are_example_options, examples_for, is_example_prompt
from playground.tabs.generate.linked_request import LinkedRequest
from playground.tabs.generate.preset_buttons import PresetButtons
from playground.tabs.generate.prompt_fields import PromptFields
from playground.tabs.generate.token_view import empty_token_view, token_view
from playground.tabs.generate.view_code import ViewCode
from playground.ui import components as ui
from playground.ui.option_controls import IN_SIGHT, NAMES, OptionControls, labelled, with_seed
from playground.ui.prediction_line import (
    awaited_prediction_line,
    no_prediction_line,
    prediction_line,
)
from playground.ui.tables import cached_functions_table
from playground.ui.theme import ASSETS
from playground.ui.wording import Wording, wording_of
from playground.walkthrough.panel import WalkthroughPanel
from xla_backend import BackendError, GenerationOptions, ModelUnavailable, Prediction, Prompt
from xla_backend.interface.decisions import Decisions

TOKENS = "Tokens"
_COPY_TEXT = """() => {
  const written = document.querySelector("#story .story-new");
  return copiedOrNot(written.dataset.text ?? written.textContent);
}"""


class PlaygroundTab:
    name = "Playground"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        self.walkthrough = WalkthroughPanel(page)
        models = page.models()
        self._first = models[0] if models else None
        with gr.Row(elem_classes="columns playground-columns"):
            with gr.Column(elem_classes="card area-request"):
                self._build_request()
            with gr.Column(elem_classes="card area-result"):
                self._build_result()
            with gr.Column(elem_classes="card area-options"):
                self.presets = PresetButtons(page, self.link)
                self.answer = AnswerAs()
                self.controls = OptionControls(
                    page.limits.within(examples_for(self._first)[0].options),
                    most_new_tokens=page.limits.new_tokens,
                    in_sight=("grammar", *IN_SIGHT),
                )
                self.exact_key = gr.Checkbox(
                    label="Exact shape only",
                    info="Do not reuse a larger compiled function.",
                    elem_id="exact_key",
                )
        with gr.Column(elem_classes="card"):
            self.view_code = ViewCode(page)
        with gr.Column(elem_classes="card"):
            ui.heading(
                "Compiled functions",
                "What the engine holds in memory, for everybody who uses this page.",
            )
            self.entries = ui.html("", "entries")  # filled in sight
            self.entries_sent = gr.State(None)
        self.fields = RequestFields(
            page,
            {
                "model": self.model,
                "prompt": self.prompt.text,
                "system": self.prompt.system,
                "messages": self.prompt.messages,
                "begins_with": self.prompt.answer_start,
                "raw": self.prompt.is_raw,
                "variables": self.prompt.variables,
                "exact_key": self.exact_key,
                "questions": self.answer.questions,
                "answer_as": self.answer.kind,
                "choices": self.answer.choices,
                **dict(zip(NAMES, self.controls.inputs, strict=True)),
            },
            self.controls,
            self.link.model,
        )
        self.prompt.connect()
        self.presets.connect(self.fields)
        self.walkthrough.connect(
            {*self.fields.inputs}, self.fields.request, self.stop, self.notice, self.generate
        )
        self.link.connect(
            self.fields, self.generate, self._interrupted, [self.story, self.origin, self.retry]
        )
        self.answer.connect(self.controls)
        self.controls.connect()
        self._connect_request()
        self.view_code.connect(self.fields)
        self._connect_run()
        self._connect_entries()

    def _build_request(self) -> None:
        examples = examples_for(self._first)
        self.link = LinkedRequest(self._page)
        self.model = ui.model_dropdown(self._page.models(), "model", is_described=True)
        self.followed = gr.State(self._first.name if self._first else None)
        self.prompt = PromptFields(self._first, examples[0].prompt)
        with gr.Row(elem_classes="actions within-reach"):
            self.generate = gr.Button("Generate", variant="primary", elem_id="generate")
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop")
            self.walkthrough.build_button()
        self.prediction = ui.html(awaited_prediction_line("Counting tokens"), "prediction")
        self.notice = ui.html("", "notice")
        self.examples = ui.name_buttons(
            [example.name for example in examples], "Examples", "examples"
        )

    def _build_result(self) -> None:
        wording = wording_of(self._first)
        self.walkthrough.build_panel()
        # The style sheet shows one of the two.
        self.view = gr.Radio(
            ["Text", TOKENS],
            value="Text",
            show_label=False,
            label="Result as",
            container=False,
            interactive=True,  # Gradio makes a component that is no event's input read-only.
            elem_id="result_view",
        )
        self.story = ui.html(report.empty_story(wording), "story")
        script = (ASSETS / "tokens.js").read_text(encoding="utf-8")
        self.tokens = ui.html(empty_token_view(wording), "tokens", js_on_load=script)
        with gr.Row(elem_classes="origin-row"):
            self.origin = ui.html("", "origin")
            self.continue_text = ui.small_button("Continue", "continue_text", visible=False)
            self.copy_text = ui.small_button("Copy text", "copy_text", visible=False)
            self.retry = ui.small_button("Retry", "retry_text", visible=False)
        self.report = ui.html(report.empty_report(wording), "report")
        self.shown = gr.State(None)

    def _connect_request(self) -> None:
        form, fields = self.view_code.form, self.fields
        changes = [field.change for field in fields.inputs]
        inputs = sorted(
            [self.followed, fields.linked_model, form, *fields.inputs], key=lambda each: each._id
        )
        places = [
            inputs.index(field) for field in (fields.controls.hold, *fields.settings.values())
        ]
        ui.await_prediction(self.prediction, self.model)
        self._of_examples = [self.prompt.text, *self.controls.inputs]
        results = [self.story, self.tokens, self.report]
        self.suggestion = ui.suggestion_for(self._of_examples, results)
        ui.empty_on_change(self.notice, changes)
        self.examples.click(self._fill_in, [self.examples, self.model], fields.inputs, **ui.QUIET)
        # All that follows a change is one answer: those of two models chosen one after the other
        # would else come in any order.
        gr.on(
            [self._page.in_sight["playground"].click, self.entries.change, form.change, *changes],
            self._follow_request,
            {*inputs},
            [
                *(self.prediction, self.view_code.code, self.followed, fields.linked_model),
                *(self.model, self.prompt.text, self.prompt.of_instruct, self.examples),
                self.suggestion,
            ],
            js=f"(...values) => keepRequest(values, {places})",
            **ui.LATEST,
        )

    def _connect_run(self) -> None:
        events = RunEvents[TextRun](
            self._page,
            self.notice,
            {self.generate: "Generating", self.walkthrough.button: ""},
            self.stop,
            shows=[self.story, self.report],
            shown=self._run_shown,
            ends=[
                *(self.tokens, self.origin, self.continue_text, self.copy_text, self.retry),
                *(self.shown, self.entries, self._page.runs_of_visitor),
            ],
            ended=self._run_ended,
            state=[self.shown, self._page.runs_of_visitor, self.view],
        )
        events.connect(
            self.generate.click, self._run_of, {*self.fields.inputs}, [self.controls.seed]
        )
        events.connect_stop()
        self.view.change(self._tokens, [self.view, self.shown], self.tokens, **ui.QUIET)
        self.retry.click(None, None, None, js=f"() => ({ui.PRESS})(true)", **ui.QUIET)
        self.copy_text.click(None, None, self.copy_text, js=_COPY_TEXT, **ui.QUIET)
        self.continue_text.click(
            lambda shown: shown.prompt + shown.result.text, self.shown, self.prompt.text, **ui.QUIET
        ).then(None, None, None, js=f"() => ({ui.PRESS})(true)", **ui.QUIET)

    def _connect_entries(self) -> None:
        self._page.in_sight["playground"].click(
            self._refresh_entries,
            self.entries_sent,
            [self.entries, self.entries_sent],
            **ui.EACH_TIME,
        )

    def _wording(self, name: str, prompt: Prompt = ()) -> Wording:
        return wording_of(self._page.info(name), is_raw=isinstance(prompt, str))

    def _follow_model(self, values: dict[Any, Any]) -> ui.Updates:
        """The chosen model's words and examples. What the visitor typed or set stays."""
        name, prompt = values[self.model], values[self.prompt.text]
        model = self._page.info(name)
        if model is None or name == values[self.followed]:
            return {}
        wording, examples = wording_of(model), examples_for(model)
        own = [examples]
        is_linked = name == values[self.link.model]
        updates: ui.Updates = {
            self.followed: name,
            self.link.model: None,
            **self.prompt.of_model(model),
            self.examples: gr.Dataset(
                samples=[[example.name] for example in examples],
                sample_labels=[example.name for example in examples],
            ),
        }
        example: ui.Updates = {}
        if not is_linked and is_example_prompt(prompt) and not is_example_prompt(prompt, own):
            example[self.prompt.text] = examples[0].prompt
        try:
            options = None if is_linked else self.fields.options(values)
        except BackendError:  # The visitor is still typing a number.
            options = None
        limits = self._page.limits
        sets = list(map(examples_for, self._page.models()))
        is_untouched = options and are_example_options(options, limits, sets)
        if options and is_untouched and not are_example_options(options, limits, own):
            own_options = examples[0].options.replace(seed=options.seed)
            example |= self.fields.of_options(limits.within(own_options))
        results = (
            report.empty_story(wording),
            empty_token_view(wording),
            report.empty_report(wording),
        )
        updates[self.suggestion] = ui.suggested(name, self._of_examples, values, example, results)
        return updates

    def _fill_in(self, index: int, model: str) -> ui.Updates:
        example = examples_for(self._page.info(model))[index]
        answer = YES_NO if example.questions else TEXT
        settings = {"prompt": example.prompt, "answer_as": answer}
        if example.questions:
            settings["questions"] = "\n".join(example.questions)
        options = self.fields.of_options(self._page.limits.within(example.options))
        del options[self.controls.seed]  # An example names none.
        return {**{self.fields.settings[name]: each for name, each in settings.items()}, **options}

    def _refresh_entries(self, sent: int | None) -> tuple[Any, int]:
        """The table, if it differs from the one that was sent last."""
        entries = tuple(self._backend.cached_functions())
        new = hash((entries, self._page.times_cleared))
        return (gr.skip() if new == sent else self._cached_functions_table()), new

    def _cached_functions_table(self) -> str:
        # A change of the table starts a new prediction, so it must also change when only the
        # store on disk was cleared.
        mark = h.comment(f" {self._page.times_cleared} ")
        return str(h.fragment[cached_functions_table(self._backend.cached_functions()), mark])

    def _follow_request(self, request: gr.Request, values: dict[Any, Any]) -> ui.Updates:
        model = self._page.info(values[self.model])
        return {
            self.prediction: self._predict(values),
            self.view_code.code: self.view_code.written(values, request),
            self.model: gr.update(info=ui.model_description(model)) if model else gr.skip(),
            **self._follow_model(values),
        }

    def _predict(self, values: dict[Any, Any]) -> str:
        try:
            run = self._run_and_seed(values)[0]
            self._page.check_request(run.model, run.prompt, run.options)
            wording = self._wording(run.model, run.prompt)
            return prediction_line(self._predicted(run), wording)
        except BackendError as error:
            return no_prediction_line(labelled(str(error)))

    def _run_of(self, values: dict[Any, Any]) -> tuple[TextRun, ui.Updates]:
        self.fields.check_variables(values)
        run, holds_seed = self._run_and_seed(values)
        run.options = with_seed(run.options, holds_seed)
        self._page.check_request(run.model, run.prompt, run.options)
        with contextlib.suppress(ModelUnavailable):  # the run itself will fetch the tokenizer
            run.prediction = self._predicted(run)
        return run, {self.controls.seed: run.options.seed}

    def _run_and_seed(self, values: dict[Any, Any]) -> tuple[TextRun, bool]:
        """What is asked, and whether its seed stays.

        Raises:
            InvalidRequest: a field is empty or out of range.
        """
        filled, questions = self.fields.request(values), self.answer.questions_of(values)
        if not questions:
            run = TextRun(filled.model, filled.prompt, filled.options, filled.exact_key)
            return run, filled.holds_seed
        options = GenerationOptions(max_new_tokens=1, seed=filled.options.seed)
        text = self.fields.text(values)
        return TextRun(filled.model, text, options, questions=questions), filled.holds_seed

    def _predicted(self, run: TextRun) -> Prediction:
        return self._backend.predict(
            run.model,
            run.prompt,
            run.options,
            mode=None if run.questions else page_mode(run.options),
            exact_key=run.exact_key,
            questions=run.questions,
        )

    def _run_shown(self, run: TextRun) -> ui.Updates:
        """The run so far, or its result, which the rest follows a tenth of a second later."""
        wording = self._wording(run.model, run.prompt)
        if (shown := run.shown()) is not None:
            return self._result(shown, wording)
        updates: ui.Updates = {
            self.story: report.story(run.prompt, run.text, writing=True, wording=wording)
        }
        if not run.text:
            if run.ahead and run.taken_at is not None:
                with contextlib.suppress(BackendError):
                    run.prediction = self._predicted(run)
            ahead = run.ahead if run.taken_at is None else 0
            updates[self.report] = report.waiting_report(
                run.prediction, ahead, wording, run.clicked_s
            )
        return updates

    def _run_ended(
        self, run: TextRun, ending: Ending, before: Shown | None, runs: Any, view: str
    ) -> ui.Updates:
        """What is left of the run's result. After an error the last result stays."""
        wording = self._wording(run.model, run.prompt)
        shown = run.shown()
        if shown is None:
            stays = None if run.text else before
            cut = self._interrupted(run.prompt, run.text, wording) if run.text else {}
            return {
                **self._result(stays, wording),
                **self._at_rest(stays, view, wording),
                **cut,
                self.notice: ui.notice(labelled(ending.why_empty)),
            }
        updates = self._at_rest(shown, view, wording)
        if not isinstance(shown.result, Decisions):  # a record is of a text
            updates[self._page.runs_of_visitor] = records.add(runs, shown, wording)
        return updates

    def _interrupted(self, prompt: Prompt, text: str, wording: Wording) -> ui.Updates:
        """A text that an error or a reload has cut, with a button to ask again."""
        return {
            self.story: report.story(prompt, text, wording=wording),
            self.origin: report.interrupted(),
            self.retry: gr.update(visible=True),
        }

    def _at_rest(self, shown: Shown | None, view: str, empty: Wording) -> ui.Updates:
        """What stands beside a result, or the page before the first one."""
        wording = self._wording(shown.result.model, shown.prompt) if shown else empty
        is_text = shown is not None and not isinstance(shown.result, Decisions)
        # The token limit cut a text that the model can continue; an answer it cannot.
        is_cut = shown is not None and shown.result.finish == "length"
        can_go_on = is_cut and not wording.is_apart
        return {
            self.shown: shown,
            self.tokens: self._tokens(view, shown) if shown else empty_token_view(empty),
            self.origin: report.origin(shown) if shown else "",
            self.continue_text: gr.update(visible=can_go_on),
            self.copy_text: gr.update(value="Copy text", visible=is_text),
            self.retry: gr.update(visible=False),
            self.entries: self._cached_functions_table(),
        }

    def _result(self, shown: Shown | None, empty: Wording) -> ui.Updates:
        if shown is None:
            return {self.story: report.empty_story(empty), self.report: report.empty_report(empty)}
        wording = self._wording(shown.result.model, shown.prompt)
        if isinstance(shown.result, Decisions):
            text: str = decisions_view(shown.result)
        else:
            text = report.story(shown.prompt, shown.result.text, wording=wording) + form_view(shown)
        return {self.story: text, self.report: report.report(shown, wording)}

    def _tokens(self, view: str, shown: Shown | None) -> str:
        """A hundred kilobytes for 250 tokens: only where they are looked at."""
        if shown is None:
            return gr.skip()
        wording = self._wording(shown.result.model, shown.prompt)
        return token_view(shown, wording) if view == TOKENS else empty_token_view(wording)
