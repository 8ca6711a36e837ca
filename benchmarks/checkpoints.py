"""Checkpoints of published sizes with random weights, built where there is no network.

Knows the Hub's folder layout. Must not know the engine. Speed does not depend on the weights'
values, so random ones measure as well; what such a model writes means nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

GPT2_124M = "gpt2-124m-random"


def gpt2_124m(folder: Path) -> Path:
    """A checkpoint of the shape of `openai-community/gpt2` in `folder`, built once.

    Args:
        folder: the parent folder; made if missing.

    Returns:
        The checkpoint's folder: config.json, tokenizer and model.safetensors.
    """
    from safetensors.numpy import save_file
    from transformers import GPT2Config

    made = folder / GPT2_124M
    if (made / "config.json").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    config = GPT2Config(architectures=["GPT2LMHeadModel"], bos_token_id=50256, eos_token_id=50256)
    _save_tokenizer(made, config.vocab_size)
    save_file(_gpt2_weights(config), made / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(made)
    return made


def _gpt2_weights(config) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    width = config.n_embd

    def normal(*shape: int, std: float) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(std)

    # Three times the usual spread: the likeliest token then leads clearly, and two correct
    # programs do not part over rounding.
    weights = {
        "wte.weight": normal(config.vocab_size, width, std=0.1),
        "wpe.weight": normal(config.n_positions, width, std=0.1),
        "ln_f.weight": np.ones(width, np.float32),
        "ln_f.bias": np.zeros(width, np.float32),
    }
    for i in range(config.n_layer):
        for name in ("ln_1", "ln_2"):
            weights[f"h.{i}.{name}.weight"] = np.ones(width, np.float32)
            weights[f"h.{i}.{name}.bias"] = np.zeros(width, np.float32)
        for name, rows, columns in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ):
            weights[f"h.{i}.{name}.weight"] = normal(rows, columns, std=0.06)
            weights[f"h.{i}.{name}.bias"] = np.zeros(columns, np.float32)
    return weights


def _save_tokenizer(folder: Path, vocabulary_size: int) -> None:
    """A byte-level tokenizer with as many entries as the model has, all but 257 never used."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2TokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    for i in range(len(vocabulary), vocabulary_size - 1):
        vocabulary[f"<unused{i}>"] = i
    vocabulary["<|endoftext|>"] = vocabulary_size - 1
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    GPT2TokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
    ).save_pretrained(folder)
    values = json.loads((folder / "tokenizer_config.json").read_text())
    values["model_max_length"] = 1024
    (folder / "tokenizer_config.json").write_text(json.dumps(values, indent=2) + "\n")
