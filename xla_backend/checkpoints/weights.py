"""Checkpoint folders: reads their config and weights, and checks that both fit together.

Knows `config.json`, the Hub's three weight formats without pickle (safetensors from PyTorch and
from Keras, and `tf_model.h5`), which folders have a GGUF or CTranslate2 file instead, and the
tensors of each architecture. Weights are numpy arrays with the same names in all formats.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from xla_backend.checkpoints.architectures.table import ARCHITECTURES, find
from xla_backend.checkpoints.formats import ctranslate2_model, gguf_file, gguf_model, mapped
from xla_backend.checkpoints.text_files import read_text
from xla_backend.checkpoints.transformers_import import locked_transformers
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown
from xla_backend.kernels.matmul.blocks import Blocks, Weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
KERAS_H5 = "tf_model.h5"

_SAMPLE_BYTES = 2**16

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_IMAGE_MODELS = [name for each in ARCHITECTURES.values() for name in each.image_models]
"""Models of images and text, which read text alone as their text model would. That has a config of
its own inside theirs, and is all that is loaded of them."""
_SHARED_SETTINGS = (
    "tie_word_embeddings bos_token_id eos_token_id pad_token_id quantization_config".split()
)
"""What either of both configs may set."""


def read_config(folder: Path) -> PretrainedConfig:
    """The model's config, with checked sizes and settings."""
    values = read_config_values(folder)
    model_type = values.get("model_type")
    described = find(model_type)
    if described is None:
        found = shown(model_type, 60) if model_type is not None else "no model_type"
        raise ModelUnavailable(
            f"{folder} has an architecture that is not supported: its config.json says {found}. "
            f"Supported are {', '.join(ARCHITECTURES)}."
        )
    quantized = values.get("quantization_config")
    method = quantized.get("quant_method") if isinstance(quantized, dict) else None
    if quantized and method not in described.quantizations:
        raise ModelUnavailable(
            f"{folder} has quantized weights, which are not supported. Choose a version of the "
            "model with weights in float32, float16 or bfloat16."
        )
    try:
        with locked_transformers() as transformers:
            config = transformers.AutoConfig.for_model(**values)
    except Exception as error:  # the config's own checks raise any type
        last_line = str(error).strip().rpartition("\n")[2].strip()[:200]
        raise ModelUnavailable(
            f"{folder / 'config.json'} has values that are invalid for a {model_type} model: "
            f"{last_line}"
        ) from error
    if described.complete:
        described.complete(config, values)
    for name, required in described.required.items():
        value = getattr(config, name, required)
        if value != required:
            raise ModelUnavailable(
                f"{folder} is not supported: its config.json sets {name} to {json.dumps(value)}, "
                f"and the {model_type} model here only follows {json.dumps(required)}."
            )
    _expected_shapes(config, folder)
    return config


def read_config_values(folder: Path) -> dict[str, Any]:
    """The raw values of config.json, or the equivalent for GGUF and CTranslate2.

    Of a model of images and text, those of its text model.
    """
    if (gguf_path := gguf_file.find(folder)) is not None:
        return gguf_model.read_config_values(gguf_path)
    if ctranslate2_model.is_model(folder):
        return ctranslate2_model.read_config_values(folder)
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ModelUnavailable(
            f"{folder} is a LoRA adapter, which only changes another model. Merge it into that "
            "one, with PEFT's `merge_and_unload`, and load the result."
        )
    values = _read_json(folder / "config.json")
    text = values.get("text_config")
    if values.get("model_type") not in _IMAGE_MODELS or not isinstance(text, dict):
        return values
    # All of these tie their head by default; where one is stored, it counts.
    shared = {name: values[name] for name in _SHARED_SETTINGS if values.get(name) is not None}
    return {"tie_word_embeddings": True} | shared | text


def weight_files(folder: Path) -> list[Path]:
    """The files that `read_weights` reads: one file, or all shards."""
    if (gguf_path := gguf_file.find(folder)) is not None:
        return gguf_file.pieces(gguf_path)
    if ctranslate2_model.is_model(folder):
        return [folder / ctranslate2_model.FILE]
    if (folder / SAFETENSORS).is_file():
        return [folder / SAFETENSORS]
    index = folder / SAFETENSORS_INDEX
    if index.is_file():
        names = set(_weight_map(folder).values())
        # Only plain file names: an index must not point outside its folder.
        if not names or not all(
            isinstance(name, str) and Path(name).name == name for name in names
        ):
            raise ModelUnavailable(
                f"{index} lists no weight files of its own folder. Download the model again."
            )
        missing = sorted(name for name in names if not (folder / name).is_file())
        if missing:
            raise ModelUnavailable(
                f"{folder} misses {len(missing)} of its {len(names)} weight files: "
                f"{', '.join(missing[:3])}. Download or copy the model again."
            )
        return [folder / name for name in sorted(names)]
    if (folder / KERAS_H5).is_file():
        return [folder / KERAS_H5]
    pickles = sorted(path.name for path in folder.glob("*.bin"))
    if pickles:
        raise ModelUnavailable(
            f"{folder} has its weights only as {pickles[0]}, a pickle, which can run code when it "
            f"is opened and is therefore never read. Convert it to {SAFETENSORS}."
        )
    raise ModelUnavailable(
        f"{folder} has no weights: one of {SAFETENSORS}, {SAFETENSORS_INDEX} with its shards, or "
        f"{KERAS_H5} must be there. Download or copy the model again."
    )


