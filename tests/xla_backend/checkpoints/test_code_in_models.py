"""A model is data: whatever code comes with it never runs."""

import json
import pickle
from pathlib import Path

import pytest

from tests.checkpoints import gpt2
from xla_backend import Backend, GenerationOptions, ModelUnavailable
from xla_backend.checkpoints.models import Registry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return gpt2(tmp_path / "model", n_positions=64, n_embd=32, n_layer=1, n_head=2)


def write(folder: Path, name: str, **changes: object) -> None:
    """Changes entries of a JSON file."""
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **changes}))


class Touch:
    """A pickle that leaves a file behind when somebody opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_weights_that_are_a_pickle_are_refused_unopened(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "opened"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(trap)))
    with pytest.raises(ModelUnavailable, match=r"pytorch_model\.bin, a pickle, which can run code"):
        Registry().locate(str(folder))
    assert not trap.exists()


@pytest.mark.parametrize("model_type", ["gpt2-with-code", "mixtral", "", None, 5])
def test_other_architectures_are_refused(folder: Path, tmp_path: Path, model_type: object) -> None:
    trap = tmp_path / "imported"
    code = f"import pathlib; pathlib.Path({str(trap)!r}).touch()"
    (folder / "modeling_trap.py").write_text(code)
    (folder / "__init__.py").write_text(code)
    auto_map = {
        "AutoConfig": "modeling_trap.Config",
        "TFAutoModelForCausalLM": "modeling_trap.Model",
    }
    write(folder, "config.json", auto_map=auto_map, model_type=model_type)
    with pytest.raises(ModelUnavailable, match=r"gpt2, opt, t5|model_type"):
        Registry().locate(str(folder))
    assert not trap.exists()


def test_code_beside_a_model_of_ours_is_left_alone(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "imported"
    code = f"import pathlib; pathlib.Path({str(trap)!r}).touch()"
    for name in ("modeling_trap.py", "tokenization_trap.py", "generate.py", "custom_generate.py"):
        (folder / name).write_text(code)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code)
    write(
        folder,
        "config.json",
        auto_map={"AutoConfig": "modeling_trap.C", "TFAutoModelForCausalLM": "modeling_trap.M"},
        custom_pipelines={"text-generation": {"impl": "modeling_trap.P"}},
    )
    write(
        folder,
        "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["tokenization_trap.T", "tokenization_trap.T"]},
    )
    write(folder, "generation_config.json", custom_generate="custom_generate")
    backend = Backend(store="off")
    try:
        result = backend.generate(str(folder), "Once", GenerationOptions(max_new_tokens=3))
    except ModelUnavailable as refused:
        assert "." in str(refused)
    else:
        assert result.new_tokens >= 1
    finally:
        backend.close()
    assert not trap.exists()


@pytest.mark.parametrize(
    "name",
    [
        "../gpt2-stories",
        "gpt2-stories/../t5-stories",
        "/etc",
        "~",
        ".",
        "",
        "a/b",
        "gpt2-stories\0",
    ],
)
def test_where_strangers_choose_only_names_of_the_list_are_taken(name: str) -> None:
    with pytest.raises(ModelUnavailable, match="Models to choose from"):
        Registry(hub_models=(), allow_folders=False).locate(name)
