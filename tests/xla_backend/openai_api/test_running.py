"""Runs at the engine for a caller on the event loop: in order, no longer than wanted."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.playground.samples import result
from xla_backend import EngineStopped, GenerationResult, InvalidRequest
from xla_backend.engine.request import Stream
from xla_backend.interface.results import Progress
from xla_backend.openai_api.running import Runs

Words = Stream[str, GenerationResult]


def written(*words: str, ends: bool = True, error: Exception | None = None) -> Words:
    """A stream of words, which has ended or never does."""
    stream = Words()
    stream.report(Progress("writing", 0.0))
    for word in words:
        stream.put(word)
    if error is not None:
        stream.fail(error)
    elif ends:
        stream.finish(result())
    return stream


def run(*streams: Words) -> list[tuple[int, object]]:
    async def chunks() -> list[tuple[int, object]]:
        runs = Runs([lambda each=each: each for each in streams])
        try:
            return [chunk async for chunk in runs.chunks()]
        finally:
            runs.leave()

    return asyncio.run(chunks())


def test_pieces_come_in_order_and_the_result_last() -> None:
    words = tuple(map(str, range(500)))
    came = run(written(*words), written(*words))
    for number in (0, 1):
        of_run = [chunk for each, chunk in came if each == number]
        assert of_run == [*words, result()]


def test_pieces_that_another_thread_writes_wake_the_loop() -> None:
    stream = Words()

    def write() -> None:
        for number in range(200):
            stream.put(str(number))
        stream.finish(result())

    threading.Thread(target=write).start()
    assert [chunk for _, chunk in run(stream)] == [*map(str, range(200)), result()]


def test_an_error_of_one_ends_all_and_a_run_that_never_began_is_an_error() -> None:
    failing, other = written(error=InvalidRequest("No.")), written(ends=False)
    with pytest.raises(InvalidRequest, match=r"No\."):
        run(other, failing)
    assert other.is_stopped

    dropped = Words()
    dropped.finish(None)
    with pytest.raises(EngineStopped, match="before it began"):
        run(dropped)


def test_who_leaves_stops_what_runs_and_what_is_just_being_opened() -> None:
    may_open = threading.Event()
    running, late = written("a", ends=False), written(ends=False)

    def open_late() -> Words:
        may_open.wait()
        return late

    async def leave() -> None:
        opens: list[Callable[[], Words]] = [lambda: running, open_late]
        runs = Runs(opens)
        assert await anext(runs.chunks()) == (0, "a")
        runs.leave()
        may_open.set()
        async with asyncio.timeout(20):
            while not (running.is_stopped and late.is_stopped):
                await asyncio.sleep(0)

    asyncio.run(leave())
