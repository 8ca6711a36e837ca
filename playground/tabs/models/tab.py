"""The Models tab: what each model takes, and adding one.

Knows the components and what each event does to them. Must not know how anything looks, nor how a
model is downloaded. What is added here stands in everybody's list, and a folder's path can be asked
for, so the page can be built without this tab; then none of its events exist on the server.
"""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.tabs.models.adding import Adding
from playground.tabs.models.report import candidate_sheet, models_sheet, progress_line
from playground.ui import components as ui
from xla_backend import BackendError, ModelInfo
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.models import candidate
from xla_backend.inspection.measurement import MachineLimits


class ModelsTab:
    name = "Models"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        if page.added is not None:
            self._build_adding(page.added)
        with gr.Column(elem_classes="card"):
            ui.heading(
                "All models",
                "Sizes and times. Weights are counted once they are in memory. The last run is of "
                "the shape that was used most; engine time, without queueing.",
            )
            self.sheet = ui.html("", "models_sheet")
        self.sent = gr.State(None)
        outputs = [self.sheet, self.sent]
        if page.added is not None:
            outputs += [self.progress, self.cancel]
            self._connect_adding()
        gr.on(page.in_sight["models"].click, self._refresh, self.sent, outputs, **ui.LATEST)

    def _build_adding(self, added: AddedModels) -> None:
        self._adding = Adding(added)
        self._page.watched.append(lambda: self._adding.progress)
        with gr.Column(elem_classes="card"):
            ui.heading(
                "Add a model",
                "From the Hugging Face Hub, or a folder or GGUF file on this computer. You see "
                "what it is before anything large is downloaded, and it is remembered for the next"
                " start.",
            )
            self.name_field = gr.Textbox(
                label="Hub id or path",
                placeholder="OWNER/REPO, OWNER/REPO:Q8_0, or a folder",
                max_lines=1,
                elem_id="add_name",
            )
            with gr.Row(elem_classes="actions"):
                self.find = gr.Button("Look up", elem_id="look_up")
                self.add = gr.Button(
                    "Add", variant="primary", interactive=False, elem_id="add_model"
                )
                self.cancel = gr.Button("Cancel", interactive=False, elem_id="cancel_adding")
            self.found = ui.html("", "add_found")
            self.progress = ui.html("", "adding")
            self.candidate = gr.State(None)
            self.names = gr.State(tuple(added.read()))  # that are in the lists of the other modes

    def _connect_adding(self) -> None:
        found = [self.found, self.candidate, self.add]
        self.name_field.change(
            lambda: ("", None, gr.update(interactive=False)), None, found, **ui.QUIET
        )
        for event in (self.find.click, self.name_field.submit):
            event(
                lambda: ui.notice("Asking the Hub.", "calm"),
                None,
                self.found,
                **ui.QUIET,
            ).then(self._find, self.name_field, found, **ui.QUIET)
        self.add.click(self._add, self.candidate, [*found, self.progress, self.cancel], **ui.QUIET)
        ui.stop_by(self.cancel, self._adding.cancel, meanwhile="Cancel")

    def offer_added(self, pickers: Sequence[gr.Dropdown]) -> None:
        """Has the lists of models of the other modes follow what is added here."""
        if self._page.added is None:
            return
        added = self._page.added

        def follow(offered: tuple[str, ...]) -> list[Any]:
            names = tuple(added.read())
            lists = [self._page.models_in(str(each.elem_id)) for each in pickers]
            same = names == offered
            return [
                names,
                *(gr.skip() if same else gr.update(choices=ui.model_choices(m)) for m in lists),
            ]

        self._page.offered_is_new.click(follow, self.names, [self.names, *pickers], **ui.LATEST)

    def _refresh(self, sent: int | None) -> ui.Updates | dict[Any, Any]:
        """The list and the progress, sent only if something changed."""
        models = [*self._page.models(), *self._page.speech_models()]
        inspector = self._page.inspector
        limits = None if inspector is None else MachineLimits.read(inspector.store.root)
        sheet = models_sheet(models, self._page.backend.past(), limits)
        progress = self._adding.progress if self._page.added is not None else None
        new = hash((sheet, progress))
        if new == sent:
            return {self.sent: sent}
        updates: ui.Updates = {self.sheet: sheet, self.sent: new}
        if self._page.added is not None:
            updates[self.progress] = progress_line(progress)
            updates[self.cancel] = gr.update(interactive=self._adding.is_under_way)
        return updates

    def _find(self, name: str) -> tuple[str, ModelInfo | None, Any]:
        try:
            found = candidate(name)
        except BackendError as error:
            return ui.notice(str(error)), None, gr.update(interactive=False)
        return candidate_sheet(found), found, gr.update(interactive=True)

    def _add(self, found: ModelInfo | None) -> tuple[Any, ...]:
        problem = ""
        try:
            if found is not None:
                self._adding.start(found)
        except BackendError as error:
            problem = ui.notice(str(error))
        off, on = gr.update(interactive=False), gr.update(interactive=self._adding.is_under_way)
        return problem, None, off, progress_line(self._adding.progress), on
