"""What all families have in common when they are built."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import checkpoints
from xla_backend.checkpoints.weights import read_config, read_stored
from xla_backend.model import families
from xla_backend.model.families.blocks import WeightReader

FORMS: dict[str, Callable[[Path], Path]] = {
    "gpt2": checkpoints.gpt2,
    "opt": checkpoints.opt,
    "t5": checkpoints.t5,
    "whisper": checkpoints.whisper,
    "qwen2": lambda folder: checkpoints.rotary(folder, "qwen2"),
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
