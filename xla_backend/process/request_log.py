"""`RequestLog`: one line of JSON per request, for the operator; `TraceLog`: a trace of all.

Knows what may be logged about a request: sizes, names, outcomes, seconds. Never the prompt, the
text or anything else that a visitor sent.
"""

from __future__ import annotations

import datetime
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from xla_backend.interface.results import GenerationResult, PrefixMiss
from xla_backend.interface.timing import Span
from xla_backend.process import trace
from xla_backend.process.messages import EngineRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinishedRequest:
    """A request that has had its last reply.

    Attributes:
        request: the request.
        kind: "result"; "error"; "dropped" (stopped before it started); "abandoned" (its caller
            left).
        value: the result, or the error.
        wall_s: seconds from the call in this process to the last reply.
        ahead: how many requests the engine had before it.
    """

    request: EngineRequest
    kind: str
    value: Any
    wall_s: float
    ahead: int

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the log: times in seconds, without unknown fields."""
        entry: dict[str, Any] = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "id": self.request.request_id or None,
            "request": self.request.kind,
            "model": self.request.model or None,
            "end": self.kind,
            "wall_s": round(self.wall_s, 6),
            "ahead": self.ahead,
        }
        if isinstance(self.value, GenerationResult):
            result = self.value
            entry |= {
                "cache": result.cache.value,
                "key": result.key.to_dict(),
                "prompt_tokens": result.prompt_tokens,
                "new_tokens": result.new_tokens,
                "finish": result.finish,
                "timing": {name: round(s, 6) for name, s in result.timing.to_dict().items()},
                "load_s": round(result.load_s, 6),
                "miss": result.miss.to_json() if result.miss else None,
                "cache_miss": _without_text(result.prefix_miss),
            }
        elif self.kind == "error":
            entry["error"] = type(self.value).__name__
        return {name: value for name, value in entry.items() if value is not None}


def _without_text(miss: PrefixMiss | None) -> dict[str, Any] | None:
    if miss is None:
        return None
    texts = ("before", "sent", "cached")
    return {name: each for name, each in miss.to_json().items() if name not in texts}


class Watchers:
    """Calls each of several watchers with every request: logs and metrics, by their names."""

    def __init__(self, watchers: Mapping[str, Callable[[FinishedRequest], None]]) -> None:
        self._watchers = watchers
        self._failed: set[str] = set()

    def __call__(self, finished: FinishedRequest) -> None:
        """One that fails (a full disk, a closed pipe) stops no other, and is reported once."""
        for name, watch in self._watchers.items():
            try:
                watch(finished)
            except Exception as error:
                if name not in self._failed:
                    self._failed.add(name)
                    logger.warning("%s misses requests: %s", name, error)


class RequestLog:
    """Writes each line at once."""

    def __init__(self, stream: TextIO) -> None:
        """The stream is open for writing, and is not closed here."""
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, finished: FinishedRequest) -> None:
        line = json.dumps(finished.to_json())
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


class TraceLog:
    """All requests of a program as one trace, a file that is valid at any moment.

    The format does not require the array to be closed.
    """

    def __init__(self, path: Path) -> None:
        """Begins a new file.

        Raises:
            OSError: it cannot be written.
        """
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._row = 0
        self._file.write("[\n")
        self._write(trace.process_events())

    def write(self, finished: FinishedRequest) -> None:
        """Writes a request that has a result; others have no timing."""
        if not isinstance(finished.value, GenerationResult):
            return
        sent = time.perf_counter() - finished.wall_s
        page = [Span("engine", sent, finished.wall_s)]
        with self._lock:
            self._row += 1
            self._write(
                trace.request_events(trace.TracedRequest.of(finished.value, page), self._row)
            )

    def _write(self, events: Iterable[dict[str, Any]]) -> None:
        self._file.writelines(f"{json.dumps(event)},\n" for event in events)
        self._file.flush()
