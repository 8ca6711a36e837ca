"""`Predictor`: predicts a request's outcome without asking the engine's process.

Knows a model's vocabulary and what the store holds; callers pass what is in the engine's memory.
Must not import TensorFlow, nor know how to talk to the process.
"""

from __future__ import annotations

from collections.abc import Collection

from xla_backend.checkpoints.models import Registry
from xla_backend.compilation import naming
from xla_backend.compilation.store import Store
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.results import CacheEntry, ModelInfo, Past, Prediction
from xla_backend.prediction import prediction
from xla_backend.prediction.prediction import RowWork
from xla_backend.prediction.vocabulary import Vocabulary


def _holds_nothing(entry: str) -> bool:
    return False


class Predictor:
    """Reads vocabularies once, and predicts from them. Thread-safe.

    Attributes:
        registry: the models that may be loaded.
    """

    def __init__(self, registry: Registry, store: Store | None) -> None:
        self.registry = registry
        self._store = store
        self._vocabularies: dict[str, Vocabulary] = {}

    def vocabulary(self, model: str, models: Collection[ModelInfo]) -> Vocabulary:
        """See `BackendProcess.vocabulary`; `models` are those that the engine knows."""
        if model not in self._vocabularies:
            is_away = [
                info.source == "hub" and not (info.loaded or info.on_disk)
                for info in models
                if info.name == model
            ]
            if any(is_away):
                # Locating the model could start a download; a prediction must not wait for that.
                raise ModelUnavailable(
                    f"{model} is not loaded yet. Its first request downloads and loads it; from "
                    "then on requests can be predicted."
                )
            # Another thread may have read it too: the first one stays, with its cached prompts.
            self._vocabularies.setdefault(model, Vocabulary.load(self.registry.locate(model)))
        return self._vocabularies[model]

    def known(self, model: str) -> Vocabulary | None:
        """A model's vocabulary, if it was read already."""
        return self._vocabularies.get(model)

    def predict(
        self,
        vocabulary: Vocabulary,
        wanted: CacheKey,
        prompt_tokens: int,
        exact_key: bool,
        entries: Collection[CacheEntry],
        past: Past,
        row: RowWork | None = None,
    ) -> Prediction:
        """See `prediction.predict`; `entries` and `past` are the engine's."""
        model, store = vocabulary.info.name, self._store
        entries = [entry for entry in entries if entry.model == model]
        in_memory = prediction.keys_of(entries)
        return prediction.predict(
            wanted=wanted,
            prompt_tokens=prompt_tokens,
            entries=entries,
            past=past.get(model, {}),
            missing=lambda key: naming.missing(
                vocabulary.identity, key, in_memory, store.holds if store else _holds_nothing
            ),
            exact_key=exact_key,
            row=row,
        )
