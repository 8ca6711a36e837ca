"""Checkpoints of modern small models for the benchmarks, made without a network.

Knows published configurations, which get random weights, and the packaged model, whose weights are
written in the forms that other programs read. Must not know the engine nor what is measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize
from safetensors.numpy import save_file
from transformers import AutoConfig, PretrainedConfig

from benchmarks.checkpoints import save_tokenizer
from xla_backend.checkpoints import rotary_form
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import read_weights

SIZES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "rope_theta": 1e6,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "Qwen3-0.6B": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rope_theta": 1e6,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    },
    "gemma-3-270m": {
        "model_type": "gemma3_text",
        "vocab_size": 262144,
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 32768,
    },
    "Llama-3.2-1B": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "rope_theta": 5e5,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
}
GGUF_TYPES = ("Q8_0", "F16")
"""Forms of the packaged model that are made from its own, which is Q4_1."""
# A token that no text holds: no program's text ends before the others'.
_NEVER = 16


def real_size(name: str, folder: Path) -> Path:
    """A checkpoint of one of `SIZES` in `folder`, in float16 and built once; returns its folder."""
    made = folder / name
    if (made / "model.safetensors").exists():
        return made
    values = dict(SIZES[name])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    config.eos_token_id = config.vocab_size - 1
    made.mkdir(parents=True, exist_ok=True)
    save_tokenizer(made, config.vocab_size)
    _save_config(config, made)
    draw = np.random.default_rng(0)
    tensors = {
        tensor: (0.02 * draw.standard_normal(shape, np.float32)).astype(np.float16)
        for tensor, shape in rotary_form.shapes(config)
    }
    save_file(tensors, made / "model.safetensors", {"format": "pt"})
    return made


def packaged(folder: Path) -> Path:
    """The packaged model in `folder`, built once: float32 as the Hub has it, and GGUF files.

    Returns:
        The checkpoint's folder; `gguf/` in it holds a file for each form.
    """
    made = folder / PACKAGED_MODEL
    if (made / "model.safetensors").exists():
        return made
    files = Registry().locate(PACKAGED_MODEL)
    (made / "gguf").mkdir(parents=True, exist_ok=True)
    config = files.config
    config.eos_token_id = _NEVER
    _save_config(config, made)
    (made / "tokenizer.json").write_text(Tokenizer.load(files.folder).to_json(), encoding="utf-8")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (made / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    (made / "gguf" / "Q4_1.gguf").symlink_to(files.folder)
    for kind in GGUF_TYPES:
        _requantized(files.folder, made / "gguf" / f"{kind}.gguf", GGMLQuantizationType[kind])
    tensors = {name: np.ascontiguousarray(x) for name, x in read_weights(files.folder).items()}
    save_file(tensors, made / "model.safetensors", {"format": "pt"})
    return made


def _save_config(config: PretrainedConfig, folder: Path) -> None:
    """Writes it with the base of the rotary positions where Transformers 4 reads it, too."""
    config.architectures = [f"{type(config).__name__.removesuffix('Config')}ForCausalLM"]
    config.save_pretrained(folder)
    values = json.loads((folder / "config.json").read_text())
    positions = values["rope_parameters"]
    # Gemma's configuration has one for each kind of layer.
    of_all = positions.get("full_attention", positions)
    values["rope_theta"] = of_all["rope_theta"]
    if of_all is not positions:
        values["rope_local_base_freq"] = positions["sliding_attention"]["rope_theta"]
    (folder / "config.json").write_text(json.dumps(values, indent=2) + "\n")


def _requantized(source: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """Writes a GGUF file with its matrices in another form; all else stays."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        # The first are the writer's own.
        if not name.startswith("GGUF.") and name != "general.architecture":
            values = field.types
            sub_type = values[-1] if len(values) > 1 else None
            writer.add_key_value(name, field.contents(), values[0], sub_type)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        is_matrix = values.ndim > 1
        form = kind if is_matrix else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
