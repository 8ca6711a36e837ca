"""How each family of text models is spoken of: what goes in, what comes out, where padding lies.

Knows words and the order in which things are drawn. Must not know components, nor how a family
works.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath

from xla_backend import ModelInfo


@dataclass(frozen=True)
class Family:
    """How the page speaks of one family.

    Attributes:
        input: what is given to the model, in the middle of a sentence.
        inputs: the same, several of them.
        input_label: above the text box.
        placeholder: in the empty text box.
        output: what the model gives back.
        is_apart: whether it stands apart from the input, instead of continuing it.
        prefill: what happens until the first token is there.
        pads_left: on which side of the input the padding lies.
    """

    input: str
    inputs: str
    input_label: str
    placeholder: str
    output: str
    is_apart: bool
    prefill: str
    pads_left: bool


CONTINUING = Family(
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

ANSWERING = Family(
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

_ARCHITECTURES = {
    "gpt2": "GPT-2",
    "opt": "OPT",
    "t5": "T5",
    "whisper": "Whisper",
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3",
    "gemma4_text": "Gemma 4",
    "smollm3": "SmolLM3",
    "granite": "Granite",
    "ministral3": "Ministral 3",
    "phi3": "Phi",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "qwen3_moe": "Qwen3 MoE",
    "olmoe": "OLMoE",
    "granitemoe": "Granite MoE",
    "granitemoehybrid": "Granite 4",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2 MoE",
    "lfm3": "LFM3",
    "gpt_oss": "GPT-OSS",
    "qwen3_5_text": "Qwen3.5",
}


def family_of(model: ModelInfo | None, is_raw: bool = False) -> Family:
    """The words for a model; those for models that continue a text where it is not known.

    Args:
        model: which.
        is_raw: whether an instruct model is used without its chat template.
    """
    if model and model.is_instruct and not is_raw:
        return CHATTING
    return _BY_NAME.get(model.family, CONTINUING) if model else CONTINUING


def model_name(model: str) -> str:
    """A model's name without the folders that it lies in; Hub names have a slash of their own."""
    path = PurePath(model)
    return path.name if path.is_absolute() else model


def architecture(model: ModelInfo) -> str:
    """What users call the model's architecture."""
    return _ARCHITECTURES.get(model.model_type, "Other")
