"""Gemma 1 to 4 (Google), text only: norms whose stored scales are less by one, up to Gemma 3;
windows in some layers, soft caps and norms of outputs from Gemma 2 on. Gemma 4 (E2B, E4B) has
embeddings of each token for each layer, layers that attend to keys and values of others, and heads
of two sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, attention
from xla_backend.checkpoints.architectures.forms import AttentionForm, GatedForm
from xla_backend.checkpoints.architectures.gguf import POST_NORMS, GGUFLayout, GGUFSettings
from xla_backend.interface.errors import ModelUnavailable

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


def _gemma4(config: Any) -> dict[str, Any]:
    if config.use_bidirectional_attention == "all":
        raise ModelUnavailable(
            "the model's config.json sets use_bidirectional_attention to all, and only causal "
            "attention is supported."
        )
    return {
        "activation": config.hidden_activation,
        "has_post_norms": True,
        "qk_norm": "head",
        "normalizes_values": True,
        "score_scale": 1.0,
        "logit_cap": config.final_logit_softcapping,
        "embedding_scale": config.hidden_size**0.5,
        "layer_inputs": config.hidden_size_per_layer_input or 0,
        "layer_tokens": config.vocab_size_per_layer_input,
    }


def _gemma4_mixer(config: Any, place: int) -> AttentionForm:
    kind = config.layer_types[place]
    own = attention(config.per_layer_config[place], place, kind=kind)
    if config.kv_sharing_modes[place] != "reuse":
        return own
    source = max(
        number
        for number, mode in enumerate(config.kv_sharing_modes)
        if mode == "store" and config.layer_types[number] == kind
    )
    return replace(own, source=source)


def _gemma4_feed_forward(config: Any, place: int) -> GatedForm:
    shares = config.kv_sharing_modes[place] == "reuse"
    return GatedForm(config.intermediate_size * (2 if shares and config.use_double_wide_mlp else 1))


def _gemma4_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    widths = settings.numbers("feed_forward_length")
    values |= settings.windows(6) | {
        "head_dim": settings.size("attention.key_length_swa", settings.head_size),
        "global_head_dim": settings.head_size,
        "num_kv_shared_layers": settings.value("attention.shared_kv_layers", int, 0),
        "use_double_wide_mlp": len({*widths}) > 1,
        "hidden_size_per_layer_input": settings.value("embedding_length_per_layer_input", int, 0),
        "vocab_size_per_layer_input": values["vocab_size"],
        "final_logit_softcapping": settings.optional("final_logit_softcapping", float),
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
    DecoderArchitecture(
        model_type="gemma4_text",
        name="Gemma 4",
        required={"attention_k_eq_v": False, "enable_moe_block": False},
        image_models=("gemma4",),
        fields=_gemma4,
        mixer=_gemma4_mixer,
        feed_forward=_gemma4_feed_forward,
        names=lambda config: {"layer_scalar": "layer_scale.weight"},
        gguf=GGUFLayout(
            architecture="gemma4",
            names=POST_NORMS
            | {
                "inp_gate": "per_layer_input_gate",
                "proj": "per_layer_projection",
                "post_norm": "post_per_layer_input_norm",
                "layer_output_scale": "layer_scale",
            },
            rotates_first_pairs=True,
            local_theta=10_000.0,
            complete=_gemma4_from_gguf,
        ),
    ),
)
