"""GGUF files: each quantization against llama.cpp's own package; damage of all kinds."""

import random
import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from tests import gguf_files
from tests.checkpoints import gpt2
from xla_backend.checkpoints.formats import gguf_model, gguf_tokenizer
from xla_backend.checkpoints.formats.gguf_file import GGUFFile
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.kernels.matmul.blocks import FORMATS, Blocks

QUANTIZED = (Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
READ_ONLY = (Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.IQ4_XS)
READ_ONLY += (Kind.MXFP4,)
"""Formats that the package does not write, or in a coarser way."""


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
def test_quantized_matrices_are_near_to_what_they_were(kind: Kind, path: Path) -> None:
    expected = gguf_files.weights("llama")
    with gguf_files.writing(path, "llama") as writer:
        gguf_files.add_tensors(writer, "llama", expected, kind)
    bits = {Kind.F16: 11, Kind.BF16: 8, Kind.Q8_0: 7}.get(kind, 4 if "5" in kind.name else 3)
    for name, tensor in gguf_model.read_tensors(path):
        exact = expected[name]
        tolerance = np.abs(exact).max() * 2.0**-bits if exact.ndim == 2 else 0
        np.testing.assert_allclose(tensor, exact, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("kind", [*QUANTIZED, *READ_ONLY], ids=lambda kind: kind.name)
def test_quantization_is_undone_as_llama_cpps_package_does(kind: Kind, path: Path) -> None:
    """Also over the border of the parts in which it is done, each row as if it were alone."""
    rows, columns = 2500, 512
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(1)
    # Scales anywhere in a block would be infinite at times: only small exponents everywhere.
    stored = rng.integers(0, 0x30, (rows, columns // block * size), np.uint8)
    if kind is Kind.MXFP4:  # whose scales are the exponents alone
        exponents = stored.reshape(rows, -1, size)[:, :, 0]
        exponents[:] = exponents // 2 + 104
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a", stored, raw_dtype=kind)
    gguf_files.finish(writer)
    file, expected = GGUFFile(path), gguf.dequantize(stored, kind)
    found = file.read("a")
    assert (found.shape, found.dtype) == ((rows, columns), np.float32)
    np.testing.assert_array_equal(found, expected)

    kept = file.read_stored("a")
    assert isinstance(kept, Blocks) == (kind.name in FORMATS)
    wide = kept.dequantized() if isinstance(kept, Blocks) else kept.astype(np.float32)
    assert isinstance(kept, Blocks) or kept.dtype.itemsize == 2
    np.testing.assert_array_equal(wide, expected)


def test_reading_a_tensor_takes_little_more_than_the_tensor(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a", np.zeros((16_000, 34 * 32), np.uint8), raw_dtype=Kind.Q8_0)
    gguf_files.finish(writer)
    file = GGUFFile(path)
    tracemalloc.start()
    size = file.read("a").nbytes
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 16_000 * 1024 * 4
    assert most < size + 40e6


def test_what_cannot_be_dequantized_is_named(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a", np.zeros((2, 40), np.uint8), raw_dtype=Kind.Q8_1)
    gguf_files.finish(writer)
    with pytest.raises(ModelUnavailable, match=r"Q8_1, which is not supported\. Choose"):
        GGUFFile(path).read("a")


# Damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small model with a tokenizer."""
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("whole")
    tokenizer = Tokenizer.from_file(str(gpt2(folder / "gpt2") / "tokenizer.json"))
    path = folder / "model.gguf"
    with gguf_files.writing(path, "llama") as writer:
        gguf_files.add_byte_level(writer, tokenizer, "gpt-2")
        writer.add_chat_template("{{ messages }}")
        gguf_files.add_tensors(writer, "llama", gguf_files.weights("llama"), Kind.Q8_0)
    return path.read_bytes()


def read_all(path: Path) -> None:
    """All that is ever read of a file."""
    gguf_model.read_config_values(path)
    dict(gguf_model.read_tensors(path))
    gguf_tokenizer.load(path)


def is_read(path: Path, data: bytes) -> bool:
    """Whether a file with these bytes is read; if it is not, then with an error that helps."""
    path.write_bytes(data)
    try:
        read_all(path)
    except ModelUnavailable as error:
        message = str(error)
        assert str(path) in message
        assert any(word in message for word in ("Download", "Choose", "Convert", "Join")), message
        return False
    return True


def test_a_file_that_was_cut_off_is_damaged(whole: bytes, path: Path) -> None:
    assert is_read(path, whole)
    ends = [*range(0, 2000, 61), *range(2000, len(whole), len(whole) // 60), len(whole) - 33]
    assert [end for end in ends if is_read(path, whole[:end])] == []


def test_changed_bytes_never_crash(whole: bytes, path: Path) -> None:
    """Three hundred files with a few wrong bytes each, most in the part with lengths."""
    rng = random.Random(0)
    header = whole.index(b"output_norm.weight")
    read = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(rng.choice([600, header, len(whole)]))
            data[place] = rng.choice([rng.randrange(256), 0, 255])
        read += is_read(path, bytes(data))
    assert 0 < read < 300


def counts(tensors: int, keys: int) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, tensors, keys)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes, *axes: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "does not begin"),
    "only the name": (b"GGUF", "does not begin"),
    "another format": (b"PK\x03\x04" * 9, "does not begin"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "the first version": (struct.pack("<4sI", b"GGUF", 1) + bytes(99), "version 1"),
    "big-endian": (struct.pack(">4sI", b"GGUF", 3) + bytes(99), "big-endian"),
    "countless keys": (counts(0, 2**63), "counts"),
    "countless tensors": (counts(2**63, 0), "counts"),
    "many keys": (counts(0, 60_000) + bytes(999), "twice"),
    "an endless name": (counts(0, 1) + struct.pack("<Q", 2**64 - 1), "counts"),
    "a name beyond the end": (counts(0, 1) + struct.pack("<Q", 2**20), "inside its header"),
    "an endless array": (
        counts(0, 1) + text(b"a") + struct.pack("<IIQ", 9, 4, 2**62) + bytes(99),
        "counts",
    ),
    "a long array": (
        counts(0, 1) + text(b"a") + struct.pack("<IIQ", 9, 8, 2**22) + bytes(99),
        "inside its header",
    ),
    "arrays in arrays": (
        counts(0, 1) + text(b"a") + struct.pack("<IIQIQ", 9, 9, 1, 9, 1) + bytes(99),
        "arrays of arrays",
    ),
    "an unknown kind of value": (
        counts(0, 1) + text(b"a") + struct.pack("<I", 77) + bytes(99),
        "unknown type 77",
    ),
    "a name that is no text": (counts(0, 1) + text(b"\xff\xfe") + bytes(99), "UTF-8"),
    "no axes": (counts(1, 0) + tensor(b"a") + bytes(99), "'a' wrongly"),
    "an axis of no length": (counts(1, 0) + tensor(b"a", 4, 0) + bytes(99), "'a' wrongly"),
    "a huge tensor": (
        counts(1, 0) + tensor(b"a", 2**30, 2**30, 2**30, 2**30) + bytes(99),
        "bytes or more and ends after",
    ),
    "an offset beyond the end": (
        counts(1, 0) + tensor(b"a", 4, offset=2**63) + bytes(99),
        "bytes or more and ends after",
    ),
    "an unknown quantization": (
        counts(1, 0) + tensor(b"a", 4, kind=999) + bytes(99),
        "type 999",
    ),
    "a part of a block": (
        counts(1, 0) + tensor(b"a", 33, kind=8) + bytes(99),
        "not a whole number of blocks",
    ),
    "many tensors in one place": (
        counts(9, 0) + b"".join(tensor(b"%d" % i, 64) for i in range(9)) + bytes(320),
        "overlap",
    ),
    "one tensor twice": (counts(2, 0) + tensor(b"a", 4) * 2 + bytes(99), "'a' wrongly"),
    "no alignment": (
        counts(0, 1) + text(b"general.alignment") + struct.pack("<II", 4, 0) + bytes(99),
        "aligns tensors to 0",
    ),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_file_that_was_made_to_harm_is_refused(data: bytes, message: str, path: Path) -> None:
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(ModelUnavailable, match=message):
        GGUFFile(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16e6


@pytest.mark.parametrize(
    ("method", "key", "value", "message"),
    [
        ("add_uint64", "block_count", 2**40, "sets llama.block_count to 1099511627776"),
        ("add_uint32", "attention.head_count", 0, "sets llama.attention.head_count to 0"),
        ("add_array", "embedding_length", [64, 64], "embedding_length to an array"),
        ("add_string", "rope.freq_base", "x", "rope.freq_base to 'x'"),
        ("add_float32", "attention.layer_norm_rms_epsilon", float("nan"), "epsilon to nan"),
    ],
)
def test_settings_that_no_model_has_are_refused(
    method: str, key: str, value: object, message: str, path: Path
) -> None:
    with gguf_files.writing(path, "llama", has_tensors=True) as writer:
        del writer.kv_data[0][f"llama.{key}"]
        getattr(writer, method)(f"llama.{key}", value)
    with pytest.raises(ModelUnavailable, match=message):
        gguf_model.read_config_values(path)


def test_heads_that_do_not_divide_a_matrix_are_refused(path: Path) -> None:
    with gguf_files.writing(path, "llama") as writer:
        writer.add_tensor("blk.0.attn_q.weight", np.zeros((31, 64), np.float32))
    with pytest.raises(ModelUnavailable, match="31 rows for 4 heads"):
        dict(gguf_model.read_tensors(path))
