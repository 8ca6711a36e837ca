"""The thread that owns the engine: what it does beside rows, and its end."""

import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.xla_backend.engine.fake_functions import FakeFunctions, pool, text_alone
from tests.xla_backend.engine.fake_model import Steps, encode, fake_backend
from xla_backend import EngineStopped, GenerationOptions
from xla_backend.engine.loop import Loop
from xla_backend.engine.request import Awaited, AwaitRow, Request, Stream
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.timing import Stopwatch
from xla_backend.rows.pool import Row
from xla_backend.rows.scheduler import RowScheduler


class OneRow(Request):
    """A text in a pool on a loop."""

    drafts = rows_at_most = 0
    error: Exception | None = None

    def __init__(
        self,
        loop: Loop,
        on_call: Callable[[str], None] = lambda name: None,
        scheduler: type[RowScheduler[Any]] = RowScheduler,
    ) -> None:
        super().__init__(Stream[str, Any]())
        functions = FakeFunctions(on_call=lambda name, rows: on_call(name))
        self.rows = scheduler(pool(64), functions, time.perf_counter)
        self.row = Row(encode("red fox"), 7, "", GenerationOptions(max_new_tokens=20))
        self.watch = Stopwatch("queue")
        loop.submit(self)

    def admit(self) -> bool:
        self.enter("reading")
        return True

    def read(self) -> None: ...

    def write(self) -> bool:
        return True

    def _run(self) -> Generator[Awaited, Any, None]:
        yield AwaitRow(self.rows)
        self.finish(self.row.token_ids[7:])


class Broken(RowScheduler[Any]):
    def round(self) -> list[Any]:
        raise ArithmeticError


def test_what_else_the_engine_does_counts_as_a_row_s_queue() -> None:
    loop, calls = Loop(), []

    def on_call(name: str) -> None:
        calls.append(name)
        if calls.count("decode") == 1:
            loop.post(lambda: time.sleep(0.2))

    row = OneRow(loop, on_call)
    assert row.stream.read_all() == text_alone(encode("red fox"), 20)
    timing = row.watch.read()
    assert timing.queue_s >= 0.2
    assert timing.total_s - timing.run_s >= 0.2
    loop.close()


def test_what_fails_for_all_rows_ends_them_and_nothing_else() -> None:
    loop = Loop()
    row, broken = OneRow(loop), OneRow(loop, scheduler=Broken)
    with pytest.raises(ArithmeticError):
        broken.stream.read_all()
    assert row.stream.read_all()
    assert loop.call(lambda: "alive") == "alive"
    loop.close()


def test_its_end_is_everybody_s_and_nobody_begins_after_it() -> None:
    steps = Steps()
    with fake_backend(steps) as engine, ThreadPoolExecutor(1) as beside:
        gate = steps.hold("build")
        made, waiting = (
            engine.submit(TextRequest("fox", "a red fox", GenerationOptions(num_beams=beams)))
            for beams in (1, 2)
        )
        gate.wait()
        closing = beside.submit(engine.close)
        for stream in (made, waiting):  # although the compiler goes on
            with pytest.raises(EngineStopped, match="closed"):
                stream.read_all()
        gate.open()
        closing.result()
        assert engine.status.state == "stopped"
        for ask in (
            lambda: engine.generate("fox", "a red fox", mode="padded"),
            lambda: engine.compare_function("dense", 1),
        ):
            with pytest.raises(EngineStopped, match="closed"):
                ask()
