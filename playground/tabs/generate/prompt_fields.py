"""The fields of a prompt: its text and, for an instruct model, the system prompt and the template.

Knows the components, and what each family calls its input. Must not know what they start.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from playground.ui.components import system_prompt
from playground.ui.families import family_of
from xla_backend import ModelInfo


class PromptFields:
    """Builds the fields where it is created.

    Attributes:
        text: the text to continue or to answer.
        system: how the model is to answer.
        is_raw: whether the text is continued as it stands, without the chat template.
    """

    def __init__(self, model: ModelInfo | None, text: str) -> None:
        family = family_of(model)
        self.text = gr.Textbox(
            value=text,
            label=family.input_label,
            lines=3,
            max_lines=12,
            placeholder=family.placeholder,
            elem_id="prompt",
        )
        is_instruct = model is not None and model.is_instruct
        with gr.Column(visible=is_instruct, elem_classes="instruct") as self.of_instruct:
            self.system = system_prompt("system")
            self.is_raw = gr.Checkbox(
                label="Raw prompt: no chat template, the model continues the text",
                elem_id="raw_prompt",
                container=False,
            )

    def of_model(self, model: ModelInfo) -> dict[gr.blocks.Block, dict[str, Any]]:
        """The fields as they are for another model. What the visitor wrote stays."""
        family = family_of(model)
        return {
            self.text: gr.update(label=family.input_label, placeholder=family.placeholder),
            self.of_instruct: gr.update(visible=model.is_instruct),
        }
