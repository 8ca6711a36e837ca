"""Weights on disk: another start maps them, and a file that is not right is never used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import checkpoints
from xla_backend import Backend, GenerationOptions
from xla_backend.checkpoints.models import ModelFiles, Registry
from xla_backend.compilation import store as store_module
from xla_backend.compilation.store import Store
from xla_backend.interface.results import CacheOutcome
from xla_backend.kernels.graph import matrix
from xla_backend.model import loaded_model, saved_weights

ARRAYS = {
    "large": np.arange(3 * 2**19, dtype=np.float32).reshape(3, -1),
    "odd": np.arange(7, dtype=np.uint8),
    "one": np.array(2.5, np.float32),
    "none": np.zeros((0, 4), np.uint16),
}


@pytest.fixture(autouse=True)
def small_models_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_weights, "LEAST", 0)
    monkeypatch.setattr(matrix, "SMALL", 0)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    store = Store(tmp_path / "store")
    saved_weights.save(store, "name", ARRAYS, {"fact": [1]})
    return store.weights("name")


@pytest.mark.parametrize("has_large_pages", [True, False])
def test_arrays_are_those_that_were_saved(
    has_large_pages: bool, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 2**40 * has_large_pages
    monkeypatch.setattr(saved_weights, "_in_large_pages", lambda address: pages)
    found = saved_weights.SavedWeights(saved)
    assert found.facts == {"fact": [1]}
    assert list(found.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].ctypes.data % 64 == 0, "else TensorFlow copies"
        np.testing.assert_array_equal(found.arrays[name], array)
    before = saved.read_bytes()
    found.arrays["large"][:] = 0
    assert saved.read_bytes() == before


def flip(place: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, 10),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(path.read_bytes()[64:]),
        flip(5_000_000),
        *(flip(-place) for place in (1, 30, 45, 60, 200)),
    ],
)
def test_a_damaged_file_is_removed_and_not_used(
    damage: Callable[[Path], None], saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(saved)
    assert saved_weights.find(Store(saved.parents[1]), "name") is None
    assert "made again" in caplog.text
    assert not saved.exists()


def test_old_weights_make_room_and_a_full_disk_is_told(
    saved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(saved.parents[1])
    store.save("function", {}, [b"code"])
    monkeypatch.setattr(store_module, "WEIGHTS_BOUND", 10_000_000)
    saved_weights.save(store, "second", ARRAYS, {})
    assert not saved.exists()
    assert store.names() == ["function"]
    monkeypatch.setattr(store_module, "WEIGHTS_BOUND", 100)
    saved_weights.save(store, "beyond", ARRAYS, {})
    assert not store.weights("beyond").exists()
    assert caplog.text == ""
    monkeypatch.setattr(store_module, "WEIGHTS_BOUND", 2**62)
    store.save_weights("huge", 2**60, lambda file: file.write(b"not reached"))
    assert "free some space" in caplog.text
    assert sorted(path.suffix for path in saved.parent.iterdir()) == [".entry", ".weights"]
    store.clear()
    assert list(saved.parent.iterdir()) == []


def located(model: Path, weights: str = "auto") -> ModelFiles:
    return Registry(allow_folders=True, weights=weights).locate(str(model))


def test_another_format_or_another_checkpoint_is_another_file(tmp_path: Path) -> None:
    model = checkpoints.rotary(tmp_path / "model", "llama", hidden_size=64)
    names = [saved_weights.name_of(located(model, kind)) for kind in ("auto", "int8")]
    assert names[0] == saved_weights.name_of(located(model))
    [path] = model.glob("*.safetensors")
    os.utime(path, ns=(0, 1))
    names.append(saved_weights.name_of(located(model)))
    names.append(saved_weights.name_of(located(model.rename(tmp_path / "other"))))
    assert len(set(names)) == 4


def test_a_second_start_writes_the_same_and_reads_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = checkpoints.rotary(tmp_path / "model", "llama", hidden_size=64)
    options = GenerationOptions(max_new_tokens=8)

    def written() -> tuple[list[int], CacheOutcome]:
        backend = Backend(store=tmp_path / "store")
        try:
            result = backend.generate(str(model), "An owl", options, mode="padded")
        finally:
            backend.close()
        return [token.id for token in result.tokens], result.cache

    tokens, cache = written()
    assert cache is CacheOutcome.MISS
    monkeypatch.setattr(loaded_model, "_read", None)
    assert written() == (tokens, CacheOutcome.DISK)
