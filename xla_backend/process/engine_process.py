"""The child process of `BackendProcess`: one `Backend`, served over a `Channel`.

Knows the order of work and what to report to the parent. Must not know who asks, nor how text is
generated: `Backend` does that. `Child` starts it.

The main thread loads the engine; another receives, gives requests to the engine and stops them,
and ends the process when the parent is gone, for whatever reason. The engine's thread answers.
"""

from __future__ import annotations

import logging
import logging.handlers
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from xla_backend.child_process.channel import Channel
from xla_backend.child_process.child_side import connect, end, first_line
from xla_backend.compilation.startup import retain_freed_memory
from xla_backend.engine.importing import import_engine
from xla_backend.engine.request import Stream
from xla_backend.interface.errors import BackendError, OutOfMemory
from xla_backend.interface.function_comparison import FunctionRequest
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import EngineStatus, Progress
from xla_backend.process import memory
from xla_backend.process.memory_bound import MemoryBound
from xla_backend.process.messages import EngineRequest, Settings, Snapshot

if TYPE_CHECKING:
    from xla_backend.engine.backend import Backend

ENDING_S = 2.0
"""Seconds in which the engine may finish its step when it is told to end."""
COUNT_EVERY = 20 * 10**6
"""Bytes of growth after which memory mappings are counted again (1 GB of functions had 10,000), and
after which freed memory is given back again, which takes some 50 ms."""

logger = logging.getLogger(
    "xla_backend.process.engine_process"
)  # as a program, __name__ is "__main__"


class Active(Stream[Any, Any]):
    """A request at the engine; its output goes over the channel.

    Attributes:
        request: the request.
    """

    def __init__(self, request: EngineRequest, process: EngineProcess) -> None:
        super().__init__(request.arrival_time)
        self.request = request
        self._process = process

    def may_start(self) -> bool:
        return not self._process.takes_no_more and super().may_start()

    def put(self, chunk: Any) -> None:
        """Sends a chunk, if the request is streamed."""
        payload = self.request.payload
        if isinstance(payload, Prepared | TextRequest | SpeechRequest) and payload.in_chunks:
            self._process.send(self, "chunk", chunk)

    def report(self, progress: Progress) -> None:
        """Sends its new state."""
        self._process.send(self, "progress", progress)
        super().report(progress)

    def finish(self, result: Any) -> None:
        kind = "result"
        if not self.has_started:
            kind = "returned" if self._process.takes_no_more else "dropped"
        self._process.answer(self, kind, result)
        super().finish(result)

    def fail(self, error: BaseException) -> None:
        """Sends the error that ended it."""
        self._process.answer_error(self, error)
        super().fail(error)