def check_files(folder: Path) -> None:
    """Does nothing if the files of a model are whole; reads their headers alone."""
    read_config_values(folder)
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            _read_safetensors(path)


def _weight_map(folder: Path) -> dict[str, Any]:
    """The file of each tensor according to the index; empty if there is none."""
    if (folder / SAFETENSORS).is_file() or not (folder / SAFETENSORS_INDEX).is_file():
        return {}
    placed = _read_json(folder / SAFETENSORS_INDEX).get("weight_map")
    if not isinstance(placed, dict):
        return {}
    return {x: str(Path(y)) if isinstance(y, str) else y for x, y in placed.items()}


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """All weights of the model in a folder as float32; otherwise as `read_stored`."""
    stored = read_stored(folder, as_stored=False)
    return {name: _in_float32(tensor) for name, tensor in stored.items()}


def _in_float32(tensor: Weights) -> np.ndarray:
    if isinstance(tensor, Blocks):
        return tensor.dequantized()
    if tensor.dtype == _BFLOAT16:  # the upper half of a float32: several times faster than `astype`
        tensor = (tensor.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return np.require(tensor, dtype=np.float32, requirements=("C", "A"))


def read_stored(folder: Path, *, as_stored: bool = True) -> dict[str, Weights]:
    """All weights of the model in a folder.

    Names and shapes are those of the PyTorch class with its head (`GPT2LMHeadModel`,
    `OPTForCausalLM`, `T5ForConditionalGeneration`, `WhisperForConditionalGeneration`) for all file
    formats. Tied heads and buffers are left out. Tensors are read-only views of the memory-mapped
    file if its numbers have the right type.

    Args:
        as_stored: matrices of a GGUF file keep their blocks; see `GGUFFile.read_stored`.

    Returns:
        Float arrays, at most 32 bits wide, by name: all that the architecture needs and no others,
        in its order.
    """
    folder = Path(folder)
    config = read_config(folder)
    stored: dict[str, Weights] = {}
    placed = _weight_map(folder) if folder.is_dir() else {}
    if any("/" in name for name in placed):
        placed = {}  # Keras writes other names there than in the files
    described = ARCHITECTURES[config.model_type]
    find = described.pieces(config)
    all_tensors = (
        (path, name, tensor)
        for path in weight_files(folder)
        for name, tensor in _read_file(path, as_stored)
        if not placed or placed.get(name) == path.name  # a file may have some of another version
    )
    for path, name, tensor in _joined(all_tensors):
        for own, take in find(_canonical_name(name, described.prefix)):
            try:
                stored[own] = take(tensor)
            except IndexError as error:
                shape = tensor.shape
                raise _damaged(path, f"{name} of the shape {shape} has no {own}") from error
    for alias, name in described.aliases.items():
        if alias in stored:
            stored.setdefault(name, stored[alias])

    expected = {**_expected_shapes(config, folder)}
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    is_tied = embedding in expected and head not in expected
    if is_tied and head in stored:  # as in Transformers: a separate head counts
        if embedding not in stored:
            stored[embedding] = stored[head]
        elif not _are_equal(stored[head], stored[embedding]):
            expected[head] = expected[embedding]
    missing = [name for name in expected if name not in stored]
    if missing:
        raise ModelUnavailable(
            f"the weights in {folder} are incomplete: {len(missing)} of {len(expected)} tensors of "
            f"a {config.model_type} model are missing, the first is {missing[0]}. They may belong "
            "to another model than config.json; download or copy the model again."
        )
    fitted = {name: _fitted(stored[name], name, shape, folder) for name, shape in expected.items()}
    for name, tensor in fitted.items():
        if not _is_finite(tensor):
            raise ModelUnavailable(
                f"{name} in {folder} has values that are not finite numbers, so the model's text "
                "would be nonsense. Download it again, or choose another version of the model."
            )
    return fitted


def _joined(tensors: Iterable[tuple[Path, str, Weights]]) -> Iterator[tuple[Path, str, Weights]]:
    """Joins blocks and scales of MXFP4: a matrix for each expert.

    Transformers has both of all experts as a tensor of bytes, which may lie in different files.
    """
    waiting: dict[str, np.ndarray] = {}
    for path, name, tensor in tensors:
        stem, _, part = name.rpartition("_")
        if part not in ("blocks", "scales") or isinstance(tensor, Blocks):
            yield path, name, tensor
            continue
        waiting[name] = tensor
        if not {f"{stem}_blocks", f"{stem}_scales"} <= waiting.keys():
            continue
        blocks, scales = waiting.pop(f"{stem}_blocks"), waiting.pop(f"{stem}_scales")
        if blocks.dtype != np.uint8 or blocks.shape != (*scales.shape, 16):
            raise _damaged(path, f"{stem}_blocks and its scales do not fit together")
        at, _, own = stem.rpartition(".")
        for number, each in enumerate(scales):
            raw = np.concatenate([each[..., None], blocks[number]], axis=-1)
            whole = Blocks("MXFP4_PAIRS", raw.reshape(len(raw), -1))
            yield path, f"{at}.{number}.{own}", whole


def sample(folder: Path) -> bytes:
    """Some bytes of every weight file, as they are stored, for `naming.identity`.

    The page's process needs it too, so nothing is converted, and little is read. The distance
    between two bytes is odd, so that they are not all the lowest bytes of numbers.
    """
    taken = []
    for path in weight_files(folder):
        try:
            size = path.stat().st_size
            step = size // _SAMPLE_BYTES | 1
            # In parts: a mapping keeps all pages that were read.
            for start in range(0, size, 4096 * step):
                length = min(4096 * step, size - start)
                part = np.memmap(path, np.uint8, "r", start, (length,))
                taken.append(part[::step].tobytes())
        except (OSError, ValueError) as error:
            raise _damaged(path, f"it cannot be read ({error})") from error
    return b"".join(taken)


def _fitted(tensor: Weights, name: str, shape: tuple[int, ...], folder: Path) -> Weights:
    if isinstance(tensor, Blocks):
        if tensor.shape == shape:
            return tensor
        tensor = tensor.dequantized()  # for the message
    if tensor.dtype.kind != "f" and tensor.dtype != _BFLOAT16:
        raise ModelUnavailable(
            f"{name} in {folder} is stored as {tensor.dtype}; only float64, float32, float16 and "
            "bfloat16 are supported."
        )
    # Keras stores the biases of GPT-2 as (1, n).
    if tensor.shape != shape and tensor.size == math.prod(shape) and 1 in tensor.shape:
        tensor = tensor.reshape(shape)
    if tensor.shape != shape:
        raise ModelUnavailable(
            f"{name} in {folder} has the shape {tensor.shape}, and config.json asks for {shape}: "
            "the weights belong to another config. Download or copy the model again."
        )
    return tensor.astype(np.float32) if tensor.dtype == np.float64 else tensor


def _are_equal(one: Weights, other: Weights) -> bool:
    """Whether two matrices are equal; matrices of blocks never count as equal."""
    if isinstance(one, Blocks) or isinstance(other, Blocks) or one.shape != other.shape:
        return False
    starts = range(0, len(one), 4096)  # some rows at a time take little memory
    return all(np.array_equal(one[at : at + 4096], other[at : at + 4096]) for at in starts)


_INFINITY = {"<f4": 0x7F800000, "<f2": 0x7C00, "bfloat16": 0x7F80}
"""The bits of infinity; without the sign, those of NaN are larger."""


def _is_finite(tensor: Weights) -> bool:
    """Whether all values are finite; in blocks only the scales can be otherwise."""
    if isinstance(tensor, Blocks):
        tensor = tensor.halves()
    infinity = _INFINITY["bfloat16" if tensor.dtype == _BFLOAT16 else tensor.dtype.str]
    bits = tensor.reshape(-1).view(f"<u{tensor.itemsize}")
    sign = np.array(1 << (8 * tensor.itemsize - 1), bits.dtype)
    # A part at a time, which stays in the processor's cache.
    parts = (bits[start : start + 2**17] for start in range(0, bits.size, 2**17))
    return all(int((part & ~sign).max()) < infinity for part in parts)


# Names


def _canonical_name(name: str, prefix: str) -> str:
    """The name in the class with a head, for a file of any of the model's classes."""
    if not prefix:
        return name.removeprefix("transformer.")
    name = re.sub(r"^(model\.)?(language_model|text_model)\.", "", name)  # of `_IMAGE_MODELS`
    if name.startswith(("lm_head.", "proj_out.")):
        return name
    return prefix + name.removeprefix(prefix)


_KERAS_LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


def _from_keras(name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """A Keras variable with its PyTorch name and PyTorch's order of axes.

    `h_._0/ln_1/gamma:0` is `h.0.ln_1.weight`. Kernels, dense (in, out) and convolutional
    (width, in, out), have their axes reversed in PyTorch.
    """
    levels = name.removesuffix(":0").replace("_._", "/").split("/")
    if levels[-1] == "kernel":
        tensor = tensor.T
    levels[-1] = _KERAS_LEAVES.get(levels[-1], levels[-1])
    return ".".join(levels), tensor


# Files


def _read_file(path: Path, as_stored: bool) -> Iterable[tuple[str, Weights]]:
    if path.name == ctranslate2_model.FILE:
        return ctranslate2_model.read_tensors(path)
    if path.name == KERAS_H5:
        return _read_h5(path).items()
    if path.suffix == ".safetensors":
        return _read_safetensors(path).items()
    if gguf_file.pieces(path)[0] != path:  # read with the first
        return ()
    return gguf_model.read_tensors(path, as_stored=as_stored)


_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": _BFLOAT16}
_OTHERS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
_STORED_DTYPES = {name: np.dtype(each) for name, each in (_FLOATS | _OTHERS).items()}


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a file: views of the mapped file.

    The format: eight bytes with the length of a JSON header, the header, the tensors. We read it
    ourselves because the library's numpy reader copies every tensor and lacks bfloat16.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if start == b"version ":
                raise _damaged(path, "it is a Git LFS pointer, not the file itself")
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > size - 8:
                raise _damaged(path, f"it ends after {size} bytes, inside its header")
            header = json.loads(file.read(length))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    tensors = {}
    try:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if end > size - 8 - length:
                raise _damaged(
                    path, f"it should have {8 + length + end} bytes and ends after {size}"
                )
            stored = mapped.part(data, 8 + length + begin, end - begin)
            if entry["dtype"] in _STORED_DTYPES:
                tensor = stored.view(_STORED_DTYPES[entry["dtype"]])
            else:
                raise ModelUnavailable(
                    f"{path} stores {name} as {entry['dtype']}; only F64, F32, F16 and BF16 are "
                    "supported. Choose a version of the model that is not quantized."
                )
            tensor = tensor.reshape([int(axis) for axis in entry["shape"]])
            if "/" in name:
                name, tensor = _from_keras(name, tensor)
            tensors[name] = tensor
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, "its header and its tensors do not fit together") from error
    return tensors


def _read_h5(path: Path) -> dict[str, np.ndarray]:
    """All variables of a Keras weight file, by their PyTorch names."""
    import h5py

    tensors = {}
    try:
        with h5py.File(path, "r") as file:
            for layer in file.values():
                for name in layer.attrs.get("weight_names", ()):
                    name = name.decode() if isinstance(name, bytes) else str(name)
                    # The first level is the name of the whole model.
                    local = name.split("/", 1)[-1]
                    pytorch_name, tensor = _from_keras(local, np.asarray(layer[name]))
                    tensors[pytorch_name] = tensor
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        with path.open("rb") as file:
            if file.read(8) == b"version ":
                reason = "it is a Git LFS pointer, not the file itself"
                raise _damaged(path, reason) from error
        raise _damaged(path, "HDF5 cannot read it") from error
    return tensors


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_text(path), object_hook=_with_floats)
    except FileNotFoundError as error:
        raise ModelUnavailable(
            f"{path.parent} is not a model: it has no {path.name}. Give a folder with "
            "config.json, the tokenizer's files and the weights."
        ) from error
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise _damaged(path, "it is JSON, but not an object")
    return values


