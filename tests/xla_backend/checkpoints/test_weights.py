"""Weights under one set of names from every file format, and clear words about broken ones.

The oracle is Transformers' own TensorFlow model: what its variables hold, and what it saves.
"""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests import checkpoints
from tests.oracle import Oracle, load_oracle
from tests.program import python
from xla_backend.checkpoints.weights import (
    read_config,
    read_stored,
    read_weights,
    sample,
    weight_files,
)
from xla_backend.interface.errors import ModelUnavailable

CHECKPOINTS: dict[str, Callable[[Path], Path]] = {
    "gpt2": checkpoints.gpt2,
    "gpt2-inner": lambda folder: checkpoints.gpt2(folder, hub_names=False, n_inner=64),
    "opt": checkpoints.opt,
    "opt-post-norm": lambda folder: checkpoints.opt(
        folder, hub_names=False, do_layer_norm_before=False, word_embed_proj_dim=32
    ),
    "t5": lambda folder: checkpoints.t5(folder, num_decoder_layers=1),
    "t5-gated": lambda folder: checkpoints.t5(
        folder, feed_forward_proj="gated-gelu", tie_word_embeddings=False
    ),
    "whisper": checkpoints.whisper,
}


@pytest.fixture(scope="module", params=CHECKPOINTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CHECKPOINTS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def model(folder: Path) -> Oracle:
    return load_oracle(folder)


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    return checkpoints.gpt2(tmp_path / "gpt2")


def _assert_holds(weights: dict[str, np.ndarray], model: Oracle) -> None:
    expected = model.weights()
    assert sorted(weights) == sorted(expected)
    for name, tensor in weights.items():
        assert tensor.dtype == np.float32
        assert tensor.flags.c_contiguous
        np.testing.assert_array_equal(tensor, expected[name].reshape(tensor.shape), err_msg=name)


def test_pytorch_format_gives_what_the_model_holds(folder: Path, model: Oracle):
    _assert_holds(read_weights(folder), model)


@pytest.mark.parametrize(
    ("safe", "shard_size"),
    [(True, "10GB"), (True, "60KB"), (False, "10GB")],
    ids=["safetensors", "sharded-safetensors", "h5"],
)
def test_tensorflow_format_is_the_model(model: Oracle, tmp_path: Path, safe: bool, shard_size: str):
    model.save_pretrained(str(tmp_path), safe_serialization=safe, max_shard_size=shard_size)
    names = [path.name for path in weight_files(tmp_path)]
    assert (len(names) > 1) == (shard_size == "60KB")
    assert names[0].endswith(".safetensors" if safe else ".h5")
    _assert_holds(read_weights(tmp_path), model)


def test_the_model_loads_what_was_read(folder: Path, model: Oracle, tmp_path: Path):
    for name in ("config.json", "generation_config.json"):
        shutil.copy(folder / name, tmp_path)
    save_file(read_weights(folder), tmp_path / "model.safetensors", {"format": "pt"})
    ids = np.int32([[7, 6, 0, 0, 1], [1, 2, 3, 0, 0], [0, 0, 0, 4, 5]])
    inputs = {
        "t5": {"input_ids": ids, "decoder_input_ids": ids},
        "whisper": {
            "input_features": np.ones((1, 80, 200), np.float32),
            "decoder_input_ids": np.int32([[401, 402, 5]]),
        },
    }.get(read_config(folder).model_type, {"input_ids": ids})
    other = load_oracle(tmp_path)
    np.testing.assert_array_equal(other.logits(inputs), model.logits(inputs))


def test_sharded_pytorch_format(folder: Path, tmp_path: Path):
    whole = load_file(folder / "model.safetensors")
    shutil.copy(folder / "config.json", tmp_path)
    placed = {}
    for number, names in enumerate(np.array_split(sorted(whole), 3), start=1):
        file = f"model-0000{number}-of-00003.safetensors"
        save_file({name: whole[name] for name in names}, tmp_path / file, {"format": "pt"})
        placed |= dict.fromkeys(map(str, names), file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    expected = read_weights(folder)
    found = read_weights(tmp_path)
    assert list(found) == list(expected)
    for name, tensor in found.items():
        np.testing.assert_array_equal(tensor, expected[name])

    # What another version left in a file is not read: the index says where a tensor is.
    stale = tmp_path / "model-00003-of-00003.safetensors"
    first = min(whole)
    save_file({**load_file(stale), first: whole[first] * 0}, stale, {"format": "pt"})
    for name, tensor in read_weights(tmp_path).items():
        np.testing.assert_array_equal(tensor, expected[name])

    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match=r"misses 1 of its 3 weight files: model-00002-of"):
        read_weights(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(ModelUnavailable, match="no weight files of its own folder"):
        read_weights(tmp_path)


def test_a_sample_tells_files_of_other_weights_apart(tmp_path: Path):
    zeros = np.zeros(1_000_000, np.float32)
    late, trained = zeros.copy(), zeros + np.linspace(1e-3, 2e-3, zeros.size, dtype=np.float32)
    late[900_000:] = 1
    samples = []
    for number, tensor in enumerate((zeros, late, trained)):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_file({"a": tensor}, folder / "model.safetensors")
        assert sample(folder) == sample(folder)
        samples.append(sample(folder))
    assert len(set(samples)) == 3
    assert max(map(len, samples)) < 2**17


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_floats_are_widened_exactly(gpt2: Path, dtype: str):
    import ml_dtypes

    path = gpt2 / "model.safetensors"
    stored = {
        name: tensor.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for name, tensor in load_file(path).items()
    }
    _save_any(stored, path)
    for name, tensor in read_weights(gpt2).items():
        assert tensor.dtype == np.float32
        expected = stored[name.removeprefix("transformer.")].astype(np.float32)
        np.testing.assert_array_equal(tensor, expected)
    if dtype == "float64":
        kept = read_stored(gpt2)
        assert {str(tensor.dtype) for tensor in kept.values()} == {"float32"}
        for name, tensor in read_weights(gpt2).items():
            np.testing.assert_array_equal(kept[name], tensor)


def _save_any(tensors: dict[str, np.ndarray], path: Path, pad: int = 0) -> None:
    """Writes safetensors of any dtype; `pad` shifts the tensors off their usual alignment."""
    words = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    words |= {"int8": "I8"}
    header, place = {}, 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": words[tensor.dtype.name],
            "shape": tensor.shape,
            "data_offsets": [place, place + tensor.nbytes],
        }
        place += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    body = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def test_tensors_off_alignment_are_read_and_float32_is_mapped(gpt2: Path) -> None:
    weights = read_weights(gpt2)
    assert not any(tensor.flags.owndata or tensor.flags.writeable for tensor in weights.values())

    expected = {name: tensor.copy() for name, tensor in read_weights(gpt2).items()}
    _save_any(load_file(gpt2 / "model.safetensors"), gpt2 / "model.safetensors", pad=3)
    for name, tensor in read_weights(gpt2).items():
        assert tensor.flags.aligned
        np.testing.assert_array_equal(tensor, expected[name])


def test_old_t5_files_with_every_alias_of_the_embeddings(tmp_path: Path):
    folder = checkpoints.t5(tmp_path)
    expected = {name: tensor.copy() for name, tensor in read_weights(folder).items()}
    stored = load_file(folder / "model.safetensors")
    embeddings = stored.pop("shared.weight")
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"):
        stored[f"{name}.weight"] = embeddings
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    stored[unused] = np.zeros((32, 4), np.float32)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    found = read_weights(folder)
    assert list(found) == list(expected)
    np.testing.assert_array_equal(found["shared.weight"], expected["shared.weight"])


def test_names_of_keras_files_from_before_2020(gpt2: Path):
    # openai-community/gpt2 and google-t5/t5-small have such: embeddings called `weight`.
    import h5py

    expected = {name: tensor.copy() for name, tensor in read_weights(gpt2).items()}
    (gpt2 / "model.safetensors").unlink()
    with h5py.File(gpt2 / "tf_model.h5", "w") as file:
        layer = file.create_group("transformer")
        names = []
        for name, tensor in expected.items():
            levels = name.split(".")
            leaf = levels.pop()
            if levels[-1].startswith("ln_"):
                leaf = {"weight": "gamma", "bias": "beta"}[leaf]
            elif leaf == "bias":
                tensor = tensor[None]
            path = "/".join(levels).replace("h/", "h_._")
            names.append(f"tf_gpt2lm_head_model/{path}/{leaf}:0")
            layer.create_dataset(names[-1], data=tensor)
        layer.attrs["weight_names"] = [name.encode() for name in names]
    found = read_weights(gpt2)
    for name, tensor in found.items():
        np.testing.assert_array_equal(tensor, expected[name])


@pytest.mark.parametrize(
    ("changes", "tied", "start"),
    [
        ({}, True, 0),
        ({"tie_word_embeddings": False}, False, 0),
        # As Transformers 5 saves it.
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False, 0),
        ({"decoder_start_token_id": None}, True, None),
    ],
)
def test_what_a_t5_config_means(tmp_path: Path, changes: dict, tied: bool, start: int | None):
    path = checkpoints.t5(tmp_path) / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: v for name, v in values.items() if v is not None}))
    config = read_config(tmp_path)
    assert (config.tie_word_embeddings, config.decoder_start_token_id) == (tied, start)


