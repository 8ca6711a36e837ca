"""keras-hub's `generate`, which compiles the whole loop with XLA, on its JAX backend."""

from __future__ import annotations

import json
from pathlib import Path

import keras_hub
import numpy as np

from benchmarks.contenders import Request

_CLASSES = {"gpt2": "GPT2", "llama": "Llama3", "qwen2": "Qwen"}
"""Its names of the architectures, by Hugging Face's."""


class Model:
    """A decoder; its float32 weights are tied to the head where the checkpoint's are."""

    libraries = ("keras-hub", "keras", "jax")

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        name = _CLASSES[json.loads((folder / "config.json").read_text())["model_type"]]
        backbone = getattr(keras_hub.models, f"{name}Backbone").from_preset(
            str(folder), dtype="float32"
        )
        self._model = getattr(keras_hub.models, f"{name}CausalLM")(
            backbone=backbone, preprocessor=None
        )
        self._model.compile(sampler="greedy")

    def generate(self, request: Request) -> list[int]:
        """The new tokens; the first call of a size compiles."""
        size = len(request.ids) + request.new_tokens
        ids = np.zeros((1, size), np.int32)
        ids[0, : len(request.ids)] = request.ids
        is_prompt = np.arange(size)[None] < len(request.ids)
        if request.num_beams > 1:
            raise ValueError("keras-hub is only measured with greedy search")
        output = self._model.generate(
            {"token_ids": ids, "padding_mask": is_prompt}, stop_token_ids=None
        )
        return np.asarray(output["token_ids"])[0, len(request.ids) :].tolist()
