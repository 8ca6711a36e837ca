"""Where functions come from, what is made in the background, and that it is known beforehand.

Over models without XLA; the last tests ask a real engine in a process of its own.
"""

import contextlib
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import checkpoints
from tests.waiting import wait_until
from tests.xla_backend.engine import fake_functions
from tests.xla_backend.engine.fake_model import CONTEXT, Steps, fake_backend, said
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
from xla_backend.engine import background
from xla_backend.interface import timing
from xla_backend.interface.buckets import pool_key
from xla_backend.interface.requests import Mode
from xla_backend.rows import scheduler

RULES = BucketRules((8, 16), (4, 8))
HIT, MISS, DISK, REUSED = (
    CacheOutcome.HIT,
    CacheOutcome.MISS,
    CacheOutcome.DISK,
    CacheOutcome.REUSED,
)
SHORT, LONG = "red fox", "red fox, blue sky"[:16]
SMALL, LARGE = (GenerationOptions(max_new_tokens=n) for n in (4, 8))
EXACT = SMALL.replace(exact_key=True)
KEYS = [CacheKey(8, 1, 4), CacheKey(16, 1, 4)]
POOL = pool_key(CONTEXT)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture(autouse=True)
def nothing_is_made_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until `settle`."""
    monkeypatch.setattr(background, "IDLE_S", 600.0)


def settle(engine: Backend) -> None:
    """Lets the background do all that it has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "IDLE_S", 0.0)
        with engine._loop.background.request():
            pass  # its end wakes the background
        wait_until(lambda: not engine.prefetching())


def assert_came_true(predicted: Prediction, result: GenerationResult) -> None:
    found = (result.cache, result.key, result.requested_key, result.prompt_tokens)
    needed = (predicted.outcome, predicted.key, predicted.requested_key, predicted.prompt_tokens)
    assert found == needed


def random_request(dice: random.Random) -> tuple[tuple[str, GenerationOptions], dict[str, Any]]:
    """Prompt and options, and how it is asked."""
    options = GenerationOptions(
        max_new_tokens=dice.randint(1, 8),
        num_beams=dice.choice((1, 2)),
        seed=dice.randint(0, 9),
        exact_key=dice.random() < 0.4,
    )
    how = dice.choice([{"mode": "padded"}, {"mode": "padded"}, {"cache_salt": "a"}])
    return (LONG[: dice.choice((1, 7, 16))], options), how


def test_what_is_predicted_comes_true(tmp_path: Path) -> None:
    dice, seen = random.Random(2), Counter[tuple[CacheOutcome, bool]]()
    for _ in range(6):
        with fake_backend(Steps(), tmp_path, RULES) as engine:
            for _ in range(5):
                settle(engine)
                for _ in range(15):
                    asked, how = random_request(dice)
                    predicted = engine.predict("fox", *asked, **how)
                    result = engine.generate("fox", *asked, **how)
                    assert_came_true(predicted, result)
                    assert result.text == said(asked[0], asked[1].max_new_tokens)
                    seen[result.cache, result.key.is_pooled] += 1
                # Another process makes room in the store.
                store = Store(tmp_path)
                store.clear(dice.sample(store.names(), 1))
    assert {outcome for outcome, is_pooled in seen if is_pooled} == {HIT, MISS, DISK}
    assert {outcome for outcome, is_pooled in seen if not is_pooled} == {HIT, MISS, DISK, REUSED}


def test_a_larger_function_serves_and_the_exact_one_follows(steps: Steps) -> None:
    with fake_backend(steps, rules=RULES) as engine:
        assert engine.generate("fox", LONG, LARGE, mode="padded").cache is MISS
        reused = engine.generate("fox", SHORT, SMALL, mode="padded")
        assert (reused.cache, reused.key, reused.requested_key) == (
            REUSED,
            CacheKey(16, 1, 8),
            KEYS[0],
        )
        assert reused.speedup is not None
        assert engine.prefetching() == [("fox", KEYS[0])]
        assert engine.predict("fox", LONG, EXACT).key == KEYS[1]
        exact = engine.generate("fox", LONG, EXACT)
        assert (exact.cache, exact.key) == (MISS, KEYS[1])
        assert engine.prefetching() == [("fox", KEYS[0])], "an exact key asks for nothing more"
        settle(engine)
        assert steps.done[-1] == f"warm up fox {KEYS[0]}"
        after = engine.generate("fox", SHORT, SMALL, mode="padded")
        assert (after.cache, after.key, after.text) == (HIT, KEYS[0], reused.text)
        entry = next(entry for entry in engine.cached_functions() if entry.key == KEYS[0])
        assert (entry.hits, entry.first_call.outcome) == (1, MISS)
        assert engine.past()["fox"][KEYS[0]].miss_s


