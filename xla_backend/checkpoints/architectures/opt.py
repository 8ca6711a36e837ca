"""OPT (Meta): learned positions, layer norms; embeddings may be narrower than the layers."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.architecture import Architecture, Shapes, affine


def _shapes(config: Any) -> Shapes:
    width, narrow = config.hidden_size, config.word_embed_proj_dim
    yield from affine("model.decoder.embed_tokens", config.vocab_size, narrow)
    # Two rows more than positions, as in fairseq.
    yield from affine("model.decoder.embed_positions", config.max_position_embeddings + 2, width)
    if narrow != width:
        yield from affine("model.decoder.project_in", width, narrow)
        yield from affine("model.decoder.project_out", narrow, width)
    if config.do_layer_norm_before and not config._remove_final_layer_norm:
        yield from affine("model.decoder.final_layer_norm", width, bias=width)
    for layer in range(config.num_hidden_layers):
        block = f"model.decoder.layers.{layer}"
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from affine(f"{block}.self_attn.{name}", width, width, bias=width)
        yield from affine(f"{block}.self_attn_layer_norm", width, bias=width)
        yield from affine(f"{block}.fc1", config.ffn_dim, width, bias=config.ffn_dim)
        yield from affine(f"{block}.fc2", width, config.ffn_dim, bias=width)
        yield from affine(f"{block}.final_layer_norm", width, bias=width)


ARCHITECTURES = (
    Architecture(
        model_type="opt",
        name="OPT",
        sizes=tuple(
            "hidden_size num_attention_heads num_hidden_layers ffn_dim word_embed_proj_dim "
            "max_position_embeddings vocab_size".split()
        ),
        required={
            "tie_word_embeddings": True,
            "enable_bias": True,
            "layer_norm_elementwise_affine": True,
        },
        tensor_shapes=_shapes,
    ),
)
