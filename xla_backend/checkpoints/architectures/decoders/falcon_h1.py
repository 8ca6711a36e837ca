"""Falcon-H1 (TII): attention and a state (Mamba-2) of the same input in each layer, multipliers."""

from __future__ import annotations

from typing import Any, Literal

from xla_backend.checkpoints.architectures.decoder import (
    DecoderArchitecture,
    attention,
    head_size,
    mamba,
)
from xla_backend.checkpoints.architectures.forms import ParallelForm
from xla_backend.checkpoints.architectures.gguf import MAMBA, GGUFLayout, GGUFSettings


def _fields(config: Any) -> dict[str, Any]:
    scores = config.attention_in_multiplier**2 * config.key_multiplier
    return {
        "score_scale": head_size(config) ** -0.5 * scores,
        "embedding_scale": config.embedding_multiplier,
        "logit_scale": config.lm_head_multiplier,
        "activation_scales": tuple(config.mlp_multipliers),
    }


def _mixer(config: Any, place: int) -> ParallelForm:
    norm: Literal["before", "after", None] = None
    if config.mamba_rms_norm:
        norm = "before" if config.mamba_norm_before_gate else "after"
    scales = tuple(config.ssm_in_multiplier * x for x in config.ssm_multipliers)
    return ParallelForm(
        attention(config, place, kind="full_attention"),
        mamba(config, norm=norm, scales=scales),
        (
            config.attention_in_multiplier * config.attention_out_multiplier,
            config.ssm_out_multiplier,
        ),
    )


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    values |= settings.mamba() | {  # all factors are in the weights
        "mamba_d_ssm": settings.size("ssm.inner_size"),
        "mamba_norm_before_gate": False,
        "mamba_rms_norm": "blk.0.ssm_norm.weight" in settings.tensors,
    }


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="falcon_h1",
        name="Falcon-H1",
        required={
            "attention_bias": False,
            "mlp_bias": False,
            "mamba_proj_bias": False,
            "projectors_bias": False,
            "time_step_limit": (0.0, float("inf")),
        },
        fields=_fields,
        mixer=_mixer,
        names=lambda config: {
            "feed_forward": "mlp",
            "pre_ff_layernorm": "post_attention_layernorm",
            "final_layernorm": "norm",
        },
        gguf=GGUFLayout(architecture="falcon-h1", names=MAMBA, complete=_from_gguf),
    ),
)
