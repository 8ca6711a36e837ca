"""What the Chat tab's events do, with an engine that has no model."""

import dataclasses
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from playground import create_app
from playground.settings.examples import INSTRUCT_DEFAULTS
from playground.tabs.chat.conversation import Conversation, readable
from playground.tabs.chat.tab import ChatTab
from playground.ui.option_controls import values_for
from tests.playground.carrying_out import answers
from tests.playground.fake_backend import TALKER, FakeBackend
from xla_backend import EngineStopped, Message

OPTIONS = values_for(INSTRUCT_DEFAULTS.replace(max_new_tokens=16))
SALT = "a salt"


class Breaking:
    """Words of which the second never comes."""

    def __iter__(self) -> Iterator[str]:
        yield " there"
        raise EngineStopped("The engine stopped.")


class Engine(FakeBackend):
    """An engine that remembers the salts that it was given."""

    def __init__(self) -> None:
        super().__init__(models=[TALKER])
        self.salts: list[str] = []

    def submit(self, request: Any) -> Any:
        self.salts.append(request.cache_salt)
        return super().submit(request)


ENGINE = Engine()


@functools.cache
def the_tab() -> ChatTab:
    methods = [getattr(fn.fn, "__self__", None) for fn in create_app(ENGINE).fns.values()]
    return next(each for each in methods if isinstance(each, ChatTab))


class Chatting:
    """A visitor of the tab, who has one conversation open."""

    def __init__(self) -> None:
        self.tab = the_tab()
        visitor = SimpleNamespace(session_hash="visitor", query_params={})
        self._request = cast("gr.Request", visitor)
        self.opened = ""
        self.shown: dict[Any, Any] = {}
        self.load()

    @property
    def conversation(self) -> Conversation:
        found = readable(self.opened)
        assert found is not None
        return found

    def load(self, kept: str = "", draft: str = "", cut: tuple[str, str] = ("", "")) -> None:
        """Opens the page; `cut` is a question and what was written of its answer."""
        restored = self.tab._restore(kept, draft, True, SALT, *cut, self._request)  # noqa: SLF001
        self._show(restored)

    def ask(self, text: str, without_reuse: bool = False, system: str = "") -> None:
        self._carry_out("_send", text, without_reuse, system)

    def retry(self) -> None:
        self._carry_out("_retry", "")

    def edit(self, turn: int, text: str) -> None:
        event = SimpleNamespace(index=2 * turn, value=text)
        self._carry_out("_edit", "", event=event)

    def undo(self) -> None:
        self._show(self.tab._undo(self.opened, "", self._request))  # noqa: SLF001

    def values(self, text: str, model: str = TALKER.name, answer_as: str = "Text") -> Any:
        """What the fields of the request have."""
        tab, settings = self.tab, self.tab.settings
        return {
            **dict(zip(settings.controls.inputs, OPTIONS, strict=True)),
            **{tab.text: text, tab.conversations.opened: self.opened, tab._salt: SALT},  # noqa: SLF001
            **{settings.model: model, settings.system: "", settings.answer_as: answer_as},
            **{tab.without_reuse: False, settings.controls.hold: False},
        }

    def reads(self, part: str) -> Any:
        """What a part of the tab was made to show last."""
        return self.shown[getattr(self.tab, part)]

    def _carry_out(
        self,
        begin: str,
        text: str,
        without_reuse: bool = False,
        system: str = "",
        event: Any = None,
    ) -> None:
        before = [event] if event else []
        values = self.values(text)
        values |= {self.tab.settings.system: system, self.tab.without_reuse: without_reuse}
        begun = getattr(self.tab, begin)
        self._show(begun(*before, self._request, values))
        runs = self.tab._runs  # noqa: SLF001
        for updates in answers(runs.carry_out(self._request)):
            self._show(updates)
        self._show(runs.end(self._request, self.opened, "", []))

    def _show(self, updates: dict[Any, Any]) -> None:
        skipped = gr.skip()
        self.shown |= {part: value for part, value in updates.items() if value != skipped}
        self.opened = self.shown.get(self.tab.conversations.opened, self.opened)


@pytest.fixture
def engine() -> Engine:
    vars(ENGINE).update(vars(Engine()))
    return ENGINE


@pytest.fixture
def chat(engine: Engine) -> Chatting:
    return Chatting()


def test_each_turn_sends_those_before_it(chat: Chatting, engine: Engine) -> None:
    chat.ask("One?", system="Be brief.")
    chat.ask("Two?", system="Be brief.")
    assert engine.asked[-1][1] == (
        Message("system", "Be brief."),
        Message("user", "One?"),
        Message("assistant", " there was a"),
        Message("user", "Two?"),
    )
    assert all(turn.figures for turn in chat.conversation.turns)
    assert chat.reads("send")["interactive"] is True
    assert "TTFT by turn" in chat.reads("strip")

    chat.load()
    chat.ask("One?")
    [run] = chat.shown[chat.tab._page.runs_of_visitor]  # noqa: SLF001
    assert (run["prompt"], run["prompt_is_whole"], run["text"]) == ("One?", True, " there was a")


