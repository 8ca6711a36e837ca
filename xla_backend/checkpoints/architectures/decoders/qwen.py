"""Qwen2, Qwen2.5 and Qwen3 (Alibaba), with and without experts: biases of queries, keys and values,
or norms of queries and keys."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import (
    DecoderArchitecture,
    attention_biases,
    experts,
)
from xla_backend.checkpoints.architectures.forms import ExpertsForm, GatedForm
from xla_backend.checkpoints.architectures.gguf import SHARED_EXPERT, GGUFLayout, GGUFSettings


def qwen3(config: Any) -> dict[str, Any]:
    """The fields of Qwen3, and of those that come from it."""
    return attention_biases(config) | {"qk_norm": "head"}


def _experts(config: Any, place: int) -> GatedForm | ExpertsForm:
    dense = config.mlp_only_layers or ()
    if place in dense or (place + 1) % config.decoder_sparse_step:
        return GatedForm(config.intermediate_size)
    shared = getattr(config, "shared_expert_intermediate_size", 0)
    return experts(
        config,
        config.moe_intermediate_size,
        config.norm_topk_prob,
        shared=shared,
        gates_shared=shared > 0,
    )


def _qwen2_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    del values["attention_bias"]  # queries, keys and values always have biases


def _qwen2_moe_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    if settings.experts(values, own_width=True, sums_to_one=False):
        values["num_experts"] = values.pop("num_local_experts")
        values["shared_expert_intermediate_size"] = settings.shared_expert()


def _qwen3_moe_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    settings.experts(values, own_width=True, sums_to_one=True)


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="qwen2",
        name="Qwen2",
        fields=lambda config: {"qkv_bias": True},
        gguf=GGUFLayout(architecture="qwen2", complete=_qwen2_from_gguf),
    ),
    DecoderArchitecture(
        model_type="qwen2_moe",
        name="Qwen2 MoE",
        fields=lambda config: {"qkv_bias": config.qkv_bias},
        feed_forward=_experts,
        gguf=GGUFLayout(
            architecture="qwen2moe", names=SHARED_EXPERT, complete=_qwen2_moe_from_gguf
        ),
    ),
    DecoderArchitecture(
        model_type="qwen3", name="Qwen3", fields=qwen3, gguf=GGUFLayout(architecture="qwen3")
    ),
    DecoderArchitecture(
        model_type="qwen3_moe",
        name="Qwen3 MoE",
        fields=qwen3,
        feed_forward=_experts,
        gguf=GGUFLayout(architecture="qwen3moe", has_widths=False, complete=_qwen3_moe_from_gguf),
    ),
)
