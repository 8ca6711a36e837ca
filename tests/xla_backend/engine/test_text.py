"""One request's way through the engine, step by step, over models without XLA."""

import dataclasses
import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.xla_backend.engine.answers import assert_adds_up, ids
from tests.xla_backend.engine.fake_functions import text_alone
from tests.xla_backend.engine.fake_model import CONTEXT, Refused, Steps, encode, fake_backend, said
from xla_backend import (
    Backend,
    CacheKey,
    CacheOutcome,
    EngineStatus,
    GenerationOptions,
    GenerationResult,
)
from xla_backend.engine import loop, text
from xla_backend.engine.request import Stream
from xla_backend.interface.buckets import pool_key
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import Progress, TextChunk
from xla_backend.rows import scheduler as row_scheduler

MISS, HIT = CacheOutcome.MISS, CacheOutcome.HIT
PROMPT = "Once upon a time there was a young fox"  # read in three chunks, and not soon at an end
WAYS = pytest.mark.parametrize("salt", ["", "mine"], ids=["padded", "pool"])


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def engine(steps: Steps) -> Iterator[Backend]:
    with fake_backend(steps) as backend:
        yield backend


@pytest.fixture
def a_chunk_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in itertools.product((text, row_scheduler), ("CHUNK_S", "SHORT_CHUNK_S")):
        monkeypatch.setattr(module, name, 0.0, raising=False)


def asks(
    prompt: str = PROMPT, most: int = 20, salt: str = "", model: str = "fox", **options: Any
) -> TextRequest:
    """A row if it has a salt, and can be one; else padded."""
    made = GenerationOptions(max_new_tokens=most, **options)
    return TextRequest(model, prompt, made, None if salt else "padded", cache_salt=salt)


def answer(engine: Backend, **request: Any) -> GenerationResult:
    result = engine.submit(asks(**request)).read_all()
    assert_adds_up(result.timing)
    for phase, seconds in result.timing.to_dict().items():
        spans = [span.duration_s for span in result.spans if f"{span.name}_s" == phase]
        assert phase == "total_s" or sum(spans) == pytest.approx(seconds, abs=1e-6)
    return result


@WAYS
def test_the_first_text_makes_functions_the_next_finds_them(engine: Backend, salt: str) -> None:
    began = time.perf_counter()
    first = answer(engine, salt=salt)
    took_s = time.perf_counter() - began
    key = pool_key(CONTEXT) if salt else CacheKey(64, 1, 32)
    assert (first.text, first.key, first.cache) == (said(PROMPT, 20), key, MISS)
    assert (first.prompt_tokens, first.new_tokens, first.batch_size) == (len(PROMPT), 20, 1)
    assert min(first.load_s, first.timing.trace_s, first.timing.compile_s) > 0
    assert first.timing.total_s + first.load_s <= took_s
    assert first.speedup is None
    again = answer(engine, salt=salt)
    assert (again.text, again.cache, again.load_s) == (first.text, HIT, 0)
    assert again.timing.trace_s == again.timing.compile_s == 0
    assert again.first_call == first.first_call
    assert again.cached_tokens == (len(PROMPT) - 1 if salt else 0)
    [entry] = engine.cached_functions()
    assert (entry.key, entry.hits, entry.cached.n) == (key, 1, 1)


def test_a_pool_serves_every_length_with_the_same_functions(engine: Backend, steps: Steps) -> None:
    for length, most in ((1, 1), (63, 2), (64, 600), (65, 5), (1000, 1048), (2047, 5)):
        prompt = (PROMPT * 60)[-length:]
        result = answer(engine, prompt=prompt, most=most, salt=f"{length}")
        room = min(most, CONTEXT - length)
        assert result.text == said(prompt, room)
        assert result.options.max_new_tokens == most, "what was asked"
    assert [name for name in steps.done if "build" in name] == [f"build fox {pool_key(CONTEXT)} 1"]


