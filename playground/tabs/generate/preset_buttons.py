"""The presets beside the options.

Knows the components. Must not know what a preset sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playground.tabs.generate.presets import PRESETS, first_call
from playground.ui.components import QUIET, Field, name_buttons
from playground.ui.option_controls import options_from, values_for
from xla_backend import BackendError, GenerationOptions

if TYPE_CHECKING:
    from playground.context.page_context import PageContext


class PresetButtons:
    """Builds the buttons where it is created."""

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._buttons = name_buttons([preset.name for preset in PRESETS], "Presets", "presets")

    def connect(self, request: list[Field]) -> None:
        """Connects the buttons to the fields: model, those of the prompt, exact key, options."""
        self._buttons.click(self._set, [self._buttons, *request], request[4:], **QUIET)

    def _set(
        self, index: int, model: str, text: str, system: str, is_raw: bool, _: bool, *values: Any
    ) -> list[Any]:
        preset = PRESETS[index]
        try:
            before = options_from(values)
        except BackendError:  # A field is empty.
            before = GenerationOptions()
        options = preset.change(before)
        if preset.exact_key:
            prompt = self._page.prompt(model, text, system, is_raw)
            options = first_call(self._page.backend, model, prompt, options)
        return [preset.exact_key, *values_for(self._page.limits.within(options))]
