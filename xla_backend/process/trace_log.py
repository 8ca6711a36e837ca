"""`TraceLog`: all requests of a program as one trace, written as they end.

Knows the file and which requests are shown. Must not know the format's events.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xla_backend.interface import trace
from xla_backend.interface.results import GenerationResult
from xla_backend.interface.timing import Span
from xla_backend.process.request_log import FinishedRequest


class TraceLog:
    """Writes each request's events at once, so the file is a valid trace at any moment.

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
            self._write(trace.request_events(trace.TracedRequest(finished.value, page), self._row))

    def _write(self, events: Iterable[dict[str, Any]]) -> None:
        self._file.writelines(f"{json.dumps(event)},\n" for event in events)
        self._file.flush()
