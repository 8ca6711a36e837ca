"""GGUF checkpoints: the config and the weights of a decoder, as its Hugging Face folder has them.

Knows what the files of all architectures have in common; `architectures.gguf` describes the rest.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xla_backend.checkpoints.architectures.architecture import Architecture
from xla_backend.checkpoints.architectures.gguf import BLOCK_NAMES, GGUFLayout, GGUFSettings
from xla_backend.checkpoints.architectures.table import BY_GGUF
from xla_backend.checkpoints.formats.gguf_file import GGUFFile
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown
from xla_backend.kernels.matmul.blocks import Weights

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "token_embd_norm": "model.norm",  # LFM2's
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
    "output": "lm_head",
}
_EXPERT_NAMES = {
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}
"""Of what lies there as one tensor, with a matrix for each expert."""
_VECTORS = ("ssm_a", "ssm_d", "ssm_dt", "ssm_norm")
"""Whose names here are whole, and which have a further axis in some files."""
_ROPE_FACTORS = "rope_freqs.weight"
_SHORT_FACTORS, _LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"


def read_config_values(path: Path) -> dict[str, Any]:
    """The values that the model's config.json would have.

    `eos_token_id` is a list if the file names an end of turn besides the end of text.
    """
    return copy.deepcopy(_config_values(path, path.stat().st_mtime_ns))


@functools.lru_cache
def _config_values(path: Path, modified: int) -> dict[str, Any]:
    """Cached, because lists of models ask often, and the file is long."""
    file = GGUFFile(path)
    described, layout = _architecture(file)
    if "token_embd.weight" not in file.tensors:
        raise file.damaged("it has no tensor token_embd.weight")
    settings = GGUFSettings(file, layout.architecture)
    heads, head_size = settings.heads, settings.head_size
    rotated = settings.value("rope.dimension_count", int, head_size)
    values_size = settings.value("attention.value_length", int, settings.width // heads)
    for key, value, is_free in (
        ("attention.value_length", values_size, False),
        ("rope.dimension_count", rotated, layout.rotates_part),
    ):
        if value != head_size and not is_free:
            raise ModelUnavailable(
                f"{path} sets {layout.architecture}.{key} to {value} and its heads have the size "
                f"{head_size}; only equal sizes are supported. Choose another model."
            )
    widths = settings.numbers("feed_forward_length")
    # Of layers without experts, which need not exist beside those with.
    default = 1 if settings.optional("expert_count", int) else None
    width = widths[0] if widths else settings.size("feed_forward_length", default)
    values: dict[str, Any] = {
        "model_type": described.model_type,
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": settings.width,
        "intermediate_size": width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(settings),
        "head_dim": head_size,
        "max_position_embeddings": settings.size("context_length"),
        "rms_norm_eps": settings.value("attention.layer_norm_rms_epsilon", float),
        "rope_parameters": _rope(settings, layout),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "bos_token_id": _token_id(file, "bos"),
        "eos_token_id": _ends(file),
        "pad_token_id": _token_id(file, "padding"),
        **settings.experts(width),
    }
    if layout.rotates_part:
        values["rope_parameters"]["partial_rotary_factor"] = rotated / head_size
    layout.complete(settings, values)
    return values


def _kv_heads(settings: GGUFSettings) -> int:
    """Those of layers with attention; LFM2's file has a number for each layer, 0 for the others."""
    numbers = settings.numbers("attention.head_count_kv")
    if not numbers:
        return settings.value("attention.head_count_kv", int, settings.heads)
    found = {*numbers} - {0}
    if len(found) != 1:
        raise ModelUnavailable(
            f"{settings.file.path} has layers with {shown(sorted(found), 60)} heads of keys, and "
            "only one number is supported. Choose another model."
        )
    return found.pop()