class Ticking(Steps):
    """Chunks take their time on a clock of their own."""

    now = 0.0

    def call(self, name: str) -> None:
        super().call(name)
        self.now += {"read": 0.1, "decode": 0.02}.get(name, 0.0)


def test_a_row_takes_as_long_as_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts and texts ten times as long as any before, and prompts of which most is cached."""
    steps = Ticking()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: steps.now))
    monkeypatch.setattr(scheduler, "CHUNK_S", 0.0)  # a token a chunk
    monkeypatch.setattr(fake_functions, "CHUNKS", (32,))
    with fake_backend(steps) as engine:
        for _ in range(3):
            engine.generate("fox", LONG * 2, SMALL, cache_salt=str(steps.now))
        for prompt, most in ((LONG * 40, 4), (LONG, 40), (LONG * 24, 40), (LONG * 2, 4)):
            for cached, salt in ((0, str(steps.now)), (len(prompt) - 1, str(steps.now))):
                asked = (prompt, GenerationOptions(max_new_tokens=most))
                predicted = engine.predict("fox", *asked, cache_salt=salt)
                result = engine.generate("fox", *asked, cache_salt=salt)
                assert result.cached_tokens == cached
                assert predicted.low_s <= result.timing.run_s <= predicted.high_s
                assert predicted.expected_s == pytest.approx(result.timing.run_s, rel=0.25)


def test_a_run_that_was_stopped_is_not_counted(steps: Steps) -> None:
    with fake_backend(steps) as engine:
        for mode in ("padded", "rows"):
            engine.generate("fox", SHORT, LARGE, mode=mode)
            key = engine.generate("fox", SHORT, LARGE, mode=mode).key
            before, past = engine.cached_functions()[-1], engine.past()["fox"][key]
            predicted = engine.predict("fox", SHORT, LARGE, mode=mode)
            gate = steps.hold("decode" if mode == "rows" else "advance")
            stream = engine.stream("fox", SHORT, LARGE, mode=mode)
            gate.wait()
            stream.stop()
            gate.open()
            stopped = stream.read_all()
            assert stopped.finish == "stopped"
            after = engine.cached_functions()[-1]
            assert (after.hits, after.cached) == (before.hits + 1, before.cached)
            assert engine.past()["fox"][key].run_s == past.run_s
            assert engine.predict("fox", SHORT, LARGE, mode=mode) == predicted
            assert predicted.expected_s is not None


def test_functions_for_more_rows_are_made_when_rows_meet(steps: Steps) -> None:
    def crowd() -> list[GenerationResult | None]:
        gate = steps.hold("decode")
        streams = [engine.stream("fox", SHORT, SMALL, cache_salt="a") for _ in range(3)]
        gate.wait()
        gate.open()
        return [stream.read_all() for stream in streams]

    with fake_backend(steps) as engine:
        engine.generate("fox", SHORT, SMALL, cache_salt="a")
        assert [result and result.batch_size for result in crowd()] == [1, 1, 1]
        assert engine.prefetching() == [("fox", POOL)]
        settle(engine)
        sizes = {entry.batch_size for entry in engine.cached_functions()}
        assert 1 in sizes and max(sizes) > 1
        results = crowd()
        assert max(result.batch_size for result in results if result) > 1
        assert {result and result.text for result in results} == {said(SHORT, 4)}
        assert engine.predict("fox", SHORT, SMALL, cache_salt="b").outcome is HIT


# --- warming up -----------------------------------------------------------------------------------


def test_warm_makes_keys_ready_and_tells_of_each(steps: Steps, tmp_path: Path) -> None:
    reported: list[tuple[CacheKey, CacheOutcome]] = []

    def set_status(key: CacheKey, outcome: CacheOutcome, seconds: float) -> None:
        assert key in {entry.key for entry in engine.cached_functions()}, "ready when it is told"
        assert seconds > 0
        reported.append((key, outcome))

    with fake_backend(steps, tmp_path, RULES) as engine:
        steps.fail("build", MemoryError("no room for the compiler"))
        with pytest.raises(MemoryError):
            engine.warm("fox", KEYS)
        engine.warm("fox", [*KEYS, KEYS[0]], set_status)
        engine.warm("fox", [POOL], set_status, rows=4)
        assert reported == [(KEYS[0], MISS), (KEYS[1], MISS), (KEYS[0], HIT), (POOL, MISS)]
        assert [name for name in steps.done if "warm up" in name] == [
            f"warm up fox {key}" for key in (*KEYS, POOL)
        ]
        assert engine.generate("fox", SHORT, SMALL, mode="padded").cache is HIT
        assert engine.status.state == "ready"
    reported.clear()
    with fake_backend(steps, tmp_path, RULES) as engine:
        engine.warm("fox", KEYS[::-1], set_status)
        assert reported == [(KEYS[1], DISK), (KEYS[0], DISK)]


def test_at_a_start_the_first_click_comes_first_then_the_pool_then_what_was_used_most(
    tmp_path: Path,
) -> None:
    with fake_backend(Steps(), tmp_path, RULES) as engine:
        for times, prompt in ((1, SHORT), (2, LONG)):
            for _ in range(times):
                engine.generate("fox", prompt, EXACT)
    with fake_backend(Steps(), tmp_path, RULES) as engine:
        engine.warm_up("fox")
        assert engine.prefetching() == [], "not loaded"
        engine.load("fox")
        engine.warm_up("fox")
        keys = [CacheKey(8, 1, 32), POOL, KEYS[1], KEYS[0]]
        assert engine.prefetching() == [("fox", key) for key in keys]
        engine.prefetch("fox", [KEYS[0], CacheKey(16, 1, 8)])
        assert engine.prefetching()[4:] == [("fox", CacheKey(16, 1, 8))], "each once"
        engine.cancel_prefetch()
        wait_until(lambda: not engine.prefetching())
        engine.prefetch("fox", KEYS[:1])
        other = engine.generate("fox", SHORT, SMALL.replace(num_beams=2), mode="padded").key
        assert [entry.key for entry in engine.cached_functions()] == [other], "requests first"
        settle(engine)
        assert [entry.key for entry in engine.cached_functions()] == [other, KEYS[0]]
        assert engine.past()["fox"][KEYS[0]].disk_s
        assert engine.key_for("fox", 9, SMALL.replace(num_beams=2)) == CacheKey(16, 2, 4)


# --- a real engine in a process of its own --------------------------------------------------------


@pytest.mark.release
def test_the_page_s_process_knows_what_will_happen(tmp_path: Path) -> None:
    """Also after functions were cleared from memory, from disk, or while they are made."""
    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64}
    model = str(checkpoints.gpt2(tmp_path / "tiny", seed=71, **sizes))
    store = Store(tmp_path / "store")
    process = BackendProcess(rules=RULES, default_model=model, store=store.root, warm_up=None)

    def ask(
        prompt: str, options: GenerationOptions, mode: Mode | None = "padded", **how: Any
    ) -> str:
        how["mode"] = mode
        predicted = process.predict(model, prompt, options, **how)
        result = process.generate(model, prompt, options, **how)
        assert_came_true(predicted, result)
        return result.cache.value

    with contextlib.closing(process):
        assert process.wait_ready(240)
        dice = random.Random(3)
        for _ in range(25):
            wait_until(lambda: not process.prefetching())
            asked, how = random_request(dice)
            ask(*asked, **how)
        ask(SHORT, SMALL, mode="rows")
        names = store.names()
        process.clear(disk=False)
        assert process.cached_functions() == []
        assert ask(SHORT, EXACT) == "disk"
        assert ask(SHORT, SMALL, mode="rows") == "disk"
        assert store.names() == names
        process.clear(model, KEYS[0])
        assert ask(SHORT, EXACT) == "miss"
        process.prefetch(model, [CacheKey(16, 4, 8 * n) for n in (1, 2, 3)])
        process.clear()
        predicted = process.predict(model, SHORT, SMALL, mode="padded")
        assert predicted.outcome is MISS
        assert predicted.expected_s is not None, "what calls took is not forgotten"
        assert process.wait_ready(240)
        assert store.names() == []
        assert [ask(SHORT, EXACT) for _ in range(2)] == ["miss", "hit"]
