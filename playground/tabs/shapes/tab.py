"""The Shapes tab: compile functions ahead of requests, and clear them.

Knows the components and what each event does to them. Must not know how anything looks. What
changes the one engine that all visitors share is only built for admins; otherwise none of its
events exist on the server.
"""

import asyncio
from functools import partial
from typing import Any

import gradio as gr

from playground.context.measuring import reserved
from playground.context.page_context import PageContext
from playground.tabs.generate.examples import DEFAULTS
from playground.tabs.shapes import clear_controls
from playground.tabs.shapes.clear_controls import ClearControls
from playground.tabs.shapes.shapes import (
    MAX_NEW_TOKENS,
    NUM_BEAMS,
    PADDED_LENGTHS,
    missing,
)
from playground.ui import components as ui
from playground.ui.quantities import count
from playground.ui.tables import functions_table
from xla_backend import BackendError, BucketRules

_REMOVE_SCRIPT = """
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-remove]");
  if (button) trigger("select", {shape: button.dataset.remove});
});
"""
# Below the fold of most screens. A frame later it is in the page.
_SHOW_CONFIRMATION = """() => requestAnimationFrame(() => requestAnimationFrame(() =>
  document.getElementById("clear_now")?.scrollIntoView({block: "nearest"})))"""


class ShapesTab:
    name = "Shapes"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        with gr.Column(elem_classes="card"):
            ui.heading(
                "What the engine holds",
                "For everybody who uses this page: what each function’s first call cost, and what "
                "a call costs since.",
            )
            # filled in sight
            self.entries = ui.html("", "entries", js_on_load=_REMOVE_SCRIPT)
        self.entries_sent = gr.State(None)
        page.in_sight["shapes"].click(
            self._refresh,
            self.entries_sent,
            [self.entries, self.entries_sent],
            **ui.EACH_TIME,
        )
        if page.admin:
            self._build_changes()

    def _build_changes(self) -> None:
        """What compiles and clears."""
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_choice()
            with gr.Column(elem_classes="card"):
                ui.heading(
                    "Clear",
                    "Shows a first call again. It affects everybody who uses this page.",
                )
                self.clear = ClearControls()
        self._connect_choice()
        self._connect_clearing()

    def _refresh(self, sent: int | None) -> tuple[Any, int]:
        """The table, if it differs from the one that was sent last."""
        backend = self._backend
        entries, making = backend.cached_functions(), backend.prefetching()
        table = functions_table(entries, backend.past(), making, removable=self._page.admin)
        new = hash(table)
        return (gr.skip() if new == sent else table), new

    def _build_choice(self) -> None:
        usual = BucketRules().key_for(1, DEFAULTS.num_beams, DEFAULTS.max_new_tokens)
        ui.heading(
            "Compile shapes ahead",
            "Every combination is one compiled function. Prepared shapes start at once. "
            "Requests always go first: compiling waits until the engine is idle.",
        )
        self.model = ui.model_dropdown(self._page.models_that_continue_first(), "shapes_model")
        self.padded_lengths = _sizes(
            PADDED_LENGTHS,
            [usual.padded_length, 2 * usual.padded_length],
            label="Prompt slots",
            info="Prompts are padded to the next of these.",
            elem_id="padded_lengths",
        )
        self.num_beams = _sizes(NUM_BEAMS, [usual.num_beams], label="Beams", elem_id="beams")
        self.max_new_tokens = _sizes(
            MAX_NEW_TOKENS,
            [usual.max_new_tokens],
            label="New slots",
            info="New tokens are rounded up to the next of these.",
            elem_id="new_slots",
        )
        with gr.Row(elem_classes="actions"):
            self.make = gr.Button("Compile", variant="primary", elem_id="make_ready")
            self.cancel = gr.Button("Cancel", elem_id="cancel_making")
        self.notice = ui.html("", "shapes_notice")

    def _connect_choice(self) -> None:
        choice = [self.model, self.padded_lengths, self.num_beams, self.max_new_tokens]
        self.make.click(
            lambda: ui.notice("Asking the engine.", "calm"),
            None,
            self.notice,
            **ui.QUIET,
        ).then(self._make, choice, self.notice, **ui.FOLLOWING)
        self.cancel.click(self._cancel, None, self.notice, **ui.QUIET)

    def _make(self, model: str, *sizes: list[int]) -> str:
        try:
            self._page.check_model(model)
            self._backend.load(model)  # a model that is not loaded cannot be compiled for
            keys, too_long = missing(self._backend, model, *sizes)
        except BackendError as error:
            return ui.notice(str(error))
        sentences = ["There is nothing to compile: all of these are in memory."]
        if keys:
            self._backend.prefetch(model, keys)
            sentences = [f"{count(len(keys), 'shape')} to compile; the table shows how far it is."]
        if too_long:
            sentences.append(f"{count(too_long, 'shape')} would be too long for this model.")
        return ui.notice(" ".join(sentences), "calm")

    def _cancel(self) -> str:
        self._backend.cancel_prefetch()
        return ui.notice("Cancelled. A compile that is running finishes and is cached.", "calm")

    def _connect_clearing(self) -> None:
        controls = self.clear
        question = [controls.sentence, controls.choice, controls.confirmation, controls.notice]
        # The sentence and the action arrive together, so nobody confirms anything else.
        controls.what.change(
            lambda: gr.update(visible=False), None, controls.confirmation, **ui.EACH_TIME
        )
        for event in (
            controls.ask.click(self._ask, controls.what, question, **ui.QUIET),
            self.entries.select(self._ask_one, None, question, **ui.QUIET),
        ):
            event.then(None, None, None, js=_SHOW_CONFIRMATION, **ui.QUIET)
        controls.cancel.click(
            lambda: gr.update(visible=False), None, controls.confirmation, **ui.QUIET
        )
        controls.confirm.click(
            lambda: (
                gr.update(visible=False),
                ui.notice("The engine ends as soon as the present runs have ended.", "calm"),
            ),
            None,
            [controls.confirmation, controls.notice],
            **ui.QUIET,
        ).then(
            self._clear,
            controls.choice,
            [controls.notice, self._page.status],
            **ui.FOLLOWING,
        )

    def _ask(self, what: str, shape: str | None = None) -> tuple[Any, ...]:
        """The sentence, what "Clear now" does then, and the question with an empty notice."""
        in_memory = len(self._backend.cached_functions())
        sentence = clear_controls.confirmation(what, shape, in_memory)
        return sentence, [what, shape], gr.update(visible=True), ""

    def _ask_one(self, event: gr.EventData) -> tuple[Any, ...]:
        return self._ask(clear_controls.ONE, str(event._data["shape"]))

    async def _clear(self, choice: list[Any] | None) -> tuple[str, str]:
        """Waits for its turn, so that no visitor's run is cut off."""
        if choice is None:
            return "", self._page.engine_line()
        what, shape = choice
        clear = partial(self._backend.clear, disk=what == clear_controls.ALL)
        try:
            if what == clear_controls.ONE:
                if not shape:
                    return "", self._page.engine_line()
                model, key = clear_controls.parse(shape)
                self._page.check_model(model)
                clear = partial(self._backend.clear, model, key)
            async with reserved(self._backend, "Clearing compiled functions"):
                await asyncio.to_thread(clear)
        except BackendError as error:
            return ui.notice(str(error)), self._page.engine_line()
        # The store on disk may have changed although the memory did not.
        self._page.times_cleared += 1
        done = "Cleared. The engine is starting again; a request that comes now waits for it."
        return ui.notice(done, "calm"), self._page.engine_line()


def _sizes(sizes: tuple[int, ...], chosen: list[int], **options: Any) -> gr.CheckboxGroup:
    return gr.CheckboxGroup([(str(size), size) for size in sizes], value=chosen, **options)
