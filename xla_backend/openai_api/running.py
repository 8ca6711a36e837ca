"""`Runs`: a request's runs at the engine, side by side.

Knows the engine's streams and an event loop. Must not know HTTP or the protocol. No run has a
thread. A slow reader delays nothing: output waits in memory, which the requested tokens bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, cast

from xla_backend.interface.backend import NEVER_STARTED, Chunk, EventStream, Result
from xla_backend.interface.errors import EngineStopped
from xla_backend.interface.results import GenerationResult, Progress

_tasks: set[asyncio.Task[None]] = set()  # the event loop holds only weak references


class Runs(Generic[Chunk, Result]):
    """Runs, in the order of the engine's queue."""

    def __init__(self, opens: Sequence[Callable[[], EventStream[Chunk, Result]]]) -> None:
        """Starts the runs; `opens` are the functions that send each to the engine."""
        self._arrived: asyncio.Queue[tuple[int, Chunk | Result] | Exception] = asyncio.Queue()
        self._tasks = [
            asyncio.create_task(self._run(number, open)) for number, open in enumerate(opens)
        ]
        for task in self._tasks:
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

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

    async def _run(self, number: int, open: Callable[[], EventStream[Chunk, Result]]) -> None:
        # In a thread, with this context's variables: a dead engine is started again, for example.
        opening = asyncio.ensure_future(asyncio.to_thread(open))
        try:
            stream = await asyncio.shield(opening)
            async for event in stream.events():
                if not isinstance(event, Progress):
                    self._arrived.put_nowait((number, event))
            if (result := stream.result) is None:
                raise EngineStopped(NEVER_STARTED)
            self._arrived.put_nowait((number, result))
        except Exception as error:
            self._arrived.put_nowait(error)
        finally:
            opening.add_done_callback(_stop)


def _stop(opening: asyncio.Future[EventStream[Chunk, Result]]) -> None:
    """Stops a stream, if there is one; one that has ended takes no notice."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().stop()
