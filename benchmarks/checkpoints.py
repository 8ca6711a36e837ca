"""Checkpoints of published sizes with random weights, built without a network.

Knows the Hub's folder layout. Must not know the engine. Speed does not depend on the values of
weights, so random ones do; such a model's text means nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

GPT2_124M = "gpt2-124m-random"

SHAPES: dict[str, dict[str, Any]] = {
    "opt-125m": {
        "vocab_size": 50272,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "ffn_dim": 3072,
        "num_attention_heads": 12,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768,
    },
    "t5-small": {
        "vocab_size": 32128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
    },
    "whisper-tiny": {
        "vocab_size": 51865,
        "d_model": 384,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_attention_heads": 6,
        "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "decoder_ffn_dim": 1536,
        "max_source_positions": 1500,
        "max_target_positions": 448,
    },
}
"""The configuration values of published models, by their names in the benchmarks."""


def gpt2_124m(folder: Path) -> Path:
    """A checkpoint of the shape of `openai-community/gpt2` in `folder`, built once.

    Args:
        folder: the parent folder; made if missing.

    Returns:
        The checkpoint's folder: config.json, tokenizer and model.safetensors.
    """
    return _gpt2(folder / GPT2_124M)


def _gpt2(made: Path, **shape: int) -> Path:
    from safetensors.numpy import save_file
    from transformers import GPT2Config

    if (made / "config.json").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    config = GPT2Config(architectures=["GPT2LMHeadModel"], **shape)
    config.bos_token_id = config.eos_token_id = config.vocab_size - 1
    save_tokenizer(made, config.vocab_size)
    save_file(_gpt2_weights(config), made / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(made)
    return made


def published_shape(name: str, folder: Path, python: Path) -> Path:
    """A checkpoint of one of `SHAPES` in `folder`, built once.

    Args:
        name: of the model.
        folder: the parent folder; made if missing.
        python: an interpreter with PyTorch, whose models have all tensors' names.

    Returns:
        The checkpoint's folder.
    """
    made = folder / f"{name}-random"
    if not (made / "generation_config.json").exists():
        made.mkdir(parents=True, exist_ok=True)
        command = [str(python), "-m", "benchmarks.checkpoints", name, str(made)]
        root = Path(__file__).resolve().parent.parent
        environment = os.environ | {"USE_TF": "0"}
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{name} could not be built:\n{done.stderr}")
    return made


def _build(name: str, folder: Path) -> None:
    """Builds one of `SHAPES`; needs PyTorch."""
    import torch
    import transformers

    torch.manual_seed(0)
    architecture, special = {
        "opt": ("OPT", ["<s>", "<pad>", "</s>", "<unk>"]),
        "t5": ("T5", ["<pad>", "</s>", "<unk>"]),
        "whisper": ("Whisper", []),
    }[name.partition("-")[0]]
    config = getattr(transformers, f"{architecture}Config")(**SHAPES[name])
    if architecture == "Whisper":
        generation = _save_whisper_tokenizer(folder, config.vocab_size)
        config.eos_token_id = config.bos_token_id = config.pad_token_id = generation["eos_token_id"]
        config.decoder_start_token_id = generation["decoder_start_token_id"]
        config.suppress_tokens = config.begin_suppress_tokens = None
    else:
        config.decoder_start_token_id = 0 if architecture == "T5" else None
        generation = {"eos_token_id": config.eos_token_id, "pad_token_id": config.pad_token_id}
        if architecture == "T5":
            generation["decoder_start_token_id"] = 0
        save_tokenizer(folder, config.vocab_size, special)
    model = getattr(transformers, _generating_class(architecture))(config)
    with torch.no_grad():
        for label, tensor in model.named_parameters():
            _draw(label, tensor)
    model.generation_config = transformers.GenerationConfig(**generation)
    model.save_pretrained(folder)


def _generating_class(architecture: str) -> str:
    """The name of the class with `generate`: `OPTForCausalLM` for "OPT"."""
    return f"{architecture}For{'CausalLM' if architecture == 'OPT' else 'ConditionalGeneration'}"


def _draw(label: str, tensor) -> None:
    """Fills a PyTorch parameter so that the most likely token has a clear lead and changes."""
    if tensor.dim() < 2:
        return  # norms and biases keep their initial values
    if "embed" in label or "shared" in label:
        is_position = "position" in label
        if not ("encoder" in label and is_position):  # Whisper's encoder has fixed ones
            tensor.normal_(0.0, 0.6 if is_position else 0.1)
        return
    fan_in = tensor[0].numel()
    # T5 does not divide by the root of the heads' width: its queries are that much smaller.
    small = 8.0 if label.endswith(("SelfAttention.q.weight", "EncDecAttention.q.weight")) else 1.0
    tensor.normal_(0.0, 1.5 / small / fan_in**0.5)
    if label.endswith((".fc2.weight", ".wo.weight")):
        # After a ReLU all values are positive: a wide random matrix would always add about the
        # same vector, and the model would repeat one token.
        tensor -= tensor.mean(dim=1, keepdim=True)


def narrow_gpt2(name: str, folder: Path, **shape: int) -> Path:
    """A narrow GPT-2 of this shape in `folder`, built once; returns its folder."""
    return _gpt2(folder / f"gpt2-{name}-random", n_embd=384, n_head=6, **shape)


def _gpt2_weights(config) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    width = config.n_embd

    def normal(*shape: int, std: float) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(std)

    # Three times the usual spread: the most likely token then has a clear lead, and rounding does
    # not make two correct programs differ.
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


def _byte_level(vocabulary_size: int, special: list[str]):
    """A byte-level tokenizer with the size of the model's vocabulary; most entries are unused.

    Args:
        special: its first entries.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    entries = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    entries += [f"<unused{i}>" for i in range(len(entries), vocabulary_size)]
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def save_tokenizer(folder: Path, vocabulary_size: int, special: list[str] | None = None) -> None:
    """Saves a byte-level tokenizer. GPT-2's special token comes last; other models' come first."""
    from transformers import GPT2TokenizerFast

    end = "</s>" if special else "<|endoftext|>"
    tokenizer = _byte_level(vocabulary_size - (not special), special or [])
    tokenizer.add_special_tokens(special or [end])
    GPT2TokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=end,
        eos_token=end,
        unk_token="<unk>" if special else end,
        **({"pad_token": "<pad>"} if special else {}),
    ).save_pretrained(folder)
    values = json.loads((folder / "tokenizer_config.json").read_text())
    values["model_max_length"] = 1024
    (folder / "tokenizer_config.json").write_text(json.dumps(values, indent=2) + "\n")


def _save_whisper_tokenizer(folder: Path, vocabulary_size: int) -> dict[str, Any]:
    """Saves tokenizer and feature extractor of a model with one language.

    Returns:
        The values of its generation config.
    """
    from transformers import WhisperFeatureExtractor, WhisperTokenizerFast

    end = "<|endoftext|>"
    names = [end, "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>"]
    names += ["<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    tokenizer = _byte_level(vocabulary_size, names)
    tokenizer.add_special_tokens(names)
    WhisperTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=end,
        eos_token=end,
        unk_token=end,
        additional_special_tokens=names,
    ).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80, chunk_length=30).save_pretrained(folder)
    ids = {name: i for i, name in enumerate(names)}
    return {
        "bos_token_id": ids[end],
        "eos_token_id": ids[end],
        "pad_token_id": ids[end],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": ids["<|en|>"]},
        "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "max_length": SHAPES["whisper-tiny"]["max_target_positions"],
        "return_timestamps": False,
    }


if __name__ == "__main__":
    _build(sys.argv[1], Path(sys.argv[2]))
