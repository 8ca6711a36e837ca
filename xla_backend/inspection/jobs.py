"""The jobs of the inspection process.

Knows the messages to it. Must not know how they are answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xla_backend.checkpoints.models import Registry
from xla_backend.interface.buckets import CacheKey


@dataclass(frozen=True)
class ReadJob:
    """Read a key's functions in the store: an `Inspection`.

    Attributes:
        store: the store's folder. model, identity, key: of the functions.
    """

    store: Path
    model: str
    identity: str
    key: CacheKey


@dataclass(frozen=True)
class MakeJob:
    """Compile a key's functions into the store; answers None."""

    store: Path
    model: str
    registry: Registry
    key: CacheKey


@dataclass(frozen=True)
class MeasureJob:
    """Run a token with XLA's profiler, and measure this machine: a `Measurement`."""

    store: Path
    model: str
    registry: Registry
    identity: str
    key: CacheKey


@dataclass(frozen=True)
class TextsJob:
    """Write a key's functions as texts into a folder; answers None."""

    folder: Path
    store: Path
    model: str
    registry: Registry
    identity: str
    key: CacheKey


@dataclass(frozen=True)
class PassesJob:
    """Compile a key's decode with one layer, which XLA dumps into a folder: a list of `Pass`."""

    folder: Path
    model: str
    registry: Registry
    key: CacheKey


Job = ReadJob | MakeJob | MeasureJob | TextsJob | PassesJob
