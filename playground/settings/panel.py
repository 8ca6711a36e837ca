"""The panel of settings beside every mode that asks a model.

Knows the components and their order. Must not know what is asked with them.
"""

import gradio as gr
import htpy as h

from playground.context.page_context import PageContext
from playground.context.settings import SettingFields
from playground.settings.answer_as import AnswerAs
from playground.settings.examples import examples_for
from playground.settings.linked_request import LinkedRequest
from playground.settings.preset_buttons import PresetButtons
from playground.ui import components as ui
from playground.ui.option_controls import OptionControls
from xla_backend.checkpoints.models import DEFAULT_SPEECH_MODEL, PACKAGED_SPEECH_MODEL

_LANGUAGES = {
    "English": "en",
    "Arabic": "ar",
    "Chinese": "zh",
    "Dutch": "nl",
    "French": "fr",
    "German": "de",
    "Hindi": "hi",
    "Italian": "it",
    "Japanese": "ja",
    "Korean": "ko",
    "Polish": "pl",
    "Portuguese": "pt",
    "Russian": "ru",
    "Spanish": "es",
    "Turkish": "tr",
    "Ukrainian": "uk",
}
"""Language codes by name."""


_CLOSE = h.button("#settings_close", type="button")["Hide"]


class SettingsPanel:
    """Builds the panel where it is created, and sets `page.settings`."""

    def __init__(self, page: PageContext) -> None:
        models = page.models()
        first = models[0] if models else None
        ui.html(h.div(".settings-head")[h.h2["Settings"], _CLOSE])
        self.link = LinkedRequest(page)
        with gr.Column(elem_classes="of-speech"):
            speech_model, language = self._build_speech(page)
        with gr.Column(elem_classes="of-texts"):
            model = ui.model_dropdown(models, "model", is_described=True)
            system = ui.system_prompt("system")
            system.visible = first is not None and first.is_instruct
            self.presets = PresetButtons(page, self.link)
            self.answer = AnswerAs()
            controls = OptionControls(
                page.limits.within(examples_for(first)[0].options), page.limits.new_tokens
            )
        kind = self.answer.kind
        page.settings = SettingFields(model, system, kind, controls, speech_model, language)
        self.answer.connect(controls)
        controls.connect()

    def _build_speech(self, page: PageContext) -> tuple[gr.Dropdown | None, gr.Dropdown | None]:
        """The settings of recordings; the beams are those of texts."""
        models = page.speech_models()
        if not models:
            return None, None
        model = ui.model_dropdown(models, "speech_model")
        caution = h.p(".caption")[
            "Knows some 250 words of household commands, from synthetic voices as in its examples, "
            "on which it was not trained. For real speech choose ",
            h.strong[PACKAGED_SPEECH_MODEL],
            ".",
        ]
        shown = ui.html(caution, "speech_caution")
        shown.visible = models[0].name == DEFAULT_SPEECH_MODEL
        is_limited = (
            f"(model) => ({{__type__: 'update', visible: model === '{DEFAULT_SPEECH_MODEL}'}})"
        )
        model.change(None, model, shown, js=is_limited, **ui.QUIET)
        language = gr.Dropdown(
            [("Detect", ""), *_LANGUAGES.items()],
            value="",
            allow_custom_value=True,
            label="Language",
            info="Others can be typed in. Never recompiles.",
            visible=models[0].is_multilingual,
            elem_id="speech_language",
        )
        return model, language
