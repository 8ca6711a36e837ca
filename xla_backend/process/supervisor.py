"""`Supervisor`: keeps one engine process running, and replaces it.

Knows when a child starts, when its successor takes its place, and what happens to waiting requests.
Must not know what is asked of the engine, nor import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from xla_backend.child_process.parent_side import CLOSE_S
from xla_backend.interface.errors import BackendError, EngineStopped, NoRoom, Origin
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.request_queue import Entry, QueueLimits, RequestQueue
from xla_backend.interface.request_record import RequestRecords
from xla_backend.interface.requests import REQUEST_ID
from xla_backend.interface.results import EngineStatus, KVMemoryUse
from xla_backend.process import memory
from xla_backend.process.child import Call, Child, LeftS, Warming, unknown
from xla_backend.process.messages import EngineRequest, Settings
from xla_backend.process.request_log import FinishedRequest
from xla_backend.process.watchdog import Patience

CLOSED = "The engine was closed; it takes no more requests."
TO_FREE_MEMORY = "to free memory"
STOPPED = "after it stopped"
NOTE_S = 60.0
"""Seconds for which the status says why the engine was replaced."""
ROOM_FOR_TWO = 1.2
"""A successor starts beside the engine if this many times the engine's size at its start is free;
otherwise the engine ends first."""

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
        self._origin = Origin()
        self.queue = RequestQueue(limits)
        self.requests = RequestRecords()
        self._settings = settings
        self._on_status = on_status
        self._on_request = on_request
        self._patience = patience
        self._began = time.monotonic()
        self._restarts: Counter[str] = Counter()
        self._note, self._note_from = "", 0.0
        self._size_at_start = 0
        self._lock = threading.Lock()
        # Guarded by the lock:
        self._closed = False
        self._successor: Child | None = None
        self.engine = self._start(settings.warm_up)

    @property
    def status(self) -> EngineStatus:
        """What the engine is doing right now, and whether it was just replaced."""
        status = self.engine.status
        is_new = self._note and time.perf_counter() - self._note_from < NOTE_S
        return status.replace(note=self._note) if is_new else status

    def health(self) -> EngineHealth:
        engine = self.engine
        return EngineHealth(
            pid=engine.pid,
            up_s=time.monotonic() - self._began,
            requests=engine.waiting(),
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
        self._origin.check()
        with self._lock:
            if self._closed:
                raise EngineStopped(CLOSED)
            if self.engine.is_over():
                self._renew()
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
        entry = Entry(self.queue, lambda: self._send(call), excludes, call.left_s)
        call.record = self.requests.open(
            entry, excludes or request.kind, request.model, request.payload, call.stop
        )
        try:
            call.enter(self.queue, entry)
        except NoRoom as error:
            call.record.end(error)
            raise
        return call

    def _send(self, call: Call) -> None:
        """Sends a request to the running child."""
        try:
            while self.current().submit(call):
                pass
        except BackendError as error:
            call.end("error", error)

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
            past = self.engine.snapshot.past
            self._close_children()
            meanwhile()
            self.engine = self._start(None, self.engine)
            self.engine.inherit(past)

    def close(self, within_s: float = CLOSE_S) -> None:
        """See `BackendProcess.close`."""
        with self._lock:
            self._closed = True
            self._close_children(within_s)

    def __del__(self) -> None:
        for name in ("engine", "_successor"):
            if (child := getattr(self, name, None)) is not None:
                child.end_soon()

    # --- called in threads of the children ------------------------------------------------------

    def child_is_ready(self, child: Child) -> None:
        """It has started."""
        self._size_at_start = memory.resident(child.pid) or 0
        with self._lock:
            if child is self._successor:
                self.engine.send("drain", None)

    def child_passed_soft_limit(self, child: Child, held: int) -> None:
        """It holds so many bytes that a successor should start."""
        with self._lock:
            if child is self.engine and self._successor is None and self._has_room_for_two():
                self._prepare_successor(held)

    def child_passed_hard_limit(self, child: Child, held: int) -> None:
        """It holds so many bytes that it takes no more requests."""
        with self._lock:
            if child is not self.engine or self._closed:
                return
            child.set_status(EngineStatus("starting", TO_FREE_MEMORY, time.perf_counter()))
            if self._successor is None and self._has_room_for_two():
                self._prepare_successor(held)
            elif self._successor is None or self._successor.was_ready:
                child.send("drain", None)

    def child_drained(self, child: Child, waiting: list[Call], unmade: Warming) -> None:
        """It ended as told, and left requests and keys to its successor."""
        self._replace(child, waiting)
        for model in dict.fromkeys(model for model, _ in unmade):
            self.engine.send("warm", (model, [key for of, key in unmade if of == model]))

    def child_died(self, child: Child, waiting: list[Call]) -> None:
        """It ended by itself, and left the requests that it had not started."""
        with self._lock:
            if child is self._successor:  # it had no requests yet
                self._successor = None
                self.engine.send("drain", None)
                return
        if child.was_ready:
            self._replace(child, waiting)
            return
        for call in waiting:  # a new engine would not start either
            call.end("error", EngineStopped(child.status.detail))

    def request_finished(self, finished: FinishedRequest) -> None:
        """A request has its last reply."""
        if self._on_request is not None:
            try:
                self._on_request(finished)
            except Exception:
                logger.exception("on_request raised an error")

    # --- inside ---------------------------------------------------------------------------------

    def _start(
        self,
        warm_up: GenerationOptions | None,
        before: Child | None = None,
        is_announced: bool = True,
    ) -> Child:
        level = logging.getLogger("xla_backend").getEffectiveLevel()
        return Child(
            dataclasses.replace(
                self._settings,
                warm_up=warm_up,
                log_level=level,
                prefixes_before=before.snapshot.prefixes if before else frozenset(),
            ),
            weakref.ref(self),
            self._on_status if is_announced else None,
            self._patience,
        )

    def _has_room_for_two(self) -> bool:
        available = memory.available()
        return available is None or available > ROOM_FOR_TWO * self._size_at_start

    def _prepare_successor(self, held: int) -> None:
        """Starts the next child beside this one; the caller holds the lock."""
        if not self._closed:
            logger.info("The engine, of %d MB, nears a limit; its successor starts", held // 10**6)
            self._successor = self._start(self._settings.warm_up, self.engine, False)

    def _replace(self, child: Child, waiting: list[Call]) -> None:
        """Lets the successor, or a new child, go on for one that has ended."""
        with self._lock:
            try:
                if child is self.engine and not self._closed:
                    self._renew()
            except EngineStopped as error:
                for call in waiting:
                    call.end("error", error)
            else:
                # Under the lock, so that they stay before new requests.
                self.engine.adopt(waiting)

    def _renew(self) -> None:
        """Replaces the child, which takes no more requests; the caller holds the lock."""
        old = self.engine
        new = self._successor or self._start(self._settings.warm_up, old)
        old.on_status = None
        self.engine, self._successor = new, None
        new.inherit(old.snapshot.past)
        if new.on_status is None:
            new.on_status = self._on_status
            new.set_status(new.status)
        if old.was_ready:
            reason, why = ("memory", TO_FREE_MEMORY) if old.has_drained else ("stopped", STOPPED)
            self._restarts[reason] += 1
            self._note, self._note_from = f"restarted {why}", time.perf_counter()

    def _close_children(self, within_s: float = CLOSE_S) -> None:
        """The caller holds the lock."""
        if self._successor is not None:
            self._successor.close(within_s)
            self._successor = None
        self.engine.close(within_s)
