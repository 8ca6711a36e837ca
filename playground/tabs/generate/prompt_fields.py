"""The fields of a prompt: its text, its variables and, for an instruct model, the other messages.

Knows the components, and what the input of each kind of model is called.
`ui/assets/request.js` draws the two editors.
"""

from typing import Any

import gradio as gr

from playground.context.draft import VARIABLE
from playground.ui.components import QUIET, Field
from playground.ui.wording import wording_of
from xla_backend import ModelInfo


class PromptFields:
    """Builds the fields where it is created.

    Attributes:
        text: the text to continue or to answer.
        variables: values of `{{name}}` in the texts, as JSON.
        messages: those before the text, as JSON.
        begins_with: the beginning of the answer.
        is_raw: whether the text is continued as it stands, without the chat template.
    """

    def __init__(self, model: ModelInfo | None, text: str) -> None:
        wording = wording_of(model)
        self.text = gr.Textbox(
            value=text,
            label=wording.input_label,
            lines=3,
            max_lines=12,
            placeholder=wording.placeholder,
            elem_id="prompt",
        )
        self.variables = _editor("variables", "editVariables")
        is_instruct = model is not None and model.is_instruct
        with gr.Column(visible=is_instruct, elem_classes="instruct") as self.of_instruct:
            self.messages = _editor("messages", "editMessages")
            self.answer_start = gr.Textbox(
                label="The answer begins with",
                lines=1,
                max_lines=4,
                placeholder="The model goes on from here",
                elem_id="begins_with",
            )
            self.is_raw = gr.Checkbox(
                label="Raw prompt: no chat template, the model continues the text",
                elem_id="raw_prompt",
                container=False,
            )

    def connect(self, system: gr.Textbox) -> None:
        """Has a field for each variable of the texts; in the browser alone."""
        texts: list[Field] = [self.text, system, self.messages, self.answer_start]
        find = f"(...texts) => showVariables(texts, /{VARIABLE.pattern}/g)"
        gr.on([text.change for text in texts], None, texts, None, js=find, **QUIET)

    def of_model(self, model: ModelInfo) -> dict[gr.blocks.Block, dict[str, Any]]:
        """The fields as they are for another model. What the visitor wrote stays."""
        wording = wording_of(model)
        return {
            self.text: gr.update(label=wording.input_label, placeholder=wording.placeholder),
            self.of_instruct: gr.update(visible=model.is_instruct),
        }


def _editor(elem_id: str, script: str) -> gr.HTML:
    """A component whose value is what a script of the page has edited."""
    return gr.HTML(
        "",
        html_template="<div></div>",
        elem_id=elem_id,
        apply_default_css=False,
        js_on_load=f"{script}(element.firstElementChild, props, watch, () => trigger('change'))",
    )
