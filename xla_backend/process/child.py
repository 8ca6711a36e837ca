"""`Child`: one engine process, from its start to its end, and a copy of its state.

Knows the messages to the process, how it is watched, and which requests it has. Must not know what
replaces it, nor import TensorFlow: that runs in the process.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from xla_backend.child_process.parent_side import CLOSE_S, ChildProcess
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.engine.request import Chunk, Stream
from xla_backend.interface.backend import AnyStream, Result
from xla_backend.interface.errors import BackendError, EngineStopped
from xla_backend.interface.request_queue import Entry, RequestQueue
from xla_backend.interface.request_record import RequestRecord
from xla_backend.interface.results import CacheEntry, EngineStatus, Past, Progress
from xla_backend.process.messages import EngineRequest, Settings, Snapshot
from xla_backend.process.request_log import FinishedRequest
from xla_backend.process.watchdog import Patience, Watchdog, describe_hang

MAX_RETURNS = 3
"""How many children may end while a request waits in them."""
REMIND_S = 10.0
"""Seconds between two offers to be replaced."""

LeftS = Callable[[float], float | None]
"""Expected seconds until a request's end, from those since its start; None if unknown."""

logger = logging.getLogger("xla_backend.process.backend_process")


def unknown(spent_s: float) -> None:
    """The `LeftS` of requests that cannot be predicted."""


class Owner(Protocol):
    """Is told what happens to a child, in one of the child's threads."""

    def child_is_ready(self, child: Child) -> None:
        """It has started."""

    def child_is_large(self, child: Child) -> None:
        """It should be replaced when nobody needs it; called again every `REMIND_S`."""

    def child_is_full(self, child: Child) -> None:
        """It starts no more requests, and returns those that it has not started."""

    def child_has_emptied(self, child: Child) -> None:
        """It was full, and has no more requests."""

    def child_died(self, child: Child) -> None:
        """It ended by itself; the requests that it had not started will be put back."""


class Call(Stream[Any, Any]):
    """A request of a caller, from its arrival to its last reply, in whichever child.

    Attributes:
        request: the message; `number` is set when a child takes it.
        entry: its place in the queue.
        record: what is known of it.
        child: that has it; None while it waits in the queue.
        times_returned: how often a child ended before it had started.
    """

    entry: Entry
    record: RequestRecord

    def __init__(
        self, request: EngineRequest, left_s: LeftS, on_end: Callable[[FinishedRequest], None]
    ) -> None:
        """`on_end` is called with its record at its end, in any thread."""
        super().__init__(request.arrival_time)
        self.request = request
        self._left_s = left_s
        self._on_end = on_end
        self._started_at: float | None = None
        self.child: Child | None = None
        self.times_returned = 0
        self._ahead = 0
        self._is_abandoned = False

    def enter(self, queue: RequestQueue) -> None:
        """Enters the queue.

        Raises:
            NoRoom: too many wait.
        """
        queue.enter(self.entry)
        self._ahead = len(self.entry.before())

    def wait(self) -> Any:
        """The result of a request that has no chunks; raises its error."""
        try:
            for _ in self:
                pass
        except BackendError:
            raise
        except BaseException:  # Ctrl-C: no caller waits any more
            self.abandon()
            raise
        return self.result

    def stop(self) -> None:
        """Ends it after the present chunk, or withdraws it."""
        self.is_stopped = True
        if (child := self.child) is not None:
            child.stop(self)
        elif self.entry.leave():
            self.end("dropped", None)

    def abandon(self) -> None:
        """Ends it; replies are ignored from now on."""
        self._is_abandoned = True
        if (child := self.child) is not None:
            child.abandon(self)
        else:
            self.stop()

    @property
    def is_reservation(self) -> bool:
        """Whether it only keeps others from running."""
        return self.request.kind == "reserve"

    def left_s(self) -> float | None:
        """Expected seconds until its end; None if unknown."""
        since = self._started_at
        return self._left_s(0.0 if since is None else time.perf_counter() - since)

    # --- called by its child --------------------------------------------------------------------

    def report(self, progress: Progress) -> None:
        self._started_at = self._started_at or progress.since
        self.record.report(progress)
        super().report(progress)

    def put(self, chunk: Any) -> None:
        self.record.add(chunk)
        super().put(chunk)

    def take(self, child: Child, number: int) -> EngineRequest:
        """Assigns it to a child; returns the message for that child."""
        self.request = dataclasses.replace(self.request, number=number)
        self.child = child
        return self.request

    def put_back(self) -> None:
        """Lets it wait in the queue again, unless its caller has withdrawn it."""
        self.child = None
        self.times_returned += 1
        if self.is_stopped or self._is_abandoned:
            self.end("dropped", None)
        else:
            self.entry.put_back()

    def repeat_wishes(self) -> None:
        """Repeats a stop or an abandonment that came while it was sent."""
        if self._is_abandoned:
            self.abandon()
        elif self.is_stopped:
            self.stop()

    def end(self, kind: str, value: Any) -> None:
        """Ends it with its last reply."""
        wall_s = time.perf_counter() - self.arrived
        self.entry.leave()
        self.record.end(value)
        if kind == "error":
            self.fail(value)
        else:
            self.finish(value)
        self._on_end(FinishedRequest(self.request, kind, value, wall_s, self._ahead))


