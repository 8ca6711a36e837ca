"""Gemma 1, 2 and 3 (Google), text only: norms whose stored scales are less by one; Gemma 2 and 3
have windows in some layers, soft caps and norms of outputs."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture
from xla_backend.checkpoints.architectures.gguf import POST_NORMS, GGUFLayout, GGUFSettings

_LARGEST = {("gemma2", 46), ("gemma3", 62)}
"""Architecture and layers of the two models of 27 billion weights."""


def _gemma(config: Any) -> dict[str, Any]:
    return {"norm_offset": 1.0, "embedding_scale": config.hidden_size**0.5}


def _post_norms(config: Any) -> dict[str, Any]:
    return _gemma(config) | {
        "activation": config.hidden_activation,
        "has_post_norms": True,
        "score_scale": config.query_pre_attn_scalar**-0.5,
        "logit_cap": config.final_logit_softcapping,
    }


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    is_largest = (settings.architecture, settings.layers) in _LARGEST
    values |= settings.windows(2 if settings.architecture == "gemma2" else 6) | {
        "attn_logit_softcapping": settings.optional("attn_logit_softcapping", float),
        "final_logit_softcapping": settings.optional("final_logit_softcapping", float),
        # Not in the file. The two largest models are the exceptions.
        "query_pre_attn_scalar": (
            settings.width // settings.heads if is_largest else settings.head_size
        ),
    }


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="gemma",
        name="Gemma",
        required={"use_bidirectional_attention": None},
        fields=_gemma,
        gguf=GGUFLayout(architecture="gemma", has_offset_norms=True),
    ),
    DecoderArchitecture(
        model_type="gemma2",
        name="Gemma 2",
        required={"use_bidirectional_attention": None},
        fields=lambda config: _post_norms(config) | {"score_cap": config.attn_logit_softcapping},
        gguf=GGUFLayout(
            architecture="gemma2", names=POST_NORMS, has_offset_norms=True, complete=_from_gguf
        ),
    ),
    DecoderArchitecture(
        model_type="gemma3_text",
        name="Gemma 3",
        required={"use_bidirectional_attention": False, "attn_logit_softcapping": None},
        image_models=("gemma3",),
        fields=lambda config: _post_norms(config) | {"qk_norm": "head"},
        gguf=GGUFLayout(
            architecture="gemma3",
            names=POST_NORMS,
            has_offset_norms=True,
            local_theta=10_000.0,
            complete=_from_gguf,
        ),
    ),
)
