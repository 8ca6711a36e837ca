"""`Inspector`: looks inside compiled functions from outside the engine, and remembers what it saw.

Knows the process that does it and the files beside the store that keep its answers. Must not import
TensorFlow. The engine is never asked: what it has compiled lies in the store.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from xla_backend.checkpoints.models import Registry
from xla_backend.child_process.parent_side import ChildProcess
from xla_backend.compilation import naming
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.compilation.store import Store
from xla_backend.inspection.inspection import Inspection
from xla_backend.inspection.jobs import Job, MakeJob, MeasureJob, ReadJob, TextsJob
from xla_backend.inspection.measurement import Measurement
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest

REMEMBERED = 32
"""Inspections that are kept in memory; each takes a quarter of a megabyte."""

MODULE = "xla_backend.inspection.inspection_process"
TEXTS = tuple(
    f"{function}.{ending}"
    for function in ("decode", "prefill")
    for ending in ("stablehlo.mlir", "hlo.txt", "optimized.hlo.txt", "optimized.dot")
)
"""Files that `Inspector.texts` writes."""


class Inspector:
    """Looks inside the functions in a store. Thread-safe; one process at a time.

    Attributes:
        store: where the functions are.
    """

    def __init__(self, store: Store, registry: Registry, gives_way: bool = True) -> None:
        """Looks at nothing yet.

        Args:
            store: where the functions are.
            registry: the models that may be loaded, to measure them.
            gives_way: whether its processes leave the processor to all others, as beside an engine
                that serves.
        """
        self.store = store
        self._registry = registry
        self._gives_way = gives_way
        self._folder = store.folder / "inside"
        self._one_at_a_time = threading.Lock()
        self._seen: dict[tuple[str, int], Inspection] = {}

    def keys(self, identity: str) -> list[CacheKey]:
        """The cache keys of a model whose functions the store holds, for single requests."""
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
        """What the functions are made of. Takes a second, and none if it was asked before.

        Raises:
            InvalidRequest: the store does not hold them.
            EngineStopped: the process failed.
        """
        entry = naming.decode_code_entry(identity, key)
        if not self.store.holds(entry):
            raise InvalidRequest(
                f"{key} of {model} is not in the store, so there is nothing to look into: generate "
                "a text with it first."
            )
        made = self.store.inode(entry)
        if (entry, made) not in self._seen:
            seen = self._ask(ReadJob(self.store.root, model, identity, key))
            while len(self._seen) >= REMEMBERED:
                self._seen.pop(next(iter(self._seen)), None)
            self._seen[entry, made] = seen
        return self._seen[entry, made]

    def make(self, model: str, key: CacheKey) -> None:
        """Has the store hold the functions of a key; compiles them in a process of its own.

        Raises:
            InvalidRequest, ModelUnavailable: the model or the key is at fault.
            EngineStopped: the process failed.
        """
        self._ask(MakeJob(self.store.root, model, self._registry, key))

    def measured(self, identity: str, key: CacheKey) -> Measurement | None:
        """What `measure` found before; None where nothing was measured."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = self._file(identity, key, "measurement").read_text()
            return Measurement.from_json(json.loads(text))
        return None

    def measure(self, model: str, identity: str, key: CacheKey) -> Measurement:
        """Where a token's time goes, and what this machine can do. Takes about ten seconds.

        Raises:
            InvalidRequest, ModelUnavailable: the model or the key is at fault.
            EngineStopped: the process failed.
        """
        job = MeasureJob(self.store.root, model, self._registry, identity, key)
        found: Measurement = self._ask(job)
        self._keep(self._file(identity, key, "measurement"), found.to_json())
        return found

    def texts(self, model: str, identity: str, key: CacheKey) -> list[Path]:
        """The functions as texts, `TEXTS`. Takes some seconds: XLA compiles them once more to tell.

        Raises:
            InvalidRequest, ModelUnavailable: the model or the key is at fault.
            EngineStopped: the process failed.
        """
        if not self.made_texts(identity, key):
            folder = self._texts(identity, key)
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
                job = TextsJob(Path(aside), self.store.root, model, self._registry, identity, key)
                self._ask(job)
                for name in TEXTS:
                    (Path(aside) / name).replace(folder / name)
        return self.made_texts(identity, key)

    def made_texts(self, identity: str, key: CacheKey) -> list[Path]:
        """The files that `texts` has written; none before."""
        files = [self._texts(identity, key) / name for name in TEXTS]
        return files if all(file.exists() for file in files) else []

    def _ask(self, job: Job) -> Any:
        with self._one_at_a_time:
            return ChildProcess(MODULE, (job, self._gives_way), ENVIRONMENT).answer()

    def _texts(self, identity: str, key: CacheKey) -> Path:
        return self._folder / f"{naming.decode_code_entry(identity, key)}.texts"

    def _file(self, identity: str, key: CacheKey, what: str) -> Path:
        return self._folder / f"{naming.decode_code_entry(identity, key)}.{what}.json"

    def _keep(self, file: Path, values: Any) -> None:
        """Writes an answer; a store that cannot be written is asked again next time."""
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_suffix(".writing")
            aside.write_text(json.dumps(values))
            aside.replace(file)