class ProcessStream(AnyStream[Chunk, Result]):
    """A caller's end of a call. Closing or dropping it before its end stops the request.

    Attributes:
        entry: its place in the queue.
    """

    def __init__(self, call: Call) -> None:
        self.entry = call.entry
        self._call = call
        self._is_open = True

    @property
    def result(self) -> Result | None:  # type: ignore[override]
        return self._call.result

    @property
    def progress(self) -> Progress:  # type: ignore[override]
        return self.entry.placed(self._call.progress)

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        return next(self._call)

    async def events(self) -> AsyncIterator[Progress | Chunk]:
        async for event in self._call.events():
            yield event

    def stop(self) -> None:
        self._call.stop()

    def close(self) -> None:
        """Stops the request without waiting for it."""
        if self._is_open and not self._call.has_ended:
            self._call.abandon()
        self._is_open = False

    def __del__(self) -> None:
        self.close()


class Child:
    """One engine process. Methods may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        owner: Callable[[], Owner | None],
        on_status: Callable[[EngineStatus], None] | None,
        patience: Patience,
    ) -> None:
        """Starts the process, without waiting for it.

        Args:
            settings: of the process.
            owner: a weak reference to the owner.
            on_status: called with every new status.
            patience: how long each phase may last without a message.

        Raises:
            EngineStopped: it cannot be started.
        """
        self.status = EngineStatus("starting", since=time.perf_counter())
        self.snapshot = Snapshot()
        self.last_entries: tuple[CacheEntry, ...] = ()  # at its end
        self.on_status = on_status
        self.was_ready = False
        self.is_full = False
        self._owner = owner
        self._patience = patience
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        # Guarded by the lock, except removal, which is atomic and also happens in `__del__`.
        self._calls: dict[int, Call] = {}
        self._end: str | None = None
        self._failure: str | None = None
        self._hang: str | None = None
        self._closing = False
        self._ready = threading.Event()  # also set at the end, so that no caller waits forever
        self._over = threading.Event()  # it takes no more requests
        self._ended = threading.Event()
        self._process = ChildProcess("xla_backend.process.engine_process", settings, ENVIRONMENT)
        self.pid = self._process.pid
        self._watchdog = Watchdog(self._allowed_s, self._end_hung)
        for name, work in (("replies", self._receive), ("watchdog", self._watchdog.watch)):
            threading.Thread(target=work, name=f"engine-{name}", daemon=True).start()

    # --- called by the callers' threads ---------------------------------------------------------

    def is_over(self) -> bool:
        """Whether it takes no more requests; waits for the cleanup if it has just ended."""
        if self._process.has_ended():
            self._over.wait()
        return self._over.is_set()

    def submit(self, call: Call) -> str:
        """Sends a request; requests start in this order.

        Returns:
            Why the child takes no more requests; empty if it has taken this one.
        """
        with self._lock:
            if self._end is not None:
                return self._end
            number = next(self._numbers)
            self._process.send("request", call.take(self, number))
            self._calls[number] = call
        call.repeat_wishes()
        return ""

    def take_reservations(self) -> list[Call]:
        """Takes its reservations, for another child."""
        with self._lock:
            numbers = [number for number, call in self._calls.items() if call.is_reservation]
            calls = [self._calls.pop(number, None) for number in numbers]
        return [call for call in calls if call is not None]  # None: ended at this moment

    def send(self, kind: str, value: Any) -> None:
        """Sends a message that gets no reply."""
        self._process.send(kind, value)

    def stop(self, call: Call) -> None:
        """Ends a request after the present chunk."""
        if call.request.number in self._calls:
            self._process.send("stop", call.request.number)

    def abandon(self, call: Call) -> None:
        """Ends a request whose replies are no longer wanted."""
        if self._calls.pop(call.request.number, None) is not None:
            self._process.send("stop", call.request.number)
            call.end("abandoned", None)

    def inherit(self, past: Past) -> None:
        """Takes the times of earlier calls, for predictions until this one has its own."""
        self.snapshot = dataclasses.replace(self.snapshot, past=self.snapshot.past or past)

    def wait_ready(self, timeout_s: float | None) -> bool:
        """Waits for the start; see `BackendProcess.wait_ready`."""
        ready = self._ready.wait(timeout_s)
        if self._end is not None:
            raise EngineStopped(self._end)
        return ready

    def end_soon(self) -> None:
        """Tells it to end, without waiting."""
        self._closing = True
        self._process.send("close", None)

    def close(self, within_s: float = CLOSE_S) -> None:
        """Ends it and waits; it is killed after `within_s` seconds."""
        self.end_soon()
        if not self._ended.wait(within_s):
            self._process.kill()
            self._ended.wait()

    def set_status(self, status: EngineStatus) -> None:
        """Says what the engine is doing."""
        self.status = status
        if self.on_status is not None:
            try:
                self.on_status(status)
            except Exception:
                logger.exception("on_status raised an error")

    # --- the threads of this object -------------------------------------------------------------

    def _receive(self) -> None:
        self.set_status(self.status)
        try:
            while True:
                self._take(*self._process.receive())
        except (EOFError, OSError):
            pass  # the child ended
        except Exception:
            logger.exception("The engine sent something that cannot be read; it is ended")
        self._settle()

    def _take(self, kind: str, number: int | None, value: Any) -> None:
        """Takes one message of the child."""
        if kind == "log":
            if (of := logging.getLogger(value.name)).isEnabledFor(value.levelno):
                of.handle(value)
            return
        self._watchdog.sign_of_life()
        if kind == "status":
            self.set_status(value)
        elif kind == "snapshot":
            self.snapshot = value
        elif kind == "ready":
            self.was_ready = True
            self._ready.set()
            self._notify_owner("child_is_ready")
        elif kind == "failed":
            self._failure = value
        elif kind == "soft_limit":
            threading.Thread(
                target=self._offer_replacement, name="engine-replacement", daemon=True
            ).start()
        elif kind == "hard_limit":
            self.is_full = True
            self._notify_owner("child_is_full")
            self._check_emptied()
        elif number is not None and (call := self._calls.get(number)):
            self._take_reply(call, number, kind, value)

    def _take_reply(self, call: Call, number: int, kind: str, value: Any) -> None:
        if kind == "progress":
            call.report(value)
        elif kind == "chunk":
            call.put(value)
        elif self._calls.pop(number, None) is not None:
            if kind == "returned":
                call.put_back()
            else:
                call.end(kind, value)
            self._check_emptied()

    def _check_emptied(self) -> None:
        if self.is_full and all(call.is_reservation for call in [*self._calls.values()]):
            self._notify_owner("child_has_emptied")

    def _offer_replacement(self) -> None:
        """Reminds the owner that it is large, until it is replaced."""
        while not self._over.wait(REMIND_S):
            if (owner := self._owner()) is None:
                return
            owner.child_is_large(self)
            del owner  # it ends this child when nobody needs it any more

    def _notify_owner(self, event: str) -> None:
        """Calls the owner in another thread: it may be waiting for this child's end."""
        if (owner := self._owner()) is not None:
            notify = getattr(owner, event)
            threading.Thread(target=notify, args=(self,), daemon=True, name=event).start()

    def _allowed_s(self) -> float | None:
        """How long the child may send nothing now; None while no request waits for it."""
        calls = [call for call in [*self._calls.values()] if call.progress.state != "reserved"]
        if self._closing or (self.was_ready and not calls):
            return None
        options = next((call.request.options for call in calls if call.has_started), None)
        return self._patience.allowed_s(self.status, options, bool(self.snapshot.prefetching))

    def _end_hung(self, silent_s: float) -> None:
        self._hang = describe_hang(self.status.state, silent_s)
        self._process.kill()

    def _take_leave(self, sentence: str) -> list[Call]:
        """Stops taking requests; returns those that it has, in their order."""
        with self._lock:
            if self._end is None:
                self._end = sentence
            calls = [self._calls.pop(number, None) for number in sorted(self._calls)]
        self._over.set()
        return [call for call in calls if call is not None]  # None: abandoned at this moment

    def _settle(self) -> None:
        """Handles the end of the child: its exit status, its waiting callers, its status."""
        self._watchdog.end()
        self._process.end(CLOSE_S)
        sentence = self._describe_end()
        if not self._closing:
            logger.error("%s", "\n".join([sentence, *self._process.last_lines]))
        self.last_entries = self.snapshot.entries
        self.snapshot = Snapshot(past=self.snapshot.past)
        self.set_status(EngineStatus("stopped", sentence, time.perf_counter()))
        calls = self._take_leave(sentence)
        self._ready.set()
        self._ended.set()
        owner = None if self._closing else self._owner()
        if owner is not None:
            owner.child_died(self)
        for call in calls:
            if call.has_started or owner is None or call.times_returned >= MAX_RETURNS:
                call.end("error", EngineStopped(sentence))
            else:
                call.put_back()

    def _describe_end(self) -> str:
        if self._closing:
            return "The engine was closed."
        if self._failure is not None:
            return f"The engine could not start: {self._failure}."
        if problem := self._process.flag_error:
            return f"The engine cannot start: {problem}. Then start this program again."
        idle = self.status.state == "ready"
        doing = "it was idle" if idle else f"{self.status.state} {self.status.detail}".strip()
        cause = self._hang or self._process.cause()
        return (
            f"The engine stopped while {doing}: {cause}. "
            "Send the request again: a new engine will serve it."
        )
