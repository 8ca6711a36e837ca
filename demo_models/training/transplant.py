"""OPT weights out of GPT-2 weights: the two differ in names, layouts and the activation only.

Knows: both architectures' PyTorch names; where one keeps three matrices and the other one.
Must not know: training, tokens' meaning, files.

OPT is a pre-norm decoder with learned positions and a tied head, as GPT-2 is. So a trained GPT-2
gives an OPT of the same size a start that only has to get used to another activation (ReLU).
"""

from __future__ import annotations

import numpy as np

UNUSED_POSITIONS = 2  # OPT's table of positions starts with two rows that it never reads


def opt_from_gpt2(
    gpt2: dict[str, np.ndarray], gpt2_ids: dict[str, int], opt_ids: dict[str, int]
) -> dict[str, np.ndarray]:
    """OPT weights, under PyTorch's names, that compute what the GPT-2 weights do.

    Args:
        gpt2: GPT-2's weights under PyTorch's names.
        gpt2_ids: token -> id in GPT-2's vocabulary.
        opt_ids: token -> id in OPT's; a token that GPT-2 lacks starts as the average token.
    """
    tokens = gpt2["transformer.wte.weight"]
    average = tokens.mean(axis=0)
    embedding = np.stack(
        [
            tokens[gpt2_ids[token]] if token in gpt2_ids else average
            for token in sorted(opt_ids, key=opt_ids.__getitem__)
        ]
    )
    positions = gpt2["transformer.wpe.weight"]
    unused = np.zeros((UNUSED_POSITIONS, positions.shape[1]), positions.dtype)
    opt = {
        "model.decoder.embed_tokens.weight": embedding,
        "model.decoder.embed_positions.weight": np.concatenate([unused, positions]),
        **_norm(gpt2, "transformer.ln_f", "model.decoder.final_layer_norm"),
    }
    layer = 0
    while f"transformer.h.{layer}.ln_1.weight" in gpt2:
        old, new = f"transformer.h.{layer}", f"model.decoder.layers.{layer}"
        opt |= _norm(gpt2, f"{old}.ln_1", f"{new}.self_attn_layer_norm")
        opt |= _norm(gpt2, f"{old}.ln_2", f"{new}.final_layer_norm")
        # GPT-2 keeps query, key and value side by side, (in, 3 * out).
        weights = np.split(gpt2[f"{old}.attn.c_attn.weight"], 3, axis=1)
        biases = np.split(gpt2[f"{old}.attn.c_attn.bias"], 3)
        for part, weight, bias in zip("qkv", weights, biases, strict=True):
            opt[f"{new}.self_attn.{part}_proj.weight"] = weight.T
            opt[f"{new}.self_attn.{part}_proj.bias"] = bias
        opt |= _linear(gpt2, f"{old}.attn.c_proj", f"{new}.self_attn.out_proj")
        opt |= _linear(gpt2, f"{old}.mlp.c_fc", f"{new}.fc1")
        opt |= _linear(gpt2, f"{old}.mlp.c_proj", f"{new}.fc2")
        layer += 1
    return opt


def _norm(weights: dict[str, np.ndarray], old: str, new: str) -> dict[str, np.ndarray]:
    return {f"{new}.{part}": weights[f"{old}.{part}"] for part in ("weight", "bias")}


def _linear(weights: dict[str, np.ndarray], old: str, new: str) -> dict[str, np.ndarray]:
    """GPT-2 stores (in, out), OPT (out, in)."""
    return {f"{new}.weight": weights[f"{old}.weight"].T, f"{new}.bias": weights[f"{old}.bias"]}
