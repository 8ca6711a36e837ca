"""`LoadedModels`: the models in memory, and how they are loaded.

Knows names, downloads and loading. Must not know how requests run, nor which functions a model has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from xla_backend.compilation.startup import prepare_environment
from xla_backend.interface.buckets import BucketRules
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.interface.results import EngineStatus, ModelInfo
from xla_backend.prediction.vocabulary import Vocabulary

prepare_environment()  # before TensorFlow is imported, by this module or another

from xla_backend.checkpoints.models import Download, Registry  # noqa: E402
from xla_backend.compilation.compiler import Compiler  # noqa: E402
from xla_backend.compilation.store import Store  # noqa: E402
from xla_backend.engine.loop import Loop  # noqa: E402
from xla_backend.model.loaded_model import LoadedModel  # noqa: E402


class Loaded(NamedTuple):
    """A request's model, and the request as it is prepared.

    Attributes:
        load_s: seconds of loading, which `ended` then, as `time.perf_counter()`.
    """

    model: LoadedModel
    prepared: Prepared
    load_s: float
    ended: float


class LoadedModels:
    """Loads each model once, at its first request."""

    def __init__(
        self,
        registry: Registry,
        rules: BucketRules,
        store: Store | None,
        loop: Loop,
        kv_bytes: int,
    ) -> None:
        """Loads nothing yet; `kv_bytes`: see `LoadedModel`."""
        self._registry = registry
        self._rules = rules
        self._compiler = Compiler(store)
        self._loop = loop
        self._kv_bytes = kv_bytes
        self._executor = ThreadPoolExecutor(1, "loader")
        self._engines: dict[str, LoadedModel] = {}
        self._vocabularies: dict[str, Vocabulary] = {}

    def find(self, model: str) -> LoadedModel | None:
        return self._engines.get(model)

    def prepared(self, request: TextRequest) -> Prepared | TextRequest:
        """A request, prepared if its model is loaded; raises as `Vocabulary.prepare`."""
        vocabulary = self._vocabularies.get(request.model)
        return request if vocabulary is None else vocabulary.prepare(request, self._rules)

    def vocabulary(self, model: str) -> Vocabulary:
        """The vocabulary of a model; errors as for `get`."""
        if model not in self._vocabularies:
            self.get(model)
        return self._vocabularies[model]

    def get(self, model: str) -> LoadedModel:
        """The model, loaded if need be.

        Raises:
            ModelUnavailable: it is unknown, broken or cannot be reached.
        """
        return self.find(model) or self.load_in_background(model).result()[0]

    def load_in_background(
        self, model: str, on_start: Callable[[], None] = lambda: None
    ) -> Future[tuple[LoadedModel, float]]:
        """The model, loaded in another thread if need be, and the seconds that took.

        `on_start` is called when loading begins.
        """
        return self._executor.submit(self._load, model, on_start)

    def load_for(
        self, request: TextRequest | Prepared, on_start: Callable[[], None]
    ) -> Future[Loaded]:
        """The model of a request, loaded in another thread, which prepares it if that is needed."""

        def load() -> Loaded:
            model, load_s = self._load(request.model, on_start)
            ended = time.perf_counter()
            if isinstance(request, Prepared):
                return Loaded(model, request, load_s, ended)
            prepared = self._vocabularies[request.model].prepare(request, self._rules)
            return Loaded(model, prepared, load_s, ended)

        return self._executor.submit(load)

    def _load(self, model: str, on_start: Callable[[], None]) -> tuple[LoadedModel, float]:
        start = time.perf_counter()
        if model not in self._engines:
            on_start()
            loading = EngineStatus("loading", model)
            self._loop.set_other_status("load", loading)
            try:
                files = self._registry.locate(model, on_progress=self._report_download)
                if self._loop.status.state == "downloading":
                    self._loop.set_other_status("load", loading)
                engine = LoadedModel(files, self._compiler, self._kv_bytes)
                self._vocabularies[model] = Vocabulary(
                    engine.info, engine.tokenizer, engine.speech, engine.identity
                )
                self._engines[model] = engine
            finally:
                self._loop.set_other_status("load", None)
        return self._engines[model], time.perf_counter() - start

    def infos(self) -> list[ModelInfo]:
        """Every model that can be chosen by name, and every loaded folder."""
        listed = {info.name: info for info in self._registry.list()}
        return list((listed | {name: e.info for name, e in self._engines.items()}).values())

    def clear(self) -> None:
        self._engines.clear()

    def _report_download(self, download: Download) -> None:
        status = EngineStatus("downloading", str(download), progress=download.share)
        self._loop.set_other_status("load", status)