@WAYS
@pytest.mark.parametrize("stop", [(), (said(PROMPT, 20)[7:9],)], ids=["none", "stop"])
def test_chunks_have_their_tokens_where_they_are_asked_for(
    engine: Backend, a_chunk_a_token: None, salt: str, stop: tuple[str, ...]
) -> None:
    prompts = (f"{n} foxes" for n in itertools.count())
    ending = next(x for x in prompts if 3 < len(text_alone(encode(x), 50)) < 40)
    for prompt in (PROMPT, ending):
        request = asks(prompt, 50, salt, stop=stop)
        stream = engine.submit(dataclasses.replace(request, with_tokens=True))
        chunks = list(stream)
        told = [token for chunk in chunks for token in getattr(chunk, "tokens", ())]
        assert len(told) > 1
        written = stream.result.tokens[: -1 if stream.result.finish == "eos" else None]
        assert told == list(written[: len(told)])
        assert len(told) >= len(written) - len(chunks[-1])
        assert not any(getattr(chunk, "tokens", ()) for chunk in engine.submit(request))


def test_a_long_prompt_tells_how_far_it_is(engine: Backend) -> None:
    prompt = (PROMPT * 20)[:300]
    for cached in (0, 299):
        request = dataclasses.replace(asks(prompt, 3, "all"), with_progress=True)
        told = [each.progress for each in engine.submit(request) if isinstance(each, TextChunk)]
        totals, known, processed, times = zip(*filter(None, told), strict=True)
        assert {*totals, *known} == {300, cached}
        assert list(processed) == sorted(set(processed)) and processed[0] == cached
        assert processed[-1] == 300 and 0 <= times[0] < times[-1]
        assert (len(processed) > 3) == (not cached)


@WAYS
def test_a_text_ends_where_the_model_ends_it(engine: Backend, salt: str) -> None:
    prompts = (f"{n} foxes" for n in itertools.count())
    prompt = next(x for x in prompts if 3 < len(text_alone(encode(x), 50)) < 40)
    result = answer(engine, prompt=prompt, most=50, salt=salt)
    assert (result.finish, ids(result)) == ("eos", text_alone(encode(prompt), 50))
    assert result.text == said(prompt, 50)


def test_a_text_ends_at_tokens_of_the_request(engine: Backend) -> None:
    """Which it has only where it asks for them; a row of the pool makes real what they do."""
    usual = answer(engine, most=20, salt="all")
    last = ids(usual)[7]
    first = ids(usual).index(last)
    for shows in (False, True):
        stream = engine.submit(
            asks(salt="all", most=20, stop_token_ids=(last,), include_stop_str_in_output=shows)
        )
        assert "".join(stream) == usual.text[: first + shows]
        assert (stream.result.finish, ids(stream.result)) == ("eos", ids(usual)[: first + 1])
    stop = usual.text[5:7]
    end = usual.text.index(stop) + len(stop)
    shown = answer(engine, most=20, salt="all", stop=(stop,), include_stop_str_in_output=True)
    assert (shown.text, shown.stop_string) == (usual.text[:end], stop)
    prompts = (f"{n} foxes" for n in itertools.count())
    ending = next(x for x in prompts if 3 < len(text_alone(encode(x), 50)) < 40)
    endless = answer(engine, prompt=ending, most=50, salt="all", ignore_eos=True)
    assert (endless.finish, len(endless.tokens)) == ("length", 50)


@WAYS
@pytest.mark.usefixtures("a_chunk_a_token")
def test_chunks_join_to_the_text(engine: Backend, salt: str) -> None:
    stream = engine.submit(asks(salt=salt))
    chunks = list(stream)
    assert "".join(chunks) == stream.result.text == said(PROMPT, 20)
    assert len(chunks) == 20
    tokens = [span.tokens for span in stream.result.spans if span.name in ("prefill", "decode")]
    assert sum(tokens) == 20 and max(tokens) == 1
    assert 0 < stream.result.since_first_token_s < stream.result.timing.total_s
    assert list(stream) == []


