"""The page's words for each kind of text models: input, output, side of padding."""

from dataclasses import dataclass, replace
from pathlib import PurePath

from xla_backend import ModelInfo


@dataclass(frozen=True)
class Wording:
    """The page's words for models that continue a text, answer one, or chat."""

    input: str  # the name of the input, within a sentence
    inputs: str  # its plural
    input_label: str  # above the text box
    placeholder: str  # in the empty text box
    output: str  # the name of the output
    is_apart: bool  # whether the output is separate from the input, instead of continuing it
    prefill: str  # the phase until the first token
    pads_left: bool  # on which side of the input the padding lies


CONTINUING = Wording(
    input="prompt",
    inputs="prompts",
    input_label="Prompt",
    placeholder="The beginning of a text",
    output="text",
    is_apart=False,
    prefill="the prompt runs through the model",
    pads_left=True,
)
"""Decoder-only models: GPT-2, OPT, Llama and others."""

ANSWERING = Wording(
    input="input",
    inputs="inputs",
    input_label="Input text",
    placeholder="The task, a colon, and its text",
    output="answer",
    is_apart=True,
    prefill="the input runs through the encoder, then the decoder begins",
    pads_left=False,
)
"""Encoder-decoder models: T5."""

CHATTING = replace(CONTINUING, placeholder="A question or a task", output="answer", is_apart=True)
"""Instruct models, which answer messages."""

_BY_NAME = {"decoder-only": CONTINUING, "encoder-decoder": ANSWERING}
TEXT_FAMILIES = tuple(_BY_NAME)
"""The values of `ModelInfo.family` that take text."""


def wording_of(model: ModelInfo | None, is_raw: bool = False) -> Wording:
    """The words for a model; if it is unknown, those for models that continue a text.

    Args:
        model: which.
        is_raw: whether an instruct model is used without its chat template.
    """
    if model and model.is_instruct and not is_raw:
        return CHATTING
    return _BY_NAME.get(model.family, CONTINUING) if model else CONTINUING


def model_name(model: str) -> str:
    """A model's name without its folders; Hub names contain a slash."""
    path = PurePath(model)
    return path.name if path.is_absolute() else model
