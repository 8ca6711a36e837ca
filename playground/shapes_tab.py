"""The Shapes tab: compiled functions made ahead of their requests, and forgotten again.

Knows the components and what each event does to them. Must not know how anything looks. Everything
here changes the one engine that all visitors share, so the page can be built without this tab; then
none of its events exist on the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from playground import forget_controls, shapes_map
from playground.components import FOLLOWING, QUIET, model_dropdown, notice
from playground.entries_table import entries_table
from playground.examples import DEFAULTS
from playground.forget_controls import ForgetControls
from playground.shapes import MAX_NEW_TOKENS, NUM_BEAMS, PADDED_LENGTHS, Order, Shape, survey
from xla_backend import BackendError, BucketRules, CacheEntry, CacheKey, CacheOutcome

if TYPE_CHECKING:
    from playground.page import PageContext

Updates = dict[gr.components.Component, Any]


class ShapesTab:
    """Builds the tab inside the current `gr.Tab` and connects it."""

    name = "Shapes"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        self._order = Order(page.backend)
        page.watched.append(self._order.progress)
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_choice()
            with gr.Column(elem_classes="stack"):
                with gr.Column(elem_classes="card"):
                    self._build_map()
                with gr.Column(elem_classes="card"):
                    self._build_forgetting()
        with gr.Column(elem_classes="card"):
            self._build_functions()
        self._connect_choice()
        self._connect_forgetting()

    # ---- what is on the tab

    def _build_choice(self) -> None:
        usual = BucketRules().key_for(1, DEFAULTS.num_beams, DEFAULTS.max_new_tokens)
        gr.HTML(
            '<h2>Make shapes ready</h2><p class="caption">Every combination is one compiled '
            "function. What is ready costs no wait later. Requests always go first: this work is "
            "done while nobody waits.</p>",
            apply_default_css=False,
        )
        self.model = model_dropdown(self._page.models(), "shapes_model")
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
        self.summary = gr.HTML("", elem_id="shapes_summary", apply_default_css=False)
        with gr.Row(elem_classes="actions"):
            self.make = gr.Button("Make ready", variant="primary", elem_id="make_ready")
            self.cancel = gr.Button("Cancel", interactive=False, elem_id="cancel_making")
        self.progress = gr.HTML("", elem_id="making", apply_default_css=False)
        self.notice = gr.HTML("", elem_id="shapes_notice", apply_default_css=False)

    def _build_map(self) -> None:
        gr.HTML(
            '<h2>Where they are now</h2><p class="caption">What a request of exactly this shape '
            "would meet: HIT is in memory, DISK can be restored, MISS must be compiled.</p>",
            apply_default_css=False,
        )
        self.map = gr.HTML("", elem_id="shape_map", apply_default_css=False)
        self.sent = gr.State(None)

    def _build_functions(self) -> None:
        gr.HTML(
            '<h2>Compiled functions in memory</h2><p class="caption">What each first call cost, '
            "and what a call costs since.</p>",
            apply_default_css=False,
        )
        self.entries = gr.HTML(entries_table([]), elem_id="all_entries", apply_default_css=False)

    def _build_forgetting(self) -> None:
        gr.HTML(
            '<h2>Forget</h2><p class="caption">To show a first call again, to everybody who uses '
            "this page.</p>",
            apply_default_css=False,
        )
        self.forget = ForgetControls()

    # ---- making ready

    @property
    def _choice(self) -> list[gr.components.Component]:
        return [self.model, self.padded_lengths, self.num_beams, self.max_new_tokens]

    def _connect_choice(self) -> None:
        shown = [
            self.summary,
            self.map,
            self.progress,
            self.cancel,
            self.entries,
            self.forget.shape,
            self.sent,
        ]
        gr.on(
            [
                self._page.load,
                self._page.engine_is_new.click,
                *(component.change for component in self._choice),
            ],
            self._look,
            [*self._choice, self.forget.shape, self.sent],
            shown,
            trigger_mode="always_last",
            **QUIET,
        )
        self.make.click(
            lambda: notice("Asking the engine. Runs that are going on end first.", "calm"),
            None,
            self.notice,
            **QUIET,
        ).then(
            self._make,
            self._choice,
            self.notice,
            show_progress="hidden",
            api_visibility="private",
            **FOLLOWING,
            **self._page.alone,
        )
        self.cancel.click(self._cancel, None, self.notice, **QUIET)

    def _look(
        self,
        model: str,
        padded_lengths: list[int],
        num_beams: list[int],
        max_new_tokens: list[int],
        forget_shape: str | None,
        sent: int | None,
    ) -> Updates | dict[Any, Any]:
        """All that depends on the engine; but sent only when something changed."""
        entries = self._backend.entries()
        warming = self._backend.warming()
        progress = self._order.progress()
        choice = (model, *map(tuple, (padded_lengths, num_beams, max_new_tokens)))
        state = self._backend.status.state == "starting"
        new = hash(
            (tuple(entries), tuple(warming), progress, choice, state, self._page.times_forgotten)
        )
        if new == sent:
            return {self.sent: sent}
        try:
            self._page.check_model(model)
            shapes = survey(self._backend, model, padded_lengths, num_beams, max_new_tokens)
        except BackendError as error:
            shapes = []
            summary, grid = "", shapes_map.no_shape_map(str(error))
        else:
            making = [key for name, key in warming if name == model]
            summary, grid = shapes_map.summary_line(shapes), shapes_map.shape_map(shapes, making)
        return {
            self.summary: summary,
            self.map: grid,
            self.progress: shapes_map.progress_line(progress),
            self.cancel: gr.update(interactive=bool(warming)),
            self.entries: entries_table(entries),
            self.forget.shape: _forgettable(entries, model, shapes, forget_shape),
            self.sent: new,
        }

    def _make(
        self,
        model: str,
        padded_lengths: list[int],
        num_beams: list[int],
        max_new_tokens: list[int],
    ) -> str:
        try:
            self._page.check_model(model)
            self._backend.load(model)  # what is not loaded cannot be made ready
            shapes = survey(self._backend, model, padded_lengths, num_beams, max_new_tokens)
        except BackendError as error:
            return notice(str(error))
        keys = [s.key for s in shapes if s.key is not None and s.outcome is not CacheOutcome.HIT]
        if not keys:
            there = "All of these are in memory already." if shapes else "No shape is chosen."
            return notice(f"{there} There is nothing to make.", "calm")
        self._order.place(model, keys)
        return ""

    def _cancel(self) -> str:
        self._order.cancel()
        return notice("Cancelled. What XLA has begun it ends, and that is kept.", "calm")

    # ---- forgetting

    def _connect_forgetting(self) -> None:
        controls = self.forget
        controls.what.change(
            lambda what: gr.update(visible=what == forget_controls.ONE),
            controls.what,
            controls.shape,
            **QUIET,
        )
        # The sentence and what will be done come together: nobody confirms what was not said.
        gr.on(
            [controls.what.change, controls.shape.change],
            self._describe,
            [controls.what, controls.shape],
            [controls.sentence, controls.asked, controls.confirm],
            trigger_mode="always_last",
            **QUIET,
        )
        controls.ask.click(
            self._ask,
            [controls.what, controls.shape],
            [
                controls.sentence,
                controls.asked,
                controls.confirm,
                controls.confirmation,
                controls.notice,
            ],
            **QUIET,
        )
        controls.keep.click(lambda: gr.update(visible=False), None, controls.confirmation, **QUIET)
        controls.confirm.click(
            lambda: (
                gr.update(visible=False),
                notice("The engine ends as soon as the runs that are going on are over.", "calm"),
            ),
            None,
            [controls.confirmation, controls.notice],
            **QUIET,
        ).then(
            self._forget,
            controls.asked,
            [controls.notice, self._page.status],
            show_progress="hidden",
            api_visibility="private",
            **FOLLOWING,
            **self._page.alone,
        )

    def _describe(self, what: str, shape: str | None) -> tuple[str, Any, Any]:
        """The sentence, what "Forget now" does then, and whether it can be pressed."""
        if what == forget_controls.ONE and not shape:
            return (
                notice("Nothing is there that could be forgotten."),
                None,
                gr.update(interactive=False),
            )
        in_memory = len(self._backend.entries())
        sentence = forget_controls.confirmation(what, shape, in_memory)
        return sentence, [what, shape], gr.update(interactive=True)

    def _ask(self, what: str, shape: str | None) -> tuple[Any, ...]:
        return *self._describe(what, shape), gr.update(visible=True), ""

    def _forget(self, asked: list[Any] | None) -> tuple[str, str]:
        """Takes its turn among the runs, so that no visitor's text is cut off."""
        if asked is None:
            return "", self._status()
        what, shape = asked
        try:
            if what == forget_controls.ONE:
                self._forget_one(shape)
            else:
                self._backend.forget(disk=what == forget_controls.ALL)
        except BackendError as error:
            return notice(str(error)), self._status()
        self._order.drop()
        # What is on disk may have changed while nothing in memory did.
        self._page.times_forgotten += 1
        done = "Forgotten. The engine is starting again; a request that comes now waits for it."
        return notice(done, "calm"), self._status()

    def _forget_one(self, shape: str | None) -> None:
        if shape:
            model, key = forget_controls.parse(shape)
            self._page.check_model(model)
            self._backend.forget(model, key)

    def _status(self) -> str:
        return self._page.engine_line()


def _sizes(sizes: tuple[int, ...], chosen: list[int], **options: Any) -> gr.CheckboxGroup:
    return gr.CheckboxGroup([(str(size), size) for size in sizes], value=chosen, **options)


def _forgettable(
    entries: list[CacheEntry], model: str, shapes: list[Shape], chosen: str | None
) -> Any:
    """The drop-down with what is in memory and, of the grid, on disk."""
    known = [
        (entry.model, entry.key)
        for entry in entries
        if isinstance(entry.key, CacheKey) and entry.batch_size == 1
    ]
    known += [(model, s.key) for s in shapes if s.key and s.outcome is CacheOutcome.DISK]
    choices = forget_controls.choices(known)
    values = [value for _, value in choices]
    if chosen in values:  # and stays chosen, unless the visitor has meanwhile changed it
        return gr.update(choices=choices)
    return gr.update(choices=choices, value=values[0] if values else None)