class EngineProcess:
    """Takes requests from the channel and gives them to the engine."""

    def __init__(self, channel: Channel, settings: Settings) -> None:
        """`listen` and `run` are for two threads."""
        self._channel = channel
        self._settings = settings
        self._backend: Backend | None = None
        self._bound = MemoryBound(None, at_start=0)
        self._marks_sent: set[str] = set()  # of "soft_limit" and "hard_limit"
        self._counted_at, self._mapped = 0, 0.0  # bytes held, and share of memory mappings then
        self._trimmed_at = 0  # bytes held after freed memory was given back
        self._is_warm_up_requested = False
        self._mirroring = threading.Lock()
        self._mirrored: Snapshot | None = None
        self._measuring = threading.Lock()
        self._active: dict[int, Active] = {}  # by number
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._has_answered = threading.Condition()

    @property
    def takes_no_more(self) -> bool:
        """Whether no further request may start: those are returned to the parent."""
        return self._ended.is_set() or "hard_limit" in self._marks_sent

    @property
    def is_ready(self) -> bool:
        """Whether the engine has started."""
        return self._ready.is_set()

    # --- the receiving thread -------------------------------------------------------------------

    def listen(self) -> None:
        """Receives until told to end or until the parent is gone; `run` then returns soon."""
        try:
            while True:
                kind, value = self._channel.receive()
                if kind == "close":
                    break
                if kind == "request":
                    self._ready.wait()  # the parent does not send earlier, but for a race
                    self._serve(Active(value, self))
                elif kind == "stop":
                    if (active := self._active.get(value)) is not None:
                        active.stop()
                elif self._backend is None:
                    pass  # nothing to warm yet, and nothing to cancel
                elif kind == "warm":
                    self._is_warm_up_requested = True
                    self._backend.prefetch(*value)
                elif kind == "cancel_prefetch":
                    self._backend.cancel_prefetch()
        except (EOFError, OSError):
            pass  # the parent is gone
        self._ended.set()
        for active in [*self._active.values()]:
            active.stop()

    # --- the main thread ------------------------------------------------------------------------

    def run(self) -> None:
        """Loads the engine, which serves requests until told to end.

        Raises:
            Exception: the engine could not be loaded; the parent was told why.
        """
        try:
            backend = self._load_engine()
        except BaseException as error:
            self._channel.send(("failed", None, f"{type(error).__name__}: {error}"))
            raise
        if self._settings.warm_up is not None and self._settings.preload is not None:
            # Only lists the keys; they are compiled in the background.
            backend.warm_up(self._settings.preload, self._settings.warm_up)
        self._mirror(backend)
        self._bound = MemoryBound(self._settings.memory_limit, memory.resident() or 0)
        self._backend = backend
        self._ready.set()
        self._channel.send(("ready", None, None))
        self._ended.wait()
        with self._has_answered:
            self._has_answered.wait_for(lambda: not self._active)
        backend.close()  # saves the history

    def _load_engine(self) -> Backend:
        import_engine()  # seconds
        from xla_backend.engine.backend import Backend

        backend = Backend(
            registry=self._settings.registry,
            rules=self._settings.rules,
            on_status=self._send_status,
            store=self._settings.store,
            on_change=self._mirror_background,
            kv_bytes=self._settings.kv_bytes,
            prefix_store_bytes=self._settings.prefix_store_bytes,
            prefixes_before=self._settings.prefixes_before,
        )
        if self._settings.preload is not None:
            try:
                backend.load(self._settings.preload)
            except BackendError as error:
                logger.warning("%s could not be loaded: %s", self._settings.preload, error)
            except Exception:
                logger.exception("%s could not be loaded", self._settings.preload)
        self._send_status(EngineStatus("ready", since=time.perf_counter()))
        return backend

    def _send_status(self, status: EngineStatus) -> None:
        self._channel.send(("status", None, status))

    def _mirror(self, backend: Backend) -> None:
        # The background's thread does this too: an older state must not be sent last.
        with self._mirroring:
            snapshot = Snapshot(
                entries=tuple(backend.cached_functions()),
                models=tuple(backend.models()),
                stored_keys=tuple(backend.stored_keys()),
                kv_memory=backend.kv_memory(),
                past=backend.past(),
                prefetching=tuple(backend.prefetching()),
                prefixes=backend.prefixes(),
            )
            if snapshot != self._mirrored:
                self._mirrored = snapshot
                self._channel.send(("snapshot", None, snapshot))

    def _mirror_background(self) -> None:
        if self._backend is not None:
            self._mirror(self._backend)
            self._check_memory(self._backend)

    def _check_memory(self, backend: Backend) -> None:
        """Tells the parent if the process has become too large.

        Called between requests and between jobs of the background.
        """
        held = memory.resident()
        if held is None or not self.is_ready:
            return
        if self._bound.is_above_soft_limit(held) and held >= self._trimmed_at + COUNT_EVERY:
            memory.give_back()  # what compilers left: up to 200 MB
            self._trimmed_at = held = memory.resident() or held
        if abs(held - self._counted_at) >= COUNT_EVERY:
            self._counted_at, self._mapped = held, memory.mapped_share()
        is_full = self._bound.is_above_hard_limit(held, self._mapped)
        if is_full or not (self._is_warm_up_requested or self._bound.may_warm(held, self._mapped)):
            backend.pause_warm_up()
        if is_full:
            self._report_size("hard_limit", held)
        elif self._bound.is_above_soft_limit(held, self._mapped):
            self._report_size("soft_limit", held)

    def _report_size(self, mark: str, held: int) -> None:
        with self._measuring:  # Several requests may end at once.
            is_new = mark not in self._marks_sent
            self._marks_sent.add(mark)
        if is_new:
            self._channel.send((mark, None, held))

    def _serve(self, active: Active) -> None:
        """Gives a request to the engine."""
        assert self._backend is not None, "it is ready"
        backend = self._backend
        request, payload = active.request, active.request.payload
        self._active[request.number] = active
        if isinstance(payload, Prepared | TextRequest):
            try:
                backend.submit(payload, active)
            except Exception as error:
                active.fail(error)
        elif isinstance(payload, SpeechRequest):
            backend.submit_speech(payload, active)
        elif request.kind == "reserve":
            backend.reserve(active)
        else:
            administers = partial(self._administer, backend, active, payload)
            threading.Thread(target=administers, daemon=True, name=request.kind).start()

    def _administer(self, backend: Backend, active: Active, payload: FunctionRequest | str) -> None:
        """Handles a request that generates nothing."""
        if not active.may_start():
            active.finish(None)
            return
        active.report(Progress("loading", time.perf_counter()))
        try:
            if isinstance(payload, str):
                value: Any = backend.load(payload)
            else:
                value = backend.compare(payload, active.arrived)
        except Exception as error:
            active.fail(error)
        else:
            active.finish(value)

    # --- called by the thread that answers ------------------------------------------------------

    def send(self, active: Active, kind: str, value: Any) -> None:
        """Sends a reply that is not the last."""
        self._channel.send((kind, active.request.number, value))

    def answer(self, active: Active, kind: str, value: Any) -> None:
        """Sends the last reply of a request."""
        assert self._backend is not None, "it has answered"
        # Before the reply, so that a caller's next prediction is up to date.
        self._mirror(self._backend)
        self._channel.send((kind, active.request.number, value))
        with self._measuring:
            self._bound.note_request(memory.resident() or 0, memory.peak() or 0)
        self._check_memory(self._backend)
        with self._has_answered:
            del self._active[active.request.number]
            self._has_answered.notify()

    def answer_error(self, active: Active, error: BaseException) -> None:
        """Sends the error that ended a request."""
        if isinstance(error, BackendError):
            self.answer(active, "error", error)
            return
        kind = active.request.kind
        if _is_out_of_memory(error):
            # The memory that it left allocated stays.
            logger.error("There was not enough memory for a request (%s)", kind, exc_info=error)
            self._report_size("hard_limit", memory.resident() or 0)
            sentence = (
                "There was not enough memory for this request. Try fewer beams, fewer new tokens "
                "or a smaller model. The engine restarts, which takes a moment."
            )
            self.answer(active, "error", OutOfMemory(sentence))
            return
        logger.error("Unexpected error while serving a request (%s)", kind, exc_info=error)
        sentence = (
            f"The engine met an unexpected error ({type(error).__name__}: {first_line(error)}). "
            "The log has the details; other requests are not affected."
        )
        self.answer(active, "error", BackendError(sentence))


