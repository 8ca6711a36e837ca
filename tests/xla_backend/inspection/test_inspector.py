"""Looking inside from outside the engine: by a real process, over a store that it filled."""

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests import checkpoints
from xla_backend import CacheKey, InvalidRequest
from xla_backend.checkpoints.models import Registry
from xla_backend.compilation.store import Store
from xla_backend.inspection import texts
from xla_backend.inspection.inspection import Inspection
from xla_backend.inspection.inspector import TEXTS, Inspector
from xla_backend.inspection.measurement import Measurement
from xla_backend.prediction.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[3]
KEY = CacheKey(16, 1, 8)
COUNTS = {
    *("operations", "hlo_instructions", "kernels", "flops", "bytes"),
    *("constants_bytes", "code_bytes", "compile_s"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the command below has put the functions."""
    return tmp_path_factory.mktemp("inside")


@pytest.fixture(scope="module")
def reported(store: Path, small_gpt2: Path) -> dict:
    """What the command says of a model whose functions it has to make first."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "xla_backend", "inspect", "--json", "--model", str(small_gpt2)),
            *("--padded-length", "16", "--num-beams", "1", "--max-new-tokens", "8"),
            *("--store", str(store)),
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def inspector(reported: dict, store: Path) -> Inspector:
    assert reported
    return Inspector(Store(store), Registry(), gives_way=False)


@pytest.fixture(scope="module")
def identity(small_gpt2: Path) -> str:
    return Vocabulary.load(Registry().locate(str(small_gpt2))).identity


@pytest.fixture(scope="module")
def seen(inspector: Inspector, small_gpt2: Path, identity: str) -> Inspection:
    return inspector.inspect(str(small_gpt2), identity, KEY)


def sizes(folder: Path) -> dict[str, int]:
    """How many numbers each weight of the checkpoint holds, but the mask that it keeps."""
    arrays = load_file(folder / "model.safetensors")
    return {name: array.size for name, array in arrays.items() if not name.endswith("attn.bias")}


def test_the_command_says_all_of_both_functions(reported: dict) -> None:
    assert set(reported) == {"prefill", "decode"}
    for function in reported.values():
        assert set(function) >= COUNTS
        assert all(function[name] > 0 for name in COUNTS)
        assert function["kernels"] == len(function["kernel_list"])
        assert function["bytes"] == sum(kernel["bytes"] for kernel in function["kernel_list"])
        assert function["optimized_instructions"] < function["hlo_instructions"]


def test_every_matrix_is_read_once_a_token(reported: dict, small_gpt2: Path) -> None:
    width = json.loads((small_gpt2 / "config.json").read_text())["n_embd"]
    numbers = sizes(small_gpt2)
    kernels = reported["decode"]["kernel_list"]
    read = Counter(name for kernel in kernels for name in kernel["weights"])
    matrices = {f"transformer.{name}" for name in numbers if ".c_" in name and "bias" not in name}
    assert {name: read[name] for name in matrices} == dict.fromkeys(matrices, 1)
    # All as the head and the layers read them; of positions a row, of the embedding a column. A
    # bias may be needed by two kernels.
    once = sum(size for name, size in numbers.items() if "wpe" not in name) + 2 * width
    assert 4 * once <= reported["decode"]["weight_bytes"] < 1.01 * 4 * once


def test_products_count_two_operations_a_weight(reported: dict, small_gpt2: Path) -> None:
    config = json.loads((small_gpt2 / "config.json").read_text())
    width, layers = config["n_embd"], config["n_layer"]
    matrices = sum(
        size
        for name, size in sizes(small_gpt2).items()
        if name.endswith("weight") and not any(part in name for part in ("wpe", "ln_"))
    )
    attention = 2 * layers * width * (KEY.padded_length + KEY.max_new_tokens)  # scores and values
    products = 2 * (matrices + attention)
    assert products < reported["decode"]["flops"] < 1.2 * products  # rest: norms, choice


def test_kernels_tell_layer_part_and_line(seen: Inspection, small_gpt2: Path) -> None:
    kernels = seen.decode.kernels
    layers = json.loads((small_gpt2 / "config.json").read_text())["n_layer"]
    assert {kernel.layer for kernel in kernels} == {None, *range(layers)}
    parts = {kernel.part for kernel in kernels}
    assert parts >= {"attention", "feed-forward", "norm", "head", "embedding", "token choice"}
    (head,) = [kernel for kernel in kernels if kernel.part == "head" and kernel.weights]
    assert head.layer is None
    files = {kernel.source.partition(":")[0] for kernel in kernels} - {""}
    assert "model/families/blocks.py" in files
    assert all((ROOT / "xla_backend" / file).is_file() for file in files)
    for kernel in kernels:
        for weight in kernel.weights:
            assert f".h.{kernel.layer}." in weight or kernel.layer is None


def test_the_store_s_keys_are_listed(inspector: Inspector, identity: str, small_gpt2: Path) -> None:
    assert inspector.keys(identity) == [KEY]
    assert inspector.keys("0" * 20) == []
    with pytest.raises(InvalidRequest, match="generate a text"):
        inspector.inspect(str(small_gpt2), identity, CacheKey(16, 2, 8))


def test_each_pass_is_told(inspector: Inspector, small_gpt2: Path, identity: str) -> None:
    passes = inspector.passes(str(small_gpt2), identity, KEY)
    assert {"algsimp", "layout-assignment", "fusion"} <= {one.name for one in passes}
    assert all(one.added or one.removed for one in passes)
    assert "%fused_computation" in next(one.diff for one in passes if one.name == "fusion")
    assert inspector.made_passes(identity, KEY) == passes


def test_a_model_with_an_encoder_has_no_layer_of_its_own(tmp_path: Path) -> None:
    model = str(checkpoints.t5(tmp_path / "t5"))
    with pytest.raises(InvalidRequest, match="without an encoder"):
        texts.passes(tmp_path, model, Registry(), KEY)


@pytest.mark.release
def test_a_token_is_measured(
    inspector: Inspector, small_gpt2: Path, identity: str, seen: Inspection
) -> None:
    assert inspector.measured(identity, KEY) is None
    measured = inspector.measure(str(small_gpt2), identity, KEY)
    assert set(measured.kernel_s) <= {kernel.name for kernel in seen.decode.kernels}
    # XLA tells of each kernel, and those of both layers ran.
    assert len(measured.kernel_s) > 0.9 * len(seen.decode.kernels)
    assert measured.kernels_s > 0
    assert math.isclose(
        measured.kernels_s + measured.between_s, max(measured.token_s, measured.kernels_s)
    )
    ways = measured.ways
    assert set(ways) == {"eager", "graph", "xla"}
    assert ways["xla"].kernels < ways["eager"].kernels
    assert measured.over_reading > 0
    assert {form for formats in measured.matrices.values() for form in formats} == {"float32"}
    assert inspector.measured(identity, KEY) == measured
    assert Measurement.from_json(measured.to_json()) == measured


@pytest.mark.release
def test_the_texts_are_xla_s_own(inspector: Inspector, small_gpt2: Path, identity: str) -> None:
    assert inspector.made_texts(identity, KEY) == []
    files = {
        file.name: file.read_text() for file in inspector.texts(str(small_gpt2), identity, KEY)
    }
    assert set(files) == set(TEXTS)
    assert files["decode.hlo.txt"].startswith("HloModule")
    assert "stablehlo.while" in files["decode.stablehlo.mlir"]
    assert "loc(" not in files["decode.stablehlo.mlir"], "Netron stumbles over some"
    assert files["decode.optimized.dot"].lstrip().startswith("digraph")


def test_kernels_are_shown_as_machine_code(tmp_path: Path) -> None:
    own = Inspector(Store(tmp_path), Registry(), gives_way=False)
    text = own.assembly("matmul_Q8_0")
    assert "\nmicro_kernel1_Q8_0:\n" in text
    assert "# innermost loop: " in text
    assert own.assembly("matmul_Q8_0") is text
    with pytest.raises(InvalidRequest, match="no such kernel"):
        own.assembly("../matmul_Q8_0")


@pytest.mark.release
def test_products_of_our_own_are_counted_and_measured(tmp_path: Path) -> None:
    """A model whose matrices are large enough, kept in the 16 bits that they are stored in."""
    folder = checkpoints.rotary(
        tmp_path / "model",
        "llama",
        dtype="bfloat16",
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
    )
    own = Inspector(Store(tmp_path / "store"), Registry(), gives_way=False)
    name, identity = str(folder), Vocabulary.load(Registry().locate(str(folder))).identity
    own.make(name, KEY)
    decode = own.inspect(name, identity, KEY).decode
    products = [kernel for kernel in decode.kernels if kernel.opcode == "matmul_bfloat16"]
    # Of each layer queries, keys and values; what attention gives; and the network's two.
    numbers = 2 * (512 * (512 + 2 * 256) + 512 * 512 + 3 * 512 * 1024)
    assert len(products) == 8
    assert sum(kernel.flops for kernel in products) == 2 * numbers
    rows = sum(kernel.bytes for kernel in products) - 2 * numbers
    assert 0 < rows < 0.02 * 2 * numbers
    measured = own.measure(name, identity, KEY)
    assert {kernel.name for kernel in products} <= set(measured.kernel_s)
    assert measured.ways["eager"].operations > measured.ways["xla"].kernels
