"""What all families have in common when they are built."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from tests import checkpoints
from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.weights import read_config, read_stored
from xla_backend.compilation.store import Store
from xla_backend.kernels.graph import matrix
from xla_backend.model import families, saved_weights
from xla_backend.model.families.blocks import WeightReader

FORMS: dict[str, Callable[[Path], Path]] = {
    "gpt2": checkpoints.gpt2,
    "opt": checkpoints.opt,
    "t5": checkpoints.t5,
    "whisper": checkpoints.whisper,
    "qwen2": lambda folder: checkpoints.rotary(folder, "qwen2"),
}
OTHER_FORMS = {
    "experts": lambda folder: checkpoints.rotary(folder, "qwen2_moe", hidden_size=64),
    "lfm2": lambda folder: checkpoints.rotary(folder, "lfm2", hidden_size=64),
    "states": lambda folder: checkpoints.rotary(folder, "qwen3_5_text"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_array_is_let_go_once_its_variable_is_made(form: str, tmp_path: Path) -> None:
    folder = FORMS[form](tmp_path / form)
    arrays = read_stored(folder)
    assert arrays
    sizes = {"prompt_length": 4} if form == "whisper" else {}
    model = families.build(read_config(folder), WeightReader(arrays), **sizes)
    assert model.variables
    assert arrays == {}


@pytest.mark.parametrize("form", FORMS | OTHER_FORMS)
def test_saved_weights_make_the_same_model_without_the_checkpoint(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "SMALL", 0)
    monkeypatch.setattr(saved_weights, "LEAST", 0)
    folder, store = (FORMS | OTHER_FORMS)[form](tmp_path / form), Store(tmp_path / "store")
    config, sizes = read_config(folder), {"prompt_length": 4} if form == "whisper" else {}
    read = WeightReader(read_stored(folder), kinds.INT8)
    model = families.build(config, read, **sizes)
    facts = {"made": read.made, "rounded_bits": read.rounded_bits}
    saved_weights.save(store, "name", read.memory, facts)

    saved = saved_weights.find(store, "name")
    assert saved is not None
    read_again = WeightReader({}, kinds.INT8, saved=saved)
    again = families.build(config, read_again, **sizes)
    assert (read_again.bytes, read_again.rounded_bits) == (read.bytes, read.rounded_bits)
    assert list(again.variables) == list(model.variables)
    matrices = read.matrices()
    assert read_again.matrices() == matrices
    assert sum(sum(of.values()) for of in matrices.values()) > 0.5 * read.bytes
    if form == "lfm2":
        assert [*matrices["self_attn.q_proj+k_proj+v_proj"]] == ["Q8_0"]
    for name, variable in model.variables.items():
        assert again.variables[name].dtype == variable.dtype
        tf.debugging.assert_equal(again.variables[name], variable)
    own, others = (tf.nest.flatten(list(vars(each).values())) for each in (model, again))
    assert [x for x in own if isinstance(x, str | int)] == [
        x for x in others if isinstance(x, str | int)
    ]
