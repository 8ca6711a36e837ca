"""The Playground: what the page is for, one prompt in, one text out, and what it cost.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how text is generated.
"""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr

from playground.context.draft import TEXT, YES_NO, messages_text
from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.context.run_events import RunEvents
from playground.context.runs import Ending, Shown, TextRun
from playground.history import records
from playground.settings.columns import ColumnRuns, Columns, columns_in, runs_of
from playground.settings.examples import are_example_options, examples_for, is_example_prompt
from playground.settings.panel import SettingsPanel
from playground.tabs.code.view_code import ViewCode
from playground.tabs.generate import report
from playground.tabs.generate.answers import call_in, decisions_view, form_view
from playground.tabs.generate.branches import Branches, can_branch
from playground.tabs.generate.columns_report import BAR_SCRIPT, answers, bar
from playground.tabs.generate.prompt_fields import PromptFields
from playground.tabs.generate.token_view import empty_token_view, token_view
from playground.ui import components as ui
from playground.ui.markup import clean
from playground.ui.option_controls import NAMES, labelled, with_seed
from playground.ui.prediction_line import (
    awaited_prediction_line,
    no_prediction_line,
    prediction_line,
)
from playground.ui.theme import ASSETS
from playground.ui.wording import Wording, wording_of
from playground.walkthrough.introduction import introduction, meanings
from playground.walkthrough.panel import WalkthroughPanel
from xla_backend import (
    BackendError,
    GenerationOptions,
    InvalidRequest,
    Message,
    ModelUnavailable,
    Prediction,
    Prompt,
)
from xla_backend.grammar import grammars
from xla_backend.interface.decisions import Decisions

TOKENS = "Tokens"
MAX_SESSION_RUNS = 4
"""The latest runs that can be saved as a page; the server keeps them with their tokens."""
_COPY_TEXT = """() => {
  const written = document.querySelector("#story .story-new");
  return copiedOrNot(written.dataset.text ?? written.textContent);
}"""


