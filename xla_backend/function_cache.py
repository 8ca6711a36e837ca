"""`FunctionCache`: the compiled functions of every model in memory, and their account.

Knows keys, single flight, hits, and what first and later calls took. Must not know how a function
is traced or run: whoever misses brings a builder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from xla_backend.results import AnyKey, CacheEntry, CacheOutcome, FirstCall
from xla_backend.timing import summarize

KEPT_RUNS = 1000
"""How many cached calls' times each entry remembers, the latest."""

Function = TypeVar("Function")


@dataclass(frozen=True)
class Built(Generic[Function]):
    """What a builder hands over.

    Attributes:
        function: what requests run.
        outcome: MISS (traced and compiled) or DISK (restored).
        trace_s, compile_s: seconds that the two steps took.
    """

    function: Function
    outcome: CacheOutcome
    trace_s: float
    compile_s: float


@dataclass
class Slot(Generic[Function]):
    """One entry. `run_s` is None until the first run has been recorded."""

    built: Built[Function]
    first_run_s: float | None = None
    hits: int = 0
    cached_run_s: list[float] = field(default_factory=list)

    @property
    def first_call(self) -> FirstCall:
        """What the first call cost; its run counts as 0 while it is still under way."""
        return FirstCall(
            self.built.outcome, self.built.trace_s, self.built.compile_s, self.first_run_s or 0.0
        )


class FunctionCache(Generic[Function]):
    """Functions by model, key and batch size (how many requests they serve at once).

    Thread-safe; two callers of one missing function build it once.
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[str, AnyKey, int], Slot[Function]] = {}
        self._lock = threading.Lock()
        self._building: dict[tuple[str, AnyKey, int], threading.Lock] = {}

    def get(
        self, model: str, key: AnyKey, build: Callable[[], Built[Function]], batch_size: int = 1
    ) -> tuple[Slot[Function], CacheOutcome]:
        """The entry of a key, built by the first caller; later callers wait and then hit.

        Raises:
            Exception: whatever the builder raises; nothing is kept then, and the next caller
                builds anew.
        """
        name = (model, key, batch_size)
        with self._lock:
            if name in self._slots:
                return self._hit(name)
            building = self._building.setdefault(name, threading.Lock())
        with building:
            with self._lock:
                if name in self._slots:
                    return self._hit(name)
            slot = Slot(build())
            with self._lock:
                self._slots[name] = slot
                self._building.pop(name, None)
            return slot, slot.built.outcome

    def record(self, slot: Slot[Function], run_s: float) -> None:
        """Adds the run time of a finished call to its entry."""
        with self._lock:
            if slot.first_run_s is None:
                slot.first_run_s = run_s
            else:
                slot.cached_run_s.append(run_s)
                del slot.cached_run_s[:-KEPT_RUNS]

    def keys(self, model: str) -> set[AnyKey]:
        """The keys of one model whose functions for single requests are in memory."""
        with self._lock:
            return {key for of, key, batch_size in self._slots if of == model and batch_size == 1}

    def batch_sizes(self, model: str, key: AnyKey) -> set[int]:
        """The batch sizes that a key's functions in memory are for."""
        with self._lock:
            return {size for of, other, size in self._slots if (of, other) == (model, key)}

    def entries(self, model: str | None = None) -> list[CacheEntry]:
        """The account of every entry, or of one model's, in the order of their first calls."""
        with self._lock:
            return [
                CacheEntry(
                    model=of,
                    key=key,
                    first_call=slot.first_call,
                    hits=slot.hits,
                    cached=summarize(slot.cached_run_s),
                    batch_size=batch_size,
                )
                for (of, key, batch_size), slot in self._slots.items()
                if model is None or of == model
            ]

    def _hit(self, name: tuple[str, AnyKey, int]) -> tuple[Slot[Function], CacheOutcome]:
        slot = self._slots[name]
        slot.hits += 1
        return slot, CacheOutcome.HIT
