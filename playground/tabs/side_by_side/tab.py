"""The Side by side tab: one prompt to two models, or with two sets of options, at once.

Knows the components and what each event does to them. Must not know how anything looks, nor how
text is generated.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from playground.context.draft import AT, SIDES, Draft, by_side, read
from playground.context.page_context import PageContext
from playground.context.request_fields import FilledRequest, RequestFields
from playground.context.run_events import RunEvents
from playground.context.runs import Ending, TextRun
from playground.context.runs_together import Member, RunsTogether
from playground.history import records
from playground.tabs.generate.answer_as import JSON, SCHEMAS, TEXT, AnswerAs
from playground.tabs.generate.examples import defaults_for, examples_for
from playground.tabs.side_by_side import report
from playground.ui import components as ui
from playground.ui.option_controls import NAMES, OptionControls, labelled, with_seed
from playground.ui.prediction_line import (
    awaited_prediction_line,
    no_prediction_line,
    prediction_line,
)
from playground.ui.wording import wording_of
from xla_backend import (
    BackendError,
    GenerationOptions,
    Grammar,
    InvalidRequest,
    ModelUnavailable,
    Prediction,
)

ADDRESS = SIDES
_OPTIONS = GenerationOptions(max_new_tokens=64)
EXAMPLES: tuple[tuple[str, str, GenerationOptions, GenerationOptions], ...] = (
    (
        "Temperature 0 and 1",
        "Once upon a time there was a fox",
        _OPTIONS,
        _OPTIONS.replace(temperature=1.0),
    ),
    (
        "Free and as JSON",
        "Invent a person. Say the name, the age and the city.",
        _OPTIONS,
        _OPTIONS.replace(grammar=Grammar.json_schema(SCHEMAS["A person"])),
    ),
    (
        "Greedy and four beams",
        "The old bear went to the river",
        _OPTIONS,
        _OPTIONS.replace(num_beams=4),
    ),
)
"""What a button says, the prompt, and each side's options."""


class Pair(RunsTogether):
    """The runs of both sides."""

    update_s = 0.06


class Side:
    """Builds a side's card inside the current row: a model, a system prompt and options."""

    def __init__(self, page: PageContext, name: str, prompt: gr.Textbox) -> None:
        at = AT[report.NAMES.index(name)]
        models = page.models()
        first = models[0] if models else None
        with gr.Column(elem_classes="card"):
            self.model = ui.model_dropdown(models, f"{at}_model")
            self.model.label = f"Model {name}"
            self.model.elem_classes = [*self.model.elem_classes, "apart"]
            is_instruct = first is not None and first.is_instruct
            with gr.Column(visible=is_instruct, elem_classes="instruct") as self.of_instruct:
                system = ui.system_prompt(f"{at}_system")
                is_raw = gr.Checkbox(
                    label="Raw prompt: no chat template",
                    elem_id=f"{at}_raw_prompt",
                    container=False,
                )
            self.answer = AnswerAs(f"{at}_", is_written=True)
            self.controls = OptionControls(
                page.limits.within(defaults_for(first)),
                f"{at}_",
                page.limits.new_tokens,
                in_sight=("grammar",),
            )
            self.prediction = ui.html(
                awaited_prediction_line("Counting tokens"), f"{at}_prediction"
            )
        self.name = name
        settings: dict[str, ui.Field] = {
            "model": self.model,
            "prompt": prompt,
            "system": system,
            "raw": is_raw,
            "answer_as": self.answer.kind,
            **dict(zip(NAMES, self.controls.inputs, strict=True)),
        }
        self.fields = RequestFields(page, settings, self.controls, gr.State(None))

    def build_result(self) -> None:
        """Builds the card of the result inside the current row."""
        at = AT[report.NAMES.index(self.name)]
        with gr.Column(elem_classes="card"):
            self.result = ui.html(report.empty(self.name), f"{at}_result")

    @property
    def own(self) -> list[ui.Field]:
        prompt = self.fields.settings["prompt"]
        return [field for field in self.fields.inputs if field is not prompt]

    def connect_in_browser(self) -> None:
        """What the browser does alone, which is connected before all else."""
        ui.await_prediction(self.prediction, self.model)
        self.answer.connect(self.controls)
        self.controls.connect()

    def of_options(self, options: GenerationOptions) -> ui.Updates:
        """Updates that set the fields of the options, and how the answer is to be."""
        kind = JSON if options.grammar else TEXT
        return {self.answer.kind: kind, **self.fields.of_options(options)}


