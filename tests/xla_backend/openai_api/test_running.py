"""Runs at the engine for a caller on the event loop: in turn, in order, no longer than wanted."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.playground.samples import result
from xla_backend import AnyStream, EngineStopped, GenerationResult, InvalidRequest
from xla_backend.openai_api.running import Runs


@dataclass
class Line:
    """A turn that the test lets come."""

    waited_s: float = 0.0
    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    has_left: bool = False

    async def wait(self) -> float:
        await self.may_begin.wait()
        return self.waited_s

    def leave(self) -> None:
        self.has_left = True


@dataclass
class Words(AnyStream[str, GenerationResult]):
    """Gives words; after the last, waits until it is stopped where it shall."""

    words: tuple[str, ...] = ("a", "b", "c")
    endless: bool = False
    error: Exception | None = None
    result: GenerationResult | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[str]:
        yield from self.words
        if self.endless:
            assert self.stopped.wait()
        if self.error:
            raise self.error
        self.result = result()

    def stop(self) -> None:
        self.stopped.set()


def run(*streams: Words, waited_s: float = 0.0) -> list[tuple[int, object]]:
    async def chunks(threads: ThreadPoolExecutor) -> list[tuple[int, object]]:
        lines = [Line(waited_s) for _ in streams]
        runs = Runs(threads, lines, [lambda each=each: each for each in streams])
        for line in lines:
            line.may_begin.set()
        try:
            return [chunk async for chunk in runs.chunks()]
        finally:
            runs.leave()

    with ThreadPoolExecutor(4) as threads:  # whose end the event loop must not wait for
        return asyncio.run(chunks(threads))


def test_pieces_come_in_order_the_result_last_with_the_time_in_the_line() -> None:
    words = tuple(map(str, range(500)))
    came = run(Words(words), Words(words))
    for number in (0, 1):
        of_run = [chunk for each, chunk in came if each == number]
        assert of_run == [*words, result()]

    [reported] = [chunk for _, chunk in run(Words(), waited_s=2.0) if not isinstance(chunk, str)]
    assert reported == result().after_waiting(2.0)
    assert reported.timing.queue_s == 2.0
    assert reported.ttft_s == pytest.approx(result().ttft_s + 2.0)


def test_an_error_of_one_ends_all_and_a_run_that_never_began_is_told() -> None:
    failing, other = Words((), error=InvalidRequest("No.")), Words(endless=True)
    with pytest.raises(InvalidRequest, match=r"No\."):
        run(other, failing)
    assert other.stopped.is_set()

    class Dropped(Words):
        def __iter__(self) -> Iterator[str]:
            return iter(())

    with pytest.raises(EngineStopped, match="before it began"):
        run(Dropped())


def test_who_leaves_stops_what_runs_and_a_place_is_kept_until_then() -> None:
    async def leave() -> None:
        running, waiting = Line(), Line()
        stream, opened = Words(endless=True), []
        with ThreadPoolExecutor(2) as threads:
            runs = Runs(threads, [running, waiting], [lambda: stream, lambda: opened.append(1)])
            running.may_begin.set()
            chunks = runs.chunks()
            assert await anext(chunks) == (0, "a")
            runs.leave()
            async with asyncio.timeout(20):
                while not (running.has_left and waiting.has_left):
                    await asyncio.sleep(0)
        assert stream.stopped.is_set()
        assert opened == []

    asyncio.run(leave())

    class Slow(Words):
        def __iter__(self) -> Iterator[str]:
            yield "a"
            assert self.stopped.wait()
            assert may_end.wait()
            self.result = result()

    may_end = threading.Event()

    async def leave() -> None:
        line = Line()
        with ThreadPoolExecutor(1) as threads:
            runs = Runs(threads, [line], [Slow])
            line.may_begin.set()
            assert await anext(runs.chunks()) == (0, "a")
            runs.leave()
            await asyncio.sleep(0.05)
            assert not line.has_left
            may_end.set()
            async with asyncio.timeout(20):
                while not line.has_left:
                    await asyncio.sleep(0)

    asyncio.run(leave())
