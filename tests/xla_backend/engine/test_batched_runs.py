"""Requests side by side: each text is what it would be alone, whatever stands beside it.

Small random models; what they write alone is the business of `test_parity`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from xla_backend.scheduling.batch import fitting

from tests.checkpoints import gpt2
from tests.waiting import wait_until
from tests.xla_backend.engine.answers import assert_adds_up, ids
from tests.xla_backend.model import rotary_parity
from tests.xla_backend.model.parity import Pair
from xla_backend import (
    Backend,
    BucketRules,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
)
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.compilation.naming import decode_code_entry, decode_function
from xla_backend.model.engine import MAX_KV_BYTES, Engine
from xla_backend.model.generation import Generation

PROMPT = "Once upon a time"
SHORT = GenerationOptions(max_new_tokens=8)
LONG = GenerationOptions(max_new_tokens=200)
PAUSE_S = 0.5
MANY = (
    {},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.3, "top_p": 0.7, "top_k": 0, "seed": 5, "max_new_tokens": 9},
    {"repetition_penalty": 1.6, "length_penalty": -1.0, "early_stopping": True},
    {"max_new_tokens": 1},
    {"temperature": 0.5, "top_k": 3, "repetition_penalty": 1.2, "seed": 8, "length_penalty": 2.0},
    {"max_new_tokens": 5, "early_stopping": "never", "length_penalty": 0.5},
)
ADJUSTED = (
    {"presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"logit_bias": {5: 3.0, 9: -100.0}, "temperature": 0.9, "min_p": 0.05, "max_new_tokens": 9},
    {"frequency_penalty": 2.0, "stop": "e", "repetition_penalty": 1.2},
)
"""Options of requests that run side by side."""


class Gathering:
    """Holds an engine busy while requests come, so that they wait for it together."""

    def __init__(self, backend: Backend, threads: ThreadPoolExecutor) -> None:
        self._backend = backend
        self._threads = threads

    def ask(self, call: Callable[[], Any]) -> Future:
        """Has a request wait, behind those that do already."""
        before = len(self._backend._access.scheduler.waiting())
        answer = self._threads.submit(call)
        wait_until(lambda: len(self._backend._access.scheduler.waiting()) > before)
        return answer


@contextmanager
def gathering(backend: Backend) -> Iterator[Gathering]:
    """What is asked for in the block begins to run after it."""
    with ThreadPoolExecutor(16) as threads, backend._access.scheduler.acquire():
        yield Gathering(backend, threads)


def together(
    backend: Backend, model: str, requests: Sequence[tuple[str, GenerationOptions]]
) -> list[GenerationResult]:
    with gathering(backend) as waiting:
        answers = [
            waiting.ask(lambda request=request: backend.generate(model, *request))
            for request in requests
        ]
    return [answer.result() for answer in answers]


@pytest.mark.parametrize(
    ("form", "num_beams", "batch_size"),
    [
        *[("GPT-2", 1, 8), ("OPT", 1, 4), ("T5", 1, 4), ("T5", 2, 4), ("Gemma 3", 1, 4)],
        # Rows of texts and rows of beams: with optimised code, too.
        pytest.param("GPT-2", 3, 4, marks=pytest.mark.release),
        pytest.param("Gemma 3", 2, 4, marks=pytest.mark.release),
    ],
)
def test_texts_side_by_side_are_those_alone(
    pair_of: Callable[[str], Pair], tmp_path: Path, form: str, num_beams: int, batch_size: int
) -> None:
    """Prompts of different lengths, options and ends; one row less than fits."""
    if form in rotary_parity.FORMS:
        folder = rotary_parity.write_ending(form, tmp_path / "model")
        encode = Tokenizer.load(folder).encode
        inputs = [rotary_parity.prompt(x, encode) for x in rotary_parity.PROMPT_TOKENS]
    else:
        folder, inputs = pair_of(form).folder, list(pair_of(form).inputs)
    model, rules = str(folder), BucketRules((40,), (12,))
    backend = Backend(rules=rules, batch_sizes=(1, batch_size))
    requests = [
        (
            inputs[place % len(inputs)],
            GenerationOptions(**{"max_new_tokens": 12, **changes}, num_beams=num_beams),
        )
        for place, changes in enumerate((*MANY[: batch_size - 3], *ADJUSTED)[: batch_size - 1])
    ]
    alone = [backend.generate(model, *request) for request in requests]
    backend.warm(model, [CacheKey(40, num_beams, 12)], batch_size=batch_size)
    results = together(backend, model, requests)
    assert [result.batch_size for result in results] == [len(requests)] * len(requests)
    for result, expected in zip(results, alone, strict=True):
        assert ids(result) == ids(expected), result.options
        assert (result.text, result.finish) == (expected.text, expected.finish)
        assert [token.logprob for token in result.tokens] == pytest.approx(
            [token.logprob for token in expected.tokens], abs=1e-3
        )
        assert (result.cache, result.key) == (CacheOutcome.HIT, expected.key)
        assert_adds_up(result.timing)
        assert result.timing.queue_s > 0
        assert result.to_json()["batch_size"] == len(requests)
    assert len({len(result.tokens) for result in results}) > 1
    backend.close()


def test_a_text_that_has_ended_keeps_its_beams_while_others_go_on(
    pair_of: Callable[[str], Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another thread is quicker to go on than its own to read it."""
    pair, advance = pair_of("GPT-2"), Generation.advance
    model = str(pair.folder)
    backend = Backend(rules=BucketRules((40,), (12,)), batch_sizes=(1, 4))
    requests = [
        (given, GenerationOptions(num_beams=3, max_new_tokens=limit))
        for given, limit in zip([*pair.inputs, pair.inputs[0]], (3, 5, 7, 12), strict=True)
    ]
    alone = [backend.generate(model, *request) for request in requests]
    backend.warm(model, [CacheKey(40, 3, 12)], batch_size=4)
    monkeypatch.setattr(Generation, "advance", lambda run, steps: advance(run, 12))
    results = together(backend, model, requests)
    assert [result.batch_size for result in results] == [4] * 4
    assert [ids(result) for result in results] == [ids(expected) for expected in alone]
    backend.close()


