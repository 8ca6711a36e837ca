"""LFM2, LFM2.5 and LFM3 (Liquid AI): layers with a short convolution in place of attention; LFM2
also with routed experts, chosen by sigmoids; LFM3 has windows, a gate for each head, and norms of
outputs."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import (
    DecoderArchitecture,
    attention,
    experts,
    layer_kind,
    require,
)
from xla_backend.checkpoints.architectures.forms import (
    AttentionForm,
    ConvolutionForm,
    FeedForwardForm,
    GatedForm,
)
from xla_backend.checkpoints.architectures.gguf import GGUFLayout, GGUFSettings

_NAMES = {
    "feed_forward": "mlp",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "operator_norm": "input_layernorm",
    "embedding_norm": "norm",
}
_LFM2_NAMES = _NAMES | {
    "ffn_norm": "post_attention_layernorm",
    "q_layernorm": "q_norm",
    "k_layernorm": "k_norm",
    "self_attn.out_proj": "self_attn.o_proj",
    "feed_forward.expert_bias": "mlp.expert_bias.bias",
}
_LFM3_NAMES = _NAMES | {
    "post_operator_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffn_norm": "post_feedforward_layernorm",
    "self_attn.gate_proj": "self_attn.g_proj",  # in the first files
}
_GGUF_NAMES = {f"shortconv.{x}": f"conv.{x}" for x in ("conv", "in_proj", "out_proj")}
_NORMED_HEADS = {"qk_norm": "head"}


def _lfm3(config: Any) -> dict[str, Any]:
    gates = "head" if config.use_attention_gate else None
    return _NORMED_HEADS | {"has_post_norms": True, "gates": gates}


def _mixer(config: Any, place: int) -> AttentionForm | ConvolutionForm:
    if layer_kind(config, place) != "conv":
        return attention(config, place)
    require(config.conv_L_cache > 1, "conv_L_cache", config.conv_L_cache, "be 2 or more")
    return ConvolutionForm(config.conv_L_cache, config.conv_bias)


def _gated(config: Any, place: int) -> GatedForm:
    inner = config.intermediate_size
    if config.block_auto_adjust_ff_dim:
        inner = int(2 * inner / 3)
        if config.block_ffn_dim_multiplier is not None:
            step = config.block_multiple_of
            inner = -(-int(config.block_ffn_dim_multiplier * inner) // step) * step
    return GatedForm(inner)


def _experts(config: Any, place: int) -> FeedForwardForm:
    if place < config.num_dense_layers:
        return GatedForm(config.intermediate_size)
    scale, favours = config.routed_scaling_factor, config.use_expert_bias
    return experts(config, place, sigmoid_scale=scale, favours=favours)


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    values |= {
        "norm_eps": values.pop("rms_norm_eps"),
        "block_auto_adjust_ff_dim": False,  # the file has the width that comes of it
        "conv_L_cache": settings.size("shortconv.l_cache"),
        "conv_bias": "blk.0.shortconv.in_proj.bias" in settings.tensors,
        "layer_types": settings.layer_types("conv", "shortconv.conv.weight"),
    }


def _moe_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    _from_gguf(settings, values)
    values |= {
        "num_dense_layers": settings.value("leading_dense_block_count", int, 0),
        "routed_scaling_factor": settings.value("expert_weights_scale", float, 1.0) or 1.0,
        "use_expert_bias": any("exp_probs_b" in name for name in settings.tensors),
    }


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="lfm2",
        name="LFM2",
        image_models=("lfm2_vl",),
        fields=lambda config: _NORMED_HEADS,
        mixer=_mixer,
        feed_forward=_gated,
        names=lambda config: _LFM2_NAMES,
        gguf=GGUFLayout(architecture="lfm2", names=_GGUF_NAMES, complete=_from_gguf),
    ),
    DecoderArchitecture(
        model_type="lfm2_moe",
        name="LFM2 MoE",
        fields=lambda config: _NORMED_HEADS,
        mixer=_mixer,
        feed_forward=_experts,
        names=lambda config: _LFM2_NAMES,
        gguf=GGUFLayout(architecture="lfm2moe", names=_GGUF_NAMES, complete=_moe_from_gguf),
    ),
    DecoderArchitecture(
        model_type="lfm3",
        name="LFM3",
        required={"use_sandwich_norm": True},
        image_models=("lfm3_vl",),
        fields=_lfm3,
        mixer=_mixer,
        names=lambda config: _LFM3_NAMES,
    ),
)
