"""`Runs`: a request's runs at the engine, for a caller on the event loop.

Knows threads, the queue and an event loop. Must not know HTTP or the protocol. Each run has a
thread only while it is under way. A slow reader delays nothing: output waits in memory, which the
requested tokens bound.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, cast

from xla_backend.interface.backend import AnyStream, Chunk, Result
from xla_backend.interface.errors import EngineStopped
from xla_backend.interface.results import GenerationResult
from xla_backend.openai_api.host import Turn

_tasks: set[asyncio.Task[None]] = set()  # the event loop holds only weak references


class Runs(Generic[Chunk, Result]):
    """Runs that start when the queue lets them, side by side."""

    def __init__(
        self,
        threads: Executor,
        turns: Sequence[Turn],
        opens: Sequence[Callable[[], AnyStream[Chunk, Result]]],
    ) -> None:
        """Starts the runs.

        Args:
            threads: read the engine's streams; as many as runs may be under way at once.
            turns: the place in the queue of each run.
            opens: for each run, the function that sends it to the engine.
        """
        self._threads = threads
        self._arrived: asyncio.Queue[tuple[int, Chunk | Result] | Exception] = asyncio.Queue()
        self._tasks = [
            self._begin(place, turn, open)
            for place, (turn, open) in enumerate(zip(turns, opens, strict=True))
        ]

    async def chunks(self) -> AsyncIterator[tuple[int, Chunk | Result]]:
        """Pairs of a run's number and its next chunk or, at its end, its result.

        Raises:
            BackendError: the first run's that failed.
        """
        ended = 0
        while ended < len(self._tasks):
            arrived = await self._arrived.get()
            if isinstance(arrived, Exception):
                raise arrived
            yield arrived
            ended += isinstance(arrived[1], GenerationResult)

    async def results(self) -> list[Result]:
        """The results of all runs; raises what `chunks` raises."""
        results: dict[int, Result] = {}
        async for number, chunk in self.chunks():
            if isinstance(chunk, GenerationResult):
                results[number] = cast("Result", chunk)
        return [results[number] for number in range(len(self._tasks))]

    def leave(self) -> None:
        """Stops unfinished runs, whose caller has left."""
        for task in self._tasks:
            task.cancel()

    def _begin(
        self, number: int, turn: Turn, open: Callable[[], AnyStream[Chunk, Result]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(number, turn, open))
        _tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            turn.leave()  # here, because a task that is cancelled at once never starts
            _tasks.discard(task)

        task.add_done_callback(end)
        return task

    async def _run(
        self, number: int, turn: Turn, open: Callable[[], AnyStream[Chunk, Result]]
    ) -> None:
        waited_s = await turn.wait()
        loop = asyncio.get_running_loop()

        put = self._arrived.put_nowait
        reader = _Reader(open, lambda chunk: loop.call_soon_threadsafe(put, (number, chunk)))
        # With the request's id, a context variable, which threads do not inherit.
        read = contextvars.copy_context().run
        work = loop.run_in_executor(self._threads, read, reader.read)
        try:
            await asyncio.wait([work])  # cancelling this does not cancel the work
        finally:
            if not work.done():
                reader.stop()
                await asyncio.wait([work])  # the engine works on it until then
            error = work.exception()
        if error is not None:
            self._arrived.put_nowait(error if isinstance(error, Exception) else RuntimeError(error))
        elif (result := work.result()) is None:
            self._arrived.put_nowait(EngineStopped("The request was stopped before it began."))
        else:
            self._arrived.put_nowait((number, result.after_waiting(waited_s)))


class _Reader(Generic[Chunk, Result]):
    """Reads one stream to its end in a thread; another thread may stop it."""

    def __init__(
        self, open: Callable[[], AnyStream[Chunk, Result]], pass_on: Callable[[Any], object]
    ) -> None:
        self._open = open
        self._pass_on = pass_on
        self._lock = threading.Lock()
        self._stream: AnyStream[Chunk, Result] | None = None
        self._is_stopped = False

    def read(self) -> Result | None:
        stream = self._open()
        with self._lock:
            self._stream = stream
            if self._is_stopped:
                stream.stop()
        for chunk in stream:
            self._pass_on(chunk)
        return stream.result

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._stream is not None:
                self._stream.stop()
