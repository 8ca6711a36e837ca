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
from typing import Generic, cast

from xla_backend.interface.backend import AnyStream, Chunk, Result
from xla_backend.interface.errors import EngineStopped
from xla_backend.interface.results import GenerationResult
from xla_backend.openai_api.host import QueueEntry

_tasks: set[asyncio.Task[None]] = set()  # the event loop holds only weak references


class Runs(Generic[Chunk, Result]):
    """Runs that start when the queue lets them, side by side."""

    def __init__(
        self,
        threads: Executor,
        entries: Sequence[QueueEntry],
        opens: Sequence[Callable[[], AnyStream[Chunk, Result]]],
    ) -> None:
        """Starts the runs.

        Args:
            threads: read the engine's streams; as many as runs may be under way at once.
            entries: the queue entry of each run.
            opens: for each run, the function that sends it to the engine.
        """
        self._threads = threads
        self._arrived: asyncio.Queue[tuple[int, Chunk | Result] | Exception] = asyncio.Queue()
        self._tasks = [
            asyncio.create_task(self._run(place, entry, open))
            for place, (entry, open) in enumerate(zip(entries, opens, strict=True))
        ]
        for task, entry in zip(self._tasks, entries, strict=True):
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

            # Here, because a task that is cancelled at once never starts.
            def leave(_: asyncio.Task[None], entry: QueueEntry = entry) -> None:
                entry.leave()

            task.add_done_callback(leave)

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

    async def _run(
        self, number: int, entry: QueueEntry, open: Callable[[], AnyStream[Chunk, Result]]
    ) -> None:
        waited_s = await entry.wait()
        loop, put = asyncio.get_running_loop(), self._arrived.put_nowait
        streams: list[AnyStream[Chunk, Result]] = []
        is_stopped = threading.Event()

        def read() -> Result | None:
            streams.append(stream := open())
            if is_stopped.is_set():  # before it was in the list
                stream.stop()
            for chunk in stream:
                loop.call_soon_threadsafe(put, (number, chunk))
            return stream.result

        # With the request's id, a context variable, which threads do not inherit.
        work = loop.run_in_executor(self._threads, contextvars.copy_context().run, read)
        try:
            await asyncio.wait([work])  # cancelling this does not cancel the work
        finally:
            if not work.done():
                is_stopped.set()
                for stream in streams:
                    stream.stop()
                await asyncio.wait([work])  # the engine works on it until then
            error = work.exception()
        if error is not None:
            put(error if isinstance(error, Exception) else RuntimeError(error))
        elif (result := work.result()) is None:
            put(EngineStopped("The request was stopped before it began."))
        else:
            put((number, result.after_waiting(waited_s)))
