"""The Chat tab: a conversation of many turns, and what each of them cost.

Knows the components and what each event does to them. Must not know how anything looks, what the
browser keeps beside the open conversation, nor how text is generated.
"""

import contextlib
import json
from typing import Any

import gradio as gr
import htpy as h

from playground.context.draft import CHAT, Draft, read
from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.history import records
from playground.tabs.chat import report
from playground.tabs.chat.conversation import (
    MAX_JSON_CHARACTERS,
    MAX_TURNS,
    Conversation,
    Turn,
    readable,
)
from playground.tabs.chat.reading import fitted
from playground.tabs.chat.runs import ChatRun
from playground.tabs.chat.stored_conversations import BUSY, StoredConversations
from playground.tabs.generate.examples import defaults_for
from playground.ui import components as ui
from playground.ui.markup import clean, nothing
from playground.ui.option_controls import (
    NAMES,
    OptionControls,
    labelled,
    options_from,
    values_for,
    with_seed,
)
from playground.ui.prediction_line import no_prediction_line, prediction_line
from playground.ui.wording import CHATTING, model_name
from xla_backend import (
    BackendError,
    CacheOutcome,
    GenerationOptions,
    InvalidRequest,
    ModelInfo,
    question,
)

EXAMPLES = (
    ("Ask a question", "What is the capital of France?"),
    ("Ask for advice", "Give me three tips for a good night's sleep."),
    ("Ask for a list", "Name five animals that live in the sea."),
)
"""What a button says, and what it asks; each can be gone on with."""
_ANY_SALT = "any"
"""Whose it is does not matter to which function a first message needs."""
_EMPTY_LINE = "Type a message to see whether it must compile first."
_COPY_LINK = f"""(opened, text, model, system, ...options) => {{
  const first = (opened && JSON.parse(opened).turns[0]?.question) || text;
  const names = {json.dumps(["model", "prompt", "system", *NAMES])};
  return copyLink("{CHAT}", names, [model, first, system, ...options]);
}}"""