class ChannelHandler(logging.handlers.QueueHandler):
    """Sends log records to the parent, which logs them as its own; its queue is a `Channel`."""

    queue: Any

    def enqueue(self, record: logging.LogRecord) -> None:
        """Sends one record, which can be pickled."""
        self.queue.send(("log", None, record))


def _is_out_of_memory(error: BaseException) -> bool:
    # TensorFlow's error by its name: this module does not import TensorFlow.
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"


def _listen_and_end(engine: EngineProcess, channel: Channel) -> None:
    """Receives until the end, then ends the process if the engine's thread does not."""
    engine.listen()
    if engine.is_ready:  # otherwise there is nothing to finish
        time.sleep(ENDING_S)  # a compilation cannot be interrupted
    end(channel)


def main() -> None:
    """Runs the engine for the parent at the other end of the channel."""
    channel, settings = connect()
    retain_freed_memory()
    log = logging.getLogger("xla_backend")
    log.setLevel(settings.log_level)
    log.addHandler(ChannelHandler(cast("Any", channel)))
    engine = EngineProcess(channel, settings)
    threading.Thread(
        target=_listen_and_end, args=(engine, channel), name="receiver", daemon=True
    ).start()
    status = 0
    try:
        engine.run()
    except BaseException:
        logger.exception("The engine ended")
        status = 1
    end(channel, status)


if __name__ == "__main__":
    main()
