"""T5 and Flan-T5 (Google): encoder and decoder with relative positions and RMS norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xla_backend.checkpoints.architectures.architecture import Architecture, Shapes, affine


def _complete(config: Any, values: Mapping[str, Any]) -> None:
    """Transformers 5 marks every T5 as tied and keeps the setting's meaning under another name; a
    value that config.json leaves out has no attribute."""
    is_tied = values.get("tie_word_embeddings", True)
    config.tie_word_embeddings = values.get("scale_decoder_outputs", is_tied)
    config.decoder_start_token_id = values.get("decoder_start_token_id")


def _shapes(config: Any) -> Shapes:
    width, heads = config.d_model, config.num_heads * config.d_kv
    yield from affine("shared", config.vocab_size, width)
    for stack, layers in (("encoder", config.num_layers), ("decoder", config.num_decoder_layers)):
        attentions = ["SelfAttention"] + ["EncDecAttention"] * (stack == "decoder")
        for layer in range(layers):
            block = f"{stack}.block.{layer}.layer"
            for place, attention in enumerate(attentions):
                for name in ("q", "k", "v"):
                    yield from affine(f"{block}.{place}.{attention}.{name}", heads, width)
                yield from affine(f"{block}.{place}.{attention}.o", width, heads)
                if layer == 0 and attention == "SelfAttention":
                    yield from affine(
                        f"{block}.{place}.{attention}.relative_attention_bias",
                        config.relative_attention_num_buckets,
                        config.num_heads,
                    )
                yield from affine(f"{block}.{place}.layer_norm", width)
            dense = f"{block}.{len(attentions)}.DenseReluDense"
            for name in ("wi_0", "wi_1") if config.is_gated_act else ("wi",):
                yield from affine(f"{dense}.{name}", config.d_ff, width)
            yield from affine(f"{dense}.wo", width, config.d_ff)
            yield from affine(f"{block}.{len(attentions)}.layer_norm", width)
        yield from affine(f"{stack}.final_layer_norm", width)
    if not config.tie_word_embeddings:
        yield from affine("lm_head", config.vocab_size, width)


ARCHITECTURES = (
    Architecture(
        model_type="t5",
        name="T5",
        family="encoder-decoder",
        sizes=tuple(
            "d_model d_kv d_ff num_heads num_layers num_decoder_layers "
            "relative_attention_num_buckets vocab_size".split()
        ),
        context_setting=None,
        heads_divide_width=False,
        prefix="",
        aliases={
            "encoder.embed_tokens.weight": "shared.weight",
            "decoder.embed_tokens.weight": "shared.weight",
        },
        complete=_complete,
        tensor_shapes=_shapes,
    ),
)
