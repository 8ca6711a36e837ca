"""Qwen2, Qwen2.5 and Qwen3 (Alibaba), with and without experts: biases of queries, keys and values,
or norms of queries and keys."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, experts
from xla_backend.checkpoints.architectures.forms import FeedForwardForm, GatedForm
from xla_backend.checkpoints.architectures.gguf import SHARED_EXPERT, GGUFLayout


def _experts(config: Any, place: int) -> FeedForwardForm:
    dense = config.mlp_only_layers or ()
    if place in dense or (place + 1) % config.decoder_sparse_step:
        return GatedForm(config.intermediate_size)
    return experts(config, place)


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="qwen2",
        name="Qwen2",
        fields=lambda config: {"qkv_bias": True, "out_bias": False},
        gguf=GGUFLayout(architecture="qwen2"),
    ),
    DecoderArchitecture(
        model_type="qwen2_moe",
        name="Qwen2 MoE",
        fields=lambda config: {"qkv_bias": config.qkv_bias, "out_bias": False},
        feed_forward=_experts,
        gguf=GGUFLayout(architecture="qwen2moe", names=SHARED_EXPERT),
    ),
    DecoderArchitecture(
        model_type="qwen3",
        name="Qwen3",
        fields=lambda config: {"qk_norm": "head"},
        gguf=GGUFLayout(architecture="qwen3"),
    ),
    DecoderArchitecture(
        model_type="qwen3_moe",
        name="Qwen3 MoE",
        fields=lambda config: {"qk_norm": "head"},
        feed_forward=_experts,
        gguf=GGUFLayout(
            architecture="qwen3moe",
            complete=lambda settings, values: values.update(norm_topk_prob=True),  # in no file
        ),
    ),
)
