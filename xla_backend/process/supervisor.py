"""`Supervisor`: keeps one engine process running, and replaces it.

Knows when a child starts, when another takes its place, and that requests wait meanwhile. Must not
know what is asked of the engine, nor import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from xla_backend.child_process.parent_side import CLOSE_S
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import FORKED, BackendError, EngineStopped, NoRoom
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.request_queue import Entry, QueueLimits, RequestQueue
from xla_backend.interface.request_record import RequestRecords
from xla_backend.interface.requests import REQUEST_ID
from xla_backend.interface.results import EngineStatus, KVMemoryUse
from xla_backend.process import memory
from xla_backend.process.child import Call, Child, LeftS, unknown
from xla_backend.process.messages import EngineRequest, Settings
from xla_backend.process.request_log import FinishedRequest
from xla_backend.process.watchdog import Patience

CLOSED = "The engine was closed; it takes no more requests."
TO_FREE_MEMORY = "to free memory"
STOPPED = "after it stopped"
NOTE_S = 60.0
"""Seconds for which the status says why the engine was replaced."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineHealth:
    """Health of the engine's process.

    Attributes:
        up_s: seconds since the first engine was started.
        requests: how many it has, running ones included.
        resident: bytes that it holds in memory; None where the system does not say.
        memory_limit: bytes that it may hold; None for no bound.
        restarts: how often it was replaced, by cause: "memory" (before it grew too large),
            "stopped" (it had died or hung).
        kv_memory: memory of keys and values, as of the last request.
    """

    pid: int
    up_s: float
    requests: int
    resident: int | None
    memory_limit: int | None
    restarts: dict[str, int]
    kv_memory: KVMemoryUse


