"""`LoadedModels`: the models that are in memory, and how one gets there.

Knows names, downloads and loading. Must not know requests, nor which functions a model has.
"""

from __future__ import annotations

from xla_backend.compilation.startup import prepare_environment
from xla_backend.interface.results import EngineStatus, ModelInfo

prepare_environment()  # before TensorFlow is imported, by this module or another

from xla_backend.checkpoints.models import Download, Registry  # noqa: E402
from xla_backend.compilation.compiler import Compiler  # noqa: E402
from xla_backend.compilation.store import Store  # noqa: E402
from xla_backend.model.engine import Engine  # noqa: E402
from xla_backend.scheduling.engine_access import READY, EngineAccess  # noqa: E402


class LoadedModels:
    """Loads each model once, when it is first asked for."""

    def __init__(self, registry: Registry, store: Store | None, access: EngineAccess) -> None:
        """Loads nothing yet; `store` is for what the models' functions are compiled to."""
        self._registry = registry
        self._compiler = Compiler(store)
        self._access = access
        self._engines: dict[str, Engine] = {}

    def find(self, model: str) -> Engine | None:
        """The model, if it is loaded."""
        return self._engines.get(model)

    def get(self, model: str) -> Engine:
        """The model, loaded in a turn of its own if need be.

        Raises:
            ModelUnavailable: it is unknown, broken or out of reach.
        """
        if (engine := self.find(model)) is not None:
            return engine
        with self._access.scheduler.acquire():
            return self.load(model)

    def load(self, model: str) -> Engine:
        """As `get`; the caller has the engine."""
        if model not in self._engines:
            loading = EngineStatus("loading", model)
            self._access.tell(loading)
            try:
                files = self._registry.locate(model, on_progress=self._tell_download)
                if self._access.status.state == "downloading":
                    self._access.tell(loading)
                self._engines[model] = Engine(files, self._compiler)
            finally:
                self._access.tell(READY)
        return self._engines[model]

    def infos(self) -> list[ModelInfo]:
        """Every model that can be chosen by name, and every folder that was loaded."""
        listed = {info.name: info for info in self._registry.list()}
        return list((listed | {name: e.info for name, e in self._engines.items()}).values())

    def clear(self) -> None:
        """Lets go of all."""
        self._engines.clear()

    def _tell_download(self, download: Download) -> None:
        self._access.tell(EngineStatus("downloading", str(download), progress=download.share))