class SideBySideTab:
    name = "Side by side"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Column(elem_classes="card"):
            self._build_request()
        with gr.Row(elem_classes="columns two sides"):
            self.sides = [Side(page, name, self.prompt) for name in report.NAMES]
        with gr.Row(elem_classes="columns two sides"):
            for side in self.sides:
                side.build_result()
        with gr.Column(elem_classes="card"):
            self.compared = ui.html(report.nothing_compared(), "sides_compared")
        self._connect_request()
        self._connect_run()
        self._connect_link()

    def _build_request(self) -> None:
        models = self._page.models()
        with gr.Row(elem_classes="card-head"):
            ui.heading(
                "Side by side",
                "One prompt to two models, or to one with two sets of options or system prompts.",
            )
            self.link_runs, self.copy_link = ui.link_controls("sides_")
        self.prompt = gr.Textbox(
            value=examples_for(models[0] if models else None)[0].prompt,
            label="Prompt",
            lines=2,
            max_lines=8,
            elem_id="sides_prompt",
        )
        with gr.Row(elem_classes="actions"):
            self.run = gr.Button("Run both", variant="primary", elem_id="sides_run")
            self.in_turn = gr.Button("One after the other", elem_id="sides_in_turn")
            self.stop = gr.Button("Stop", interactive=False, elem_id="sides_stop")
        self.notice = ui.html("", "sides_notice")
        self.examples = ui.name_buttons(
            [name for name, *_ in EXAMPLES], "Examples", "sides_examples"
        )

    @property
    def _fields(self) -> list[ui.Field]:
        """All fields of the request, the prompt once."""
        return [self.prompt, *(field for side in self.sides for field in side.own)]

    def _connect_request(self) -> None:
        changes = [field.change for field in self._fields]
        ui.empty_on_change(self.notice, changes)
        for side in self.sides:
            side.connect_in_browser()
        self.examples.click(
            self._fill_in,
            self.examples,
            [
                self.prompt,
                *(each for s in self.sides for each in (s.answer.kind, *s.controls.inputs)),
            ],
            **ui.QUIET,
        )
        gr.on(
            [self._page.in_sight[ADDRESS].click, *changes],
            self._predict,
            {*self._fields},
            [each for side in self.sides for each in (side.prediction, side.of_instruct)],
            **ui.LATEST,
        )

    def _connect_run(self) -> None:
        results = [side.result for side in self.sides]
        events = RunEvents[Pair](
            self._page,
            self.notice,
            {self.run: "", self.in_turn: ""},
            self.stop,
            shows=results,
            shown=self._run_shown,
            ends=[self.compared, self._page.runs_of_visitor],
            ended=self._run_ended,
            state=[self._page.runs_of_visitor],
        )
        seeds = [side.controls.seed for side in self.sides]
        for button, apart_s in ((self.run, 0.0), (self.in_turn, None)):
            pair_of = partial(self._pair_of, apart_s)
            events.connect(button.click, pair_of, {*self._fields}, seeds)
        events.connect_stop()

    def _connect_link(self) -> None:
        named: dict[str, ui.Field] = {"prompt": self.prompt}
        for at, side in zip(AT, self.sides, strict=True):
            named |= {
                f"{at}.{name}": field
                for name, field in side.fields.settings.items()
                if name != "prompt"
            }
        self.copy_link.click(
            None,
            [*named.values(), self.link_runs],
            self.notice,
            js=f"(...values) => copyLink({json.dumps(ADDRESS)}, {json.dumps([*named])}, values, "
            "values.at(-1))",
            **ui.QUIET,
        )
        press = gr.Checkbox(visible=False)
        self._press = press
        self._page.load(
            self._restore,
            gr.Checkbox(visible=False),
            [
                *(self.notice, press),
                *dict.fromkeys(each for side in self.sides for each in side.fields.outputs),
            ],
            js="() => requestBefore()[1]",
            **ui.QUIET,
        ).then(
            None,
            press,
            None,
            js="(run) => run && document.getElementById('sides_run').click()",
            **ui.QUIET,
        )

    def _fill_in(self, place: int) -> ui.Updates:
        _, prompt, *options = EXAMPLES[place]
        updates: ui.Updates = {self.prompt: prompt}
        for side, each in zip(self.sides, options, strict=True):
            updates |= side.of_options(self._page.limits.within(each))
            del updates[side.controls.seed]  # An example names none.
        return updates

    def _predict(self, values: dict[Any, Any]) -> ui.Updates:
        updates: ui.Updates = {}
        for side in self.sides:
            model = self._page.info(values[side.model])
            updates[side.prediction] = self._prediction_line(side, values)
            updates[side.of_instruct] = gr.update(visible=model is not None and model.is_instruct)
        return updates

    def _prediction_line(self, side: Side, values: Mapping[Any, Any]) -> str:
        try:
            filled = side.fields.request(values)
            self._page.check_request(filled.model, filled.prompt, filled.options)
            info = self._page.info(filled.model)
            wording = wording_of(info, is_raw=isinstance(filled.prompt, str))
            return prediction_line(self._predicted(filled), wording)
        except BackendError as error:
            return no_prediction_line(labelled(str(error)))

    def _predicted(self, filled: FilledRequest) -> Prediction:
        return self._page.backend.predict(
            filled.model, filled.prompt, filled.options, cache_salt=secrets.token_hex(16)
        )

    def _pair_of(self, apart_s: float | None, values: dict[Any, Any]) -> tuple[Pair, ui.Updates]:
        """Checks both requests at once; neither is sent where one is wrong."""
        runs: list[TextRun] = []
        for side in self.sides:
            try:
                runs.append(self._run_of(side, values, runs))
            except BackendError as error:
                raise InvalidRequest(f"{side.name}: {labelled(str(error))}") from error
        seeds: ui.Updates = {}
        for side, run in zip(self.sides, runs, strict=True):
            seeds[side.controls.seed] = run.options.seed
        return Pair([Member(run) for run in runs], apart_s), seeds

    def _run_of(self, side: Side, values: Mapping[Any, Any], before: list[TextRun]) -> TextRun:
        """A side's request. Where both draw a seed they have the same, so that only what the
        visitor set makes a difference.

        Raises:
            InvalidRequest, ModelUnavailable: it cannot be served.
        """
        filled = side.fields.request(values)
        options = with_seed(filled.options, filled.holds_seed)
        if before and before[0].options.do_sample and not filled.holds_seed:
            options = options.replace(seed=before[0].options.seed)
        self._page.check_request(filled.model, filled.prompt, options)
        # Each has a salt of its own: both are rows of a pool, and neither finds the other's prompt.
        run = TextRun(filled.model, filled.prompt, options, cache_salt=secrets.token_hex(16))
        try:
            run.prediction = self._predicted(filled)
        except ModelUnavailable:  # The run itself will fetch the tokenizer, or say why not.
            run.prediction = None
        return run

    def _run_shown(self, pair: Pair) -> ui.Updates:
        texts = report.texts(pair.members) if pair.is_over else (None, None)
        status = self._page.backend.status
        updates: ui.Updates = {}
        for place, (side, text) in enumerate(zip(self.sides, texts, strict=True)):
            member, other = pair.members[place], pair.members[1 - place]
            info = self._page.info(member.run.model)
            size, in_turn = info.stored_bytes if info else None, pair.apart_s is None
            phase = report.phase(member, other, in_turn, status, size)
            updates[side.result] = report.side(side.name, member, phase, text)
        return updates

    def _run_ended(self, pair: Pair, ending: Ending, runs: Any) -> ui.Updates:
        """Both results, their differences and their costs."""
        del ending
        updates: ui.Updates = {**self._run_shown(pair), self.compared: report.nothing_compared()}
        whole = [shown for member in pair.members if (shown := member.run.shown())]
        for shown in whole:
            info = self._page.info(shown.result.model)
            wording = wording_of(info, is_raw=isinstance(shown.prompt, str))
            runs = records.add(runs, shown, wording)
            updates[self._page.runs_of_visitor] = runs
        if len(whole) == len(self.sides):
            chosen = runs[: len(whole)][::-1]
            at_once = pair.apart_s is not None
            updates[self.compared] = report.compared(pair.members, chosen, at_once)
        return updates

    def _restore(self, is_reload: bool, request: gr.Request) -> ui.Updates:
        """Fills in what a link says: the prompt, and the settings of each side by its name."""
        query = {name: str(text) for name, text in dict(request.query_params).items()}
        if query.get("tab") != ADDRESS:
            return {self._press: False}
        models = self._page.models()
        drafts = [
            read(settings, models, side.controls.ranges)
            for side, settings in zip(self.sides, by_side(query), strict=True)
        ]
        whole = replace(drafts[0], problems=drafts[0].problems + drafts[1].problems)
        problem = whole.problem("link")
        updates: ui.Updates = {
            self.notice: ui.notice(problem),
            self._press: whole.run and not problem and not is_reload,
        }
        for side, draft in zip(self.sides, drafts, strict=True):
            if not draft.is_empty:
                first = models[0].name if models else None
                settings = {"model": first, "system": "", "raw": False, **draft.settings}
                settings["answer_as"] = JSON if draft.options.get("grammar") else TEXT
                known = {n: value for n, value in settings.items() if n in side.fields.settings}
                own = defaults_for(self._page.info(str(settings["model"])))
                options = self._page.limits.within(own)
                updates |= side.fields.filled_in(Draft(known, draft.options), options)
        return updates
