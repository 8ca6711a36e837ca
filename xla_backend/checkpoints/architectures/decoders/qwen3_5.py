"""Qwen3.5 (Alibaba), text only: layers with a state by the gated delta rule, and gated attention;
with and without experts."""

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
from xla_backend.checkpoints.architectures.forms import AttentionForm, StateForm
from xla_backend.checkpoints.architectures.gguf import SHARED_EXPERT, GGUFLayout, GGUFSettings

_SIZES = tuple(
    "linear_num_value_heads linear_num_key_heads linear_key_head_dim linear_value_head_dim "
    "linear_conv_kernel_dim".split()
)
_GGUF_NAMES = SHARED_EXPERT | {
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


def _fields(config: Any) -> dict[str, Any]:
    return {"qk_norm": "head", "norm_offset": 1.0, "gates": "number"}


def _mixer(config: Any, place: int) -> AttentionForm | StateForm:
    if layer_kind(config, place) != "linear_attention":
        return attention(config, place, rotates_part=True)
    kinds = config.layer_types
    require("full_attention" in kinds, "layer_types", kinds, "have a layer of full_attention")
    # The heads of GGUF files are in another order.
    alternate = getattr(config, "linear_heads_alternate", False)
    return StateForm("delta", **state_sizes(config, _SIZES), alternate=alternate)


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
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
        model_type="qwen3_5_text",
        name="Qwen3.5",
        required={"attn_output_gate": True},
        image_models=("qwen3_5",),
        fields=_fields,
        mixer=_mixer,
        gguf=GGUFLayout(
            architecture="qwen35",
            names=_GGUF_NAMES,
            has_offset_norms=True,
            rotates_part=True,
            complete=_from_gguf,
        ),
    ),
    DecoderArchitecture(
        model_type="qwen3_5_moe_text",
        name="Qwen3.5 MoE",
        sizes=tuple(x.replace("intermediate", "moe_intermediate") for x in SIZES),
        required={"attn_output_gate": True},
        image_models=("qwen3_5_moe",),
        fields=_fields,
        mixer=_mixer,
        feed_forward=experts,
        gguf=GGUFLayout(
            architecture="qwen35moe",
            names=_GGUF_NAMES,
            has_offset_norms=True,
            rotates_part=True,
            complete=_from_gguf,
        ),
    ),
)
