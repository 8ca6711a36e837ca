"""Gemma 4 (Google) E2B and E4B, text only: embeddings of each token for each layer, layers that
attend to keys and values of others, heads of two sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, attention
from xla_backend.checkpoints.architectures.forms import AttentionForm, GatedForm
from xla_backend.checkpoints.architectures.gguf import POST_NORMS, GGUFLayout, GGUFSettings
from xla_backend.interface.errors import ModelUnavailable


def _fields(config: Any) -> dict[str, Any]:
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


def _mixer(config: Any, place: int) -> AttentionForm:
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


def _feed_forward(config: Any, place: int) -> GatedForm:
    shares = config.kv_sharing_modes[place] == "reuse"
    return GatedForm(config.intermediate_size * (2 if shares and config.use_double_wide_mlp else 1))


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
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
        model_type="gemma4_text",
        name="Gemma 4",
        required={"attention_k_eq_v": False, "enable_moe_block": False},
        image_models=("gemma4",),
        fields=_fields,
        mixer=_mixer,
        feed_forward=_feed_forward,
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
            complete=_from_gguf,
        ),
    ),
)
