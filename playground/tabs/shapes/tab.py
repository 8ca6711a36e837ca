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
from playground.tabs.shapes import clear_controls, report
from playground.tabs.shapes.clear_controls import ClearControls
from playground.tabs.shapes.shapes import (
    MAX_NEW_TOKENS,
    NUM_BEAMS,
    PADDED_LENGTHS,
    Order,
    Shape,
    survey,
)
from playground.ui import components as ui
from playground.ui.markup import nothing
from playground.ui.tables import cached_functions_table
from xla_backend import BackendError, BucketRules, CacheEntry, CacheKey, CacheOutcome

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
            self.entries = ui.html("", "entries")  # filled in sight
        self.entries_sent = gr.State(None)
        page.in_sight["shapes"].click(
            self._refresh_entries,
            self.entries_sent,
            [self.entries, self.entries_sent],
            **ui.EACH_TIME,
        )
        if page.admin:
            self._build_changes()

    def _build_changes(self) -> None:
        """What compiles and clears."""
        self._order = Order(self._backend)
        self._page.watched.append(self._order.progress)
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_choice()
            with gr.Column(elem_classes="stack"):
                with gr.Column(elem_classes="card"):
                    self._build_map()
                with gr.Column(elem_classes="card"):
                    ui.heading(
                        "Clear",
                        "Shows a first call again. It affects everybody who uses this page.",
                    )
                    self.clear = ClearControls()
        self._connect_choice()
        self._connect_clearing()

    def _refresh_entries(self, sent: int | None) -> tuple[Any, int]:
        """The table, if it differs from the one that was sent last."""
        table = cached_functions_table(self._backend.cached_functions(), self._backend.past())
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
        self.summary = ui.html("", "shapes_summary")
        with gr.Row(elem_classes="actions"):
            self.make = gr.Button("Compile", variant="primary", elem_id="make_ready")
            self.cancel = gr.Button("Cancel", interactive=False, elem_id="cancel_making")
        self.progress = ui.html("", "making")
        self.notice = ui.html("", "shapes_notice")

    def _build_map(self) -> None:
        ui.heading(
            "Where they are now",
            "The outcome of a request of exactly this shape: HIT is in memory, DISK can be "
            "restored, MISS must be compiled.",
        )
        self.map = ui.html("", "shape_map")
        self.sent = gr.State(None)

    @property
    def _choice(self) -> list[ui.Field]:
        return [self.model, self.padded_lengths, self.num_beams, self.max_new_tokens]

    def _connect_choice(self) -> None:
        shown = [
            self.summary,
            self.map,
            self.progress,
            self.cancel,
            self.clear.shape,
            self.sent,
        ]
        gr.on(
            [
                self._page.in_sight["shapes"].click,
                *(component.change for component in self._choice),
            ],
            self._refresh,
            [self.clear.shape, self.sent, *self._choice],
            shown,
            **ui.LATEST,
        )
        self.make.click(
            lambda: ui.notice("Asking the engine.", "calm"),
            None,
            self.notice,
            **ui.QUIET,
        ).then(self._make, self._choice, self.notice, **ui.FOLLOWING)
        self.cancel.click(self._cancel, None, self.notice, **ui.QUIET)

    def _refresh(
        self, clear_shape: str | None, sent: int | None, model: str, *sizes: list[int]
    ) -> ui.Updates:
        """Everything that depends on the engine, sent only if something changed."""
        entries = self._backend.cached_functions()
        prefetching = self._backend.prefetching()
        progress = self._order.progress()
        choice = (model, *map(tuple, sizes))
        state = self._backend.status.state == "starting"
        new = hash(
            (tuple(entries), tuple(prefetching), progress, choice, state, self._page.times_cleared)
        )
        if new == sent:
            return {self.sent: sent}
        try:
            self._page.check_model(model)
            shapes = survey(self._backend, model, *sizes)
        except BackendError as error:
            shapes = []
            summary, grid = "", str(nothing(str(error)))
        else:
            making = [key for name, key in prefetching if name == model]
            summary, grid = report.summary_line(shapes), report.shape_map(shapes, making)
        return {
            self.summary: summary,
            self.map: grid,
            self.progress: report.progress_line(progress),
            self.cancel: gr.update(interactive=bool(prefetching)),
            self.clear.shape: _clearable(entries, model, shapes, clear_shape),
            self.sent: new,
        }

    def _make(self, model: str, *sizes: list[int]) -> str:
        try:
            self._page.check_model(model)
            self._backend.load(model)  # a model that is not loaded cannot be compiled for
            shapes = survey(self._backend, model, *sizes)
        except BackendError as error:
            return ui.notice(str(error))
        keys = [s.key for s in shapes if s.key is not None and s.outcome is not CacheOutcome.HIT]
        if not keys:
            there = "All of these are in memory already." if shapes else "No shape is chosen."
            return ui.notice(f"{there} There is nothing to compile.", "calm")
        self._order.place(model, keys)
        return ""

    def _cancel(self) -> str:
        self._order.cancel()
        return ui.notice("Cancelled. A compile that is running finishes and is cached.", "calm")

    def _connect_clearing(self) -> None:
        controls = self.clear
        controls.what.change(
            lambda what: gr.update(visible=what == clear_controls.ONE),
            controls.what,
            controls.shape,
            **ui.EACH_TIME,
        )
        # The sentence and the action arrive together, so nobody confirms anything else.
        gr.on(
            [controls.what.change, controls.shape.change],
            self._describe,
            [controls.what, controls.shape],
            [controls.sentence, controls.choice, controls.confirm],
            **ui.LATEST,
        )
        controls.ask.click(
            self._ask,
            [controls.what, controls.shape],
            [
                controls.sentence,
                controls.choice,
                controls.confirm,
                controls.confirmation,
                controls.notice,
            ],
            **ui.QUIET,
        ).then(None, None, None, js=_SHOW_CONFIRMATION, **ui.QUIET)
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

    def _describe(self, what: str, shape: str | None) -> tuple[str, Any, Any]:
        """The sentence, what "Clear now" does then, and whether it can be pressed."""
        if what == clear_controls.ONE and not shape:
            return (ui.notice("There is nothing to clear."), None, gr.update(interactive=False))
        in_memory = len(self._backend.cached_functions())
        sentence = clear_controls.confirmation(what, shape, in_memory)
        return sentence, [what, shape], gr.update(interactive=True)

    def _ask(self, what: str, shape: str | None) -> tuple[Any, ...]:
        return *self._describe(what, shape), gr.update(visible=True), ""

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
        self._order.drop()
        # The store on disk may have changed although the memory did not.
        self._page.times_cleared += 1
        done = "Cleared. The engine is starting again; a request that comes now waits for it."
        return ui.notice(done, "calm"), self._page.engine_line()


def _sizes(sizes: tuple[int, ...], chosen: list[int], **options: Any) -> gr.CheckboxGroup:
    return gr.CheckboxGroup([(str(size), size) for size in sizes], value=chosen, **options)


def _clearable(
    entries: list[CacheEntry], model: str, shapes: list[Shape], chosen: str | None
) -> Any:
    """The drop-down with what is in memory and, of the grid, on disk."""
    known = [
        (entry.model, entry.key)
        for entry in entries
        if isinstance(entry.key, CacheKey) and entry.batch_size == 1
    ]
    known += [(model, s.key) for s in shapes if s.key and s.outcome is CacheOutcome.DISK]
    choices = clear_controls.choices(known)
    values = [value for _, value in choices]
    if chosen in values:  # and stays chosen, unless the visitor changed it meanwhile
        return gr.update(choices=choices)
    return gr.update(choices=choices, value=values[0] if values else None)
