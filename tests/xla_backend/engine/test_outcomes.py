"""Tests of the promise that a prediction is never wrong about hit or miss, for an engine in this
process and for one in a process of its own, also after functions were forgotten.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import checkpoints
from tests.waiting import wait_until
from tests.xla_backend.engine.new_process import LONG, SHORT
from xla_backend import (
    Backend,
    BackendProcess,
    BucketRules,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
    Prediction,
)
from xla_backend.compilation.store import Store

RULES = BucketRules((8, 16), (4, 8))
HIT, MISS, DISK, REUSED = (
    CacheOutcome.HIT,
    CacheOutcome.MISS,
    CacheOutcome.DISK,
    CacheOutcome.REUSED,
)
SMALL = GenerationOptions(max_new_tokens=4)
LARGE = GenerationOptions(max_new_tokens=8, num_beams=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64}
    return str(checkpoints.gpt2(folder, seed=71, **sizes))


def settle(backend: Backend | BackendProcess) -> None:
    """Waits for the work in the background."""
    wait_until(lambda: not backend.prefetching())


def random_request(
    draw: random.Random, model: str
) -> tuple[tuple[str, str, GenerationOptions], bool]:
    """Arguments of one request, and whether it shall have its exact key."""
    prompt = " ".join(
        draw.choices("The owl rain once upon a time kite".split(), k=draw.choice((1, 2, 6)))
    )
    options = GenerationOptions(
        max_new_tokens=draw.randint(1, 8),
        num_beams=draw.choice((1, 2)),
        temperature=draw.choice((0.0, 0.8)),
        seed=draw.randint(0, 9),
    )
    return (model, prompt, options), draw.random() < 0.4


def assert_came_true(predicted: Prediction, result: GenerationResult) -> None:
    assert (
        predicted.outcome,
        predicted.key,
        predicted.requested_key,
        predicted.prompt_tokens,
    ) == (result.cache, result.key, result.requested_key, result.prompt_tokens)


def test_an_engine_in_this_process_knows_what_will_happen(model: str, tmp_path: Path) -> None:
    draw = random.Random(2)
    seen: Counter[CacheOutcome] = Counter()
    for _ in range(4):
        backend = Backend(rules=RULES, store=tmp_path)
        for _ in range(5):
            settle(backend)
            with backend._access.background.request():  # nothing moves between question and answer
                for _ in range(15):
                    arguments, exact_key = random_request(draw, model)
                    predicted = backend.predict(*arguments, exact_key=exact_key)
                    result = backend.generate(*arguments, exact_key=exact_key)
                    assert_came_true(predicted, result)
                    seen[result.cache] += 1
            # Another process makes room in the store.
            store = Store(tmp_path)
            store.clear(draw.sample(store.names(), min(1, len(store.names()))))
        backend.close()
    assert seen.total() == 300
    assert set(seen) == {HIT, MISS, DISK, REUSED}


# --- an engine in a process of its own; each test goes on where the one before it ended -----------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("kept") / "store")


@pytest.fixture(scope="module")
def process(model: str, store: Store) -> Iterator[BackendProcess]:
    made = BackendProcess(rules=RULES, default_model=model, store=store.root)
    yield made
    made.close()


def ask(process: BackendProcess, draw: random.Random, model: str) -> GenerationResult:
    arguments, exact_key = random_request(draw, model)
    predicted = process.predict(*arguments, exact_key=exact_key)
    result = process.generate(*arguments, exact_key=exact_key)
    assert_came_true(predicted, result)
    settle(process)
    return result


def exactly(process: BackendProcess, model: str, prompt: str, options: GenerationOptions) -> str:
    """The outcome, which must be the predicted one."""
    predicted = process.predict(model, prompt, options, exact_key=True)
    result = process.generate(model, prompt, options, exact_key=True)
    assert_came_true(predicted, result)
    return result.cache.value


def test_at_its_start_it_makes_the_default_key_ready(process: BackendProcess, model: str) -> None:
    assert process.wait_ready(240)
    settle(process)
    assert [entry.key for entry in process.cached_functions()] == [CacheKey(8, 1, 32)]
    predicted = process.predict(model, SHORT)
    result = process.generate(model, SHORT)
    assert_came_true(predicted, result)
    assert result.cache is HIT


def test_the_page_s_process_knows_what_will_happen(process: BackendProcess, model: str) -> None:
    draw = random.Random(3)
    seen = Counter(ask(process, draw, model).cache for _ in range(100))
    assert {HIT, MISS, REUSED} == set(seen)


def test_it_makes_keys_ready_when_told_to_and_gives_up_when_told_to(
    process: BackendProcess, model: str
) -> None:
    key, others = CacheKey(16, 3, 8), [CacheKey(16, 3, 8 * n) for n in range(2, 5)]
    process.prefetch(model, [key, *others])
    wait_until(lambda: key in {entry.key for entry in process.cached_functions()})
    process.cancel_prefetch()
    settle(process)
    assert others[-1] not in {entry.key for entry in process.cached_functions()}
    assert exactly(process, model, LONG, LARGE.replace(num_beams=3)) == "hit"


def test_forgetting_memory_restores_from_disk(
    process: BackendProcess, model: str, store: Store
) -> None:
    assert exactly(process, model, SHORT, SMALL) in ("hit", "miss")
    names = store.names()
    process.clear(disk=False)
    assert process.cached_functions() == []
    assert exactly(process, model, SHORT, SMALL) == "disk"
    assert store.names() == names
    draw = random.Random(4)
    seen = Counter(ask(process, draw, model).cache for _ in range(30))
    assert DISK in seen


def test_forgetting_one_key_on_disk_compiles_that_one_anew(
    process: BackendProcess, model: str
) -> None:
    assert exactly(process, model, LONG, LARGE) in ("hit", "disk", "miss")
    process.clear(model, CacheKey(8, 1, 4))
    assert exactly(process, model, LONG, LARGE) == "disk"
    assert exactly(process, model, SHORT, SMALL) == "miss"


def test_forgetting_everything_compiles_anew_even_what_was_under_way(
    process: BackendProcess, model: str, store: Store
) -> None:
    process.prefetch(model, [CacheKey(16, 4, 8 * n) for n in (1, 2, 3)])
    wait_until(process.prefetching)
    time.sleep(0.5)
    process.clear()
    predicted = process.predict(model, SHORT, SMALL)
    assert predicted.outcome is MISS
    assert predicted.expected_s is not None, "what calls took is not forgotten"
    assert process.wait_ready(240)
    assert store.names() == []
    assert exactly(process, model, SHORT, SMALL) == "miss"
    assert exactly(process, model, SHORT, SMALL) == "hit"
    assert exactly(process, model, LONG, LARGE) == "miss"
