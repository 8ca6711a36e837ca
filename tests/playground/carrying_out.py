"""Runs and events that wait for the engine, for tests without an event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from playground.context.runs import QueuedRun
from xla_backend import SharedBackend


def steps(
    run: QueuedRun, engine: SharedBackend, at_step: Callable[[object], object] = lambda step: None
) -> list[object]:
    """What a run yields, from its start to its end; `at_step` is called with each."""

    async def carry_out() -> list[object]:
        steps = []
        async for step in run.steps(engine):
            at_step(step)
            steps.append(step)
        return steps

    return asyncio.run(carry_out())


def answers(answer: Any) -> Iterator[Any]:
    """What an event's function has answered, one after the other."""
    if isinstance(answer, AsyncIterator):

        async def all_of() -> list[Any]:
            return [each async for each in answer]

        yield from asyncio.run(all_of())
    elif asyncio.iscoroutine(answer):
        yield asyncio.run(answer)
    elif isinstance(answer, Iterator):
        yield from answer
    else:
        yield answer
