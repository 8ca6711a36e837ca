"""Phi-3, Phi-3.5 and Phi-4-mini (Microsoft): fused projections, heads of which a part is rotated,
and LongRoPE."""

from __future__ import annotations

import functools
from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, attention
from xla_backend.checkpoints.architectures.gguf import GGUFLayout, GGUFSettings


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    values["sliding_window"] = settings.value("attention.sliding_window", int, 0) or None
    if original := settings.optional("rope.scaling.original_context_length", int):
        values["original_max_position_embeddings"] = original


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="phi3",
        name="Phi",
        mixer=functools.partial(attention, rotates_part=True),
        gguf=GGUFLayout(
            architecture="phi3",
            names={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
            rotates_part=True,
            plain_tokens=("<unk>", "<s>", "<|endoftext|>"),
            complete=_from_gguf,
        ),
    ),
)
