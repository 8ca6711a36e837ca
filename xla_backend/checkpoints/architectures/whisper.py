"""Whisper (OpenAI): an encoder of spectrograms with a decoder of text; see arXiv:2212.04356."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.architecture import Architecture, Shapes, affine


def _shapes(config: Any) -> Shapes:
    width = config.d_model
    yield from affine("model.encoder.conv1", width, config.num_mel_bins, 3, bias=width)
    yield from affine("model.encoder.conv2", width, width, 3, bias=width)
    yield from affine("model.encoder.embed_positions", config.max_source_positions, width)
    yield from affine("model.decoder.embed_tokens", config.vocab_size, width)
    yield from affine("model.decoder.embed_positions", config.max_target_positions, width)
    for stack, layers, inner in (
        ("encoder", config.encoder_layers, config.encoder_ffn_dim),
        ("decoder", config.decoder_layers, config.decoder_ffn_dim),
    ):
        for layer in range(layers):
            block = f"model.{stack}.layers.{layer}"
            for attention in ["self_attn"] + ["encoder_attn"] * (stack == "decoder"):
                yield from affine(f"{block}.{attention}.k_proj", width, width)
                for name in ("v_proj", "q_proj", "out_proj"):
                    yield from affine(f"{block}.{attention}.{name}", width, width, bias=width)
                yield from affine(f"{block}.{attention}_layer_norm", width, bias=width)
            yield from affine(f"{block}.fc1", inner, width, bias=inner)
            yield from affine(f"{block}.fc2", width, inner, bias=width)
            yield from affine(f"{block}.final_layer_norm", width, bias=width)
        yield from affine(f"model.{stack}.layer_norm", width, bias=width)


ARCHITECTURES = (
    Architecture(
        model_type="whisper",
        name="Whisper",
        family="speech",
        sizes=tuple(
            "d_model encoder_attention_heads decoder_attention_heads encoder_layers "
            "decoder_layers encoder_ffn_dim decoder_ffn_dim num_mel_bins max_source_positions "
            "max_target_positions vocab_size".split()
        ),
        context_setting="max_target_positions",
        required={"tie_word_embeddings": True},
        tensor_shapes=_shapes,
    ),
)