# What is broken


def _truncate(size: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate(0), "ends after 0 bytes, inside its header"),
        (_truncate(100), "ends after 100 bytes, inside its header"),
        (_truncate(-4), r"should have \d+ bytes and ends after \d+"),
        (lambda path: path.write_bytes(LFS_POINTER), "is a Git LFS pointer"),
        (lambda path: path.write_bytes(b"\x10" + 7 * b"\0" + 16 * b"x"), "header is not JSON"),
        (lambda path: path.write_bytes(b"\x02" + 7 * b"\0" + b"[]"), "do not fit together"),
        (lambda path: path.write_bytes(b"\x07" + 7 * b"\0" + b'{"a":1}'), "do not fit together"),
        (lambda path: path.write_bytes(8 * b"\xff" + b"{}"), "inside its header"),
        (
            lambda path: path.write_bytes(
                b"\x80" + 7 * b"\0"
                + b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}'.ljust(128) + 8 * b"\0"
            ),
            "do not fit together",
        ),
        (
            lambda path: path.write_bytes(
                b"\x80" + 7 * b"\0"
                + b'{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}'.ljust(128)
                + 8 * b"\0"
            ),
            "stores a as F8_E4M3",
        ),
        (lambda path: _save_any({"h.0.attn.c_attn.weight": np.zeros(2, "f4")}, path), "27 of 28"),
    ],
)  # fmt: skip
def test_a_broken_safetensors_file_is_named(gpt2: Path, damage: Callable, message: str):
    damage(gpt2 / "model.safetensors")
    with pytest.raises(ModelUnavailable, match=message) as caught:
        read_weights(gpt2)
    assert str(gpt2) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"x" * 999, LFS_POINTER])
