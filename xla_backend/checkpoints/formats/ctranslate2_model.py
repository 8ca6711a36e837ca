"""Whisper models in CTranslate2's format, as faster-whisper has them: config, tokens, weights.

Knows the file's layout, and the names that a Hugging Face folder has instead. The specification is
CTranslate2's `model_spec.py`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from xla_backend.checkpoints.text_files import read_text
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown

FILE = "model.bin"
_VERSION = 6
_DTYPES = {0: np.dtype("<f4"), 4: np.dtype("<f2"), 5: np.dtype(ml_dtypes.bfloat16)}
_INTEGERS = {1: np.dtype("i1"), 2: np.dtype("<i2"), 3: np.dtype("<i4")}

_STACKED = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
}
"""Projections of one input lie in one matrix, below one another."""
_NAMES = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
    "layer_norm": "layer_norm",
    "embeddings": "embed_tokens",
    "position_encodings": "embed_positions",
    "conv1": "conv1",
    "conv2": "conv2",
}
_LEAVES = {
    "weight": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "encodings": "weight",
}


def is_model(folder: Path) -> bool:
    """Whether a folder has a model in this format, of any kind."""
    try:
        with (folder / FILE).open("rb") as file:
            return file.read(4) == struct.pack("<I", _VERSION)
    except OSError:
        return False


def read_config_values(folder: Path) -> dict[str, Any]:
    """The values that its config.json would have on the Hub."""
    found = _variables(folder / FILE)
    tokens = _special_tokens(folder)
    try:
        positions, width = found["encoder/position_encodings/encodings"].shape
        values: dict[str, Any] = {
            "model_type": "whisper",
            "vocab_size": len(found["decoder/embeddings/weight"]),
            "num_mel_bins": found["encoder/conv1/weight"].shape[1],
            "d_model": width,
            "max_source_positions": positions,
            "max_target_positions": len(found["decoder/position_encodings/encodings"]),
            "tie_word_embeddings": True,
            "decoder_start_token_id": tokens.get("<|startoftranscript|>"),
        }
        for stack in ("encoder", "decoder"):
            inner, layers = f"{stack}/layer_{{}}/ffn/linear_0/weight", 0
            while inner.format(layers) in found:
                layers += 1
            values |= {
                f"{stack}_layers": layers,
                f"{stack}_ffn_dim": len(found[inner.format(0)]),
                f"{stack}_attention_heads": int(found[f"{stack}/num_heads"]),
            }
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise _damaged(folder / FILE) from error
    end = tokens.get("<|endoftext|>")
    return values | {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}


def read_generation_values(folder: Path) -> dict[str, Any]:
    """The values that its generation_config.json would have on the Hub."""
    tokens, values = _special_tokens(folder), {}
    with contextlib.suppress(OSError, ValueError):  # the file only says what is suppressed
        values = json.loads(read_text(folder / "config.json"))
    end, untimed = tokens.get("<|endoftext|>"), tokens.get("<|notimestamps|>")
    found: dict[str, Any] = {
        "decoder_start_token_id": tokens.get("<|startoftranscript|>"),
        "eos_token_id": end,
        "pad_token_id": end,
        "no_timestamps_token_id": untimed,
        "suppress_tokens": values.get("suppress_ids"),
        "begin_suppress_tokens": values.get("suppress_ids_begin"),
    }
    if end == 50256:  # models for English alone; the vocabulary of the others is longer by one
        return found | {"forced_decoder_ids": [[1, untimed]]}
    languages = {name: id for name, id in tokens.items() if re.fullmatch(r"<\|[a-z]{2,3}\|>", name)}
    tasks = {name: tokens.get(f"<|{name}|>") for name in ("transcribe", "translate")}
    return found | {"lang_to_id": languages, "task_to_id": tasks}


def read_tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the weights by the names that they have in a Hugging Face folder."""
    for name, tensor in _variables(path).items():
        if not tensor.ndim:
            continue
        if tensor.dtype in _INTEGERS.values():
            raise ModelUnavailable(
                f"{path} has weights of the type {tensor.dtype}, which is not supported. Choose a "
                "version of the model with weights in float16 or float32."
            )
        stem, _, leaf = name.rpartition("/")
        place = re.fullmatch(r"(encoder|decoder)/(?:layer_(\d+)/)?(.+)", stem)
        if place is None or leaf not in _LEAVES:
            continue
        stack, layer, part = place.groups()
        at = f"model.{stack}." + (f"layers.{layer}." if layer else "")
        parts = _STACKED.get(part) or ((_NAMES[part],) if part in _NAMES else ())
        rows = len(tensor) // max(len(parts), 1)
        for number, own in enumerate(parts):
            yield f"{at}{own}.{_LEAVES[leaf]}", tensor[number * rows : (number + 1) * rows]


def _variables(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{path} cannot be read: {error}") from error
    place = 0

    def number(form: str) -> int:
        nonlocal place
        [value] = struct.unpack_from(form, data, place)
        place += struct.calcsize(form)
        return int(value)

    def text() -> str:
        nonlocal place
        length = number("<H")
        place += length
        return data[place - length : place].rstrip(b"\0").decode()

    found = {}
    try:
        if number("<I") != _VERSION:
            raise _damaged(path)
        if (kind := text()) != "WhisperSpec":
            raise ModelUnavailable(
                f"{path} is not supported: it is a {shown(kind, 60)} of CTranslate2, of which only "
                "Whisper is read. Choose the model's own folder with safetensors."
            )
        number("<I")  # of the specification's revisions
        for _ in range(number("<I")):
            name = text()
            shape = [number("<I") for _ in range(number("<B"))]
            dtype = (_DTYPES | _INTEGERS)[number("<B")]
            length = number("<I")
            found[name] = np.frombuffer(data, dtype, length // dtype.itemsize, place).reshape(shape)
            place += length
    except (struct.error, ValueError, KeyError) as error:
        raise _damaged(path) from error
    return found


def _special_tokens(folder: Path) -> dict[str, int]:
    """The tokens that the tokenizer adds to its vocabulary; empty if it is missing or damaged."""
    path = folder / "tokenizer.json"
    try:
        found = path.stat()
        return _added_tokens(path, (found.st_mtime_ns, found.st_size))
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@functools.lru_cache(8)
def _added_tokens(path: Path, _stamp: tuple[int, int]) -> dict[str, int]:
    # Models are listed at the end of every request, and to read the vocabulary takes 35 ms.
    added = json.loads(read_text(path))["added_tokens"]
    return {token["content"]: int(token["id"]) for token in added}


def _damaged(path: Path) -> ModelUnavailable:
    return ModelUnavailable(
        f"{path} is damaged, or in a form of CTranslate2's that is not known here. Download or "
        "copy the file again."
    )
