"""The words for each family of text models: its input, its output, its side of padding.

Knows words and the order of drawing. Must not know components, nor how a family works.
"""

from dataclasses import dataclass, replace
from pathlib import PurePath

from xla_backend import ModelInfo


@dataclass(frozen=True)
class Family:
    """The page's words for a family."""

    input: str  # the name of the input, within a sentence
    inputs: str  # its plural
    input_label: str  # above the text box
    placeholder: str  # in the empty text box
    output: str  # the name of the output
    is_apart: bool  # whether the output is separate from the input, instead of continuing it
    prefill: str  # the phase until the first token
    pads_left: bool  # on which side of the input the padding lies


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
    "qwen2_moe": "Qwen2 MoE",
    "qwen3_moe": "Qwen3 MoE",
    "olmoe": "OLMoE",
    "granitemoe": "Granite MoE",
    "granitemoeshared": "Granite MoE",
    "granitemoehybrid": "Granite 4",
    "falcon_h1": "Falcon-H1",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2 MoE",
    "lfm3": "LFM3",
    "gpt_oss": "GPT-OSS",
    "qwen3_5_text": "Qwen3.5",
    "qwen3_5_moe_text": "Qwen3.5 MoE",
}


def family_of(model: ModelInfo | None, is_raw: bool = False) -> Family:
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


def architecture(model: ModelInfo) -> str:
    """The display name of the model's architecture."""
    return _ARCHITECTURES.get(model.model_type, "Other")
