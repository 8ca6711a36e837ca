"""`History`: how often each key was requested, and how long it took, also in earlier runs.

Knows keys, counts and seconds, and how they are stored. Must not know TensorFlow: the page's
process predicts from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from typing import Any

from xla_backend.compilation.store import Store
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.results import CacheOutcome, FirstCall, KeyHistory, Past, RowRun

SAVE_EVERY_S = 10.0
SAVED_ROWS = 32
"""How many of a key's latest texts are kept for predictions."""


class History:
    """The history of all keys; thread-safe, saved from time to time."""

    def __init__(self, store: Store | None, weights: str) -> None:
        """Reads earlier runs from the store; `weights` is the format of all models' weights."""
        self._store = store
        self._weights = weights
        self._lock = threading.Lock()
        self._past = _from_json(store.read_history(weights)) if store else {}
        self._saved = time.monotonic()

    def past(self) -> Past:
        """A copy of everything."""
        with self._lock:
            return {model: dict(keys) for model, keys in self._past.items()}

    def record_request(self, model: str, requested: CacheKey) -> None:
        """Counts a request for a key, whichever function served it."""
        with self._lock:
            self._note(model, requested, times=self._of(model, requested).times + 1)
        self._save_now_and_then()

    def record_run(self, model: str, key: CacheKey, run_s: float) -> None:
        """Records the latest run time of a function."""
        with self._lock:
            self._note(model, key, run_s=run_s)

    def record_row(self, model: str, key: CacheKey, row: RowRun) -> None:
        """Records sizes and times of a text that ran alone."""
        with self._lock:
            rows = (*self._of(model, key).rows, row)[-SAVED_ROWS:]
            self._note(model, key, rows=rows)

    def record_first_call(self, model: str, key: CacheKey, first_call: FirstCall) -> None:
        took_s = first_call.total_s
        with self._lock:
            if first_call.outcome is CacheOutcome.DISK:
                self._note(model, key, disk_s=took_s)
            else:
                self._note(model, key, miss_s=took_s, compiled=first_call)
        self._save_now_and_then()

    def most_used(self, model: str) -> list[CacheKey]:
        """The requested keys, the most used first."""
        with self._lock:
            keys = self._past.get(model, {})
            used = [key for key in keys if keys[key].times > 0]
            return sorted(used, key=lambda key: (-keys[key].times, key))

    def save(self) -> None:
        if self._store is not None:
            self._saved = time.monotonic()
            self._store.write_history(self._weights, _to_json(self.past()))

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved > SAVE_EVERY_S:
            self.save()

    def _of(self, model: str, key: CacheKey) -> KeyHistory:
        return self._past.setdefault(model, {}).get(key, KeyHistory())

    def _note(self, model: str, key: CacheKey, **changes: Any) -> None:
        self._past.setdefault(model, {})[key] = dataclasses.replace(self._of(model, key), **changes)


def _to_json(past: Past) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        model: {
            " ".join(str(int(value)) for value in dataclasses.astuple(key)): dataclasses.asdict(
                entry
            )
            for key, entry in keys.items()
        }
        for model, keys in past.items()
    }


def _from_json(values: object) -> Past:
    """The inverse; invalid entries are dropped, because predictions can do without them."""
    past: Past = {}
    if not isinstance(values, dict):
        return past
    for model, keys in values.items():
        for text, entry in keys.items() if isinstance(keys, dict) else ():
            with contextlib.suppress(TypeError, ValueError, KeyError, OverflowError):
                *sizes, is_pooled, drafts = map(int, text.split())
                padded, beams, new = (_at_least(1, size) for size in sizes)
                key = CacheKey(padded, beams, new, bool(is_pooled), _at_least(0, drafts))
                seconds = {name: entry[name] for name in ("miss_s", "disk_s", "run_s")}
                past.setdefault(str(model), {})[key] = KeyHistory(
                    times=_at_least(0, int(entry["times"])),
                    **{
                        name: None if value is None else _at_least(0.0, float(value))
                        for name, value in seconds.items()
                    },
                    compiled=_first_call(entry.get("compiled")),
                    rows=tuple(map(_row, entry.get("rows", ()))),
                )
    return past


def _row(values: Any) -> RowRun:
    prompt_tokens, positions, prefill_s, decode_s, new_tokens, is_cut = values
    return RowRun(
        _at_least(1, int(prompt_tokens)),
        _at_least(1, int(positions)),
        _at_least(0.0, float(prefill_s)),
        _at_least(0.0, float(decode_s)),
        _at_least(1, int(new_tokens)),
        bool(is_cut),
    )


def _first_call(values: Any) -> FirstCall | None:
    if values is None:  # never compiled, or by an older version
        return None
    names = ("trace_s", "compile_s", "run_s", "made_at")
    seconds = {name: _at_least(0.0, float(values[name])) for name in names}
    return FirstCall(CacheOutcome.MISS, **seconds)


def _at_least(low: float, value: float) -> Any:
    if not low <= value < math.inf:
        raise ValueError(f"{value} is not a count, size or duration")
    return value
