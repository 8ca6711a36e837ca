"""keras-hub's `generate`, which compiles the whole loop; on its JAX backend, so by XLA too."""

from __future__ import annotations

from pathlib import Path

import jax
import keras
import keras_hub
import numpy as np

from benchmarks.contenders import Request


class Model:
    """A GPT-2; other models are not asked for."""

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Loads the checkpoint through keras-hub's own reader of the Hub's layout."""
        backbone = keras_hub.models.GPT2Backbone.from_preset(str(folder))
        self._model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
        self._model.compile(sampler="greedy")

    def versions(self) -> dict[str, str]:
        """keras-hub's, Keras's and JAX's."""
        return {
            "keras-hub": keras_hub.__version__,
            "keras": keras.__version__,
            "jax": jax.__version__,
        }

    def generate(self, request: Request) -> list[int]:
        """The new tokens; compiled at the first call of a size."""
        size = len(request.ids) + request.new_tokens
        ids = np.zeros((1, size), np.int32)
        ids[0, : len(request.ids)] = request.ids
        is_prompt = np.arange(size)[None] < len(request.ids)
        if request.num_beams > 1:
            raise ValueError("only greedy search is asked of keras-hub")
        output = self._model.generate(
            {"token_ids": ids, "padding_mask": is_prompt}, stop_token_ids=None
        )
        return np.asarray(output["token_ids"])[0, len(request.ids) :].tolist()