def test_beams_come_as_one_piece_and_are_cut_at_the_end(engine: Backend) -> None:
    stream = engine.submit(asks(most=200, num_beams=2, salt="ignored"))
    assert len(list(stream)) == 1
    assert stream.result.key == CacheKey(64, 2, 256)
    whole = said(PROMPT, 12)
    result = answer(engine, most=12, num_beams=2, stop=whole[4:6])
    assert (result.text, result.finish, result.cut_tokens) == (whole[:4], "stop", 8)


@WAYS
@pytest.mark.usefixtures("a_chunk_a_token")
def test_a_stop_string_ends_a_text_and_its_generation(engine: Backend, salt: str) -> None:
    whole = said(PROMPT, 100)
    for stop in (whole[30:33], whole[:2], whole[-3:] + "?"):
        stream = engine.submit(asks(most=100, salt=salt, stop=stop))
        expected = whole.split(stop)[0]
        assert "".join(stream) == expected
        result = stream.result
        assert "".join(token.text for token in result.tokens) == result.text == expected
        assert result.finish == ("stop" if stop in whole else "length")
        assert result.new_tokens + result.cut_tokens == (
            len(expected + stop) if stop in whole else 100
        )
        assert result.ttft_s is not None


# --- stops and errors, wherever a request is ------------------------------------------------------


@WAYS
@pytest.mark.parametrize("step", ["load", "build"])
def test_a_stop_waits_for_no_build(engine: Backend, steps: Steps, step: str, salt: str) -> None:
    gate = steps.hold(step)
    stream = engine.submit(asks(salt=salt))
    gate.wait()
    stream.stop()
    assert (list(stream), stream.result) == ([], None)
    gate.open()
    result = answer(engine, salt=salt)
    assert (result.text, result.load_s) == (
        said(PROMPT, 20),
        0 if step == "build" else result.load_s,
    )


@pytest.mark.parametrize(
    ("step", "salt", "written"),
    [("read", "mine", 0), ("decode", "mine", 1), ("prefill", "", 1), ("advance", "", 1)],
)
def test_a_stop_keeps_what_was_written(
    engine: Backend, steps: Steps, step: str, salt: str, written: int
) -> None:
    answer(engine, prompt="another", salt=salt)
    gate = steps.hold(step)
    stream = engine.submit(asks(salt=salt))
    gate.wait()
    stream.stop()
    gate.open()
    list(stream)
    result = stream.result
    if written:
        assert (result.text, result.finish) == (said(PROMPT, written), "stopped")
        assert_adds_up(result.timing)
    else:
        assert result is None
    again = answer(engine, salt=salt)
    assert again.text == said(PROMPT, 20)
    # What was read of it is cached.
    assert again.cached_tokens == {"read": 16, "decode": len(PROMPT) - 1}.get(step, 0)


@WAYS
def test_a_stop_before_its_turn_and_after_the_end(engine: Backend, steps: Steps, salt: str) -> None:
    answer(engine, salt=salt)
    gate = steps.hold("decode" if salt else "advance")
    first = engine.submit(asks(salt=salt))
    gate.wait()
    second = engine.submit(asks(salt=salt))
    second.stop()
    gate.open()
    assert (list(second), second.result) == ([], None)
    assert second.has_started
    result = first.read_all()
    first.stop()
    assert (result.text, result.finish) == (said(PROMPT, 20), "length")


class Broken(Stream[str, GenerationResult]):
    """Whose reader is gone."""

    def put(self, chunk: str) -> None:
        raise OSError("nobody reads")


@WAYS
@pytest.mark.parametrize("step", ["load", "build", "read prefill", "decode advance", "put"])
def test_an_error_reaches_its_caller(engine: Backend, steps: Steps, step: str, salt: str) -> None:
    step = step.split()[0 if salt else -1]
    if step not in ("load", "build"):
        answer(engine, prompt="another", salt=salt)
    stream = Broken() if step == "put" else Stream[str, GenerationResult]()
    if step != "put":
        steps.fail(step, OSError("nobody reads"))
    with pytest.raises(OSError, match="nobody reads"):
        engine.submit(asks(salt=salt), stream=stream).read_all()
    assert answer(engine, salt=salt).text == said(PROMPT, 20)
    wait_until(lambda: engine.status.state == "ready")


