"""What the service may be told: strings as `serve run` has them, and what is said of wrong ones."""

import inspect
from typing import Any

import pytest
from pydantic import ValidationError
from ray.serve import Application

from xla_backend.serve_app import app
from xla_backend.serving.settings import ServeSettings


def test_settings_are_strings_or_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServeSettings()
    assert (settings.models, settings.min_replicas, settings.max_replicas) == ((), 1, 1)
    assert settings.weights == "auto"

    settings = ServeSettings.model_validate(
        {"models": "gpt2-stories, t5-stories", "max_replicas": "4", "target_ongoing": "2.5"}
    )
    assert settings.models == ("gpt2-stories", "t5-stories")
    assert (settings.max_replicas, settings.target_ongoing) == (4, 2.5)

    monkeypatch.setenv("XLA_BACKEND_WEIGHTS", "int8")
    assert ServeSettings().weights == "int8"
    assert ServeSettings(weights="float32").weights == "float32"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"min_replicas": "two"}, "min_replicas"),
        ({"max_ongoing": "0"}, "greater than or equal to 1"),
        ({"memory_limit": "much"}, "'much'"),
        ({"weights": "int7"}, "not 'int7'"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas must be at least min_replicas"),
        ({"model": "gpt2-stories"}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ServeSettings.model_validate(arguments)


def test_ray_serve_finds_out_how_to_check_them() -> None:
    [parameter] = inspect.signature(app).parameters.values()
    assert parameter.annotation is ServeSettings
    assert isinstance(app(ServeSettings(min_replicas=2, max_replicas=3)), Application)