def read_tensors(path: Path, *, as_stored: bool = False) -> Iterator[tuple[str, Weights]]:
    """Yields the weights, one at a time, by the names that they have in a Hugging Face folder.

    Yields:
        name and tensor, see `GGUFFile`, without the factors of rotary positions.
    """
    file = GGUFFile(path)
    _, layout = _architecture(file)
    settings = GGUFSettings(file, layout.architecture)
    layers = settings.layers - settings.value("nextn_predict_layers", int, 0)
    heads_of = {"attn_q": settings.heads, "attn_k": _kv_heads(settings)}
    for name in sorted(file.tensors - {_ROPE_FACTORS, _SHORT_FACTORS, _LONG_FACTORS}):
        stem, _, leaf = name.rpartition(".")
        if leaf not in ("weight", "bias"):  # Falcon-H1's norms, and vectors
            stem, leaf = name, "weight"
        at, _, part = stem.rpartition(".")
        layer = name.removeprefix("blk.").partition(".")[0]
        if layer.isdecimal() and int(layer) >= layers:
            continue  # guesses drafts
        if part in _VECTORS:
            vector = file.read(name).reshape(-1)  # ssm_a is -exp(A_log)
            yield _name(file, layout, stem), np.log(-vector) if part == "ssm_a" else vector
            continue
        if part in _EXPERT_NAMES and at.startswith("blk."):
            where = f"model.layers.{at.removeprefix('blk.')}.mlp.experts"
            is_bias = leaf == "bias"
            stack = file.read(name) if is_bias else file.read_matrices(name, as_stored=as_stored)
            for number, matrix in enumerate(stack):
                yield f"{where}.{number}.{_EXPERT_NAMES[part]}.{leaf}", matrix
            continue
        tensor = file.read_stored(name) if as_stored else file.read(name)
        if layout.is_permuted and part in heads_of:
            tensor = _unpermuted(file, name, tensor, heads_of[part])
        if layout.has_offset_norms and stem.endswith("norm"):
            assert isinstance(tensor, np.ndarray)
            tensor = tensor - np.float32(1)
        yield f"{_name(file, layout, stem)}.{leaf}", tensor


def _architecture(file: GGUFFile) -> tuple[Architecture, GGUFLayout]:
    """The description of the file's architecture."""
    architecture = file.value("general.architecture", str)
    if (kind := file.value("general.type", str, "model")) == "adapter":
        raise ModelUnavailable(
            f"{file.path} is a LoRA adapter, which only changes another model. Merge it into that "
            "one, with `llama-export-lora`, and load the result."
        )
    if kind != "model":
        raise ModelUnavailable(
            f"{file.path} is not a model: its type is {shown(kind, 60)}. Choose the model's "
            "own file."
        )
    described = BY_GGUF.get(architecture)
    if described is None or described.gguf is None:
        raise ModelUnavailable(
            f"{file.path} has an architecture that is not supported: {shown(architecture, 60)}. "
            f"Supported in GGUF files are {', '.join(BY_GGUF)}."
        )
    return described, described.gguf


def _name(file: GGUFFile, layout: GGUFLayout, stem: str) -> str:
    """The name of a tensor in a Hugging Face folder, without `.weight` or `.bias`."""
    if stem in _NAMES:
        return _NAMES[stem]
    at, _, rest = stem.partition(".")
    number, _, part = rest.partition(".")
    names = {**BLOCK_NAMES, **layout.names}
    if at == "blk" and number.isdecimal() and part in names:
        return f"model.layers.{int(number)}.{names[part]}"
    raise ModelUnavailable(
        f"{file.path} has the tensor {shown(stem, 60)}, which {layout.architecture} models here "
        "do not have: this form (with shared experts, for example) is not supported. "
        "Choose another model."
    )