def _with_floats(values: dict[str, Any]) -> Any:
    """An object of JSON; Transformers writes numbers that JSON has not as objects."""
    return float(str(values["__float__"])) if values.keys() == {"__float__"} else values


def _damaged(path: Path, reason: str) -> ModelUnavailable:
    return ModelUnavailable(f"{path} is damaged: {reason}. Download or copy the file again.")


# Shapes


def _expected_shapes(config: PretrainedConfig, folder: Path) -> Mapping[str, tuple[int, ...]]:
    """Name and shape of all tensors of a model with this config."""
    where, described = folder / "config.json", ARCHITECTURES[config.model_type]
    for name in described.sizes:
        value = getattr(config, name, None)
        # Without a bound on layers, a wrong number would fill the memory with names.
        limit = 1000 if "layer" in name else 2**31 - 1
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= limit:
            raise ModelUnavailable(
                f"{where} sets {name} to {shown(value)}; it must be a whole number from 1 to "
                f"{limit}."
            )
    for heads in (name for name in described.sizes if name.endswith(("head", "_heads"))):
        # All configurations have hidden_size.
        if described.heads_divide_width and config.hidden_size % getattr(config, heads):
            raise ModelUnavailable(
                f"{where} sets {heads} to {getattr(config, heads)}, which does not divide the "
                f"model's width, {config.hidden_size}."
            )
    return dict(described.shapes(config))