def test_a_broken_h5_file_is_named(gpt2: Path, content: bytes):
    (gpt2 / "model.safetensors").unlink()
    (gpt2 / "tf_model.h5").write_bytes(content)
    with pytest.raises(ModelUnavailable, match=r"tf_model\.h5 is damaged: .* Download or copy"):
        read_weights(gpt2)


def test_weights_of_another_shape_or_kind_are_refused(gpt2: Path):
    tensors = load_file(gpt2 / "model.safetensors")
    tensors["ln_f.bias"] = np.zeros(48, np.int8)
    _save_any(tensors, gpt2 / "model.safetensors")
    with pytest.raises(ModelUnavailable, match=r"transformer\.ln_f\.bias .* stored as int8"):
        read_weights(gpt2)
    tensors["ln_f.bias"] = np.zeros(47, np.float32)
    _save_any(tensors, gpt2 / "model.safetensors")
    with pytest.raises(ModelUnavailable, match=r"ln_f\.bias .* shape \(47,\), .* asks for \(48,\)"):
        read_weights(gpt2)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_values_that_are_no_numbers_are_refused(gpt2: Path, dtype: str, value: float):
    tensors = load_file(gpt2 / "model.safetensors")
    broken = tensors["ln_f.bias"].astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    broken[-1] = value
    _save_any({**tensors, "ln_f.bias": broken}, gpt2 / "model.safetensors")
    for read in (read_weights, read_stored):
        with pytest.raises(ModelUnavailable, match=r"ln_f\.bias .* not finite numbers"):
            read(gpt2)


def test_a_file_is_what_it_is_and_pickles_are_never_opened(gpt2: Path) -> None:
    (gpt2 / "model.safetensors").rename(gpt2 / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match=r"only as pytorch_model\.bin, a pickle"):
        read_weights(gpt2)
    (gpt2 / "pytorch_model.bin").unlink()
    with pytest.raises(ModelUnavailable, match="has no weights"):
        read_weights(gpt2)

    (gpt2 / "config.json").rename(gpt2 / "adapter_config.json")
    with pytest.raises(ModelUnavailable, match="is a LoRA adapter"):
        read_weights(gpt2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mixtral"}, "not supported: its config.json says 'mixtral'"),
        ({"model_type": None}, "says no model_type"),
        ({"model_type": ["gpt2"]}, "not supported"),
        ({"n_embd": "wide"}, "invalid for a gpt2 model: .*'n_embd' expected int, got str .*'wide'"),
        ({"n_embd": 50}, "n_head to 4, which does not divide"),
        ({"n_layer": 0}, "n_layer to 0"),
        ({"n_layer": 10**9}, "n_layer to 1000000000; .* from 1 to 1000"),
        ({"vocab_size": -1}, "vocab_size to -1"),
        ({"n_head": True}, "invalid for a gpt2 model: .*'n_head' expected int, got bool .*True"),
        ({"tie_word_embeddings": False}, "sets tie_word_embeddings to false"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx to true"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized weights"),
    ],
)
def test_a_config_that_makes_no_model_is_refused(gpt2: Path, changes: dict, message: str):
    path = gpt2 / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ModelUnavailable, match=message):
        read_config(gpt2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "config.json is damaged: it is not JSON"),
        (b'{"model_type": "gpt2"', "config.json is damaged: it is not JSON"),
        (b"\xff\xfe", "config.json is damaged: it is not JSON"),
        (b"[" * 100_000, "config.json is damaged: it is not JSON"),
        (b"[]", "config.json is damaged: it is JSON, but not an object"),
    ],
)
def test_a_config_that_is_not_json_is_refused(gpt2: Path, content: bytes, message: str):
    (gpt2 / "config.json").write_bytes(content)
    with pytest.raises(ModelUnavailable, match=message):
        read_config(gpt2)


def test_reading_weights_imports_no_tensorflow(gpt2: Path):
    code = (
        "import sys; from pathlib import Path; import xla_backend.checkpoints.weights as weights\n"
        "assert not {'transformers', 'h5py'} & set(sys.modules)\n"
        "assert len(weights.read_weights(Path(sys.argv[1]))) == 28\n"
        "assert not {'tensorflow', 'keras', 'torch'} & set(sys.modules)\n"
    )
    python(code, gpt2)