def _unpermuted(file: GGUFFile, name: str, tensor: Weights, heads: int) -> Weights:
    """The rows of each head in Transformers' order."""
    rows = tensor.shape[0]
    if heads < 1 or rows % (2 * heads):
        raise file.damaged(f"{name} has {rows} rows for {heads} heads")
    pairs = np.arange(rows).reshape(heads, rows // heads // 2, 2)
    return tensor[pairs.swapaxes(1, 2).reshape(rows)]


def _token_id(file: GGUFFile, name: str) -> int | None:
    token_id = file.optional(f"tokenizer.ggml.{name}_token_id", int)
    # -1, also as an unsigned number, means none.
    return token_id if token_id is not None and 0 <= token_id < 2**31 else None


def _ends(file: GGUFFile) -> int | list[int] | None:
    """The ends of a text, of a turn and of a message that the file names."""
    found = [_token_id(file, name) for name in ("eos", "eot", "eom")]
    ends = list(dict.fromkeys(end for end in found if end is not None))
    return ends if len(ends) > 1 else next(iter(ends), None)


# Positions


def _rope(settings: GGUFSettings, layout: GGUFLayout) -> dict[str, Any]:
    """`rope_parameters`; two sets, by the kind of attention, if layers with windows have another
    base."""
    file = settings.file

    def number(key: str, default: float | None = None) -> float:
        return settings.value(f"rope.{key}", float, default)

    theta = number("freq_base", 10_000.0)
    # As in llama.cpp: a factor alone is linear, and had another name in old files.
    scaling = settings.value("rope.scaling.type", str, "linear")
    factor = number("scaling.factor", number("scale_linear", 1.0))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if scaling == "linear":
        if factor not in (0.0, 1.0):
            rope |= {"rope_type": "linear", "factor": factor}
    elif scaling == "yarn":
        length = settings.value("rope.scaling.original_context_length", int)
        stretch, less = math.log(max(factor, 1.0)), number("scaling.yarn_log_multiplier", 0.0)
        rope |= {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": length,
            "beta_fast": number("scaling.yarn_beta_fast", 32.0),
            "beta_slow": number("scaling.yarn_beta_slow", 1.0),
            "attention_factor": number("scaling.attn_factor", 1.0)
            * ((1.0 + 0.1 * stretch) / (1.0 + 0.1 * less * stretch)),
            "llama_4_scaling_beta": settings.optional("attention.temperature_scale", float),
        }
    elif scaling not in ("none", "longrope"):
        raise ModelUnavailable(
            f"{file.path} scales its positions by {shown(scaling, 60)}, which is not supported. "
            "Choose another model."
        )
    if _ROPE_FACTORS in file.tensors and layout.rotates_first_pairs:
        factors = file.read(_ROPE_FACTORS).ravel()
        turned = int((factors == 1).sum())
        if not (factors[:turned] == 1).all() or (factors[turned:] < 1e20).any():
            raise ModelUnavailable(
                f"{file.path} scales its positions in a way that is not supported. Choose another "
                "model."
            )
        part = {"rope_type": "proportional", "partial_rotary_factor": turned / factors.size}
        rope |= part
    elif _ROPE_FACTORS in file.tensors:
        rope = _llama3_rope(file, theta, settings.head_size)
    if {_SHORT_FACTORS, _LONG_FACTORS} <= file.tensors:
        rope |= {
            "rope_type": "longrope",
            "short_factor": file.read(_SHORT_FACTORS).ravel().tolist(),
            "long_factor": file.read(_LONG_FACTORS).ravel().tolist(),
            "original_max_position_embeddings": settings.value(
                "rope.scaling.original_context_length", int
            ),
            "attention_factor": number("scaling.attn_factor", 1.0),
        }
    elif scaling == "longrope":
        raise file.damaged(f"it scales its positions by {scaling} and has no factors for it")
    has_windows = settings.value("attention.sliding_window", int, 0) > 0
    if layout.local_theta is None or not has_windows:
        return rope
    base = number("freq_base_swa", layout.local_theta or theta)
    return {
        "full_attention": rope,
        "sliding_attention": {"rope_type": "default", "rope_theta": base},
    }


def _llama3_rope(file: GGUFFile, theta: float, head_size: int) -> dict[str, Any]:
    """The parameters from which llama.cpp computed the stored factors of each frequency.

    Only the largest factor differs between the models of Llama 3.1, 3.2 and 3.3; all factors are
    computed from it and compared.
    """
    found = file.read(_ROPE_FACTORS).ravel()
    factor, low, high, length = float(found.max()), 1.0, 4.0, 8192
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head_size, 2) / head_size)
    share = np.clip((length / wavelengths - low) / (high - low), 0, 1)
    if found.size != share.size or not np.allclose(found, 1 / ((1 - share) / factor + share)):
        raise ModelUnavailable(
            f"{file.path} scales its positions in a way that is not supported. Choose another "
            "model."
        )
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": length,
    }
