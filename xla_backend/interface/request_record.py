"""`RequestRecords`: what is known of every request, waiting, running or ended, whoever sent it.

Knows states, sizes, times and the beginnings of texts. Must not know how a request is carried out,
nor who may see what.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.request_queue import Entry
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.interface.results import (
    CacheOutcome,
    GenerationResult,
    Miss,
    PrefixMiss,
    Progress,
    RequestState,
    TextChunk,
    TranscribedWindow,
)
from xla_backend.interface.timing import Span, Timing, merged

NEWEST = 200
"""How many that have ended are kept, and how many of those that have not are listed."""
MAX_CHARACTERS = 500
"""Of a prompt and of a text that are kept."""
MAX_SPANS = 1000
"""Of one request; finer ones are merged."""
PHASES_OF: dict[RequestState, str] = {
    "queued": "queue",
    "loading": "load",
    "tracing": "trace",
    "compiling": "compile",
    "restoring": "compile",
    "reading": "prefill",
    "writing": "decode",
    "reserved": "decode",
}
"""The phase in which a request is while it has a state."""


class RequestRecord:
    """One request, from its arrival to its end.

    Attributes:
        number: from 1, in the order of arrival.
        entry: its place in the queue.
        kind: "generate", "transcribe", or the name of other work for the engine.
        model: empty without one.
        arrived_at: when it arrived.
        states: each state with its start, as `time.perf_counter()`.
        ended: its end, likewise; None before.
        prompt_tokens: None if unknown, as the following.
        cached_tokens, new_tokens, ttft_s, tpot_s, load_s, batch_size: see `GenerationResult`.
        timing, cache, miss, prefix_miss: likewise.
        prompt, text: their first characters; of messages, the last one's.
        error: that ended it.
    """

    def __init__(
        self,
        records: RequestRecords,
        number: int,
        entry: Entry,
        kind: str,
        model: str,
        request: object,
        stop: Callable[[], object],
    ) -> None:
        """Made by `RequestRecords.open`."""
        self._records = records
        self.number = number
        self.entry = entry
        self.kind = kind
        self.model = model
        self.prompt = self.text = ""
        self.arrived_at = datetime.now(UTC)
        self.states: list[tuple[RequestState, float]] = [("queued", time.perf_counter())]
        self.ended: float | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.new_tokens: int | None = None
        self.ttft_s: float | None = None
        self.tpot_s: float | None = None
        self.load_s = 0.0
        self.batch_size = 1
        self.timing: Timing | None = None
        self.cache: CacheOutcome | None = None
        self.miss: Miss | None = None
        self.prefix_miss: PrefixMiss | None = None
        self.error: Exception | None = None
        self._spans: tuple[Span, ...] = ()
        self._stop = stop
        if isinstance(request, Prepared):
            self.prompt_tokens = len(request.token_ids)
            request = request.request
        if isinstance(request, TextRequest):
            self.prompt = _last(request.prompt)[:MAX_CHARACTERS]

    @property
    def state(self) -> RequestState:
        return self.states[-1][0]

    def spans(self) -> Sequence[Span]:
        """Its phases so far; those of a request without a result follow from its states."""
        if self._spans:
            return self._spans
        starts = [since for _, since in self.states]
        ends = [*starts[1:], time.perf_counter() if self.ended is None else self.ended]
        return [
            Span(PHASES_OF[state], since, max(0.0, end - since))
            for (state, since), end in zip(self.states, ends, strict=True)
            if state in PHASES_OF
        ]

    def stop(self) -> None:
        """Ends it; one that has ended takes no notice."""
        if self.ended is None:
            self._stop()

    # --- called by what carries it out ----------------------------------------------------------

    def report(self, progress: Progress) -> None:
        """It has a new state."""
        self.states.append((progress.state, progress.since))
        self._records.note()

    def add(self, chunk: object) -> None:
        """It has a new chunk of its output."""
        text = ""
        if isinstance(chunk, TranscribedWindow):
            text, self.new_tokens = chunk.text, (self.new_tokens or 0) + chunk.new_tokens
        elif isinstance(chunk, TextChunk):
            text, self.new_tokens = chunk, chunk.generated or self.new_tokens
        self.text = (self.text + text)[:MAX_CHARACTERS]
        self._records.note()

    def end(self, value: object) -> None:
        """It has ended with a result, an error, or None if it was stopped before either.

        A second end changes nothing.
        """
        if self.ended is not None:
            return
        self.ended = time.perf_counter()
        self._stop = lambda: None  # holds what carried it out
        state: RequestState = "stopped" if value is None else "done"
        if isinstance(value, Exception):
            state, self.error = "failed", value.with_traceback(None)
        elif isinstance(value, GenerationResult):
            state = "stopped" if value.finish == "stopped" else "done"
            self._take(value)
        self.states.append((state, self.ended))
        self._records.settle(self)

    def _take(self, result: GenerationResult) -> None:
        for name in (
            *("prompt_tokens", "cached_tokens", "new_tokens", "ttft_s", "tpot_s", "load_s"),
            *("batch_size", "timing", "cache", "miss", "prefix_miss"),
        ):
            setattr(self, name, getattr(result, name))
        self.text = result.text[:MAX_CHARACTERS]
        self._spans = result.spans
        if len(self._spans) > MAX_SPANS:
            first, last = self._spans[0], self._spans[-1]
            whole_s = last.started + last.duration_s - first.started
            self._spans = tuple(merged(self._spans, whole_s / MAX_SPANS))


def _last(prompt: Prompt) -> str:
    """A text, or that of the last message; empty for tokens."""
    if isinstance(prompt, tuple):
        return prompt[-1].content if prompt else ""  # which will be refused
    return "" if isinstance(prompt, TokenIds) else prompt


class RequestRecords:
    """The records of all requests that have not ended, and of the newest that have.

    Its methods may be called from any thread.

    Attributes:
        is_closed: whether no further request comes.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # Guarded by the lock; in the order of arrival and of the end:
        self._open: dict[int, RequestRecord] = {}
        self._ended: deque[RequestRecord] = deque(maxlen=NEWEST)
        self._watchers: tuple[Callable[[], object], ...] = ()
        self.is_closed = False

    def open(
        self,
        entry: Entry,
        kind: str,
        model: str,
        request: object,
        stop: Callable[[], object],
    ) -> RequestRecord:
        """The record of a new request.

        Args:
            entry: its place in the queue, which it may not have entered.
            kind, model: see `RequestRecord`.
            request: as its caller made it or prepared.
            stop: ends it.
        """
        with self._lock:
            record = RequestRecord(self, next(self._numbers), entry, kind, model, request, stop)
            self._open[record.number] = record
        self.note()
        return record

    def newest(self) -> list[RequestRecord]:
        """The records, newest first: those that have not ended, as far as they are listed, too."""
        with self._lock:
            listed = [*itertools.islice(self._open.values(), NEWEST), *self._ended]
        return sorted(listed, key=lambda record: -record.number)

    @contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """Calls `wake` after each change, in any thread; it must return at once."""
        with self._lock:
            self._watchers += (wake,)
        try:
            yield
        finally:
            with self._lock:
                self._watchers = tuple(each for each in self._watchers if each is not wake)

    def close(self) -> None:
        """Ends what is watched."""
        self.is_closed = True
        self.note()

    def note(self) -> None:
        """A record has changed."""
        for wake in self._watchers:
            wake()

    def settle(self, record: RequestRecord) -> None:
        """A request has ended."""
        with self._lock:
            del self._open[record.number]
            self._ended.append(record)
        self.note()
