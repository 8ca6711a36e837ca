"""Llama 2 and 3 (Meta) and what is built like them: SmolLM2 and TinyLlama have its `model_type`;
Mistral 7B has a window in every layer; Ministral 3's queries grow with the position; SmolLM3 has
layers without positions."""

from __future__ import annotations

import functools
from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, attention
from xla_backend.checkpoints.architectures.forms import AttentionForm
from xla_backend.checkpoints.architectures.gguf import GGUFLayout


def _smollm3(config: Any, place: int) -> AttentionForm:
    return attention(config, place, is_rotated=bool(config.no_rope_layers[place]))


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="llama",
        name="Llama",
        required={"pretraining_tp": 1},
        image_models=("idefics3", "internvl", "llava", "llava_next", "smolvlm"),
        gguf=GGUFLayout(architecture="llama", is_permuted=True),
    ),
    DecoderArchitecture(model_type="mistral", name="Mistral"),
    DecoderArchitecture(
        model_type="ministral3",
        name="Ministral 3",
        image_models=("mistral3",),
        mixer=functools.partial(attention, grows_queries=True),
        gguf=GGUFLayout(architecture="mistral3", is_permuted=True),
    ),
    DecoderArchitecture(
        model_type="smollm3",
        name="SmolLM3",
        mixer=_smollm3,
        gguf=GGUFLayout(architecture="smollm3", is_permuted=True),
    ),
)