@pytest.fixture(scope="module")
def engine(small_gpt2: Path) -> Iterator[Backend]:
    """Functions of one key for 1 and 4 requests."""
    backend = Backend(rules=BucketRules((16,), (256,)), batch_sizes=(1, 4))
    for size in (1, 4):
        backend.warm(str(small_gpt2), [CacheKey(16, 1, 256)], batch_size=size)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def model(small_gpt2: Path) -> str:
    return str(small_gpt2)


def test_who_finds_the_engine_idle_runs_alone(engine: Backend, model: str) -> None:
    assert engine.generate(model, PROMPT, SHORT).batch_size == 1


def test_who_comes_while_the_first_prompt_runs_is_generated_with_it(
    engine: Backend, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = engine.generate(model, PROMPT, SHORT)
    before = {entry.batch_size: entry.hits for entry in engine.cached_functions()}
    prefill, scheduler, prompts = Engine.prefill, engine._access.scheduler, itertools.count()

    def slow(*arguments: Any) -> Any:
        if next(prompts) == 0:
            wait_until(lambda: len(scheduler.waiting()) == 2)
            time.sleep(PAUSE_S)
        return prefill(*arguments)

    monkeypatch.setattr(Engine, "prefill", slow)
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(engine.generate, model, PROMPT, SHORT) for _ in range(3)]
    results = [answer.result() for answer in answers]
    assert [result.batch_size for result in results] == [3, 3, 3]
    assert [ids(result) for result in results] == [ids(alone)] * 3
    first, *others = sorted((result.timing for result in results), key=lambda each: each.queue_s)
    assert first.prefill_s > PAUSE_S > first.queue_s, "nobody came before it"
    for timing in others:
        assert timing.queue_s > PAUSE_S > timing.prefill_s
    for timing in (first, *others):
        assert_adds_up(timing)
    after = {entry.batch_size: entry.hits for entry in engine.cached_functions()}
    assert (after[1] - before[1], after[4] - before[4]) == (0, 3)


def test_as_many_as_fit_run_and_the_next_with_those_that_are_left(
    engine: Backend, model: str
) -> None:
    before = {entry.batch_size: entry.hits for entry in engine.cached_functions()}
    results = together(engine, model, [(PROMPT, SHORT)] * 7)
    assert [result.batch_size for result in results] == [4] * 4 + [3] * 3
    after = {entry.batch_size: entry.hits for entry in engine.cached_functions()}
    assert (after[1] - before[1], after[4] - before[4]) == (0, 7)
    assert engine.cached_functions()[-1].to_json()["batch_size"] in (1, 4)
    assert engine.predict(model, PROMPT, SHORT).outcome is CacheOutcome.HIT
    assert engine.status.state == "ready"


