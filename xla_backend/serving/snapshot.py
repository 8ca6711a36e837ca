"""`Snapshot`: the state of one replica's engine, and the states of many as if of one engine.

Knows how entries, models, pasts and statuses of several engines become one answer. Must not know
Ray, nor how snapshots travel.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.function_comparison import StoredKey
from xla_backend.interface.results import (
    AnyKey,
    CacheEntry,
    EngineStatus,
    KeyHistory,
    ModelInfo,
    Past,
)

if TYPE_CHECKING:
    from xla_backend.process.backend_process import BackendProcess

_AT_REST = ("ready", "starting", "stopped")


@dataclass(frozen=True)
class Snapshot:
    """What a replica's engine is, has and does.

    Attributes:
        replica: the replica's name.
        number: counts this replica's snapshots: of two, the larger one is the newer.
        status_age_s: how long the status had lasted; `EngineStatus.since` is a clock that other
            machines do not share.
        pid: process id of the replica itself, on its machine.
    """

    replica: str
    number: int
    status: EngineStatus
    status_age_s: float
    models: tuple[ModelInfo, ...]
    entries: tuple[CacheEntry, ...]
    past: Past
    stored_keys: tuple[StoredKey, ...]
    prefetching: tuple[tuple[str, CacheKey], ...]
    pid: int

    @classmethod
    def take(cls, replica: str, number: int, process: BackendProcess, pid: int) -> Snapshot:
        """Reads the mirrors of an engine's process; never waits for it."""
        status = process.status
        return cls(
            replica=replica,
            number=number,
            status=status,
            status_age_s=max(0.0, time.perf_counter() - status.since),
            models=tuple(process.models()),
            entries=tuple(process.cached_functions()),
            past=process.past(),
            stored_keys=tuple(process.stored_keys()),
            prefetching=tuple(process.prefetching()),
            pid=pid,
        )

    def received(self) -> Snapshot:
        """The same, with the status dated by this machine's clock."""
        since = time.perf_counter() - self.status_age_s
        return dataclasses.replace(self, status=self.status.replace(since=since))


def merged_status(snapshots: Sequence[Snapshot]) -> EngineStatus | None:
    """The status of the replica that has been busy longest, and how many are; None for none."""
    if not snapshots:
        return None
    busy = [one.status for one in snapshots if one.status.state not in _AT_REST]
    if not busy:
        ready = [one.status for one in snapshots if one.status.state == "ready"]
        return max(ready or [one.status for one in snapshots], key=lambda status: status.since)
    longest = min(busy, key=lambda status: status.since)
    if len(snapshots) == 1:
        return longest
    counted = f"{len(busy)} of {len(snapshots)} replicas busy"
    return longest.replace(detail=f"{longest.detail} · {counted}" if longest.detail else counted)


def merged_cached_functions(snapshots: Iterable[Snapshot]) -> list[CacheEntry]:
    """Each function once: calls counted together, times those of the replica that called it most.

    Statistics of several engines cannot be added up, and a mixture of machines would be nobody's.
    """
    of_function: dict[tuple[str, AnyKey, int], list[CacheEntry]] = {}
    for snapshot in snapshots:
        for entry in snapshot.entries:
            name = (entry.model, entry.key, entry.batch_size)
            of_function.setdefault(name, []).append(entry)
    return [
        dataclasses.replace(
            max(entries, key=lambda entry: entry.hits), hits=sum(entry.hits for entry in entries)
        )
        for entries in of_function.values()
    ]


def merged_models(snapshots: Iterable[Snapshot]) -> list[ModelInfo]:
    """Every model that a replica knows; loaded if one of them has loaded it."""
    merged: dict[str, ModelInfo] = {}
    for snapshot in snapshots:
        for info in snapshot.models:
            if info.name not in merged or (info.loaded and not merged[info.name].loaded):
                merged[info.name] = info
    return list(merged.values())


def merged_past(snapshots: Iterable[Snapshot]) -> Past:
    """What each key took on any replica; of several times, one that was measured."""
    merged: Past = {}
    for snapshot in snapshots:
        for model, keys in snapshot.past.items():
            of_model = merged.setdefault(model, {})
            for key, one in keys.items():
                before = of_model.get(key, KeyHistory())
                of_model[key] = KeyHistory(
                    # With a shared store, every replica begins with what all others counted.
                    times=max(before.times, one.times),
                    miss_s=one.miss_s if before.miss_s is None else before.miss_s,
                    disk_s=one.disk_s if before.disk_s is None else before.disk_s,
                    run_s=one.run_s if before.run_s is None else before.run_s,
                    compiled=one.compiled if before.compiled is None else before.compiled,
                )
    return merged


def merged_stored_keys(snapshots: Iterable[Snapshot]) -> list[StoredKey]:
    """The shapes of the guide's functions that some replica has compiled for."""
    return list(dict.fromkeys(shape for one in snapshots for shape in one.stored_keys))


def merged_warming(snapshots: Iterable[Snapshot]) -> list[tuple[str, CacheKey]]:
    """What is being made ready anywhere."""
    return list(dict.fromkeys(work for one in snapshots for work in one.prefetching))
