"""A Llama checkpoint as a folder of Mistral's, the only such class in TensorFlow.

Knows what both have in common: Mistral is Llama's architecture with an optional window, without
biases or scaled positions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import SAFETENSORS, read_weights
from xla_backend.interface.errors import ModelUnavailable

_SIZES = tuple(
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads max_position_embeddings rms_norm_eps".split()
)
_TOKENS = ("bos_token_id", "eos_token_id")


def write(model: str, registry: Registry, folder: Path) -> None:
    """Writes config, tokenizer and float32 weights of a model.

    Raises:
        ModelUnavailable: TensorFlow has no class for the model, or its weights are damaged.
    """
    from safetensors.numpy import save_file

    files = registry.locate(model)
    config = files.config.to_dict()
    if missing := _differences(config):
        raise ModelUnavailable(f"TensorFlow has no class for {missing}; this engine needs none.")
    rope = config["rope_parameters"]
    values = {name: config[name] for name in _SIZES}
    values |= {name: getattr(files.generation_config, name) for name in _TOKENS}
    values |= {
        "model_type": "mistral",
        "rope_theta": rope["rope_theta"],
        "sliding_window": None,
        "tie_word_embeddings": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "generation_config.json").write_text(
        json.dumps({name: values[name] for name in _TOKENS}), encoding="utf-8"
    )
    tokenizer = Tokenizer.load(files.folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    end = values["eos_token_id"]
    end = tokenizer.token_text(end[0] if isinstance(end, list) else end)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}),
        encoding="utf-8",
    )
    weights = read_weights(files.folder)
    # TensorFlow's class does not tie the two.
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in weights.items()}
    save_file(arrays, folder / SAFETENSORS, {"format": "pt"})


def _differences(config: dict[str, Any]) -> str:
    """What a model needs that TensorFlow's class does not have; empty if it fits."""
    if config["model_type"] not in ("llama", "mistral"):
        return f"a {config['model_type']} model"
    heads, width = config["num_attention_heads"], config["hidden_size"]
    found = {
        "biases": config.get("attention_bias") or config.get("mlp_bias"),
        "scaled positions": config["rope_parameters"]["rope_type"] != "default",
        "heads of another size": (config.get("head_dim") or width // heads) * heads != width,
        "a window": config.get("sliding_window"),
        "another activation than SiLU": config["hidden_act"] != "silu",
    }
    return " and ".join(name for name, is_there in found.items() if is_there)
