"""All architectures, by their `model_type`: every `ARCHITECTURES` of a module in this folder and in
`decoders` counts, without another list."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from xla_backend.checkpoints import architectures
from xla_backend.checkpoints.architectures import decoders
from xla_backend.checkpoints.architectures.architecture import Architecture
from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture
from xla_backend.checkpoints.architectures.forms import DecoderForm


def _described() -> list[Architecture]:
    found: list[Architecture] = []
    for package in (architectures, decoders):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name != __name__ and not module.ispkg:
                found += getattr(importlib.import_module(module.name), "ARCHITECTURES", ())
    return found


ARCHITECTURES = {each.model_type: each for each in _described()}

DECODERS = {
    name: each for name, each in ARCHITECTURES.items() if isinstance(each, DecoderArchitecture)
}
"""Those that are decoders of known parts."""

BY_GGUF = {each.gguf.architecture: each for each in ARCHITECTURES.values() if each.gguf}
"""By llama.cpp's name; a file's settings may name a sibling."""


def find(model_type: object) -> Architecture | None:
    """The architecture with this value of `model_type` in a config.json; None if not supported."""
    return ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None


def describe(config: Any) -> DecoderForm:
    return DECODERS[config.model_type].describe(config)


def display_name(model_type: str) -> str:
    """The name of an architecture for people; "Other" for one that is not known."""
    return ARCHITECTURES[model_type].name if model_type in ARCHITECTURES else "Other"
