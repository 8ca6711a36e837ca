"""Descriptions of architectures: they are complete, and refuse what they do not support."""

import ast
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import checkpoints
from tests.decoder_forms import FORMS
from xla_backend import InvalidRequest, ModelUnavailable
from xla_backend.checkpoints import architectures
from xla_backend.checkpoints.architectures import decoders
from xla_backend.checkpoints.architectures.positions import CONTEXT_VARIABLE, LONGEST_CONTEXT
from xla_backend.checkpoints.architectures.table import (
    ARCHITECTURES,
    BY_GGUF,
    DECODERS,
    describe,
    display_name,
)
from xla_backend.checkpoints.models import folder_info
from xla_backend.checkpoints.weights import read_config, read_weights

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("model_type", DECODERS)
def test_a_checkpoint_of_each_architecture_is_read_whole(tmp_path: Path, model_type: str) -> None:
    folder = checkpoints.rotary(tmp_path, model_type, dtype="bfloat16", shards=2)
    arrays = read_weights(folder)
    heads = 64 if model_type.startswith("qwen3_5") else 48  # whose heads are multiples of 16 wide
    assert arrays["model.layers.1.self_attn.o_proj.weight"].shape == (48, heads)
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    assert folder_info(str(folder)).family == "decoder-only"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "axial", "rope_theta": 1e4}},
            "kind 'axial'; known are default, linear, dynamic, yarn, longrope, llama3",
        ),
        ({"num_key_value_heads": 3}, "num_key_value_heads to 3, which does not divide"),
        ({"head_dim": 11}, "even rotary dimension, but got `head_dim`=11"),
        ({"num_hidden_layers": 0}, "num_hidden_layers to 0; it must be a whole number"),
        ({"pretraining_tp": 2}, "sets pretraining_tp to 2"),
        (
            {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 0.5,
                }
            },
            "rotates only a part of each head",
        ),
    ],
)
def test_other_configs_are_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    folder = checkpoints.rotary(tmp_path, "llama")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(ModelUnavailable, match=message):
        read_config(folder)


def test_a_long_context_is_cut_by_a_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoints.rotary(tmp_path, "llama", max_position_embeddings=131072)
    for given, context in (("", LONGEST_CONTEXT), ("4096", 4096), (str(LONGEST_CONTEXT), 8192)):
        monkeypatch.setenv(CONTEXT_VARIABLE, given)
        assert describe(read_config(folder)).context_length == context
        assert folder_info(str(folder)).context_length == context
    for given in ("8193", "0", "-1", "many", "2e3"):
        monkeypatch.setenv(CONTEXT_VARIABLE, given)
        with pytest.raises(InvalidRequest, match=f"from 1 to {LONGEST_CONTEXT}, not '{given}'"):
            describe(read_config(folder))


@pytest.mark.parametrize("model_type", ["llama", "phi3"])
@pytest.mark.parametrize(
    ("given", "context", "factor"), [("", 64, 2.0), ("64", 64, 2.0), ("100", 100, 5.0)]
)
def test_a_context_beyond_that_of_longrope_s_short_factors_is_to_be_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model_type: str,
    given: str,
    context: int,
    factor: float,
) -> None:
    """The list of models reads config.json itself, in the words of any version."""
    folder = checkpoints.rotary(tmp_path, model_type)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config["rope_scaling"] = {
        "type": "longrope",
        "short_factor": [2.0] * 6,
        "long_factor": [5.0] * 6,
    }
    holder = config if model_type == "phi3" else config["rope_scaling"]
    holder["original_max_position_embeddings"] = 64
    path.write_text(json.dumps(config))
    monkeypatch.setenv(CONTEXT_VARIABLE, given)
    form = describe(read_config(folder))
    assert form.context_length == folder_info(str(folder)).context_length == context
    positions = form.layers[0].mixer.positions
    assert positions.inverse_frequencies[0] == pytest.approx(1 / factor)
    assert positions.amplitude == pytest.approx((1 + 1 / 6) ** 0.5)  # 128 positions of 64


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_a_description_is_complete(model_type: str) -> None:
    """The page, the list of models, docs and tests have all that they need of an architecture."""
    from transformers import CONFIG_MAPPING

    described = ARCHITECTURES[model_type]
    assert model_type in CONFIG_MAPPING
    assert display_name(model_type) == described.name != model_type
    config = CONFIG_MAPPING[model_type]()
    settings = (*described.sizes, *filter(None, [described.context_setting]))
    assert [name for name in settings if not hasattr(config, name)] == []
    if model_type in DECODERS:
        assert any(form["model_type"] == model_type for form in FORMS.values())
    page = (ROOT / "docs" / "architectures.md").read_text("utf-8")
    assert f"`{model_type}`" in page.partition("## To add one")[0]


def test_only_descriptions_tell_architectures_apart() -> None:
    """So a new one touches no other code. The baseline converts what it compares."""
    package = ROOT / "xla_backend"
    comparing = [
        f"{path.relative_to(package)}:{node.lineno}: {ast.unparse(node)}"
        for path in package.rglob("*.py")
        if not {"architectures", "baselines"} & {*path.parts}
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Compare)
        if re.search("model_type|architecture", ast.unparse(node))
        if {*re.findall(r"'([^']*)'", ast.unparse(node))} & {*ARCHITECTURES, *BY_GGUF}
    ]
    assert comparing == []


@pytest.mark.parametrize("package", [architectures, decoders])
def test_descriptions_have_one_skeleton(package: ModuleType) -> None:
    """What a family is; constants and functions of its differences; `ARCHITECTURES`."""
    for path in Path(package.__path__[0]).glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        names = [ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)]
        if (package is architectures and "ARCHITECTURES" not in names) or path.stem == "table":
            continue
        if path.stem == "__init__":
            continue
        assert ast.get_docstring(tree), path
        assert names[-1] == "ARCHITECTURES" and isinstance(tree.body[-1], ast.Assign), path
        kinds = {type(node) for node in tree.body}
        assert kinds <= {ast.Expr, ast.ImportFrom, ast.Import, ast.Assign, ast.FunctionDef}, path
