"""Tests of `example_functions`, and of the words it is asked and answers in. Times are real; only
what must hold on any machine is asserted."""

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import wait_until
from xla_backend import (
    Backend,
    CacheOutcome,
    FunctionComparison,
    FunctionRequest,
    InvalidRequest,
    StoredKey,
    Way,
)
from xla_backend.interface.function_comparison import (
    EXAMPLE_FUNCTIONS,
    TOLERANCE,
    CallPhases,
    WayResult,
)
from xla_backend.interface.timing import summarize

MISS, HIT = CacheOutcome.MISS, CacheOutcome.HIT


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xla_backend.compilation.example_functions.MAX_CALLS", 4)


@pytest.fixture
def engine() -> Iterator[Backend]:
    """An engine without models: the guide's functions need none."""
    backend = Backend(store="off")
    yield backend
    backend.close()


def outcomes(comparison: FunctionComparison) -> list[CacheOutcome | None]:
    return [result.cache for result in comparison.results]


def sizes(shapes: list[StoredKey]) -> list[tuple[int, tuple[int, ...]]]:
    return [(shape.rows, shape.batch_sizes) for shape in shapes]


def test_new_shapes_are_made_and_known_ones_are_not(engine: Backend) -> None:
    first = engine.compare_function("dense", 3)
    again = engine.compare_function("dense", 3)
    other = engine.compare_function("dense", 4)

    assert [result.way for result in first.results] == [Way.EAGER, Way.GRAPH, Way.XLA]
    assert outcomes(first) == [None, MISS, MISS]
    assert outcomes(again) == [None, HIT, HIT]
    assert outcomes(other) == [None, MISS, MISS]
    costs = [[result.first for result in comparison.results] for comparison in (first, again)]
    assert costs[0] == costs[1], "a later comparison shows what the first call cost"
    eager, graph, xla = (result.first for result in first.results)
    assert eager.trace_s == eager.compile_s == graph.compile_s == 0
    assert min(graph.trace_s, xla.trace_s, xla.compile_s) > 0
    assert min(eager.run_s, graph.run_s, xla.run_s) > 0
    assert sizes(engine.stored_keys()) == [(3, (3,)), (4, (4,))]
    assert engine.stored_keys()[0].xla == xla
    assert {result.cached.n for result in first.results} == {4}


