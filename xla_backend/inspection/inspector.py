"""`Inspector`: inspects compiled functions outside the engine, and caches the results.

Knows the process that does it and the files next to the store that cache its answers. The engine is
not involved: its functions are in the store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from xla_backend.checkpoints.models import Registry
from xla_backend.child_process import calling
from xla_backend.compilation import naming
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.compilation.store import Store, write_whole
from xla_backend.inspection.inspection import Inspection
from xla_backend.inspection.measurement import Measurement
from xla_backend.inspection.passes import Pass, dumping
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest
from xla_backend.kernels import catalog

REMEMBERED = 32
"""Inspections cached in memory; each takes a quarter of a megabyte."""
SHORT_WORK, LONG_WORK = 5, 19
"""Niceness of processes. Reading takes half a second of one core, and a visitor waits for it."""
STAGES = {
    "stablehlo": "stablehlo.mlir",
    "hlo": "hlo.txt",
    "optimized_hlo": "optimized.hlo.txt",
    "optimized_hlo_dot": "optimized.dot",
}
"""TensorFlow's name of each stage that has a text, and the end of the file's name."""
TEXTS = tuple(f"{name}.{end}" for name in ("decode", "prefill") for end in STAGES.values())
"""Files that `Inspector.texts` writes."""


class Inspector:
    """Inspects the functions in a store. Thread-safe; one process at a time.

    Methods that take a model raise InvalidRequest or ModelUnavailable if it or the key is wrong,
    and EngineStopped if the process failed.
    """

    def __init__(self, store: Store, registry: Registry, gives_way: bool = True) -> None:
        """A process starts with each question.

        Args:
            registry: the models that may be loaded, to measure them.
            gives_way: whether its processes have low priority, for use while an engine serves.
        """
        self.store = store
        self._registry = registry
        self._gives_way = gives_way
        self._folder = store.folder / "inside"
        self._one_at_a_time = threading.Lock()
        self._seen: dict[tuple[str, int], Inspection] = {}
        self._assembly: dict[str, str] = {}

    def keys(self, identity: str) -> list[CacheKey]:
        """The cache keys of a model whose functions for single requests are in the store."""
        found = []
        held = set(self.store.names())
        for name in held:
            function, _, sizes = name.rpartition(".")
            beams = function.removesuffix(identity).removeprefix("xla_backend_decode_").rstrip("_")
            if not (function.endswith(f"_{identity}") and beams.isdigit()) or "x" not in sizes:
                continue
            key = CacheKey(int(sizes.split("x")[0]), int(beams), int(sizes.split("x")[1]))
            if naming.prefill_code_entry(identity, key.padded_length) in held:
                found.append(key)
        return sorted(found)

    def inspect(self, model: str, identity: str, key: CacheKey) -> Inspection:
        """Inspects the functions of a key; takes a second, or none if cached."""
        entry = naming.decode_code_entry(identity, key)
        if not self.store.holds(entry):
            raise InvalidRequest(
                f"{key} of {model} is not in the store, so there is nothing to inspect: generate a "
                "text with it first."
            )
        made = self.store.inode(entry)
        if (entry, made) not in self._seen:
            seen = self._ask("hlo.reading:inspect", self.store.root, model, identity, key)
            while len(self._seen) >= REMEMBERED:
                self._seen.pop(next(iter(self._seen)), None)
            self._seen[entry, made] = seen
        return self._seen[entry, made]

    def make(self, model: str, key: CacheKey) -> None:
        """Compiles the functions of a key into the store, in another process."""
        self._ask("measuring:make", self.store.root, model, self._registry, key)

    def measured(self, identity: str, key: CacheKey) -> Measurement | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = self._file(identity, key, "measurement").read_text()
            return Measurement.from_json(json.loads(text))
        return None

    def measure(self, model: str, identity: str, key: CacheKey) -> Measurement:
        """Measures a token and this machine; takes about ten seconds."""
        arguments = self.store.root, model, self._registry, identity, key
        found: Measurement = self._ask("measuring:measure", *arguments)
        self._save(self._file(identity, key, "measurement"), found.to_json())
        return found

    def texts(self, model: str, identity: str, key: CacheKey) -> list[Path]:
        """The functions as texts, `TEXTS`; takes some seconds, because XLA compiles them again."""
        if not self.made_texts(identity, key):
            folder = self._texts(identity, key)
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
                self._ask("texts:write", Path(aside), model, self._registry, key)
                for name in TEXTS:
                    (Path(aside) / name).replace(folder / name)
        return self.made_texts(identity, key)

    def made_texts(self, identity: str, key: CacheKey) -> list[Path]:
        """The files that `texts` has written, if it has."""
        files = [self._texts(identity, key) / name for name in TEXTS]
        return files if all(file.exists() for file in files) else []

    def assembly(self, kernel: str) -> str:
        """The machine code of a kernel of `kernels.catalog`; half a second the first time."""
        if kernel not in catalog.NAMES:
            raise InvalidRequest("There is no such kernel: choose one in the table of Inside.")
        if kernel not in self._assembly:
            with self._one_at_a_time:
                niceness = self._gives_way * SHORT_WORK
                dump = calling.started(
                    "xla_backend.kernels.dump:assembly", kernel, niceness=niceness
                )
                self._assembly[kernel] = dump.answer()
        return self._assembly[kernel]

    def made_passes(self, identity: str, key: CacheKey) -> list[Pass]:
        """The cached result of `passes`; empty if there is none."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            text = self._file(identity, key, "passes").read_text()
            return [Pass(**values) for values in json.loads(text)]
        return []

    def passes(self, model: str, identity: str, key: CacheKey) -> list[Pass]:
        """What each pass changes in decode with one layer; takes half a minute if not cached."""
        found = self.made_passes(identity, key)
        if not found:
            with tempfile.TemporaryDirectory(prefix="xla-backend-passes-") as folder:
                arguments = Path(folder), model, self._registry, key
                found = self._ask("texts:passes", *arguments, variables=dumping(Path(folder)))
            self._save(self._file(identity, key, "passes"), list(map(dataclasses.asdict, found)))
        return found

    def _ask(
        self, function: str, *arguments: Any, variables: Mapping[str, str] = MappingProxyType({})
    ) -> Any:
        """The answer of one of this room's functions, called in its own process."""
        is_short = function == "hlo.reading:inspect"  # and needs no TensorFlow
        with self._one_at_a_time:
            return calling.started(
                f"xla_backend.inspection.{function}",
                *arguments,
                before="" if is_short else "xla_backend.engine.importing:import_engine",
                niceness=self._gives_way * (SHORT_WORK if is_short else LONG_WORK),
                variables={**ENVIRONMENT, **variables},
            ).answer()

    def _texts(self, identity: str, key: CacheKey) -> Path:
        return self._folder / f"{naming.decode_code_entry(identity, key)}.texts"

    def _file(self, identity: str, key: CacheKey, what: str) -> Path:
        return self._folder / f"{naming.decode_code_entry(identity, key)}.{what}.json"

    def _save(self, file: Path, values: Any) -> None:
        """Caches an answer on disk, if the store can be written."""
        with contextlib.suppress(OSError):
            write_whole(file, json.dumps(values).encode())
