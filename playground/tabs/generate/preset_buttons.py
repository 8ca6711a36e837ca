"""The presets beside the options.

Knows the components. Must not know what a preset sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playground.tabs.generate.presets import PRESETS, first_call
from playground.ui.components import QUIET, Updates, name_buttons
from xla_backend import BackendError, GenerationOptions

if TYPE_CHECKING:
    from playground.context.page_context import PageContext
    from playground.context.request_fields import RequestFields


class PresetButtons:
    """Builds the buttons where it is created."""

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._buttons = name_buttons([preset.name for preset in PRESETS], "Presets", "presets")

    def connect(self, request: RequestFields) -> None:
        """Has each button set the options of its preset."""
        self._request = request
        outputs = [request.exact_key, *request.controls.inputs]
        self._buttons.click(self._set, {self._buttons, *request.inputs}, outputs, **QUIET)

    def _set(self, values: dict[Any, Any]) -> Updates:
        preset = PRESETS[values[self._buttons]]
        try:
            before = self._request.options(values)
        except BackendError:  # A field is empty.
            before = GenerationOptions()
        options = preset.change(before)
        if preset.exact_key:
            model, prompt = values[self._request.model], self._request.prompt(values)
            options = first_call(self._page.backend, model, prompt, options)
        return {
            self._request.exact_key: preset.exact_key,
            **self._request.of_options(self._page.limits.within(options)),
        }
