"""Qwen2 to Qwen3.5 (Alibaba), text only, with and without experts: biases of queries, keys and
values, or norms of queries and keys; Qwen3.5 has layers with a state by the gated delta rule, and
gated attention."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import (
    SIZES,
    DecoderArchitecture,
    attention,
    experts,
    layer_kind,
    require,
    state_sizes,
)
from xla_backend.checkpoints.architectures.forms import (
    AttentionForm,
    FeedForwardForm,
    GatedForm,
    StateForm,
)
from xla_backend.checkpoints.architectures.gguf import SHARED_EXPERT, GGUFLayout, GGUFSettings

_STATE_SIZES = tuple(
    "linear_num_value_heads linear_num_key_heads linear_key_head_dim linear_value_head_dim "
    "linear_conv_kernel_dim".split()
)
_STATE_NAMES = SHARED_EXPERT | {
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm.weight",
    "ssm_out": "linear_attn.out_proj",
    "ssm_dt": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
}


def _experts(config: Any, place: int) -> FeedForwardForm:
    dense = config.mlp_only_layers or ()
    if place in dense or (place + 1) % config.decoder_sparse_step:
        return GatedForm(config.intermediate_size)
    return experts(config, place)


def _with_states(config: Any) -> dict[str, Any]:
    return {"qk_norm": "head", "norm_offset": 1.0, "gates": "number"}


def _state(config: Any, place: int) -> AttentionForm | StateForm:
    if layer_kind(config, place) != "linear_attention":
        return attention(config, place, rotates_part=True)
    kinds = config.layer_types
    require("full_attention" in kinds, "layer_types", kinds, "have a layer of full_attention")
    # The heads of GGUF files are in another order.
    alternate = getattr(config, "linear_heads_alternate", False)
    return StateForm("delta", **state_sizes(config, _STATE_SIZES), alternate=alternate)


def _states_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    heads = settings.size("ssm.time_step_rank")
    values |= {
        # Further layers guess drafts.
        "num_hidden_layers": settings.layers - settings.value("nextn_predict_layers", int, 0),
        "layer_types": settings.layer_types("linear_attention", "ssm_a"),
        "linear_conv_kernel_dim": settings.size("ssm.conv_kernel"),
        "linear_key_head_dim": settings.size("ssm.state_size"),
        "linear_num_key_heads": settings.size("ssm.group_count"),
        "linear_num_value_heads": heads,
        "linear_value_head_dim": settings.size("ssm.inner_size") // heads,
        "linear_heads_alternate": True,
    }
    values["layer_types"] = values["layer_types"][: values["num_hidden_layers"]]


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
    DecoderArchitecture(
        model_type="qwen3_5_text",
        name="Qwen3.5",
        required={"attn_output_gate": True},
        image_models=("qwen3_5",),
        fields=_with_states,
        mixer=_state,
        gguf=GGUFLayout(
            architecture="qwen35",
            names=_STATE_NAMES,
            has_offset_norms=True,
            rotates_part=True,
            complete=_states_from_gguf,
        ),
    ),
    DecoderArchitecture(
        model_type="qwen3_5_moe_text",
        name="Qwen3.5 MoE",
        sizes=tuple(x.replace("intermediate", "moe_intermediate") for x in SIZES),
        required={"attn_output_gate": True},
        image_models=("qwen3_5_moe",),
        fields=_with_states,
        mixer=_state,
        feed_forward=experts,
        gguf=GGUFLayout(
            architecture="qwen35moe",
            names=_STATE_NAMES,
            has_offset_norms=True,
            rotates_part=True,
            complete=_states_from_gguf,
        ),
    ),
)