@WAYS
@pytest.mark.parametrize("is_made", [False, True])
def test_a_late_refusal_is_not_run(engine: Backend, steps: Steps, salt: str, is_made: bool) -> None:
    if is_made:
        answer(engine, salt=salt)
    before = list(steps.done)
    stream = engine.submit(asks(salt=salt), Refused())
    assert (list(stream), stream.result) == ([], None)
    assert steps.done == before


class SlowCaller(Stream[Any, Any]):
    """Takes its time with each new state."""

    def report(self, progress: Progress) -> None:
        time.sleep(0.02)
        super().report(progress)


@WAYS
def test_the_phases_before_the_first_token_add_up_to_its_time(engine: Backend, salt: str) -> None:
    """Else a page shows a prefill that is longer than the time to the first token."""
    for _ in range(2):  # a MISS, then a HIT
        result = engine.submit(asks(salt=salt), SlowCaller()).read_all()
        timing = result.timing
        before = timing.tokenize_s + timing.trace_s + timing.compile_s + timing.prefill_s
        assert before + result.ttft_queue_s == pytest.approx(result.ttft_s, abs=1e-6)


# --- requests beside each other -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_text_of_a_crowd_is_the_one_alone(engine: Backend, seed: int) -> None:
    dice, asked = random.Random(seed), []
    for number in range(40):
        prompt = PROMPT[: dice.randint(1, len(PROMPT))] * dice.randint(1, 9)
        most = dice.randint(1, 90)
        options: dict[str, Any] = {"salt": dice.choice(["", "a", "b"])}
        if dice.random() < 0.2:
            options["num_beams"] = 2
        expected = said(prompt, most)
        if expected and dice.random() < 0.3:
            options["stop"] = dice.choice(expected)
            expected = expected.split(options["stop"])[0]
        model = dice.choice(["fox", "owl"])
        stream = engine.submit(asks(prompt, most, model=model, **options))
        if number % 7 == 0:
            next(stream, None)
            stream.stop()
        asked.append((number, stream, expected))
    for number, stream, expected in asked:
        result = stream.read_all()
        if result is None:
            assert number % 7 == 0
            continue
        assert_adds_up(result.timing)
        is_stopped = result.finish == "stopped"
        assert result.text == (expected[: len(result.text)] if is_stopped else expected)
        assert not is_stopped or number % 7 == 0
    wait_until(lambda: engine.status.state == "ready")


@pytest.mark.parametrize("step", ["load owl", "build fox padded"])
def test_making_for_one_stops_no_other_s_text(engine: Backend, steps: Steps, step: str) -> None:
    answer(engine, salt="mine")
    gate = steps.hold(step)
    model = "owl" if "owl" in step else "fox"
    one, other = (engine.submit(asks(model=model)) for _ in range(2))
    gate.wait()
    beside = answer(engine, prompt="beside", salt="mine")
    gate.open()
    first, second = one.read_all(), other.read_all()
    assert beside.text == said("beside", 20)
    assert first.text == second.text == said(PROMPT, 20)
    assert (first.cache, second.cache) == (MISS, HIT)
    assert steps.done.count(f"build {model} {first.key} 1") == 1
    if model == "owl":
        assert first.load_s > beside.timing.total_s
        assert beside.background_compile_s == 0
    else:
        assert first.timing.trace_s > beside.timing.total_s
        assert beside.background_compile_s > 0
        # For whoever waits for another's compile, that is the queue.
        assert second.timing.queue_s > beside.timing.total_s
    for result in (first, second):
        assert_adds_up(result.timing)


def test_eight_that_miss_one_key_have_it_made_once(engine: Backend, steps: Steps) -> None:
    gate = steps.hold("build")
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(answer, engine) for _ in range(8)]
        gate.wait()
        gate.open()
    results = [each.result() for each in answers]
    assert sorted(result.cache for result in results) == [HIT] * 7 + [MISS]
    assert len([name for name in steps.done if "build" in name]) == 1


