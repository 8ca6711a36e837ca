"""Shapes compiled ahead of requests: which there are, where they are, and an order's progress.

Knows the engine's predictions and what it does in the background. Must not know components or HTML.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from xla_backend import (
    BucketRules,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    InvalidRequest,
    SharedBackend,
    TokenIds,
)

LARGEST = 256
PADDED_LENGTHS = tuple(n for n in BucketRules().padded_lengths if n <= LARGEST)
MAX_NEW_TOKENS = tuple(n for n in BucketRules().max_new_tokens if n <= LARGEST)
NUM_BEAMS = tuple(range(1, 9))
# The engine reports a moment later that it has started; until then the order counts as running.
_STATUS_WITHIN_S = 3.0


@dataclass(frozen=True)
class Shape:
    """One shape of the grid."""

    size: CacheKey  # padded length, beams and new tokens, as chosen
    # what is compiled for it; None when the model's context has no room for it
    key: CacheKey | None = None
    # what a request of exactly this shape would meet now: HIT, DISK or MISS
    outcome: CacheOutcome | None = None
    expected_s: float | None = None  # how long that request would take, where it is known


def survey(
    backend: SharedBackend,
    model: str,
    padded_lengths: Iterable[int],
    num_beams: Iterable[int],
    max_new_tokens: Iterable[int],
) -> list[Shape]:
    """Every combination, and where it is now.

    Raises:
        InvalidRequest: the model takes no text.
        ModelUnavailable: the model is not known, or not loaded yet.
    """
    sizes = [
        CacheKey(*size)
        for size in product(sorted(padded_lengths), sorted(num_beams), sorted(max_new_tokens))
    ]
    if sizes:  # Does the model take a prompt? The visitor sees the error that this raises.
        backend.predict(model, TokenIds((0,)), GenerationOptions(max_new_tokens=1), exact_key=True)
    return [_shape(backend, model, size) for size in sizes]


def _shape(backend: SharedBackend, model: str, size: CacheKey) -> Shape:
    """Asks about the shortest request of this shape, which fits if any of this shape does."""
    prompt = TokenIds((0,) * (_below(size.padded_length, PADDED_LENGTHS) + 1))
    shortest = _below(size.max_new_tokens, MAX_NEW_TOKENS) + 1
    options = GenerationOptions(num_beams=size.num_beams, max_new_tokens=shortest)
    try:
        prediction = backend.predict(model, prompt, options, exact_key=True)
    except InvalidRequest:
        return Shape(size)
    return Shape(size, prediction.requested_key, prediction.outcome, prediction.expected_s)


def _below(size: int, sizes: Sequence[int]) -> int:
    return max((other for other in sizes if other < size), default=0)


def seconds_to_make(shapes: Iterable[Shape]) -> float | None:
    """Seconds that compiling these will take, judging by earlier calls; None if unknown."""
    missing = [s for s in shapes if s.key is not None and s.outcome is not CacheOutcome.HIT]
    known = [s.expected_s for s in missing if s.expected_s is not None]
    return sum(known) / len(known) * len(missing) if known else None


@dataclass(frozen=True)
class OrderProgress:
    """The progress of an order.

    Attributes:
        ready, total: shapes in memory, and shapes that were asked for.
        under_way: whether the engine still works on it, or is about to.
        cancelled: whether somebody has cancelled it.
    """

    ready: int
    total: int
    under_way: bool
    cancelled: bool = False


class Order:
    """The shapes that visitors have asked for. All visitors share it, as they share the engine."""

    def __init__(self, backend: SharedBackend) -> None:
        self._backend = backend
        self._ordered: tuple[tuple[str, CacheKey], ...] = ()
        self._sent = 0.0
        self._cancelled = False

    def place(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Asks the engine for these keys, in addition to those of the current order."""
        keys = list(keys)
        progress = self.progress()
        before = self._ordered if progress is not None and progress.under_way else ()
        self._ordered = tuple(dict.fromkeys([*before, *((model, key) for key in keys)]))
        self._sent = time.monotonic()
        self._cancelled = False
        self._backend.prefetch(model, keys)

    def cancel(self) -> None:
        """Cancels what waits; a compilation that XLA has started is finished."""
        self._cancelled = True
        self._backend.cancel_prefetch()

    def drop(self) -> None:
        """Drops the order: the engine that worked on it is gone."""
        self._ordered = ()

    def progress(self) -> OrderProgress | None:
        """The progress; None if nothing was asked for."""
        if not self._ordered:
            return None
        # The order of these two matters: a key that becomes ready leaves the second one first.
        prefetching = set(self._backend.prefetching())
        in_memory = {(entry.model, entry.key) for entry in self._backend.cached_functions()}
        missing = [each for each in self._ordered if each not in in_memory]
        just_sent = not self._cancelled and time.monotonic() - self._sent < _STATUS_WITHIN_S
        return OrderProgress(
            ready=len(self._ordered) - len(missing),
            total=len(self._ordered),
            under_way=bool(missing) and (just_sent or any(each in prefetching for each in missing)),
            cancelled=self._cancelled,
        )
