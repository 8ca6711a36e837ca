"""Granite 3 and 4 (IBM): four multipliers; routed and shared experts; Granite 4 has layers without
positions, or with a state (Mamba-2)."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import (
    DecoderArchitecture,
    attention,
    experts,
    layer_kind,
    mamba,
    require,
)
from xla_backend.checkpoints.architectures.forms import AttentionForm, StateForm
from xla_backend.checkpoints.architectures.gguf import (
    MAMBA,
    SHARED_EXPERT,
    GGUFLayout,
    GGUFSettings,
)


def _fields(config: Any) -> dict[str, Any]:
    return {
        "score_scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": 1.0 / config.logits_scaling,
    }


def _hybrid(config: Any, place: int) -> AttentionForm | StateForm:
    if layer_kind(config, place) != "linear_attention":
        return attention(config, place, is_rotated=config.position_embedding_type == "rope")
    kinds = config.layer_types
    require("full_attention" in kinds, "layer_types", kinds, "have a layer of full_attention")
    return mamba(config)


def _names(config: Any) -> dict[str, str]:
    shared = "mlp.shared_expert" if config.num_local_experts else "mlp"
    return {
        "block_sparse_moe.router.layer": "mlp.gate",
        "block_sparse_moe.input_linear": "mlp.experts.gate_up_proj",
        "block_sparse_moe.output_linear": "mlp.experts.down_proj",
        "shared_mlp.input_linear": f"{shared}.gate_up_proj",
        "shared_mlp.output_linear": f"{shared}.down_proj",
    }


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    values |= {
        "embedding_multiplier": settings.value("embedding_scale", float, 1.0),
        "residual_multiplier": settings.value("residual_scale", float, 1.0),
        "attention_multiplier": settings.value("attention.scale", float, settings.head_size**-0.5),
        "logits_scaling": settings.value("logit_scale", float, 1.0),
    }


def _hybrid_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    has_positions = settings.value("rope.scaling.finetuned", bool, True)
    if "num_local_experts" not in values:
        values |= {
            "num_local_experts": 0,
            "shared_intermediate_size": values["intermediate_size"],
        }
    values |= settings.mamba() | {
        "attention_bias": settings.has("attn_q.bias"),
        "layer_types": settings.layer_types("linear_attention", "ssm_a"),
        "mamba_expand": settings.size("ssm.inner_size") // settings.width,
        "position_embedding_type": "rope" if has_positions else "nope",
    }
    _from_gguf(settings, values)


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="granite",
        name="Granite",
        fields=_fields,
        gguf=GGUFLayout(architecture="granite", is_permuted=True, complete=_from_gguf),
    ),
    DecoderArchitecture(
        model_type="granitemoe",
        name="Granite MoE",
        fields=_fields,
        feed_forward=experts,
        names=_names,
        gguf=GGUFLayout(
            architecture="granitemoe", names=SHARED_EXPERT, is_permuted=True, complete=_from_gguf
        ),
    ),
    DecoderArchitecture(
        model_type="granitemoeshared",
        name="Granite MoE",
        fields=_fields,
        feed_forward=experts,
        names=_names,
    ),
    DecoderArchitecture(
        model_type="granitemoehybrid",
        name="Granite 4",
        required={"time_step_limit": (0.0, float("inf"))},
        fields=_fields,
        mixer=_hybrid,
        feed_forward=experts,
        names=_names,
        gguf=GGUFLayout(
            architecture="granitehybrid",
            names=SHARED_EXPERT | MAMBA,
            is_permuted=True,
            complete=_hybrid_from_gguf,
        ),
    ),
)