@pytest.mark.usefixtures("a_chunk_a_token")
def test_a_row_joins_beside_a_padded_text(engine: Backend, steps: Steps) -> None:
    answer(engine, salt="mine")
    gate = steps.hold("advance")
    padded = engine.submit(asks(most=200))
    gate.wait()
    row = engine.submit(asks("short", most=5, salt="mine"))
    gate.open()
    results = row.read_all(), padded.read_all()
    assert [result and result.text for result in results] == [said("short", 5), said(PROMPT, 200)]
    last = [len(steps.done) - steps.done[::-1].index(name) for name in ("decode", "advance fox")]
    assert last[0] < last[1]
    assert results[0] is not None and results[1] is not None
    # Each waits for the other's chunks, and says so.
    assert min(result.timing.queue_s for result in results if result) > 0
    assert_adds_up(results[1].timing)


@pytest.mark.usefixtures("a_chunk_a_token")
def test_who_has_begun_alone_goes_on_before_others_begin(engine: Backend, steps: Steps) -> None:
    answer(engine)
    made = steps.hold("build owl")
    other = engine.submit(asks(model="owl"))
    made.wait()
    begun = steps.hold("advance fox")
    first = engine.submit(asks())
    begun.wait()
    made.open()
    wait_until(lambda: any(entry.model == "owl" for entry in engine.cached_functions()))
    begun.open()
    assert first.read_all() and other.read_all()
    last = len(steps.done) - steps.done[::-1].index("advance fox")
    assert last <= steps.done.index("prefill owl")


def test_a_request_counts_what_was_before_it(engine: Backend) -> None:
    prepared = dataclasses.replace(engine.prepare(asks(most=32)), tokenize_s=2.0)
    result = engine.submit(prepared).read_all()
    assert result.text == answer(engine, most=32).text
    assert result.timing.queue_s < 2.0 <= result.timing.tokenize_s
    assert_adds_up(result.timing)

    arrived = time.perf_counter() - 5.0
    result = engine.submit(asks(), stream=Stream(arrived)).read_all()
    assert 5.0 <= result.timing.queue_s <= time.perf_counter() - arrived
    assert_adds_up(result.timing)


@WAYS
def test_a_status_for_each_step(salt: str) -> None:
    seen: list[EngineStatus] = []
    with fake_backend(Steps(), on_status=seen.append) as engine:
        for _ in range(2):
            key = answer(engine, salt=salt).key
            wait_until(lambda: engine.status.state == "ready")
        assert [status.state for status in seen] == [
            *("loading", "tracing", "compiling", "generating", "ready"),
            *("generating", "ready"),
        ]
        assert seen[0].detail == "fox"
        assert {status.detail for status in seen[1:4]} == {str(key)}
        assert [status.since for status in seen] == sorted(status.since for status in seen)
    assert seen[-1].state == "stopped"


@pytest.mark.usefixtures("a_chunk_a_token")
def test_the_status_is_of_what_takes_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a supervisor would end an engine that loads beside a text, or one with a long text."""
    monkeypatch.setattr(loop, "ALIVE_S", 0.0)
    seen: list[str] = []
    steps = Steps()
    with fake_backend(steps, on_status=lambda status: seen.append(status.state)) as engine:
        answer(engine, salt="mine")
        for step in ("load owl", "build fox padded"):
            row, gate = steps.hold("decode"), steps.hold(step)
            beside = engine.submit(asks(salt="mine"))
            row.wait()
            other = engine.submit(asks(model=step.split()[1]))
            row.open()
            gate.wait()
            assert beside.read_all()
            busy = "loading" if "load" in step else "tracing"
            assert engine.status.state == busy
            gate.open()
            assert other.read_all()
            wait_until(lambda: engine.status.state == "ready")
        assert seen.count("generating") > 10
        assert seen[-1] == "ready"
