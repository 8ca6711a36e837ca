"""`Runs`: a request's runs at the engine, for a caller on the event loop.

Knows threads, turns and an event loop. Must not know HTTP or the protocol. Each run has a thread
only while it has its turn, and nobody waits for a caller who reads slowly: what is written waits in
memory, where it is no more than the tokens that were asked for.
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

_tasks: set[asyncio.Task[None]] = set()  # the event loop alone would let go of them


class Runs(Generic[Chunk, Result]):
    """Runs that begin as their turns come, side by side."""

    def __init__(
        self,
        threads: Executor,
        turns: Sequence[Turn],
        opens: Sequence[Callable[[], AnyStream[Chunk, Result]]],
    ) -> None:
        """Begins.

        Args:
            threads: where the engine's streams are read; as many as turns may come at once.
            turns: of each run, its place in the line.
            opens: of each run, what sends it to the engine.
        """
        self._threads = threads
        self._arrived: asyncio.Queue[tuple[int, Chunk | Result] | Exception] = asyncio.Queue()
        self._tasks = [
            self._begin(place, turn, open)
            for place, (turn, open) in enumerate(zip(turns, opens, strict=True))
        ]

    async def chunks(self) -> AsyncIterator[tuple[int, Chunk | Result]]:
        """Number of the run, and its next chunk or, as its last, its result.

        Raises:
            BackendError: of the first run that failed.
        """
        ended = 0
        while ended < len(self._tasks):
            arrived = await self._arrived.get()
            if isinstance(arrived, Exception):
                raise arrived
            yield arrived
            ended += isinstance(arrived[1], GenerationResult)

    async def results(self) -> list[Result]:
        """What came of each run, once all are over; raises what `chunks` raises."""
        results: dict[int, Result] = {}
        async for number, chunk in self.chunks():
            if isinstance(chunk, GenerationResult):
                results[number] = cast("Result", chunk)
        return [results[number] for number in range(len(self._tasks))]

    def leave(self) -> None:
        """Stops the runs that are not over; nobody reads them any more."""
        for task in self._tasks:
            task.cancel()

    def _begin(
        self, number: int, turn: Turn, open: Callable[[], AnyStream[Chunk, Result]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(number, turn, open))
        _tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            turn.leave()  # here: a task that is cancelled at once never begins
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
        # With the request's id, which a thread would not see by itself.
        read = contextvars.copy_context().run
        work = loop.run_in_executor(self._threads, read, reader.read)
        try:
            await asyncio.wait([work])  # which does not end the work where it is cancelled itself
        finally:
            if not work.done():
                reader.stop()
                await asyncio.wait([work])  # the engine is at it until then
            error = work.exception()
        if error is not None:
            self._arrived.put_nowait(error if isinstance(error, Exception) else RuntimeError(error))
        elif (result := work.result()) is None:
            self._arrived.put_nowait(EngineStopped("The request was stopped before it began."))
        else:
            self._arrived.put_nowait((number, result.after_waiting(waited_s)))


class _Reader(Generic[Chunk, Result]):
    """Reads one stream to its end, in a thread; another may stop it."""

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