class ChatTab:
    name = "Chat"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        models = [model for model in page.models() if model.is_instruct]
        self.to_playground: gr.Button | None = None
        if not models:
            linked_settings = "This page offers no model with a chat template."
            ui.html(h.div(".card")[nothing(linked_settings)])
            return
        with gr.Row(elem_classes="columns chat-columns"):
            with gr.Column(elem_classes="card area-result"):
                self._build_chat()
            with gr.Column(elem_classes="card area-request"):
                self._build_settings(models)
            with gr.Column(elem_classes="card area-options"):
                self.conversations = StoredConversations(page)
        self._salt = gr.Textbox(visible=False)
        self.controls.connect()
        self._connect_request()
        self._connect_runs()

    def prepare(self) -> None:
        """Has the function of a first message made while the visitor still writes hers."""
        backend = self._page.backend
        model = next((each for each in self._page.models() if each.is_instruct), None)
        if model is None or not model.loaded:
            return
        options = self._defaults(model.name)
        with contextlib.suppress(BackendError):
            first = backend.predict(model.name, question("Hello"), options, cache_salt=_ANY_SALT)
            if first.outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
                backend.prefetch(model.name, [first.key])

    def _build_chat(self) -> None:
        self.strip = ui.html("", "chat_strip")
        self.chatbot = gr.Chatbot(
            elem_id="chat",
            show_label=False,
            label="Conversation",
            container=False,
            height=None,
            editable="user",
            # Answers are our own HTML; a question stays as it was written.
            render_markdown=False,
            latex_delimiters=[],
            allow_tags=False,
            buttons=["copy"],
            placeholder="Every answer shows its times, and how much of the conversation was reused "
            "from the cache.",
            examples=[{"display_text": name, "text": text} for name, text in EXAMPLES],
        )
        self._edited = gr.Textbox(visible=False)
        self._is_edited = gr.Button(visible="hidden", elem_id="chat_answer_edited")
        self.notice = ui.html("", "chat_notice")
        with gr.Row(elem_classes="chat-input"):
            self.text = gr.Textbox(
                value="",
                label="Message",
                show_label=False,
                container=False,
                lines=1,
                max_lines=8,
                placeholder="Write a message",
                elem_id="chat_text",
            )
            self.send = gr.Button(
                "Send", variant="primary", elem_id="chat_send", scale=0, min_width=90
            )
            self.stop = gr.Button(
                "Stop", interactive=False, elem_id="chat_stop", scale=0, min_width=80
            )
        self.prediction = ui.html(no_prediction_line(_EMPTY_LINE), "chat_prediction")

    def _build_settings(self, models: list[ModelInfo]) -> None:
        self.link_notice = ui.html("", "chat_link_notice")
        self.model = ui.model_dropdown(models, "chat_model", is_described=True)
        self.followed = gr.State(models[0].name)
        others = [model_name(each.name) for each in self._page.models() if not each.is_instruct]
        ui.html(report.not_listed(others))
        self.system = ui.system_prompt("chat_system")
        self.without_reuse = gr.Checkbox(
            label="Without reuse",
            info="Recompute every turn, for comparison.",
            elem_id="chat_without_reuse",
        )
        with gr.Accordion("Options", open=False, elem_classes="more-options"):
            self.controls = OptionControls(
                self._defaults(models[0].name),
                prefix="chat_",
                most_new_tokens=self._page.limits.new_tokens,
            )
        with gr.Row(elem_classes="chat-actions"):
            self.copy_link = ui.small_button("Copy link", "chat_copy_link")
            self.to_playground = ui.small_button("Open in Playground", "chat_to_playground")

    @property
    def _settings(self) -> list[ui.Field]:
        """Model, system prompt, whether nothing is reused, whether the seed is held, options."""
        return [
            *(self.model, self.system, self.without_reuse, self.controls.hold),
            *self.controls.inputs,
        ]

    def open_in(self, request: RequestFields) -> None:
        """Has a button fill the Playground tab's request in with what was asked last."""
        if self.to_playground is None:
            return
        self._request = request
        self.to_playground.click(
            self._fill_in,
            {self.conversations.opened, self.text, self.model, self.system, *self.controls.inputs},
            request.outputs,
            **ui.QUIET,
        ).then(None, None, None, js="() => turnTo('playground')", **ui.QUIET)

    def _connect_request(self) -> None:
        changes = [component.change for component in (self.text, *self._settings)]
        ui.await_prediction(self.prediction, self.model)
        self.suggestion = ui.suggestion_for(self.controls.inputs)
        ui.empty_on_change(self.notice, changes)
        self.text.change(None, self.text, None, js="keepDraft", **ui.QUIET)
        self.chatbot.example_select(self._take_example, None, self.text, **ui.QUIET)
        gr.on(
            [self._page.in_sight["chat"].click, *changes],
            self._follow,
            {self.followed, self.conversations.opened, self._salt, self.text, *self._settings},
            [self.followed, self.prediction, self.model, self.suggestion],
            **ui.LATEST,
        )
        shown = [
            *(self.conversations.opened, self.conversations.name, self.chatbot, self.strip),
            *(self.model, self.system, *self.controls.inputs),
        ]
        self.conversations.connect(self._show, self._set, shown)
        stored, draft, *cut = (gr.Textbox(visible=False) for _ in range(4))
        restored = self._page.load(
            self._restore,
            [stored, draft, gr.Checkbox(visible=False), self._salt, *cut],
            [*shown, self.text, self.controls.hold, self.link_notice, self._salt],
            js="chatBefore",
            **ui.QUIET,
        )
        self.conversations.store_after(restored)
        self.copy_link.click(
            None,
            [self.conversations.opened, self.text, self.model, self.system, *self.controls.inputs],
            self.link_notice,
            js=_COPY_LINK,
            **ui.QUIET,
        )

    def _connect_runs(self) -> None:
        make = [self.text, self.conversations.opened, self._salt, *self._settings]
        request = sorted(make, key=lambda each: each._id)
        places = [request.index(each) for each in (self.text, self._salt)]
        self._runs = RunEvents[ChatRun](
            self._page,
            self.notice,
            {self.send: ""},
            self.stop,
            shows=[self.chatbot],
            shown=self._run_shown,
            ends=[
                *(self.conversations.opened, self.conversations.name, self.text, self.strip),
                self._page.runs_of_visitor,
            ],
            ended=self._run_ended,
            state=[self.conversations.opened, self.text, self._page.runs_of_visitor],
        )
        entering = [*self._runs.outputs, self.text, self.controls.seed, self.link_notice]
        sent = gr.on(
            [self.send.click, self.text.submit],
            self._send,
            {*request},
            entering,
            js=f"(...values) => sending(values, {places})",
            **ui.QUIET,
        )
        for event in (
            sent,
            self.chatbot.retry(self._retry, {*request}, entering, **ui.QUIET),
            self.chatbot.edit(self._edit, {*request}, entering, **ui.QUIET),
        ):
            self.conversations.store_after(self._runs.follow(event))
        self._runs.connect_stop()
        undone = self.chatbot.undo(
            self._undo,
            [self.conversations.opened, self.text],
            [
                *(self.conversations.opened, self.conversations.name, self.chatbot, self.strip),
                *(self.text, self.notice),
            ],
            **ui.QUIET,
        )
        answered = self._is_edited.click(
            self._edit_answer,
            [self._edited, self.conversations.opened],
            [
                self.conversations.opened,
                self.conversations.name,
                self.chatbot,
                self.strip,
                self.notice,
            ],
            js="(_, opened) => [editedAnswer(), opened]",
            **ui.QUIET,
        )
        for event in (undone, answered):
            self.conversations.store_after(event)

    def _show(self, conversation: Conversation) -> ui.Updates:
        model = self._page.info(conversation.model)
        return {
            self.conversations.opened: conversation.to_json(),
            self.conversations.name: conversation.name,
            self.chatbot: report.messages(conversation),
            self.strip: report.strip(conversation.turns)
            + report.context_bar(conversation.turns, model.context_length if model else None),
        }

    def _set(self, conversation: Conversation) -> ui.Updates:
        """The controls as a conversation has them; a model that is not offered changes nothing."""
        names = [model.name for model in self._page.models() if model.is_instruct]
        return {
            self.model: conversation.model if conversation.model in names else gr.skip(),
            self.system: conversation.system,
            **dict(zip(self.controls.inputs, values_for(conversation.options), strict=True)),
        }

    def _restore(
        self,
        stored: str,
        draft: str,
        is_reload: bool,
        salt: str,
        make: str,
        cut: str,
        request: gr.Request,
    ) -> ui.Updates:
        """What a link says, or else the conversation and the draft that this window had.

        Of an answer that the reload has cut, `asked` is the question and `cut` what was written.
        """
        query = {name: str(text) for name, text in dict(request.query_params).items()}
        is_linked = query.get("tab") == CHAT and not is_reload
        models = [model for model in self._page.models() if model.is_instruct]
        link = read(query if is_linked else {}, models, self.controls.ranges)
        updates: ui.Updates = {self.link_notice: ui.notice(link.problem("link")), self._salt: salt}
        if not link.is_empty:
            linked_settings = link.settings
            model = linked_settings.get("model", models[0].name)
            options = self._defaults(model).replace(**link.options)
            linked = Conversation(model, linked_settings.get("system", ""), options)
            return {
                **updates,
                **self._show(linked),
                **self._set(linked),
                self.text: linked_settings.get("prompt", ""),
                self.controls.hold: "seed" in link.options,
            }
        # Each window begins one of its own, under an id of its own.
        found = readable(stored)
        shown = self._set(found) if found else {}
        opened = found or Conversation(models[0].name)
        if make and cut:
            opened = opened.after(Turn(clean(make), clean(cut)), opened.left_out)
        shown |= self._show(opened)
        return {**updates, **shown, self.text: draft or gr.skip()}

    def _take_example(self, event: gr.SelectData) -> str:
        return str(event.value["text"])

    def _defaults(self, model: str) -> GenerationOptions:
        return self._page.limits.within(defaults_for(self._page.info(model)))

    def _follow(self, values: dict[Any, Any]) -> ui.Updates:
        """All that follows a change, in one answer: those of two models chosen one after the other
        would else come in any order."""
        model, fields = values[self.model], self.controls.inputs
        info = self._page.info(model)
        updates: ui.Updates = {
            self.followed: model,
            self.prediction: self._predict(values),
            self.model: gr.update(info=ui.model_description(info)) if info else gr.skip(),
        }
        if model != values[self.followed]:
            own = self._recommended(values)
            updates[self.suggestion] = ui.suggested(model, fields, values, own)
        return updates

    def _options(self, values: dict[Any, Any]) -> GenerationOptions:
        return options_from(tuple(values[field] for field in self.controls.inputs))

    def _recommended(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """The options that a model's makers recommend, unless the visitor has set others."""
        try:
            options = self._options(values).replace(seed=0)
        except BackendError:  # The visitor is still typing a number.
            return {}
        known = [self._defaults(each.name) for each in self._page.models() if each.is_instruct]
        if options not in known:
            return {}
        own = values_for(self._defaults(values[self.model]))
        return dict(zip(self.controls.inputs, own, strict=True))

    def _fill_in(self, values: dict[Any, Any]) -> ui.Updates:
        conversation = readable(values[self.conversations.opened])
        make = [turn.question for turn in conversation.turns] if conversation else []
        settings = {"model": values[self.model], "system": values[self.system] or ""}
        if linked_settings := values[self.text] or "".join(make[-1:]):
            settings["prompt"] = linked_settings
        updates = self._request.filled_in(Draft(settings).whole(), GenerationOptions())
        theirs = zip(self._request.controls.inputs, self.controls.inputs, strict=True)
        return updates | {field: values[own] for field, own in theirs}

    def _predict(self, values: dict[Any, Any]) -> str:
        if not values[self.text].strip():
            return no_prediction_line(_EMPTY_LINE)
        try:
            before, salt = self._before(values)
            left_out, prediction = fitted(self._page, before, values[self.text], salt)
        except BackendError as error:
            return no_prediction_line(labelled(str(error)))
        note = report.left_out_note(left_out) if left_out > before.left_out else ""
        if prediction is None:
            return note + no_prediction_line("The model is downloaded first.")
        return note + prediction_line(prediction, CHATTING)

    def _before(self, values: dict[Any, Any]) -> tuple[Conversation, str]:
        """The open conversation with the settings of its next turn, and what that may reuse.

        Raises:
            InvalidRequest: an option is empty or out of range, or there is no room for a turn more.
        """
        options = with_seed(self._options(values), values[self.controls.hold])
        model, opened = values[self.model], values[self.conversations.opened]
        conversation = readable(opened) or Conversation(model)
        if len(conversation.turns) >= MAX_TURNS or len(opened) > MAX_JSON_CHARACTERS:
            raise InvalidRequest(
                f"The conversation has reached this page's limit of {MAX_TURNS} turns or "
                f"{MAX_JSON_CHARACTERS:,} characters. Begin a new one."
            )
        salt = "" if values[self.without_reuse] else values[self._salt]
        return conversation.set_to(model, values[self.system] or "", options), salt

    def _send(self, request: gr.Request, values: dict[Any, Any]) -> ui.Updates:
        def make() -> tuple[ChatRun, ui.Updates]:
            before, salt = self._before(values)
            run, updates = self._run_of(before, values[self.text], salt)
            return run, {**updates, self.text: ""}

        return self._runs.begin(request, make)

    def _retry(self, request: gr.Request, values: dict[Any, Any]) -> ui.Updates:
        def make() -> tuple[ChatRun, ui.Updates]:
            last, salt = self._before(values)
            if not last.turns:
                raise InvalidRequest("There is no answer to ask for again.")
            before = last.before(len(last.turns) - 1)
            return self._run_of(before, last.turns[-1].question, salt)

        return self._runs.begin(request, make)

    def _edit(self, event: gr.EditData, request: gr.Request, values: dict[Any, Any]) -> ui.Updates:
        """Asks another question in a turn's place. Where turns followed, they stay: the
        conversation goes on in one of its own."""
        question = report.as_written(str(event.value))
        place = event.index[0] if isinstance(event.index, list | tuple) else event.index

        def make() -> tuple[ChatRun, ui.Updates]:
            last, salt = self._before(values)
            turn = int(place) // 2
            before = last.before(turn)
            if turn < len(last.turns) - 1:
                before = before.branch()
            return self._run_of(before, question, salt)

        updates = self._runs.begin(request, make)
        if self.chatbot not in updates:  # refused
            shown = readable(values[self.conversations.opened])
            updates[self.chatbot] = report.messages(shown) if shown else gr.skip()
            updates[self.text] = values[self.text] or question
        return updates

    def _edit_answer(self, edited: str, opened: str, request: gr.Request) -> ui.Updates:
        """Puts another answer in a turn's place, from where the conversation goes on."""
        conversation = readable(opened)
        if self._page.runs.of(str(request.session_hash)) is not None:
            return {self.notice: ui.notice(BUSY)}
        if conversation is None:
            return {self.notice: gr.skip()}
        try:
            turn, answer = json.loads(edited)
            changed = conversation.answered(int(turn), clean(answer))
        except (ValueError, TypeError, IndexError):  # no script of this page wrote it
            return {self.notice: gr.skip()}
        return {**self._show(changed), self.notice: ""}

    def _run_of(self, before: Conversation, question: str, salt: str) -> tuple[ChatRun, ui.Updates]:
        """A question's run, and updates of the settings.

        Raises:
            InvalidRequest, ModelUnavailable: it is refused.
        """
        question = clean(question)
        left_out, prediction = fitted(self._page, before, question, salt)
        run = ChatRun(before, question, left_out, salt)
        run.prediction = prediction
        return run, {self.link_notice: "", self.controls.seed: before.options.seed}

    def _run_shown(self, run: ChatRun) -> ui.Updates:
        """The conversation with the growing answer, at last with what it cost."""
        if run.result is not None and (conversation := run.after()) is not None:
            return {self.chatbot: report.messages(conversation)}
        if run.text:
            answer = report.writing(run.question, run.text)
        else:
            ahead = run.ahead if run.taken_at is None else 0
            answer = report.waiting(run.question, run.prediction, run.clicked_s, ahead)
        return {self.chatbot: report.messages(run.conversation, answer)}

    def _run_ended(
        self, run: ChatRun, ending: Ending, opened: str, text: str, runs: Any
    ) -> ui.Updates:
        """What stands beside the answer. After an error the question is a draft again."""
        conversation = run.after()
        if conversation is None:
            before = readable(opened) or run.conversation
            draft = "\n".join(filter(None, (run.question, text)))
            message = ui.notice(labelled(ending.why_empty))
            return {**self._show(before), self.text: draft, self.notice: message}
        updates = self._show(conversation)
        if (shown := run.shown()) is not None:
            updates[self._page.runs_of_visitor] = records.add(runs, shown, CHATTING)
            del updates[self.chatbot]  # it is shown already
        return updates

    def _undo(self, opened: str, text: str, request: gr.Request) -> ui.Updates:
        """Takes the last turn back; its question is a draft again."""
        conversation = readable(opened)
        if conversation is None or not conversation.turns:
            return {self.notice: gr.skip()}
        if self._page.runs.of(str(request.session_hash)) is not None:
            return {self.notice: ui.notice(BUSY)}
        *rest, last = conversation.turns
        draft = "\n".join(filter(None, (last.question, text)))
        return {**self._show(conversation.before(len(rest))), self.text: draft, self.notice: ""}
