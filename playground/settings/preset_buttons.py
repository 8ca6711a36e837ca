"""The presets beside the options: the page's own, and those that a visitor keeps in the browser.

Knows the components. Must not know what a preset sets. A visitor's presets
lie in the browser, as a link has them: `ui/assets/request.js` reads and writes them.
"""

import json
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.settings.linked_request import LinkedRequest
from playground.settings.presets import FIRST_CALL, PRESETS, first_call
from playground.ui import components as ui
from xla_backend import BackendError

MAX_NAME = 60


class PresetButtons:
    def __init__(self, page: PageContext, link: LinkedRequest) -> None:
        self._page, self._link = page, link
        self._buttons = ui.name_buttons([*PRESETS], "Presets", "presets")
        with gr.Accordion("Save as a preset", open=False, elem_id="preset_saving"):
            self._name = gr.Textbox(
                label="Name",
                info="Model, prompt, messages, options and form of the answer, kept in this "
                "browser.",
                max_lines=1,
                max_length=MAX_NAME,
                elem_id="preset_name",
            )
            with gr.Row(elem_classes="chat-actions"):
                self._save = ui.small_button("Save", "preset_save")
                self._delete = ui.small_button("Delete", "preset_delete")
        self.notice = ui.html("", "preset_notice")
        self._chosen = gr.Textbox(visible=False)
        arrived = gr.Button(visible="hidden", elem_id="presets_are_new")
        own = json.dumps([*PRESETS])
        gr.on(
            [page.load, arrived.click],
            None,
            None,
            self._buttons,
            js=f"() => presetButtons({own})",
            **ui.QUIET,
        )

    def connect(self, request: RequestFields) -> None:
        """Has each button do what it says."""
        self._request = request
        inputs = sorted([self._buttons, self._chosen, *request.inputs], key=lambda each: each._id)
        places = [inputs.index(each) for each in (self._buttons, self._chosen)]
        self._buttons.click(
            self._set,
            {*inputs},
            [self.notice, self._name, *request.outputs],
            js=f"(...values) => choosePreset(values, {places})",
            **ui.QUIET,
        )
        ends = [self.notice, self._buttons]
        settings = [*request.settings.values()]
        self._save.click(
            None,
            [self._name, request.controls.hold, *settings],
            ends,
            js="savePreset",
            **ui.QUIET,
        )
        self._delete.click(None, self._name, ends, js="deletePreset", **ui.QUIET)

    def _set(self, values: dict[Any, Any]) -> ui.Updates:
        if values[self._chosen]:
            return self._set_stored(json.loads(values[self._chosen]))
        name, preset = [*PRESETS.items()][values[self._buttons]]
        settings = self._request.settings
        chosen: ui.Updates = {settings[option]: value for option, value in preset.items()}
        chosen[self.notice] = ""
        try:
            options = self._request.options({**values, **chosen})
        except BackendError:  # A field is empty, or another option forbids the preset's.
            return chosen
        if name == FIRST_CALL:
            prompt = self._request.prompt(values)
            options = first_call(self._page.backend, values[settings["model"]], prompt, options)
        return {**chosen, **self._page.settings.of_options(self._page.limits.within(options))}

    def _set_stored(self, preset: dict[str, Any]) -> ui.Updates:
        name = preset.pop("name")
        draft = self._link.read(preset)
        return {
            self.notice: ui.notice(draft.problem("preset")),
            self._name: name,
            **self._link.whole(draft),
        }
