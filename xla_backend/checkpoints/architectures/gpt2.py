"""GPT-2 (OpenAI): learned positions, layer norms, transposed kernels."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.architecture import Architecture, Shapes, affine


def _shapes(config: Any) -> Shapes:
    width = config.n_embd
    inner = config.n_inner or 4 * width
    yield from affine("transformer.wte", config.vocab_size, width)
    yield from affine("transformer.wpe", config.n_positions, width)
    for layer in range(config.n_layer):
        block = f"transformer.h.{layer}"
        yield from affine(f"{block}.ln_1", width, bias=width)
        # (in, out), unlike the other models' projections.
        yield from affine(f"{block}.attn.c_attn", width, 3 * width, bias=3 * width)
        yield from affine(f"{block}.attn.c_proj", width, width, bias=width)
        yield from affine(f"{block}.ln_2", width, bias=width)
        yield from affine(f"{block}.mlp.c_fc", width, inner, bias=inner)
        yield from affine(f"{block}.mlp.c_proj", inner, width, bias=width)
    yield from affine("transformer.ln_f", width, bias=width)


ARCHITECTURES = (
    Architecture(
        model_type="gpt2",
        name="GPT-2",
        sizes=("n_embd", "n_head", "n_layer", "n_positions", "vocab_size"),
        context_setting="n_positions",
        required={
            "tie_word_embeddings": True,
            "add_cross_attention": False,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
        },
        prefix="transformer.",
        tensor_shapes=_shapes,
    ),
)
