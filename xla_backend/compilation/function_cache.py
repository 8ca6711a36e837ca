"""`FunctionCache`: the compiled functions of all models in memory, with counts and times.

Knows cache keys, hits, times of first and later calls, and that concurrent misses build once. Must
not know how a function is traced or run: the caller passes a builder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import AnyKey, CacheEntry, CacheOutcome, FirstCall
from xla_backend.interface.timing import Statistics, summarize

MAX_TIMED_RUNS = 1000
"""How many latest cached calls an entry keeps the times of."""

Function = TypeVar("Function")


@dataclass(frozen=True)
class Built(Generic[Function]):
    """What a builder returns.

    Attributes:
        function: what requests run.
        outcome: MISS (traced and compiled) or DISK (restored).
        trace_s, compile_s: duration of the two steps, in seconds.
    """

    function: Function
    outcome: CacheOutcome
    trace_s: float
    compile_s: float


@dataclass
class Slot(Generic[Function]):
    """One entry. `first_run_s` is None until the first run has been recorded."""

    built: Built[Function]
    first_run_s: float | None = None
    hits: int = 0
    cached_run_s: list[float] = field(default_factory=list)
    made_at: float = field(default_factory=time.time)
    summary: Statistics | None = None

    @property
    def first_call(self) -> FirstCall:
        """Cost of the first call; its run counts as 0 until it ends."""
        return FirstCall(
            self.built.outcome,
            self.built.trace_s,
            self.built.compile_s,
            self.first_run_s or 0.0,
            self.made_at,
        )


class FunctionCache(Generic[Function]):
    """Functions by model, cache key and batch size (requests served at once).

    Thread-safe; concurrent callers of a missing function build it once.
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[str, AnyKey, int], Slot[Function]] = {}
        self._lock = threading.Lock()
        self._building: dict[tuple[str, AnyKey, int], threading.Lock] = {}

    def get(
        self, model: str, key: AnyKey, build: Callable[[], Built[Function]], batch_size: int = 1
    ) -> tuple[Slot[Function], CacheOutcome]:
        """The entry of a cache key. The first caller builds it; others wait and then hit.

        Raises:
            Exception: the builder failed; the next caller builds again.
        """
        name = (model, key, batch_size)
        with self._lock:
            building = self._building.setdefault(name, threading.Lock())
        with building:
            if (found := self.find(*name)) is not None:
                return found, CacheOutcome.HIT
            slot = Slot(build())
            with self._lock:
                self._slots[name] = slot
            return slot, slot.built.outcome

    def find(self, model: str, key: AnyKey, batch_size: int = 1) -> Slot[Function] | None:
        """The entry of a cache key, if it is in memory; counts as a hit."""
        with self._lock:
            if (slot := self._slots.get((model, key, batch_size))) is not None:
                slot.hits += 1
            return slot

    def peek(self, model: str, key: AnyKey, batch_size: int = 1) -> Function | None:
        """The function of a cache key, if it is in memory; does not count as a hit."""
        with self._lock:
            slot = self._slots.get((model, key, batch_size))
            return None if slot is None else slot.built.function

    def record(self, slot: Slot[Function], run_s: float) -> None:
        with self._lock:
            if slot.first_run_s is None:
                slot.first_run_s = run_s
            else:
                slot.cached_run_s.append(run_s)
                del slot.cached_run_s[:-MAX_TIMED_RUNS]
                slot.summary = None

    def keys(self, model: str) -> set[CacheKey]:
        """Cache keys of a language model whose functions for single requests are in memory."""
        with self._lock:
            return {
                key
                for of, key, batch_size in self._slots
                if of == model and batch_size == 1 and isinstance(key, CacheKey)
            }

    def cached_functions(self) -> list[CacheEntry]:
        """All entries, in the order of their first calls."""
        with self._lock:
            return [
                CacheEntry(
                    model=model,
                    key=key,
                    first_call=slot.first_call,
                    hits=slot.hits,
                    cached=self._summary(slot),
                    batch_size=batch_size,
                )
                for (model, key, batch_size), slot in self._slots.items()
            ]

    @staticmethod
    def _summary(slot: Slot[Function]) -> Statistics | None:
        """Statistics of its cached calls, computed once after each."""
        if slot.summary is None:
            slot.summary = summarize(slot.cached_run_s)
        return slot.summary
