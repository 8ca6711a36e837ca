"""Weights of a checkpoint in bytes: all, and those that are read for each new token.

Knows the tensor names of the Hub's checkpoints and the header of safetensors files. Must not know
the programs that read them.
"""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

# Read one row per token, or once per prompt.
_NOT_EVERY_TOKEN = ("wpe.", "embed_positions", "encoder.", "relative_attention_bias", ".attn.bias")
# Cross-attention computes the encoder's keys and values once per prompt.
_ONCE_A_PROMPT = tuple(
    f"{attention}.{name}."
    for attention, names in (("encoder_attn", ("k_proj", "v_proj")), ("EncDecAttention", "kv"))
    for name in names
)


def total_bytes(folder: Path) -> int:
    """Size of all weights as float32, in bytes."""
    return 4 * sum(prod(shape) for shape in _shapes(folder).values())


def bytes_of_a_token(folder: Path) -> int:
    """Size of the float32 weights that are read for a new token, in bytes.

    Includes the table of token embeddings: as the head, it is read whole.
    """
    return 4 * sum(
        prod(shape)
        for name, shape in _shapes(folder).items()
        if not any(part in name for part in _NOT_EVERY_TOKEN + _ONCE_A_PROMPT)
    )


def _shapes(folder: Path) -> dict[str, list[int]]:
    with (folder / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
