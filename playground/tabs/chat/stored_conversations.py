"""The card with this visitor's conversations, and its actions.

Knows the components and what each event does to the open conversation. Must not know how one is
answered. What is kept lies in the browser: `assets/chats.js` reads and writes it.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.tabs.chat import conversation_file, report
from playground.tabs.chat.conversation import Conversation, readable
from playground.ui import components as ui
from xla_backend import BackendError

_FULL = (
    "This browser has no room for more conversations, or keeps nothing for this page. Save what "
    "you want to keep as a file; delete some."
)
_GONE = "That conversation is no longer kept in this browser."
BUSY = "An answer is being written. Wait for it, or press Stop and try again."


class StoredConversations:
    """Builds the card's content where it is created.

    Attributes:
        opened: the open conversation, as JSON; empty until the page is loaded.
        name: its name, which can be changed.
    """

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Row(elem_classes="card-head"):
            ui.heading("Conversations", "Kept in this browser only.")
            self._new = ui.small_button("New chat", "chat_new")
        self.opened = gr.Textbox("", visible=False)
        self.name = gr.Textbox(
            label="Name",
            placeholder="The first question names it",
            max_lines=1,
            elem_id="chat_name",
        )
        with gr.Row(elem_classes="chat-actions"):
            self._markdown = ui.small_button("Markdown", "chat_markdown")
            self._json = ui.small_button("JSON", "chat_json")
            self._import_button = ui.small_button("Import JSON", "chat_import")
            self._delete = ui.small_button("Delete", "chat_delete")
            self._undo = ui.small_button("Undo delete", "chat_undo_delete", visible=False)
        self.notice = ui.html("", "chat_shelf_notice")
        self._list = ui.html(
            report.conversations("", ""), "chat_list", js_on_load=report.LIST_SCRIPT
        )
        self._index = gr.Textbox(visible=False)
        self._removed = gr.Textbox(visible=False)
        self._made = gr.Textbox(visible=False)
        self._arrived = gr.Button(visible="hidden", elem_id="chats_are_new")

    def connect(
        self,
        show: Callable[[Conversation], ui.Updates],
        settings: Callable[[Conversation], ui.Updates],
        outputs: Sequence[gr.blocks.Block],
    ) -> None:
        """Connects the buttons.

        Args:
            show: opens a conversation, without its settings.
            settings: sets the controls as a conversation has them.
            outputs: what both of them set.
        """
        self._show, self._settings = show, settings
        changed = [*outputs, self.notice, self._removed, self._undo]
        self._new.click(self._start, self.opened, changed, **ui.QUIET)
        self._list.select(self._open, self._index, changed, js="() => [chosenChat()]", **ui.QUIET)
        self._delete.click(self._drop, self.opened, changed, **ui.QUIET)
        self._undo.click(self._undo_drop, self._removed, changed, **ui.QUIET)
        ui.import_file(self._import_button, self._made, self._import, [], changed)
        gr.on(
            [self.name.submit, self.name.blur],
            self._rename,
            [self.opened, self.name],
            [self.opened, self.name],
            **ui.QUIET,
        )
        followed = self._arrived.click(
            self._follow,
            [self._index, self.opened],
            changed,
            js="(_, opened) => [keptChat(JSON.parse(opened).id), opened]",
            queue=False,
            **ui.FOLLOWING,
        )
        self._store(self.opened.change)
        self._store(followed.then)  # what another window changed is in the list, opened or not
        for button, export, name, kind in (
            (self._markdown, _markdown, "chat.md", "text/markdown;charset=utf-8"),
            (self._json, _json, "chat.json", "application/json"),
        ):
            ui.save_file(button, self._page.file, self.opened, self.notice, export, name, kind)

    def _store(self, event: Any) -> None:
        """At this event, saves the open conversation in the browser, and updates the list."""
        event(
            self._stored,
            [self._index, self.opened, self._removed],
            [self._list, self.notice],
            js="keepChats",
            **ui.QUIET,
        )

    def _stored(self, stored: str, opened: str, _: str) -> tuple[str, Any]:
        conversation = readable(opened)
        listed = report.conversations(stored, conversation.id if conversation else "")
        is_stored = json.loads(stored).get("isKept", False)
        return listed, gr.skip() if is_stored else ui.notice(_FULL)

    def _start(self, opened: str, request: gr.Request) -> ui.Updates:
        before = readable(opened)
        return self._opening(request, Conversation(before.model if before else ""))

    def _open(self, stored: str, request: gr.Request) -> ui.Updates:
        found = readable(stored)
        if found is None:
            return {self.notice: ui.notice(_GONE)}
        return self._opening(request, found, with_settings=True)

    def _follow(self, stored: str, opened: str, request: gr.Request) -> ui.Updates:
        """Takes over changes that another window of this browser made to the open conversation."""
        mine, found = readable(opened), readable(stored)
        is_busy = self._page.runs.of(str(request.session_hash)) is not None
        if is_busy or mine is None or found == mine or not (found or mine.turns):
            return {self.notice: gr.skip()}
        return self._show(found or Conversation(mine.model))

    def _drop(self, opened: str, request: gr.Request) -> ui.Updates:
        before = readable(opened)
        if before is None or not before.turns:
            return {self.notice: ui.notice("There is nothing to delete yet.", "calm")}
        updates = self._opening(request, Conversation(before.model))
        if self.opened in updates:
            updates |= {self._removed: opened, self._undo: gr.update(visible=True)}
        return updates

    def _undo_drop(self, removed: str, request: gr.Request) -> ui.Updates:
        found = readable(removed)
        if found is None:
            return {self.notice: ui.notice(_GONE)}
        updates = self._opening(request, found, with_settings=True)
        if self.opened in updates:
            updates |= {self._removed: "", self._undo: gr.update(visible=False)}
        return updates

    def _import(self, text: str, request: gr.Request) -> ui.Updates:
        if not text:
            return {self.notice: gr.skip()}
        try:
            found = conversation_file.from_json(text)
        except BackendError as error:
            return {self.notice: ui.notice(str(error))}
        return self._opening(request, found, with_settings=True)

    def _rename(self, opened: str, name: str) -> ui.Updates:
        conversation = readable(opened)
        if conversation is None or not conversation.turns or conversation.name == name:
            return {self.name: gr.skip()}
        named = conversation.named(name)
        return {self.opened: named.to_json(), self.name: named.name}

    def _opening(
        self, request: gr.Request, conversation: Conversation, with_settings: bool = False
    ) -> ui.Updates:
        """Shows a conversation in place of the one that is open, unless that is being answered."""
        if self._page.runs.of(str(request.session_hash)) is not None:
            return {self.notice: ui.notice(BUSY)}
        more = self._settings(conversation) if with_settings else {}
        return {**self._show(conversation), **more, self.notice: ""}


def _markdown(opened: str) -> str:
    return conversation_file.to_markdown(conversation) if (conversation := _started(opened)) else ""


def _json(opened: str) -> str:
    return conversation_file.to_json(conversation) if (conversation := _started(opened)) else ""


def _started(opened: str) -> Conversation | None:
    conversation = readable(opened)
    return conversation if conversation and conversation.turns else None