def test_streams_side_by_side_and_one_of_them_is_stopped(engine: Backend, model: str) -> None:
    whole = engine.generate(model, PROMPT, LONG)
    streams = [engine.stream(model, PROMPT, LONG) for _ in range(3)]

    def read(stream: Any) -> list[str]:
        chunks = []
        for chunk in stream:
            chunks.append(chunk)
            if stream is streams[1]:
                stream.stop()
        return chunks

    with gathering(engine) as waiting:
        answers = [waiting.ask(lambda stream=stream: read(stream)) for stream in streams]
    chunks = [answer.result() for answer in answers]
    results = [stream.result for stream in streams]
    assert [result.batch_size for result in results] == [3, 3, 3]
    assert ["".join(texts) for texts in chunks] == [result.text for result in results]
    assert results[0].tokens[0].id == whole.tokens[0].id
    assert ids(results[0]) == ids(results[2]) == ids(whole)
    assert results[1].finish == "stopped"
    assert 0 < results[1].new_tokens < whole.new_tokens
    assert ids(results[1]) == ids(whole)[: results[1].new_tokens]
    assert results[1].timing.decode_s < results[0].timing.decode_s
    for result in results:
        assert_adds_up(result.timing)
    assert engine.status.state == "ready"


def test_who_finds_a_stop_string_leaves_the_others_to_run(engine: Backend, model: str) -> None:
    whole = engine.generate(model, PROMPT, LONG)
    stop = whole.text[30:35]
    options = [LONG, LONG.replace(stop=stop), LONG]
    results = together(engine, model, [(PROMPT, each) for each in options])
    assert [result.batch_size for result in results] == [3, 3, 3]
    assert ids(results[0]) == ids(results[2]) == ids(whole)
    assert results[1].text == whole.text.split(stop)[0]
    assert results[1].new_tokens + results[1].cut_tokens < whole.new_tokens
    assert results[1].timing.decode_s < results[0].timing.decode_s


def test_whose_text_is_short_does_not_wait_for_the_long_ones(engine: Backend, model: str) -> None:
    ratios = []
    for _ in range(5):  # another program may have had the processor just then
        short, long = together(engine, model, [(PROMPT, SHORT), (PROMPT, LONG)])
        assert (short.batch_size, long.batch_size) == (2, 2)
        ratios.append(short.timing.decode_s / long.timing.decode_s)
    assert min(ratios) < 0.25


