"""The Chat tab: a conversation of many turns, and what each of them cost.

Knows the components and what each event does to them. Must not know how anything looks, what the
browser keeps beside the open conversation, nor how text is generated.
"""

import contextlib
import json
from typing import Any

import gradio as gr

from playground.context.draft import CHAT
from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.history import records
from playground.settings.examples import defaults_for
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
from playground.ui import components as ui
from playground.ui.markup import clean
from playground.ui.option_controls import labelled, with_seed
from playground.ui.prediction_line import no_prediction_line, prediction_line
from playground.ui.wording import CHATTING, model_name
from xla_backend import (
    BackendError,
    CacheOutcome,
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
_NAMED = 3
"""Models that a sentence names."""
_EMPTY_LINE = "Type a message to see whether it must compile first."


class ChatTab:
    name = "Chat"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self.settings = page.settings
        with gr.Column(elem_classes="card area-result"):
            self._build_chat()
        with gr.Column(elem_classes="card"):
            self.conversations = StoredConversations(page)
        self._salt = gr.Textbox(visible=False)
        self._connect_request()
        self._connect_runs()

    def prepare(self, model: str) -> Any:
        """Chooses a model that can chat; has the function of a first message made while the visitor
        still writes hers."""
        if (info := self._page.info(model)) is None or not info.is_instruct:
            info = next(iter(self._models()), None)
        if info is None:
            return gr.skip()
        if info.loaded:
            backend = self._page.backend
            options = self._page.limits.within(defaults_for(info))
            with contextlib.suppress(BackendError):
                first = backend.predict(info.name, question("Hello"), options, cache_salt=_ANY_SALT)
                if first.outcome in (CacheOutcome.MISS, CacheOutcome.DISK):
                    backend.prefetch(info.name, [first.key])
        return gr.skip() if info.name == model else info.name

    def _models(self) -> list[ModelInfo]:
        return [model for model in self._page.models() if model.is_instruct]

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
        self.without_reuse = gr.Checkbox(
            label="Without reuse: recompute every turn, for comparison",
            elem_id="chat_without_reuse",
            container=False,
        )

    def _connect_request(self) -> None:
        settings = self.settings
        own = [self.text.change, self.without_reuse.change]
        ui.await_prediction(self.prediction, settings.model)
        ui.empty_on_change(self.notice, [*own, *(field.change for field in settings.inputs)])
        self.text.change(None, self.text, None, js="keepDraft", **ui.QUIET)
        self.chatbot.example_select(self._take_example, None, self.text, **ui.QUIET)
        gr.on(
            [self._page.in_sight["chat"].click, *own],
            self._predict,
            {*self._make},
            self.prediction,
            **ui.LATEST,
        )
        conversations = self.conversations
        shown = [conversations.opened, conversations.name, self.chatbot, self.strip]
        own_settings = [settings.model, settings.system, *settings.controls.inputs]
        conversations.connect(self._show, self._set, [*shown, *own_settings])
        stored, draft, *cut = (gr.Textbox(visible=False) for _ in range(4))
        self._page.load(
            self._restore,
            [stored, draft, gr.Checkbox(visible=False), self._salt, *cut],
            [*shown, self.text, self._salt],
            js="chatBefore",
            **ui.QUIET,
        )

    @property
    def _make(self) -> list[Any]:
        """What a question is made of."""
        own = [self.text, self.conversations.opened, self._salt, self.without_reuse]
        return [*own, *self.settings.inputs]

    def _connect_runs(self) -> None:
        request = sorted(self._make, key=lambda each: each._id)
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
        entering = [*self._runs.outputs, self.text, self.settings.controls.seed]
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
            self._runs.follow(event)
        self._runs.connect_stop()
        self.chatbot.undo(
            self._undo,
            [self.conversations.opened, self.text],
            [
                *(self.conversations.opened, self.conversations.name, self.chatbot, self.strip),
                *(self.text, self.notice),
            ],
            **ui.QUIET,
        )
        self._is_edited.click(
            self._edit_answer,
            [self._edited, self.conversations.opened],
            [
                *(self.conversations.opened, self.conversations.name, self.chatbot, self.strip),
                self.notice,
            ],
            js="(_, opened) => [editedAnswer(), opened]",
            **ui.QUIET,
        )

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
        names = [model.name for model in self._models()]
        return {
            self.settings.model: conversation.model if conversation.model in names else gr.skip(),
            self.settings.system: conversation.system,
            **self.settings.of_options(conversation.options),
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
        """The conversation and the draft that this window had; a link has a draft.

        Of an answer that the reload has cut, `asked` is the question and `cut` what was written.
        """
        query = dict(request.query_params)
        is_linked = query.get("tab") == CHAT and "prompt" in query and not is_reload
        found = None if is_linked else readable(stored)
        # Each window begins one of its own, under an id of its own.
        opened = found or Conversation("")
        if make and cut and not is_linked:
            opened = opened.after(Turn(clean(make), clean(cut)), opened.left_out)
        text = clean(query["prompt"]) if is_linked else draft
        return {**self._show(opened), self.text: text or gr.skip(), self._salt: salt}

    def _take_example(self, event: gr.SelectData) -> str:
        return str(event.value["text"])

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
            InvalidRequest: an option is empty or out of range, the model cannot chat, or there is
                no room for a turn more.
        """
        settings = self.settings
        model, opened = values[settings.model], values[self.conversations.opened]
        if model not in [each.name for each in self._models()]:
            raise InvalidRequest(self._cannot_chat(model))
        options = settings.options_of_text(values, "A chat").of_row()
        options = with_seed(options, values[settings.controls.hold])
        conversation = readable(opened) or Conversation(model)
        if len(conversation.turns) >= MAX_TURNS or len(opened) > MAX_JSON_CHARACTERS:
            raise InvalidRequest(
                f"The conversation has reached this page's limit of {MAX_TURNS} turns or "
                f"{MAX_JSON_CHARACTERS:,} characters. Begin a new one."
            )
        salt = "" if values[self.without_reuse] else values[self._salt]
        return conversation.set_to(model, values[settings.system] or "", options), salt

    def _cannot_chat(self, model: str) -> str:
        names = [model_name(each.name) for each in self._models()]
        sentence = f"{model_name(model)} has no chat template: it only continues texts."
        if not names:
            return f"{sentence} This page offers no model with one."
        return f"{sentence} Choose one with a template: {', '.join(names[:_NAMED])}."

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
        return run, {self.settings.controls.seed: before.options.seed}

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