def test_a_page_begins_with_what_its_window_had(chat: Chatting, engine: Engine) -> None:
    other = Chatting()
    assert other.conversation.id != chat.conversation.id
    chat.ask("One?")
    other.load(chat.opened, "a draft")
    assert other.conversation == chat.conversation
    assert other.reads("text") == "a draft"


def test_the_engine_may_reuse_unless_the_visitor_forbids_it(chat: Chatting, engine: Engine) -> None:
    chat.ask("One?")
    chat.ask("Two?", without_reuse=True)
    assert engine.salts == [SALT, ""]
    reuses = [turn.figures.reuses for turn in chat.conversation.turns if turn.figures]
    assert reuses == [True, False]


def test_what_was_asked_and_written_before_an_error_is_kept(chat: Chatting, engine: Engine) -> None:
    chat.ask("One?")
    before = chat.conversation
    asked = (*before.messages("Two?", 0),)
    engine.errors[cast("Any", asked)] = EngineStopped("The engine stopped.")
    chat.ask("Two?")
    assert chat.reads("text") == "Two?"
    assert "The engine stopped." in chat.reads("notice")
    assert chat.conversation == before

    chat.load()
    engine.words = cast("Any", Breaking())
    chat.ask("One?")
    [turn] = chat.conversation.turns
    assert (turn.answer, turn.figures) == (" there", None)
    assert "The engine stopped." in chat.reads("notice")
    assert_interrupted(chat)


def assert_interrupted(chat: Chatting) -> None:
    *_, answer = chat.reads("chatbot")
    assert "Interrupted" in answer["content"]["value"]
    assert ">Retry</button>" in answer["content"]["value"]


def test_what_was_written_before_a_reload_is_kept(chat: Chatting) -> None:
    chat.ask("One?")
    chat.load(chat.opened, "and more", cut=("Two?", " there"))
    *_, turn = chat.conversation.turns
    assert (turn.question, turn.answer, turn.figures) == ("Two?", " there", None)
    assert chat.reads("text") == "and more"
    assert_interrupted(chat)


def test_a_retry_and_an_undo_take_back_the_last_turn(chat: Chatting, engine: Engine) -> None:
    chat.ask("One?")
    chat.ask("Two?")
    engine.words = (" other",)
    chat.retry()
    assert [turn.answer for turn in chat.conversation.turns] == [" there was a", " other"]
    chat.undo()
    assert chat.reads("text") == "Two?"
    assert [turn.question for turn in chat.conversation.turns] == ["One?"]


def test_an_edited_question_goes_on_elsewhere_where_turns_followed_it(chat: Chatting) -> None:
    chat.ask("One?")
    chat.ask("Two?")
    before = chat.conversation
    chat.edit(1, "Too?")
    assert chat.conversation.id == before.id, "nothing followed"
    chat.edit(0, "Won?")
    assert chat.conversation.id != before.id
    assert [turn.question for turn in chat.conversation.turns] == ["Won?"]
    assert chat.conversation.name == "Won?"


@pytest.mark.parametrize(
    ("model", "answer_as", "sentence"),
    [
        ("base", "Text", "base has no chat template: it only continues texts. Choose one with a"),
        (TALKER.name, "Choice", "A chat writes texts or JSON"),
    ],
)
def test_what_cannot_chat_is_refused_by_name(
    chat: Chatting, engine: Engine, model: str, answer_as: str, sentence: str
) -> None:
    engine.known.append(dataclasses.replace(TALKER, name="base", is_instruct=False))
    values = chat.values("Hello", model, answer_as)
    assert sentence in chat.tab._predict(values)  # noqa: SLF001
    assert sentence in chat.tab._send(chat._request, values)[chat.tab.notice]  # noqa: SLF001
    assert engine.asked == []


def test_opening_the_tab_has_the_first_function_made(chat: Chatting, engine: Engine) -> None:
    engine.known = [dataclasses.replace(TALKER, loaded=True)]
    assert chat.tab.prepare("talker") == gr.skip()
    first = engine.predict("talker", (Message("user", "Hello"),), INSTRUCT_DEFAULTS)
    assert engine.in_background == [("talker", first.key)]
    engine.known.insert(0, dataclasses.replace(TALKER, name="base", is_instruct=False))
    assert chat.tab.prepare("base") == "talker", "a base model cannot chat"
    engine.known.pop()
    assert chat.tab.prepare("base") == gr.skip()