class Supervisor:
    """Keeps one child running. Methods may be called from any thread.

    Attributes:
        engine: the child that takes requests, or the last one that did.
        queue: the order of the requests.
        requests: the record of all of them.
    """

    def __init__(
        self,
        settings: Settings,
        on_status: Callable[[EngineStatus], None] | None,
        on_request: Callable[[FinishedRequest], None] | None,
        patience: Patience,
        limits: QueueLimits,
    ) -> None:
        """Starts a child and returns; arguments as for `BackendProcess`.

        Raises:
            EngineStopped: it cannot be started.
        """
        self._pid = os.getpid()
        self.queue = RequestQueue(limits)
        self.requests = RequestRecords()
        self._settings = settings
        self._on_status = on_status
        self._on_request = on_request
        self._patience = patience
        self._began = time.monotonic()
        self._restarts: Counter[str] = Counter()
        self._note, self._note_from = "", 0.0
        self._counts_from = 0.0  # when the first engine was ready
        self._queue_seen = -1  # its version at the last reminder of a large child
        # Held while a child is replaced; its threads and those that send to it never take it.
        self._lock = threading.Lock()
        self._changing = threading.Lock()  # for a moment, while `engine` and `_closed` change
        self._closed = False
        self._start_failure = ""  # why no other child could be started
        # Guarded by the first lock:
        self._requested_keys: dict[tuple[str, CacheKey], None] = {}
        self._reservations: list[Call] = []  # of a child that was replaced
        self.queue.hold()
        self.engine = self._start(settings.warm_up)

    @property
    def status(self) -> EngineStatus:
        """What the engine is doing right now, and whether it was just replaced."""
        status = self.engine.status
        is_new = self._note and time.perf_counter() - self._note_from < NOTE_S
        return dataclasses.replace(status, note=self._note) if is_new else status

    def health(self) -> EngineHealth:
        engine = self.engine
        return EngineHealth(
            pid=engine.pid,
            up_s=time.monotonic() - self._began,
            requests=self.queue.running + self.queue.waiting,
            resident=memory.resident(engine.pid),
            memory_limit=self._settings.memory_limit,
            restarts=dict(self._restarts),
            kv_memory=engine.snapshot.kv_memory,
        )

    def current(self) -> Child:
        """The running child; a new one if the last one ended.

        Raises:
            EngineStopped: this was closed, a new one cannot be started, or this process is a fork.
        """
        if os.getpid() != self._pid:
            raise EngineStopped(FORKED)
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            if self.engine.is_over():
                self._renew("stopped" if self.engine.was_ready else "")
            if self._start_failure:
                raise EngineStopped(self._start_failure)
            return self.engine

    def submit(self, request: EngineRequest, left_s: LeftS = unknown) -> Call:
        """Queues a request, whose queue time begins now.

        Args:
            request: without number and time.
            left_s: see `Call`.

        Raises:
            EngineStopped: this was closed, or this process is a fork.
            NoRoom: too many wait.
        """
        self.current()
        request = dataclasses.replace(
            request, arrival_time=time.perf_counter(), request_id=REQUEST_ID.get()
        )
        call = Call(request, left_s, self.request_finished)
        excludes = ""
        if request.kind == "compare_function":
            excludes = "Comparing"
        elif request.kind == "reserve":
            excludes = str(request.payload)
        call.entry = Entry(self.queue, lambda: self._send(call), excludes, call.left_s)
        call.record = self.requests.open(
            call.entry, excludes or request.kind, request.model, request.payload, call.stop
        )
        try:
            call.enter(self.queue)
        except NoRoom as error:
            call.record.end(error)
            raise
        return call

    def _send(self, call: Call) -> None:
        """Sends a request to the child; it waits again if the child has just ended."""
        counted_from = max(call.arrived, self._counts_from)
        call.request = dataclasses.replace(call.request, arrival_time=counted_from)
        engine = self.engine
        refusal = CLOSED if self._closed else engine.submit(call)
        if not refusal:
            return
        with self._changing:
            waits = engine.was_ready and not self._closed and not self._start_failure
            if waits and engine is self.engine:
                self.queue.hold()
        if waits:
            call.put_back()
        else:
            call.end("error", EngineStopped(refusal))

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Lets this child, or the next one, compile keys in the background."""
        engine = self.current()
        keys = list(keys)
        with self._lock:
            self._requested_keys.update(dict.fromkeys((model, key) for key in keys))
        engine.send("warm", (model, keys))

    def cancel_prefetch(self) -> None:
        """Drops the keys that are not being compiled yet."""
        with self._lock:
            self._requested_keys.clear()
        self.engine.send("cancel_prefetch", None)

    def refused(self, request: EngineRequest, error: BackendError) -> None:
        """Records a request that was refused before it was sent."""
        request = dataclasses.replace(request, request_id=REQUEST_ID.get())
        self.request_finished(FinishedRequest(request, "error", error, 0.0, 0))

    def restart(self, meanwhile: Callable[[], None]) -> None:
        """Ends the child, calls a function, and starts another child without a warm-up.

        Raises:
            EngineStopped: this was closed, or a new one cannot be started.
        """
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            self.queue.hold()
            self.engine.close()
            meanwhile()
            self._renew("", is_warming=False)
            if self._start_failure:
                raise EngineStopped(self._start_failure)

    def close(self, within_s: float = CLOSE_S) -> None:
        """See `BackendProcess.close`."""
        with self._lock:
            self.queue.hold()
            with self._changing:
                self._closed = True
            self.engine.close(within_s)
        self.queue.release()  # what waits learns that this was closed

    def __del__(self) -> None:
        if (engine := getattr(self, "engine", None)) is not None:
            engine.end_soon()

    # --- called in threads of the children ------------------------------------------------------

    def child_is_ready(self, child: Child) -> None:
        """It has started."""
        with self._lock:
            if child is not self.engine:
                return
            self._counts_from = self._counts_from or time.perf_counter()
            for call in self._reservations:
                child.submit(call)
            self._reservations = []
            for model in dict.fromkeys(model for model, _ in self._requested_keys):
                keys = [key for of, key in self._requested_keys if of == model]
                child.send("warm", (model, keys))
        self.queue.release()

    def child_is_large(self, child: Child) -> None:
        """Replaces it if nothing has happened since the last call."""
        with self._lock:
            seen, self._queue_seen = self._queue_seen, self.queue.version
            is_idle = seen == self._queue_seen and not (self.queue.running or self.queue.waiting)
            if is_idle and child is self.engine and not self._closed:
                self._replace()

    def child_is_full(self, child: Child) -> None:
        """It starts no more requests: they wait."""
        with self._lock:
            if child is self.engine and not self._closed:
                self.queue.hold()
                child.set_status(EngineStatus("starting", TO_FREE_MEMORY, time.perf_counter()))

    def child_has_emptied(self, child: Child) -> None:
        """It was full, and has nothing left to do."""
        with self._lock:
            if child is self.engine and not self._closed:
                self._replace()

    def child_died(self, child: Child) -> None:
        """It ended by itself. One that could not start is not replaced: the next could not either,
        and what waits learns that."""
        with self._lock:
            is_replaced = child is not self.engine or self._closed
            if not is_replaced and child.was_ready:
                self._renew("stopped")
                return
        if not is_replaced:
            self.queue.release()

    def request_finished(self, finished: FinishedRequest) -> None:
        """A request has its last reply."""
        if self._on_request is not None:
            try:
                self._on_request(finished)
            except Exception:
                logger.exception("on_request raised an error")

    # --- inside ---------------------------------------------------------------------------------

    def _start(self, warm_up: GenerationOptions | None, before: Child | None = None) -> Child:
        level = logging.getLogger("xla_backend").getEffectiveLevel()
        return Child(
            dataclasses.replace(
                self._settings,
                warm_up=warm_up,
                log_level=level,
                prefixes_before=before.snapshot.prefixes if before else frozenset(),
            ),
            weakref.ref(self),
            self._on_status,
            self._patience,
        )

    def _replace(self) -> None:
        """Replaces the child, which has nothing to do; the caller holds the lock."""
        logger.info("The engine has come near a limit of its memory; another one starts")
        self.queue.hold()
        self._reservations = self.engine.take_reservations()
        self.engine.close()
        self._renew("memory")

    def _renew(self, cause: str, is_warming: bool = True) -> None:
        """Starts another child, or lets all that waits fail; the caller holds the lock.

        Args:
            cause: a key of `EngineHealth.restarts`; empty for none.
            is_warming: whether it compiles in the background by itself.
        """
        old = self.engine
        made = {(entry.model, entry.key) for entry in old.last_entries}
        missing = (each for each in self._requested_keys if each not in made)
        self._requested_keys = dict.fromkeys(missing)
        old.on_status = None
        try:
            new = self._start(self._settings.warm_up if is_warming else None, old)
        except EngineStopped as error:
            logger.error("%s", error)
            with self._changing:
                self._start_failure = str(error)
            self.queue.release()
            return
        new.inherit(old.snapshot.past)
        with self._changing:
            self.queue.hold()
            self.engine, self._start_failure = new, ""
        if cause:
            self._restarts[cause] += 1
            self._note = f"restarted {TO_FREE_MEMORY if cause == 'memory' else STOPPED}"
            self._note_from = time.perf_counter()
