"""What a configuration of a rotary decoder may ask for, and what is refused before it is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from xla_backend import InvalidRequest, ModelUnavailable
from xla_backend.checkpoints.models import folder_info
from xla_backend.checkpoints.rotary_form import (
    CONTEXT_VARIABLE,
    LONGEST_CONTEXT,
    MODEL_TYPES,
    describe,
)
from xla_backend.checkpoints.weights import read_config, read_weights


@pytest.mark.parametrize("model_type", MODEL_TYPES)
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
