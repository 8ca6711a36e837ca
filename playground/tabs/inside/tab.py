"""The Inside tab: look into a compiled function, measure a token of it, take it home.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
function is looked into. All of it happens beside the engine, in a process that gives way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from playground.context.measuring import reserved
from playground.context.page_context import PageContext
from playground.tabs.inside import report
from playground.tabs.inside.functions import NO_STORE, check_own, choices, key_of
from playground.tabs.inside.texts_route import links
from playground.ui import components as ui
from playground.ui.markup import nothing
from playground.ui.wording import model_name
from xla_backend import BackendError, CacheKey, InvalidRequest
from xla_backend.inspection.inspection import Inspection
from xla_backend.inspection.inspector import Inspector
from xla_backend.inspection.measurement import Measurement

_NOTHING = "Choose a compiled function to inspect."
_DOING = (
    "Working in a process of its own. Measuring waits until the engine is idle; what compiles once "
    "more takes up to half a minute."
)


def _answered(work: Callable[[InsideTab, str, str | None], ui.Updates]) -> Callable[..., Any]:
    """An event that shows what the work does, or why it was refused."""

    @wraps(work)
    def answer(tab: InsideTab, model: str, function: str | None) -> ui.Updates:
        try:
            return {tab.notice: "", **work(tab, model, function)}
        except BackendError as error:
            return {tab.notice: ui.notice(str(error))}

    return answer


class InsideTab:
    name = "Inside"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Column(elem_classes="card"):
            self._build_choice()
        with gr.Column(elem_classes="card"):
            self.report = ui.html(
                nothing(_NOTHING if page.inspector else NO_STORE), "inside_report"
            )
            self.changes = ui.html("", "inside_changes")
        self._connect()

    def _build_choice(self) -> None:
        ui.heading(
            "Inside a compiled function",
            "What XLA made of it: kernels, what each reads and computes, and where the time of a "
            "token goes. Runs separately; nobody is delayed.",
        )
        with gr.Row():
            self.model = ui.model_dropdown(self._page.models_in("inside_model"), "inside_model")
            self.function = gr.Dropdown(
                [], label="Function on disk", elem_id="inside_function", elem_classes="model-choice"
            )
        with gr.Row(elem_classes="actions"):
            self.open = gr.Button("Look inside", variant="primary", elem_id="inside_look")
            # These load the model a second time: strangers could fill the memory by pressing them.
            mine = self._page.admin
            self.measure = gr.Button("Measure a token", elem_id="inside_measure", visible=mine)
            self.texts = gr.Button("Files to download", elem_id="inside_texts", visible=mine)
            self.passes = gr.Button("Show XLA’s passes", elem_id="inside_passes", visible=mine)
            self.save = gr.Button("Save as HTML", elem_id="inside_save")
        self._buttons = [self.open, self.measure, self.texts, self.passes, self.save]
        for button in self._buttons:  # Pressed before functions are listed, they would find none.
            button.interactive = False
        self.notice = ui.html("", "inside_notice")
        self.files = ui.html("", "inside_files")

    def _connect(self) -> None:
        page = self._page
        changes = [self.model.change, self.function.change]
        ui.empty_on_change(self.notice, changes)
        gr.on(changes, None, None, [self.files, self.changes], js="() => ['', '']", **ui.QUIET)
        gr.on(
            [page.in_sight["inside"].click, self.model.change],
            self._offer,
            [self.model, self.function],
            [self.function, *self._buttons],
            **ui.LATEST,
        )
        chosen = [self.model, self.function]
        works: dict[gr.Button, Callable[..., Any]] = {
            self.open: self._inspect,
            self.measure: self._measure,
            self.texts: self._texts,
            self.passes: self._passes,
        }
        doing = json.dumps(str(ui.notice(_DOING, "calm")))
        pressed = [button.click for button in works]
        gr.on(pressed, None, None, self.notice, js=f"() => {doing}", **ui.EACH_TIME)
        for button, work in works.items():
            # Measuring has its turn in the engine's queue; while it waits there, others look on.
            turn = {} if button is self.measure else ui.SEPARATE_PROCESS
            shown = [self.notice, self.report, self.files, self.changes]
            button.click(work, chosen, shown, **turn, **ui.FOLLOWING)
        self.save.click(self._save, chosen, [self.notice, self._page.file], **ui.QUIET)

    def _offer(self, model: str | None, chosen: str | None) -> ui.Updates:
        offered = choices(self._page, model)
        words = [word for _, word in offered]
        chosen_now = chosen if chosen in words else (words[0] if words else None)
        return {
            self.function: gr.update(choices=offered, value=chosen_now),
            **{button: gr.update(interactive=True) for button in self._buttons},
        }

    def _inspector(self) -> Inspector:
        if self._page.inspector is None:
            raise InvalidRequest(NO_STORE)
        return self._page.inspector

    @_answered
    def _inspect(self, model: str, function: str | None) -> ui.Updates:
        return {self.report: report.report(*self._seen(model, function))}

    def _save(self, model: str, function: str | None) -> ui.Updates:
        try:
            seen, measured = self._seen(model, function)
            found = self._inspector().made_passes(self._page.backend.identity(model), seen.key)
            text = report.file(seen, measured, found)
        except BackendError as error:
            return {self.notice: ui.notice(str(error))}
        name = f"inside-{model_name(model)}-{function}.html"
        return {
            self.notice: "",
            self._page.file: ui.file_of(name, "text/html;charset=utf-8", text),
        }

    async def _measure(self, model: str, function: str | None) -> ui.Updates:
        try:
            own = self._own(model, function)
            async with reserved(self._page.backend, "Measuring"):
                await asyncio.to_thread(self._inspector().measure, *own)
            return {self.notice: "", self.report: report.report(*self._seen(model, function))}
        except BackendError as error:
            return {self.notice: ui.notice(str(error))}

    @_answered
    def _texts(self, model: str, function: str | None) -> ui.Updates:
        own = self._own(model, function)
        self._inspector().texts(*own)
        return {self.files: links(model, own[-1])}

    @_answered
    def _passes(self, model: str, function: str | None) -> ui.Updates:
        return {self.changes: report.passes(self._inspector().passes(*self._own(model, function)))}

    def _own(self, model: str, function: str | None) -> tuple[str, str, CacheKey]:
        """Model, its identity and key, for what loads the model a second time."""
        check_own(self._page)
        key = key_of(function or "")
        self._page.check_model(model)
        return model, self._page.backend.identity(model), key

    def _seen(self, model: str, function: str | None) -> tuple[Inspection, Measurement | None]:
        key = key_of(function or "")
        self._page.check_model(model)
        identity, inspector = self._page.backend.identity(model), self._inspector()
        return inspector.inspect(model, identity, key), inspector.measured(identity, key)