def test_padding_lets_other_sizes_hit(engine: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    five = engine.compare_function("dense", 5, pad=True)
    seven = engine.compare_function("dense", 7, pad=True)
    eight = engine.compare_function("dense", 8)
    assert outcomes(five) == [None, MISS, MISS]
    assert outcomes(seven) == outcomes(eight) == [None, HIT, HIT]
    assert five.request.rows == 8
    assert sizes(engine.stored_keys()) == [(8, (5, 7, 8))]

    monkeypatch.setattr("xla_backend.compilation.example_functions.BUDGET_S", 0.0)
    assert {r.cached.n for r in engine.compare_function("dense", 1).results} == {3}


@pytest.mark.parametrize("name", EXAMPLE_FUNCTIONS)
@pytest.mark.parametrize("pad", [False, True])
def test_all_ways_give_the_same_output(engine: Backend, name: str, pad: bool) -> None:
    comparison = engine.compare_function(name, 3, pad=pad)
    assert comparison.difference <= TOLERANCE
    # Eager is what the others are held against, so it cannot differ; XLA rounds in another order.
    assert comparison.of(Way.EAGER).difference == 0


def test_the_check_of_outputs_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    from xla_backend.compilation import example_functions

    right = example_functions.jit
    monkeypatch.setattr(example_functions, "jit", lambda model: right(lambda x: model(x) + 0.25))
    wrong = example_functions.ExampleFunctions().compare(FunctionRequest("dense", 2))
    assert wrong.difference == pytest.approx(0.25, abs=1e-3)
    assert wrong.of(Way.GRAPH).difference < TOLERANCE


def test_weights_and_input_are_the_same_in_every_engine() -> None:
    from xla_backend.compilation.example_functions import _Example

    one, other = (_Example.build("dense") for _ in range(2))
    assert (one.rows == other.rows).all()
    assert (one.model(one.rows).numpy() == other.model(one.rows).numpy()).all()


def test_the_status_says_what_is_measured_and_waiting_is_told_apart() -> None:
    seen: list[tuple[str, str]] = []
    backend = Backend(
        store="off", on_status=lambda status: seen.append((status.state, status.detail))
    )
    comparison = backend.compare_function("dense", 6)
    wait_until(lambda: backend.status.state == "ready")
    assert seen == [("measuring", "Two dense layers, batch of 6"), ("ready", "")]
    assert comparison.queue_s >= 0
    earlier = time.perf_counter() - 5
    assert backend.compare(FunctionRequest("dense", 6), earlier).queue_s >= 5
    backend.close()


def test_the_engine_does_one_thing_at_a_time(engine: Backend) -> None:
    """A comparison waits for the request before it, and says for how long."""
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        assert let_go.wait(60)

    engine._loop.post(hold)
    assert holds.wait(60)
    done: list[FunctionComparison] = []
    thread = threading.Thread(target=lambda: done.append(engine.compare_function("dense", 1)))
    thread.start()
    wait_until(lambda: engine._loop.background._busy == 1)
    assert not done
    let_go.set()
    thread.join(60)
    assert done[0].queue_s > 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"function": "lstm"}, "no function 'lstm'.*dense, convolution"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to 256"),
        ({"batch_size": 257}, "batch_size must be"),
        ({"batch_size": 2.5}, "batch_size must be"),
        ({"batch_size": math.nan}, "batch_size must be"),
        ({"batch_size": True}, "batch_size must be"),
        ({"batch_size": None}, "batch_size must be"),
        ({"pad": "yes"}, "pad must be true or false"),
    ],
)
def test_a_mistake_is_told(engine: Backend, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        engine.compare_function(**{"function": "dense", "batch_size": 1, **wrong})
    assert engine.status.state == "ready"


@pytest.mark.parametrize(
    ("batch_size", "rows"), [(1, 1), (2, 2), (3, 4), (5, 8), (128, 128), (129, 256), (256, 256)]
)
def test_a_batch_is_padded_to_the_next_power_of_two(batch_size: int, rows: int) -> None:
    assert FunctionRequest("dense", batch_size, pad=True).rows == rows
    assert FunctionRequest("dense", float(batch_size)).rows == batch_size  # type: ignore[arg-type]
    assert FunctionRequest("dense", batch_size, pad=True).signature == f"float32[{rows}, 10]"


def a_comparison(eager_s: float, first_s: float, later_s: float) -> FunctionComparison:
    """Eager calls of one length; one XLA call that compiles, and later ones."""

    def result(way: Way, first: float, later: float) -> WayResult:
        cached = summarize([later] * 3)
        assert cached is not None
        return WayResult(way, None, CallPhases(0.0, first, 0.0), cached, 0.0)

    results = (result(Way.EAGER, eager_s, eager_s), result(Way.XLA, first_s, later_s))
    return FunctionComparison(FunctionRequest("dense", 1), results)


def test_from_how_many_calls_on_compiling_is_worth_it() -> None:
    comparison = a_comparison(eager_s=2.0, first_s=20.0, later_s=1.0)
    assert comparison.speedup(Way.XLA) == 2.0
    assert comparison.first_call_in_eager_calls(Way.XLA) == 10.0
    # 19 calls: 20 + 18 x 1 = 38 = 19 x 2. 18 calls: 37 > 36.
    assert comparison.break_even_calls(Way.XLA) == 19
    assert a_comparison(2.0, 20.0, 2.0).break_even_calls(Way.XLA) is None
    assert a_comparison(2.0, 20.0, 3.0).break_even_calls(Way.XLA) is None
    assert a_comparison(2.0, 0.5, 1.0).break_even_calls(Way.XLA) == 1
