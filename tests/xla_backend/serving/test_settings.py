"""Tests of `xla_backend.serving.settings`: variables, defaults, what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import gguf_files
from xla_backend import InvalidRequest, ModelUnavailable
from xla_backend.serving.settings import ServeSettings, open_registry


def test_nothing_set_is_one_engine() -> None:
    settings = ServeSettings.from_environment({})
    assert settings == ServeSettings()
    assert settings.autoscaling()["max_replicas"] == 1


def test_every_variable_is_read() -> None:
    settings = ServeSettings.from_environment(
        {
            "XLA_BACKEND_MODELS": "gpt2-stories, t5-stories",
            "XLA_BACKEND_STORE": "/shared",
            "XLA_BACKEND_MIN_REPLICAS": "2",
            "XLA_BACKEND_MAX_REPLICAS": "9",
            "XLA_BACKEND_TARGET_ONGOING": "2.5",
            "XLA_BACKEND_MAX_ONGOING": "8",
            "XLA_BACKEND_UPSCALE_DELAY_S": "5",
            "XLA_BACKEND_DOWNSCALE_DELAY_S": "60",
            "XLA_BACKEND_LOOK_BACK_S": "20",
            "XLA_BACKEND_CORES": "4",
            "XLA_BACKEND_MEMORY_LIMIT": "3GB",
            "XLA_BACKEND_WEIGHTS": "int8",
        }
    )
    assert settings == ServeSettings(
        ("gpt2-stories", "t5-stories"), "/shared", 2, 9, 2.5, 8, 5.0, 60.0, 20.0, 4, "3GB", "int8"
    )
    least = ServeSettings.from_environment({"XLA_BACKEND_MIN_REPLICAS": "3"})
    assert least.max_replicas == 3


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"MIN_REPLICAS": "two"}, "MIN_REPLICAS must be a whole number of at least 1, not 'two'"),
        ({"MAX_ONGOING": "0"}, "MAX_ONGOING must be a whole number of at least 1, not '0'"),
        ({"TARGET_ONGOING": "nan"}, "TARGET_ONGOING must be a number of at least 0.1"),
        ({"MEMORY_LIMIT": "much"}, "MEMORY_LIMIT: "),
        ({"WEIGHTS": "int7"}, "XLA_BACKEND_WEIGHTS. are kept as auto, .* not as 'int7'"),
        ({"MIN_REPLICAS": "3", "MAX_REPLICAS": "2"}, "MAX_REPLICAS .2. must be at least"),
    ],
)
def test_a_wrong_variable_is_refused_in_a_sentence(
    variables: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        ServeSettings.from_environment({f"XLA_BACKEND_{k}": v for k, v in variables.items()})


def test_only_named_models_can_be_downloaded_and_folders_only_where_one_is_named(
    tmp_path: Path,
) -> None:
    named = open_registry(("gpt2-stories", "someone/model"))
    assert [info.name for info in named.list() if info.source == "hub"] == ["someone/model"]
    with pytest.raises(ModelUnavailable):
        named.locate(str(tmp_path))


def test_a_service_may_offer_a_gguf_file(tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "model.gguf", "llama")
    assert open_registry((str(path),)).locate(str(path)).folder == path