class PlaygroundTab:
    name = "Playground"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        self.settings = page.settings
        self.controls = page.settings.controls
        self.walkthrough = WalkthroughPanel(page)
        models = page.models()
        self._first = models[0] if models else None
        ui.html(introduction(), "introduction")
        with gr.Row(elem_classes="columns playground-columns"):
            with gr.Column(elem_classes="card area-request"):
                self._build_request()
            with gr.Column(elem_classes="card area-result"):
                self._build_result()
        with gr.Column(elem_classes="card"):
            self.view_code = ViewCode(page)
        with gr.Column(elem_classes="card"):
            ui.html(meanings(), "meanings")

    def connect(self, panel: SettingsPanel) -> None:
        """Connects it to the panel, after all other modes: what the server answers to a change of
        a setting comes after what the browser does alone."""
        self.answer, self.link, settings = panel.answer, panel.link, self.settings
        self.fields = RequestFields(
            self._page,
            {
                "model": settings.model,
                "prompt": self.prompt.text,
                "system": settings.system,
                "messages": self.prompt.messages,
                "begins_with": self.prompt.answer_start,
                "raw": self.prompt.is_raw,
                "variables": self.prompt.variables,
                "questions": self.answer.questions,
                "tools": self.answer.tools,
                "answer_as": self.answer.kind,
                "choices": self.answer.choices,
                **dict(zip(NAMES, self.controls.inputs, strict=True)),
            },
            self.link.model,
        )
        self.prompt.connect(settings.system)
        panel.presets.connect(self.fields)
        self.walkthrough.connect(
            {*self.fields.inputs},
            self.fields.request,
            self.stop,
            self.notice,
            self.generate,
            self.link.notice,
        )
        self.link.connect(
            self.fields,
            self._interrupted,
            [self.story, self.origin, self.retry, self.walkthrough.panel],
        )
        self._connect_request()
        self.view_code.connect(self.fields, self.link.columns, self.answer.tools_of)
        self._connect_columns()
        self._connect_run()

    def _build_request(self) -> None:
        examples = examples_for(self._first)
        self.bar = ui.html(bar(Columns()), "columns_bar", js_on_load=BAR_SCRIPT)
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
        self.walkthrough.build_panel()
        script = (ASSETS / "tokens.js").read_text(encoding="utf-8")
        self.compared = ui.html("", "compared", js_on_load=script)
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
        self.story = ui.html(report.empty_story(), "story")
        self.tokens = ui.html(empty_token_view(), "tokens", js_on_load=script)
        self.branches = Branches(self._page)
        with gr.Row(elem_classes="origin-row"):
            self.origin = ui.html("", "origin")
            self.continue_text = ui.small_button("Continue", "continue_text", visible=False)
            self.copy_text = ui.small_button("Copy text", "copy_text", visible=False)
            self.retry = ui.small_button("Retry", "retry_text", visible=False)
            self.save_page = ui.small_button("Save runs as a page", "save_page", visible=False)
        with gr.Row(visible=False, elem_classes="actions") as self.of_call:
            self.tool_result = gr.Textbox(
                label="What the tool returns", max_lines=4, elem_id="tool_result"
            )
            self.send_result = ui.small_button("Send", "tool_result_send")
        self.report = ui.html("", "report")
        self.shown = gr.State(None)
        self.session = gr.State(())

    def _connect_request(self) -> None:
        form, fields = self.view_code.form, self.fields
        changes = [field.change for field in (*fields.inputs, self.link.columns)]
        inputs = [self.followed, fields.linked_model, form, self.link.columns, *fields.inputs]
        order = sorted(inputs, key=lambda each: each._id)
        known = (self.link.columns, fields.controls.hold, *fields.settings.values())
        places = [order.index(each) for each in known]
        ui.await_prediction(self.prediction, self.settings.model)
        self._of_examples = [self.prompt.text, *self.controls.inputs]
        self.suggestion = ui.suggestion_for(self._of_examples)
        ui.empty_on_change(self.notice, changes)
        chosen = [self.examples, self.settings.model]
        self.examples.click(self._fill_in, chosen, fields.inputs, js=ui.PRESSED, **ui.QUIET)
        # All that follows a change is one answer: those of two models chosen one after the other
        # would else come in any order.
        gr.on(
            [self._page.in_sight["playground"].click, form.change, *changes],
            self._follow_request,
            {*inputs},
            [
                *(self.bar, self.prediction, self.view_code.code, self.followed),
                *(self.link.model, self.settings.model, self.prompt.text, self.prompt.of_instruct),
                self.settings.system,
                *(self.examples, self.suggestion),
            ],
            js=f"(...values) => keepRequest(values, {places})",
            **ui.LATEST,
        ).then(None, None, None, js="settingsChanged", **ui.QUIET)

    def _connect_columns(self) -> None:
        self.bar.select(
            self._change_columns,
            {self.link.columns, *self.fields.inputs},
            [self.link.columns, *self.fields.outputs],
            **ui.QUIET,
        )

    def _columns(self, values: Mapping[Any, Any]) -> Columns:
        """All columns, the chosen one as it is in the fields."""
        return columns_in(values[self.link.columns]).with_chosen(self.link.own(values))

    def _change_columns(self, values: dict[Any, Any], event: gr.EventData) -> ui.Updates:
        """Adds, removes or chooses a column; the fields then have its settings."""
        pressed = event._data if isinstance(event._data, dict) else {}
        before = self._columns(values)
        columns = before.after(pressed.get("act"), pressed.get("at"))
        updates: ui.Updates = {self.link.columns: columns.to_json()}
        if columns.columns[columns.chosen] == before.columns[before.chosen]:
            return updates
        return updates | self.link.column(columns.columns[columns.chosen])

    def _values_of(self, values: dict[Any, Any], columns: Columns, place: int) -> dict[Any, Any]:
        """The fields' values of a column."""
        if place == columns.chosen:
            return values
        return {**values, **self.link.column(columns.columns[place])}

    def _connect_run(self) -> None:
        events = RunEvents[TextRun | ColumnRuns](
            self._page,
            self.notice,
            {self.generate: "Generating", self.walkthrough.button: ""},
            self.stop,
            shows=[self.compared, self.story, self.report],
            shown=self._run_shown,
            ends=[
                *(self.tokens, self.origin, self.continue_text, self.copy_text, self.retry),
                *(self.save_page, self.shown, self.session, self._page.runs_of_visitor),
                *(self.of_call, self.tool_result),
                self.walkthrough.panel,
                *self.branches.parts,
            ],
            ended=self._run_ended,
            state=[self.shown, self._page.runs_of_visitor, self.view, self.session],
        )
        inputs = {self.link.columns, *self.fields.inputs}
        events.connect(self.generate.click, self._runs_of, inputs, [self.controls.seed])
        self.branches.connect(
            self.tokens, self.shown, self.notice, (self.generate, self.stop), self.prompt
        )
        events.connect_stop()
        self.view.change(self._tokens, [self.view, self.shown], self.tokens, **ui.QUIET)
        self.retry.click(None, None, None, js=f"() => ({ui.PRESS})(true)", **ui.QUIET)
        gr.on(
            [self.send_result.click, self.tool_result.submit],
            self._send_result,
            [self.shown, self.tool_result],
            [self.prompt.messages, self.prompt.text],
            **ui.QUIET,
        ).then(None, None, None, js=f"() => ({ui.PRESS})(true)", **ui.QUIET)
        self.copy_text.click(None, None, self.copy_text, js=_COPY_TEXT, **ui.QUIET)
        self.continue_text.click(
            lambda shown: shown.prompt + shown.result.text, self.shown, self.prompt.text, **ui.QUIET
        ).then(None, None, None, js=f"() => ({ui.PRESS})(true)", **ui.QUIET)

    def _send_result(self, shown: Shown | None, result: str) -> tuple[Any, Any]:
        """Puts the call and what the tool returned behind the messages; the model goes on."""
        call = None if shown is None else call_in(shown)
        if shown is None or call is None or not isinstance(shown.prompt, tuple):
            return gr.skip(), gr.skip()
        before = [each for each in shown.prompt if each.role != "system"]
        messages = [
            *before,
            Message("assistant", "", (call,)),
            Message("tool", clean(result), tool_call_id=call.id),
        ]
        return messages_text(messages), ""

    def _wording(self, name: str, prompt: Prompt = ()) -> Wording:
        return wording_of(self._page.info(name), is_raw=isinstance(prompt, str))

    def _wording_of(self, shown: Shown) -> Wording:
        return self._wording(shown.result.model, shown.prompt)

    def _follow_model(self, values: dict[Any, Any]) -> ui.Updates:
        """The chosen model's words and examples. What the visitor typed or set stays."""
        name, prompt = values[self.settings.model], values[self.prompt.text]
        model = self._page.info(name)
        if model is None or name == values[self.followed]:
            return {}
        examples = examples_for(model)
        own = [examples]
        is_linked = name == values[self.link.model]
        updates: ui.Updates = {
            self.followed: name,
            self.link.model: None,
            **self.prompt.of_model(model),
            self.settings.system: gr.update(visible=model.is_instruct),
            self.examples: ui.names_html([example.name for example in examples], "Examples"),
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
            example |= self.settings.of_options(limits.within(own_options))
        updates[self.suggestion] = ui.suggested(name, self._of_examples, values, example)
        return updates

    def _fill_in(self, index: int, model: str) -> ui.Updates:
        example = examples_for(self._page.info(model))[index]
        answer = YES_NO if example.questions else TEXT
        settings = {"prompt": example.prompt, "answer_as": answer}
        if example.questions:
            settings["questions"] = "\n".join(example.questions)
        options = self.settings.of_options(self._page.limits.within(example.options))
        del options[self.controls.seed]  # An example names none.
        return {**{self.fields.settings[name]: each for name, each in settings.items()}, **options}

    def _follow_request(self, request: gr.Request, values: dict[Any, Any]) -> ui.Updates:
        model = self._page.info(values[self.settings.model])
        columns = self._columns(values)
        predictions = [
            self._foreseen(self._values_of(values, columns, place))
            for place in range(len(columns.columns) if columns.are_compared else 0)
        ]
        return {
            self.bar: bar(columns, predictions),
            self.prediction: self._predict(values, columns.are_compared),
            self.view_code.code: self.view_code.written(values, request),
            self.settings.model: ui.described(model),
            **self._follow_model(values),
        }

    def _foreseen(self, values: dict[Any, Any]) -> Prediction | None:
        """What a column's request will meet; None where that cannot be said."""
        try:
            run = self._run_and_seed(values)[0]
            run.cache_salt = secrets.token_hex(16)
            return self._backend.predict_text(run.request)
        except BackendError:
            return None

    def _predict(self, values: dict[Any, Any], is_compared: bool) -> str:
        try:
            run = self._run_and_seed(values)[0]
            if is_compared:
                run.cache_salt = secrets.token_hex(16)
            self._page.check_request(run.model, run.prompt, run.options)
            wording = self._wording(run.model, run.prompt)
            return prediction_line(self._backend.predict_text(run.request), wording)
        except BackendError as error:
            return no_prediction_line(labelled(str(error)))

    def _runs_of(self, values: dict[Any, Any]) -> tuple[TextRun | ColumnRuns, ui.Updates]:
        columns = self._columns(values)
        if columns.are_compared:
            values_of = partial(self._values_of, values, columns)
            runs = runs_of(columns, values_of, self._run_of)
            own = runs.members[columns.chosen].run
            return runs, {self.controls.seed: own.options.seed}
        run = self._run_of(values)
        with contextlib.suppress(ModelUnavailable):  # the run itself will fetch the tokenizer
            run.prediction = self._backend.predict_text(run.request)
        return run, {self.controls.seed: run.options.seed}

    def _run_of(self, values: Mapping[Any, Any], seed: int | None = None) -> TextRun:
        """The run, with the seed of other columns if there are any and it holds none.

        Raises:
            InvalidRequest, ModelUnavailable: it cannot be served.
        """
        self.fields.check_variables(values)
        run, holds_seed = self._run_and_seed(values)
        run.options = with_seed(run.options, holds_seed)
        if seed is not None and not holds_seed:
            run.options = run.options.replace(seed=seed)
        self._page.check_request(run.model, run.prompt, run.options)
        return run

    def _run_and_seed(self, values: Mapping[Any, Any]) -> tuple[TextRun, bool]:
        """What is asked, and whether its seed stays.

        Raises:
            InvalidRequest: a field is empty or out of range.
        """
        filled, questions = self.fields.request(values), self.answer.questions_of(values)
        if tools := self.answer.tools_of(values):
            if isinstance(filled.prompt, str):
                raise InvalidRequest("Tools need an instruct model, and no raw prompt.")
            form = self._backend.tokenizer(filled.model).tool_format
            options = filled.options.replace(grammar=grammars.of_tools(form, tools, None))
            run = TextRun(filled.model, filled.prompt, options, tools=tools.listed)
            return run, filled.holds_seed
        if not questions:
            return TextRun(filled.model, filled.prompt, filled.options), filled.holds_seed
        options = GenerationOptions(max_new_tokens=1, seed=filled.options.seed)
        text = self.fields.text(values)
        return TextRun(filled.model, text, options, questions=questions), filled.holds_seed

    def _run_shown(self, run: TextRun | ColumnRuns) -> ui.Updates:
        """The run so far, or its result, which the rest follows a tenth of a second later."""
        if isinstance(run, ColumnRuns):
            return {self.compared: answers(run, self._wording_of, self._backend.status)}
        wording = self._wording(run.model, run.prompt)
        if (shown := run.shown()) is not None:
            return {self.compared: "", **self._result(shown)}
        updates: ui.Updates = {
            self.compared: "",
            self.story: report.story(run.prompt, run.text, writing=True, wording=wording),
        }
        if not run.text:
            if run.ahead and run.taken_at is not None:
                with contextlib.suppress(BackendError):
                    run.prediction = self._backend.predict_text(run.request)
            ahead = run.ahead if run.taken_at is None else 0
            updates[self.report] = report.waiting_report(
                run.prediction, ahead, wording, run.clicked_s
            )
        return updates

    def save_session(self, export: Callable[[Sequence[Shown]], str]) -> None:
        """Has a button save the latest runs as the page that `export` makes of them."""
        name, kind = "xla-playground-session.html", "text/html;charset=utf-8"
        ui.save_file(self.save_page, self._page.file, self.session, self.notice, export, name, kind)

    def _run_ended(
        self,
        run: TextRun | ColumnRuns,
        ending: Ending,
        before: Shown | None,
        runs: Any,
        view: str,
        session: tuple[Shown, ...],
    ) -> ui.Updates:
        """What is left of the run's result. After an error the last result stays."""
        if isinstance(run, ColumnRuns):
            return self._columns_ended(run, runs, session)
        wording = self._wording(run.model, run.prompt)
        shown = run.shown()
        if shown is None:
            stays = None if run.text else before
            cut = self._interrupted(run.prompt, run.text, wording) if run.text else {}
            return {
                **self._result(stays),
                **self._at_rest(stays, view),
                **cut,
                self.notice: ui.notice(labelled(ending.why_empty)),
            }
        updates = self._at_rest(shown, view)
        if not isinstance(shown.result, Decisions):  # a record is of a text
            updates[self._page.runs_of_visitor] = records.add(runs, shown, wording)
            updates[self.session] = (*session, shown)[-MAX_SESSION_RUNS:]
        return updates

    def _columns_ended(self, run: ColumnRuns, runs: Any, session: tuple[Shown, ...]) -> ui.Updates:
        """All answers, their differences and their costs."""
        whole = [shown for member in run.members if (shown := member.run.shown())]
        texts = [shown for shown in whole if not isinstance(shown.result, Decisions)]
        for shown in texts:
            runs = records.add(runs, shown, self._wording_of(shown))
        chosen = runs[: len(texts)][::-1] if len(texts) == len(run.members) else ()
        return {
            self.compared: answers(run, self._wording_of, self._backend.status, chosen),
            self._page.runs_of_visitor: runs,
            self.session: (*session, *texts)[-MAX_SESSION_RUNS:],
        }

    def _interrupted(self, prompt: Prompt, text: str, wording: Wording) -> ui.Updates:
        """A text that an error or a reload has cut, with a button to ask again."""
        return {
            self.story: report.story(prompt, text, wording=wording),
            self.origin: report.interrupted(),
            self.retry: gr.update(visible=True),
            self.walkthrough.panel: "",
        }

    def _at_rest(self, shown: Shown | None, view: str) -> ui.Updates:
        """What stands beside a result, or the page before the first one."""
        is_text = shown is not None and not isinstance(shown.result, Decisions)
        # The token limit cut a text that the model can continue; an answer it cannot.
        is_cut = shown is not None and shown.result.finish == "length"
        can_go_on = is_cut and shown is not None and not self._wording_of(shown).is_apart
        return {
            self.shown: shown,
            self.tokens: self._tokens(view, shown) if shown else empty_token_view(),
            self.origin: report.origin(shown) if shown else "",
            self.continue_text: gr.update(visible=can_go_on),
            self.copy_text: gr.update(value="Copy text", visible=is_text),
            self.retry: gr.update(visible=False),
            self.of_call: gr.update(visible=is_text and shown is not None and bool(call_in(shown))),
            self.tool_result: "",
            self.save_page: gr.update(visible=is_text),
            **self.branches.emptied(),
        }

    def _result(self, shown: Shown | None) -> ui.Updates:
        if shown is None:
            return {self.story: report.empty_story(), self.report: ""}
        wording = self._wording_of(shown)
        if isinstance(shown.result, Decisions):
            text: str = decisions_view(shown.result)
        else:
            text = report.story(shown.prompt, shown.result.text, wording=wording) + form_view(shown)
        return {self.story: text, self.report: report.report(shown, wording)}

    def _tokens(self, view: str, shown: Shown | None) -> str:
        """A hundred kilobytes for 250 tokens: only where they are looked at."""
        if shown is None:
            return gr.skip()
        if view != TOKENS:
            return empty_token_view()
        return token_view(shown, self._wording_of(shown), can_branch(shown))