def test_nothing_is_written_between_the_last_token_of_a_text_and_its_answer(
    engine: Backend, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast the model is: the chunks are cut where a text has all its tokens."""
    chunks: list[int] = []
    advance = Generation.advance

    def counted(run: Generation, steps: int) -> None:
        chunks.append(steps)
        advance(run, steps)

    monkeypatch.setattr(Generation, "advance", counted)
    sizes = (8, 61, 8, 200)
    together(engine, model, [(PROMPT, SHORT.replace(max_new_tokens=size)) for size in sizes])
    assert set(sizes) <= set(accumulate(chunks))
    assert sum(chunks) == max(sizes)


def test_a_stop_while_waiting_leaves_the_others_to_run(engine: Backend, model: str) -> None:
    streams = [engine.stream(model, PROMPT, SHORT) for _ in range(3)]
    with gathering(engine) as waiting:
        answers = [waiting.ask(lambda stream=stream: list(stream)) for stream in streams]
        streams[0].stop()
        assert answers[0].result(30) == []
    assert [answer.result() == [] for answer in answers] == [True, False, False]
    assert streams[0].result is None
    assert [stream.result.batch_size for stream in streams[1:]] == [2, 2]


def test_a_reader_that_stops_reading_does_not_hold_the_others_up(
    engine: Backend, model: str
) -> None:
    slow, other = (engine.stream(model, PROMPT, LONG) for _ in range(2))
    with gathering(engine) as waiting:
        first = waiting.ask(lambda: next(slow))
        rest = waiting.ask(lambda: list(other))
    assert first.result()
    assert "".join(rest.result(60)) == other.result.text
    assert slow.result is None
    assert slow._request.batch is other._request.batch
    # What was written for it meanwhile is there, and counts as its time.
    list(slow)
    assert ids(slow.result) == ids(other.result)
    assert slow.result.timing.run_s > 0.5 * other.result.timing.run_s
    assert_adds_up(slow.result.timing)


def test_a_model_that_is_still_to_be_loaded_is_waited_for_beside_others(
    engine: Backend, model: str, tmp_path: Path
) -> None:
    other = str(gpt2(tmp_path / "other", seed=91, n_layer=1, n_positions=64))
    with gathering(engine) as waiting:
        answers = [
            waiting.ask(lambda name=name: engine.generate(name, PROMPT, SHORT))
            for name in (model, other, model, other)
        ]
    results = [answer.result(60) for answer in answers]
    assert [result.model for result in results] == [model, other, model, other]
    assert (results[0].batch_size, results[2].batch_size) == (2, 2)
    assert results[1].text == results[3].text


def test_an_error_reaches_everybody_in_the_batch_and_nobody_after_them(
    engine: Backend, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: Generation, steps: int) -> None:
        raise ArithmeticError("no more tokens")

    with monkeypatch.context() as patch, gathering(engine) as waiting:
        patch.setattr(Generation, "advance", fail)
        answers = [waiting.ask(lambda: engine.generate(model, PROMPT, SHORT)) for _ in range(3)]
    assert [str(answer.exception(30)) for answer in answers] == ["no more tokens"] * 3
    assert engine.status.state == "ready"
    assert engine.generate(model, PROMPT, SHORT).new_tokens == 8


def test_the_oldest_request_is_next_however_many_of_another_key_wait(model: str) -> None:
    backend = Backend(rules=BucketRules((16,), (8, 16)), batch_sizes=(1, 2))
    keys = [CacheKey(16, 1, 8), CacheKey(16, 1, 16)]
    for size in (1, 2):
        backend.warm(model, keys, batch_size=size)
    ended: list[int] = []

    def call(number: int, new_tokens: int) -> None:
        options = SHORT.replace(max_new_tokens=new_tokens)
        backend.generate(model, PROMPT, options, exact_key=True)
        ended.append(number)

    with gathering(backend) as waiting:
        for number, new_tokens in enumerate([8, 16, 8, 8, 8]):
            waiting.ask(lambda number=number, new=new_tokens: call(number, new))
    # The first takes the third along; then it is the second's turn.
    assert {ended[0], ended[1]} == {0, 2}
    assert ended[2] == 1
    backend.close()


def test_nobody_waits_for_a_larger_function_to_be_made(model: str) -> None:
    backend = Backend(rules=BucketRules((16,), (16,)))
    backend.warm(model, [CacheKey(16, 1, 16)])
    results = together(backend, model, [(PROMPT, SHORT)] * 3)
    assert [result.batch_size for result in results] == [1, 1, 1]
    assert all(result.timing.trace_s == result.timing.compile_s == 0 for result in results)
    wait_until(lambda: {entry.batch_size for entry in backend.cached_functions()} == {1, 2, 4}, 120)
    results = together(backend, model, [(PROMPT, SHORT)] * 3)
    assert [result.batch_size for result in results] == [3, 3, 3]
    backend.close()


def test_batches_stay_within_a_bound_of_memory(engine: Backend, model: str) -> None:
    loaded = engine._models.find(model)
    key, slot_bytes = CacheKey(1000, 4, 1000), 3 * 2 * 128 * 4  # layers, keys and values, width
    assert loaded.max_batch_size(key) == MAX_KV_BYTES // (5000 * slot_bytes)
    assert loaded.max_batch_size(CacheKey(10**6, 8, 10**6)) == 1


def test_the_size_for_a_number_of_requests() -> None:
    sizes = (1, 2, 4, 8)
    assert [fitting(wanted, sizes) for wanted in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 8]
    assert fitting(3, (1, 2)) == 2


def test_batch_sizes_have_names_of_their_own() -> None:
    key = CacheKey(16, 4, 32)
    assert decode_function("model", key) == decode_function("model", key, 1)
    assert len({decode_function("model", key, size) for size in (1, 2, 4, 8)}) == 4
    assert len({decode_code_entry("model", key, size) for size in (1, 2, 4, 8)}) == 4
