"""What weights are kept in: whole models that write what their numbers write when kept wide."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests import checkpoints
from xla_backend import Backend, GenerationOptions, GenerationResult
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.interface.results import CacheOutcome
from xla_backend.kernels.graph import matrix
from xla_backend.kernels.matmul.blocks import GROUP, rounded

MODELS: dict[str, Callable[[Path], Path]] = {
    "gpt2": lambda folder: checkpoints.gpt2(folder, n_embd=64),
    "opt": lambda folder: checkpoints.opt(folder, hidden_size=64, word_embed_proj_dim=64),
    "llama": lambda folder: checkpoints.rotary(folder, "llama", hidden_size=64),
    "t5": lambda folder: checkpoints.t5(folder, d_model=64),
}
PROMPT = "The old owl lived in a tree near the river."


@pytest.fixture(autouse=True)
def small_matrices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of our own for all: else these matrices stayed float32."""
    monkeypatch.setattr(matrix, "SMALL", 0)


@contextmanager
def opened(kind: str, store: Path | str = "off") -> Iterator[Backend]:
    backend = Backend(Registry(weights=kind), store=store)
    try:
        yield backend
    finally:
        backend.close()


def written(model: Path, kind: str, num_beams: int = 1) -> tuple[GenerationResult, int]:
    """A text, and the bytes of the weights."""
    with opened(kind) as backend:
        size = backend.load(str(model)).weights_bytes
        assert size is not None
        options = GenerationOptions(max_new_tokens=24, num_beams=num_beams)
        return backend.generate(str(model), PROMPT, options, mode="padded"), size


def are_same(ours: GenerationResult, theirs: GenerationResult) -> None:
    assert [token.id for token in ours.tokens] == [token.id for token in theirs.tokens]
    np.testing.assert_allclose(
        [token.logprob for token in ours.tokens],
        [token.logprob for token in theirs.tokens],
        atol=1e-4,
    )


def rewrite(folder: Path, change: Callable[[str, np.ndarray], np.ndarray]) -> Path:
    """The checkpoint with other numbers."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({name: np.ascontiguousarray(change(name, tensors[name])) for name in tensors}, path)
    return folder


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("llama", "bfloat16"),
        *(
            pytest.param(*each, marks=pytest.mark.release)
            for each in (("gpt2", "bfloat16"), ("opt", "float16"))
        ),
    ],
)
def test_numbers_of_sixteen_bits_stay_as_they_are(name: str, dtype: str, tmp_path: Path) -> None:
    kind = getattr(ml_dtypes, dtype, dtype)
    model = rewrite(MODELS[name](tmp_path / name), lambda _, tensor: tensor.astype(kind))
    ours, size = written(model, "auto")
    theirs, wide = written(model, "float32")
    are_same(ours, theirs)
    assert size < 0.6 * wide
    assert ours.rounded_bits is None


def in_eight_bits(name: str, tensor: np.ndarray) -> np.ndarray:
    """The numbers that a matrix has once it is rounded; positions and biases stay."""
    if tensor.ndim != 2 or any(part in name for part in ("wpe", "positions", "relative")):
        return tensor
    # GPT-2 has its projections the other way round.
    turned = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
    there = tensor.T if turned else tensor
    here = there if there.shape[1] % GROUP else rounded(there).dequantized()
    return here.T if turned else here


@pytest.mark.parametrize(
    ("name", "num_beams"),
    [
        ("gpt2", 3),
        *(
            pytest.param(*each, marks=pytest.mark.release)
            for each in (("llama", 1), ("opt", 1), ("t5", 1))
        ),
    ],
)
def test_eight_bits_write_as_a_wide_checkpoint(name: str, num_beams: int, tmp_path: Path) -> None:
    model = MODELS[name](tmp_path / name)
    ours, size = written(model, "int8", num_beams)
    plain, wide = written(model, "auto", num_beams)
    theirs, _ = written(rewrite(model, in_eight_bits), "float32", num_beams)
    are_same(ours, theirs)
    assert size < 0.6 * wide  # some of these are no multiple of 32 wide
    assert (ours.rounded_bits, plain.rounded_bits, theirs.rounded_bits) == (8, None, None)
    assert plain.tokens[0].logprob != ours.tokens[0].logprob


@pytest.mark.release
def test_bfloat16_rounds_what_is_wider_and_nothing_else(tmp_path: Path) -> None:
    model = MODELS["llama"](tmp_path / "llama")
    ours, _ = written(model, "bfloat16")

    def narrowed(_: str, tensor: np.ndarray) -> np.ndarray:
        has_product = tensor.ndim == 2 and tensor.shape[1] % GROUP == 0
        return tensor.astype(ml_dtypes.bfloat16) if has_product else tensor

    rewrite(model, narrowed)
    are_same(ours, written(model, "float32")[0])
    assert ours.rounded_bits == 16
    with opened("bfloat16") as backend:
        assert backend.load(str(model)).rounded_bits is None


@pytest.mark.release
def test_functions_of_one_kind_serve_no_other(tmp_path: Path) -> None:
    # Of no other test: functions that this process compiled without a store are not stored later.
    model = str(checkpoints.rotary(tmp_path / "llama", "llama", hidden_size=64, seed=7))
    options = GenerationOptions(max_new_tokens=8)

    def outcome(kind: str) -> CacheOutcome:
        with opened(kind, tmp_path / "store") as backend:
            return backend.generate(model, PROMPT, options, mode="padded").cache

    assert outcome("float32") is CacheOutcome.MISS
    assert outcome("int8") is CacheOutcome.MISS
    assert outcome("float32") is outcome("int8") is CacheOutcome.DISK


@pytest.mark.release
def test_smollm2_writes_the_same_from_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    prompts = (
        "Once upon a time there was a fox",
        "The capital of France is",
        "To bake bread, one needs",
        "def fibonacci(n):",
        "Dear Mrs. Miller, thank you for",
    )
    texts = {}
    for kind in ("auto", "float32"):
        with opened(kind) as backend:
            options = GenerationOptions(max_new_tokens=32)
            results = [
                backend.generate(PACKAGED_MODEL, each, options, mode="padded") for each in prompts
            ]
            texts[kind] = [[token.id for token in result.tokens] for result in results]
    assert texts["auto"] == texts["float32"]
