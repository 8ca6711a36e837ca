"""`SettingFields`: the components of what is set for all texts: model, system prompt, options.

Knows what their values mean. Must not know where they are on the page, nor what is asked with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from playground.context.draft import JSON, TEXT
from playground.ui.components import Field, Updates
from playground.ui.option_controls import OptionControls, options_from, values_for
from xla_backend import GenerationOptions, InvalidRequest


@dataclass(frozen=True)
class SettingFields:
    """The components.

    Attributes:
        speech_model, language: of recordings; None if no model takes any.
    """

    model: gr.Dropdown
    system: gr.Textbox
    answer_as: gr.Radio
    controls: OptionControls
    speech_model: gr.Dropdown | None
    language: gr.Dropdown | None

    @property
    def inputs(self) -> list[Field]:
        """Those of texts."""
        fixed: list[Field] = [self.model, self.system, self.answer_as]
        return [*fixed, self.controls.hold, *self.controls.inputs]

    def options(self, values: Mapping[Any, Any]) -> GenerationOptions:
        """The options.

        Raises:
            InvalidRequest: one is empty or out of range.
        """
        controls = self.controls
        return options_from(tuple(values[field] for field in controls.inputs))

    def of_options(self, options: GenerationOptions) -> Updates:
        """Updates that set the options."""
        return dict(zip(self.controls.inputs, values_for(options), strict=True))

    def options_of_text(self, values: Mapping[Any, Any], where: str) -> GenerationOptions:
        """The options, where the answer is to be written.

        Args:
            values: of the components.
            where: the mode.

        Raises:
            InvalidRequest: see `options`; or the answer is to be a choice.
        """
        if (kind := values[self.answer_as]) not in (TEXT, JSON):
            raise InvalidRequest(
                f"{where} writes texts or JSON: choose one of them in place of {kind} under "
                "“Answer as”."
            )
        return self.options(values)
