"""Tests of `xla_backend.engine.backend`: requests, streams, their timings, and what is refused.

Texts come from small random models; that they are the right ones is `test_parity`'s business.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.oracle import load_oracle
from tests.waiting import wait_until
from tests.xla_backend.engine.answers import assert_adds_up, ids
from tests.xla_backend.model.parity import DecoderOnlyPair
from xla_backend import (
    Backend,
    BucketRules,
    CacheKey,
    CacheOutcome,
    EngineStatus,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelUnavailable,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.engine import batch
from xla_backend.model.decoding import Decoder
from xla_backend.model.functions import FunctionBuilder
from xla_backend.model.generation import Generation

ROOT = Path(__file__).resolve().parents[3]
PROMPT = "Once upon a time"
SHORT = GenerationOptions(max_new_tokens=8)
LONG = GenerationOptions(max_new_tokens=128)
HIT, MISS = CacheOutcome.HIT, CacheOutcome.MISS


@pytest.fixture(scope="session")
def model(small_gpt2: Path) -> str:
    return str(small_gpt2)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """An engine for these tests alone: texts are compared with all their numbers, and a larger
    function of another test would serve them and round otherwise."""
    made = Backend()
    yield made
    made.close()


# --- what is traced and compiled ------------------------------------------------------------------


class Counted:
    """A backend of its own that counts how often its loops are traced and its keys are built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        for owner, name in ((Decoder, "prefill"), (Decoder, "decode"), (FunctionBuilder, "build")):
            monkeypatch.setattr(owner, name, self._counting(name, getattr(owner, name)))
        self.backend = Backend(rules=BucketRules((16, 32), (16, 32)))

    def _counting(self, name: str, function: Callable) -> Callable:
        def counting(*arguments: Any) -> Any:
            self.counts[name] += 1
            return function(*arguments)

        return counting


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Counted(monkeypatch)


OTHER_OPTIONS = (
    {"temperature": 0.7},
    {"temperature": 1.3, "seed": 9},
    {"temperature": 1.0, "top_k": 0},
    {"temperature": 1.0, "top_k": 1_000_000},
    {"temperature": 1.0, "top_p": 0.3},
    {"repetition_penalty": 1.7},
    {"length_penalty": -2.0},
    {"early_stopping": True},
    {"early_stopping": "never"},
    {"seed": 2**31 - 1},
    {"max_new_tokens": 1},
    {"max_new_tokens": 16},
)


@pytest.mark.parametrize("num_beams", [1, 2])
def test_options_outside_the_key_neither_trace_nor_build(
    counted: Counted, model: str, num_beams: int
) -> None:
    options = SHORT.replace(num_beams=num_beams)
    before = counted.counts.copy()
    assert counted.backend.generate(model, PROMPT, options).cache is MISS
    # The first model traces its prompt once for all; each number of beams its loop.
    assert counted.counts - before == Counter(prefill=num_beams == 1, decode=1, build=1)
    before = counted.counts.copy()
    for changes in OTHER_OPTIONS:
        result = counted.backend.generate(model, PROMPT, options.replace(**changes))
        assert (result.cache, result.key) == (HIT, CacheKey(16, num_beams, 16))
        assert result.timing.trace_s == result.timing.compile_s == 0
    for prompt in ("The", "The old grey owl", "naïve — Ü"):
        assert counted.backend.generate(model, prompt, options).cache is HIT
    assert counted.counts == before


def test_other_sizes_are_built_without_tracing_again(counted: Counted, model: str) -> None:
    counted.backend.generate(model, PROMPT, SHORT)
    before = counted.counts.copy()
    result = counted.backend.generate(model, " ".join([PROMPT] * 2), SHORT)
    assert (result.cache, result.key) == (MISS, CacheKey(32, 1, 16))
    assert counted.counts - before == Counter(build=1)


def test_eight_threads_that_miss_one_key_build_it_once(
    counted: Counted, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counted.counts.copy()
    build, scheduler = FunctionBuilder.build, counted.backend._access.scheduler

    def build_when_all_are_there(*arguments: Any) -> Any:
        wait_until(lambda: len(scheduler.waiting()) == 7)
        return build(*arguments)

    monkeypatch.setattr(FunctionBuilder, "build", build_when_all_are_there)

    def call(_: int) -> GenerationResult:
        return counted.backend.generate(model, PROMPT, SHORT.replace(max_new_tokens=20))

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(call, range(8)))
    assert Counter(result.cache for result in results) == Counter({MISS: 1, HIT: 7})
    assert {result.key for result in results} == {CacheKey(16, 1, 32)}
    assert len({tuple(ids(result)) for result in results}) == 1
    assert counted.counts - before == Counter(build=1)
    (miss,) = (result for result in results if result.cache is MISS)
    (compile_s,) = {result.first_call.compile_s for result in results}
    assert compile_s <= miss.timing.compile_s
    for result in results:
        assert_adds_up(result.timing)
        if result.cache is HIT:
            assert result.timing.queue_s > compile_s, "it was there before the compile began"


def test_a_build_that_fails_leaves_everything_usable(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no room for the compiler")

    backend = Backend()
    with monkeypatch.context() as patch:
        patch.setattr(FunctionBuilder, "build", fail)
        with pytest.raises(MemoryError):
            backend.generate(model, PROMPT, SHORT)
    assert backend.status.state == "ready"
    assert backend.cached_functions() == []
    assert backend.generate(model, PROMPT, SHORT).cache is MISS
    assert backend.generate(model, PROMPT, SHORT).cache is HIT


IN_A_NEW_PROCESS = """
import json, sys
from pathlib import Path
from xla_backend import Backend, GenerationOptions

model, compiled, order = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
backend, report = Backend(), []
for options in order:
    result = backend.generate(model, "Once upon a time", GenerationOptions(**options))
    tokens = [token.id for token in result.tokens]
    entries = Path(compiled).glob("*/*.entry")
    code = [entry for entry in entries if not entry.name.endswith(".trace.entry")]
    report.append([result.cache.value, tokens, len(code)])
print(json.dumps(report))
"""


def in_a_new_process(model: str, compiled: Path, order: list[dict]) -> list[tuple]:
    """Cache outcome, token ids, and how much of XLA's code the store in `compiled` has by then."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, model, str(compiled), json.dumps(order)],
        cwd=ROOT,
        env={**os.environ, "XLA_BACKEND_STORE": str(compiled)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def test_in_new_processes_seeds_mean_the_same_and_xla_compiles_each_function_once(
    backend: Backend, model: str, tmp_path: Path
) -> None:
    """The store counts here: it gains an entry with each function that XLA compiles."""
    greedy = {"max_new_tokens": 8}
    drawn = {"max_new_tokens": 8, "temperature": 0.9, "seed": 5}
    others = [{**greedy, **changes} for changes in OTHER_OPTIONS]
    beams = {**greedy, "num_beams": 2}
    first = in_a_new_process(model, tmp_path, [drawn, drawn, *others, beams])
    outcomes, texts, files = zip(*first, strict=True)
    assert outcomes == ("miss", *["hit"] * (1 + len(others)), "miss")
    assert files == (*[2] * (2 + len(others)), 3)  # prefill and decode; then decode of two beams
    assert texts[0] == texts[1] == ids(backend.generate(model, PROMPT, GenerationOptions(**drawn)))
    # Traced in another order, the same functions have the same names: nothing is compiled anew.
    second = in_a_new_process(model, tmp_path, [beams, greedy, drawn])
    assert [(row[0], row[2]) for row in second] == [("disk", 3), ("disk", 3), ("hit", 3)]
    assert second[0][1] == texts[-1]
    assert second[2][1] == texts[0]


# --- streams --------------------------------------------------------------------------------------


@pytest.fixture
def a_chunk_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """These models write 128 tokens within the time of one chunk."""
    monkeypatch.setattr(batch, "CHUNK_S", 0.0)


@pytest.mark.usefixtures("a_chunk_a_token")
@pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "seed": 3}], ids=str)
def test_pieces_of_a_stream_join_to_the_text(backend: Backend, model: str, options: dict) -> None:
    whole = backend.generate(model, PROMPT, LONG.replace(**options))
    stream = backend.stream(model, PROMPT, LONG.replace(**options))
    assert stream.result is None
    chunks = list(stream)
    assert len(chunks) > whole.new_tokens / 2, "not every token is a letter by itself"
    assert all(chunks)
    assert "".join(chunks) == stream.result.text == whole.text
    assert stream.result.tokens == whole.tokens
    assert stream.result.finish == whole.finish
    assert (stream.result.cache, stream.result.key) == (HIT, whole.key)
    assert_adds_up(stream.result.timing)
    assert list(stream) == []


def test_the_first_piece_comes_long_before_the_last(backend: Backend, model: str) -> None:
    list(backend.stream(model, PROMPT, LONG))  # compiled
    start = time.perf_counter()
    stream = backend.stream(model, PROMPT, LONG)
    next(stream)
    first_s = time.perf_counter() - start
    assert stream.result is None
    list(stream)
    assert stream.result.timing.decode_s > 0
    assert first_s < 0.5 * (time.perf_counter() - start)


def test_beams_come_as_one_piece(backend: Backend, model: str) -> None:
    options = SHORT.replace(num_beams=2)
    stream = backend.stream(model, PROMPT, options)
    chunks = list(stream)
    assert chunks == [stream.result.text] == [backend.generate(model, PROMPT, options).text]


def test_a_chunk_lasts_as_long_as_it_should(
    backend: Backend, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    advance = Generation.advance

    def slow(self: Generation, steps: int) -> None:
        """20 ms a token, as a larger model takes."""
        time.sleep(0.02 * steps)
        written.append(steps)
        advance(self, steps)

    monkeypatch.setattr(Generation, "advance", slow)
    list(backend.stream(model, PROMPT, LONG))
    assert (written[0], sum(written)) == (1, LONG.max_new_tokens)
    # From the very first measurement on; other work on the machine can only make them fewer.
    at_most = round(batch.CHUNK_S / 0.02)
    assert max(written) in range(at_most // 2, at_most + 1)
    written.clear()
    backend.generate(model, PROMPT, LONG)
    assert written == [1, LONG.max_new_tokens], "nobody reads chunks"


@pytest.mark.usefixtures("a_chunk_a_token")
@pytest.mark.parametrize("chunks_before", [0, 1, 2])
def test_a_stop_keeps_what_was_written(backend: Backend, model: str, chunks_before: int) -> None:
    whole = backend.generate(model, PROMPT, LONG)
    stream = backend.stream(model, PROMPT, LONG)
    chunks = [next(stream) for _ in range(chunks_before)]
    stream.stop()
    chunks += list(stream)
    result = stream.result
    assert result.finish == "stopped"
    assert result.text == "".join(chunks)
    assert 0 < result.new_tokens < whole.new_tokens
    assert result.tokens == whole.tokens[: result.new_tokens]
    assert_adds_up(result.timing)
    assert backend.status.state == "ready"
    assert backend.generate(model, PROMPT, LONG).tokens == whole.tokens


def test_a_stop_after_the_end_changes_nothing(backend: Backend, model: str) -> None:
    stream = backend.stream(model, PROMPT, SHORT)
    text = "".join(stream)
    stream.stop()
    assert (stream.result.text, stream.result.finish) == (text, "length")


def test_a_stream_that_nobody_reads_on_keeps_nobody_waiting(backend: Backend, model: str) -> None:
    abandoned = backend.stream(model, PROMPT, LONG)
    next(abandoned)
    with ThreadPoolExecutor(1) as threads:  # another thread, as on a server
        result = threads.submit(backend.generate, model, PROMPT, SHORT).result(timeout=60)
    assert result.new_tokens == 8
    assert abandoned.result is None


def test_a_closed_stream_lets_work_in_the_background_go_on(backend: Backend, model: str) -> None:
    gc.collect()  # streams that other tests left unread
    before = backend._access.background._busy
    stream = backend.stream(model, PROMPT, LONG)
    next(stream)
    assert backend._access.background._busy == before + 1
    stream.close()
    assert backend._access.background._busy == before
    assert list(stream) == []
    assert stream.result is None


def test_an_abandoned_stream_does_not_look_like_one_that_runs(backend: Backend, model: str) -> None:
    abandoned = backend.stream(model, PROMPT, LONG)
    next(abandoned)
    del abandoned
    gc.collect()
    assert backend.status.state == "ready"


@pytest.mark.usefixtures("a_chunk_a_token")
def test_the_time_of_a_slow_reader_is_not_the_engines(backend: Backend, model: str) -> None:
    start, pauses = time.perf_counter(), 0
    stream = backend.stream(model, PROMPT, LONG)
    for _ in stream:
        time.sleep(0.05)
        pauses += 1
    wall_s = time.perf_counter() - start
    assert pauses >= 3
    assert stream.result.timing.total_s < wall_s - 0.05 * (pauses - 1)
    assert_adds_up(stream.result.timing)


@pytest.mark.usefixtures("a_chunk_a_token")
def test_interleaved_streams_do_not_mix(backend: Backend, model: str) -> None:
    options = LONG.replace(max_new_tokens=32)
    requests = [
        (PROMPT, options),
        ("The old grey owl", options.replace(temperature=1.0, seed=1)),
        (PROMPT, options.replace(temperature=1.0, seed=2)),
    ]
    # All on one function: another, made meanwhile, might round otherwise.
    alone = [backend.generate(model, *request, exact_key=True) for request in requests]
    streams = [backend.stream(model, *request, exact_key=True) for request in requests]
    chunks: list[list[str]] = [[] for _ in streams]
    running = set(range(len(streams)))
    while running:
        for i in sorted(running):
            chunk = next(streams[i], None)
            if chunk is None:
                running.discard(i)
            else:
                chunks[i].append(chunk)
    for i, expected in enumerate(alone):
        assert "".join(chunks[i]) == expected.text
        assert streams[i].result.tokens == expected.tokens


# --- timings --------------------------------------------------------------------------------------


def test_phases_of_a_miss_and_of_the_fastest_hits(model: str) -> None:
    backend = Backend()
    one = SHORT.replace(max_new_tokens=1)
    start = time.perf_counter()
    miss = backend.generate(model, PROMPT, one)
    wall_s = time.perf_counter() - start
    assert miss.cache is MISS
    assert_adds_up(miss.timing)
    assert min(miss.timing.trace_s, miss.timing.compile_s, miss.timing.prefill_s) > 0
    making = [span.name for span in miss.spans if span.name in ("trace", "compile", "prefill")]
    assert making == ["trace", "compile", "prefill"], "each once, also after the prompt has run"
    assert miss.load_s > 0
    assert miss.timing.total_s + miss.load_s == pytest.approx(wall_s, rel=0.02)
    assert miss.speedup is None
    assert miss.first_call.total_s == pytest.approx(
        miss.timing.trace_s + miss.timing.compile_s + miss.timing.run_s, rel=0.02
    )
    for _ in range(20):
        start = time.perf_counter()
        hit = backend.generate(model, PROMPT, one)
        wall_s = time.perf_counter() - start
        assert_adds_up(hit.timing)
        assert hit.timing.trace_s == hit.timing.compile_s == 0
        assert hit.load_s == 0
        assert 0 < hit.timing.total_s <= wall_s
        assert hit.first_call == miss.first_call
        assert hit.speedup == hit.first_call.total_s / hit.timing.run_s > 1
        assert hit.ttft_s is not None and hit.ttft_s <= hit.timing.total_s
        assert hit.tpot_s is hit.tokens_per_second is None, "there is one token"
    (entry,) = backend.cached_functions()
    assert (entry.model, entry.key, entry.hits) == (model, miss.key, 20)
    assert entry.first_call == miss.first_call
    assert entry.cached.n == 20
    assert entry.cached.min_s <= entry.cached.p50_s <= entry.cached.p95_s
    assert entry.cached.p50_s < miss.first_call.total_s


def test_a_request_that_waits_for_another_says_how_long(model: str) -> None:
    first_runs, go_on = threading.Event(), threading.Event()

    def on_status(status: EngineStatus) -> None:
        if status.state == "generating" and not first_runs.is_set():
            first_runs.set()
            go_on.wait(60)

    backend = Backend(on_status=on_status)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(backend.generate, model, PROMPT, SHORT)
        assert first_runs.wait(120)
        second = threads.submit(backend.generate, model, PROMPT, SHORT)
        wait_until(backend._access.scheduler.waiting)
        time.sleep(1)
        go_on.set()
        first, second = first.result(), second.result()
    assert (first.cache, second.cache) == (MISS, HIT)
    assert second.timing.queue_s >= 1
    assert second.timing.queue_s > 2 * max(first.timing.queue_s, second.timing.run_s)
    for result in (first, second):
        assert_adds_up(result.timing)


def test_a_request_that_arrived_earlier_has_waited_since(backend: Backend, model: str) -> None:
    arrival_time = time.perf_counter() - 5.0
    result = backend.generate(model, PROMPT, SHORT, arrival_time=arrival_time)
    assert 5.0 <= result.timing.queue_s <= time.perf_counter() - arrival_time
    assert_adds_up(result.timing)


def test_a_status_for_each_step(model: str) -> None:
    seen: list[EngineStatus] = []
    backend = Backend(on_status=seen.append)
    for _ in range(2):
        result = backend.generate(model, PROMPT, SHORT)
    states = [status.state for status in seen]
    assert states == [
        *("loading", "ready", "tracing", "compiling", "generating", "ready"),
        *("generating", "ready"),
    ]
    assert seen[0].detail == model
    assert {status.detail for status in seen[2:5]} == {str(result.key)}
    assert [status.since for status in seen] == sorted(status.since for status in seen)
    backend.close()
    assert backend.status.state == "stopped"


# --- what is refused, and what is not -------------------------------------------------------------


def refusal(backend: Backend, model: Any, prompt: Any, options: GenerationOptions = SHORT) -> str:
    """The message, the same from each of the three ways in; the engine is ready afterwards."""
    messages = []
    for request in (
        backend.generate,
        backend.predict,
        lambda *arguments: next(backend.stream(*arguments)),
    ):
        with pytest.raises((InvalidRequest, ModelUnavailable)) as caught:
            request(model, prompt, options)
        messages.append(str(caught.value))
        assert backend.status.state == "ready"
    assert len(set(messages)) == 1
    assert 20 < len(messages[0]) < 400
    return messages[0]


@pytest.mark.parametrize("prompt", ["", " ", "\n\t \r\n", "\u3000\u2003"])
def test_an_empty_or_blank_prompt(backend: Backend, model: str, prompt: str) -> None:
    assert "The prompt is empty" in refusal(backend, model, prompt)


@pytest.mark.parametrize("prompt", [None, 5, b"Once", ["Once"], {"text": "Once"}, True])
def test_a_prompt_that_is_no_text(backend: Backend, model: str, prompt: Any) -> None:
    assert f"must be text, not {type(prompt).__name__}" in refusal(backend, model, prompt)


@pytest.mark.parametrize("prompt", ["half \ud83d of it", "\udc80", "back\udfff\ud800wards"])
def test_half_a_surrogate_pair(backend: Backend, model: str, prompt: str) -> None:
    position = next(i for i, c in enumerate(prompt) if "\ud800" <= c <= "\udfff") + 1
    assert f"surrogate pair, which is no character, at position {position}" in refusal(
        backend, model, prompt
    )


def test_a_prompt_too_long_says_by_how_many_tokens(backend: Backend, model: str) -> None:
    prompt = "word " * 1000
    tokens = len(Tokenizer.load(Path(model)).encode(prompt))
    message = refusal(backend, model, prompt)
    assert f"{tokens - (1100 - 8)} tokens too long: it has {tokens}" in message
    assert "its context is 1100" in message


def test_a_megabyte_of_text(backend: Backend, model: str) -> None:
    with pytest.raises(InvalidRequest, match=r"The prompt is \d{6,7} tokens too long"):
        backend.generate(model, "x " * 500_000, SHORT)


@pytest.mark.parametrize(
    "prompt",
    [
        "🦊 and 🦉",
        "👩‍👧",
        "كان يا",
        "שלום",
        "NUL \x00 in the midst",
        "\x00",
        "\ufeff\u200b\u202e",
        "<|endoftext|>",
        "a\r\nb\u2028c\x1b[31m",
        "Z̸̡a̷",
    ],
)
def test_every_text_of_characters_is_served(backend: Backend, model: str, prompt: str) -> None:
    result = backend.generate(model, prompt, SHORT)
    assert result.new_tokens == 8
    assert result.key == CacheKey(16, 1, 16)  # prompts of other sizes would have to be compiled
    assert result.prompt_tokens == len(Tokenizer.load(Path(model)).encode(prompt))
    json.dumps(result.to_json(), ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("name", ["no-such-model", "gpt2", "", "a/b/c", "../x", "\x00", None, 7])
def test_an_unknown_model(backend: Backend, name: Any) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        backend.load(name)
    assert refusal(backend, name, PROMPT) == str(caught.value)


def test_a_folder_where_folders_are_not_allowed(model: str) -> None:
    backend = Backend(registry=Registry(allow_folders=False))
    assert "there is no model" in refusal(backend, model, PROMPT)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads 24 tokens."""
    return checkpoints.gpt2(tmp_path_factory.mktemp("models") / "tiny", n_positions=24, n_layer=1)


NEARLY_FULL = "Once upon a time the little fox said: xyzzy"
"""A prompt of more than 16 of them."""


def test_prompt_and_text_may_fill_the_context_to_the_last_token(tiny: Path) -> None:
    backend, tokenizer = Backend(), Tokenizer.load(tiny)
    token_ids = tokenizer.encode(NEARLY_FULL)
    assert 16 < len(token_ids) < 24
    room = 24 - len(token_ids)
    options = GenerationOptions(max_new_tokens=room, temperature=0.0)
    result = backend.generate(str(tiny), NEARLY_FULL, options)
    assert result.key == CacheKey(24, 1, 16), "padding stays inside the context"
    pair = DecoderOnlyPair(backend, tiny, load_oracle(tiny))
    assert ids(result) == pair.theirs(NEARLY_FULL, max_new_tokens=room)
    message = refusal(backend, str(tiny), NEARLY_FULL, options.replace(max_new_tokens=room + 1))
    assert "1 token too long" in message
    assert f"room for {len(token_ids) - 1} beside {room + 1} new tokens" in message
    message = refusal(backend, str(tiny), NEARLY_FULL, options.replace(max_new_tokens=24))
    assert "Ask for at most 23." in message


# --- what is told beforehand ----------------------------------------------------------------------


def test_a_prediction_comes_true(tiny: Path) -> None:
    backend, two = Backend(), GenerationOptions(max_new_tokens=2)
    before = backend.predict(str(tiny), NEARLY_FULL, two)
    assert (before.outcome, before.expected_s) == (MISS, None)
    first = backend.generate(str(tiny), NEARLY_FULL, two)
    assert (first.cache, first.key, first.prompt_tokens) == (
        before.outcome,
        before.key,
        before.prompt_tokens,
    )
    after = backend.predict(str(tiny), NEARLY_FULL, two)
    assert (after.outcome, after.key) == (HIT, first.key)
    assert after.expected_s == pytest.approx(first.timing.run_s)
    assert backend.cached_functions()[0].hits == 0, "asking is not using"


def test_a_run_that_was_stopped_is_not_counted(model: str) -> None:
    backend, options = Backend(), GenerationOptions(max_new_tokens=700)
    backend.generate(model, "Once", options)
    backend.generate(model, "Once", options)
    before, past = backend.cached_functions()[0], backend.past()[model]
    stream = backend.stream(model, "Once", options)
    next(iter(stream))
    stream.stop()
    list(stream)
    assert stream.result is not None
    assert stream.result.finish == "stopped"
    after, key = backend.cached_functions()[0], stream.result.key
    assert (after.hits, after.cached) == (before.hits + 1, before.cached)
    assert backend.past()[model][key].run_s == past[key].run_s
    expected_s = backend.predict(model, "Once", options).expected_s
    assert before.cached is not None
    assert expected_s == before.cached.p50_s


def test_loaded_folders_are_listed_with_the_others(tiny: Path) -> None:
    backend = Backend()
    before = {info.name: info.loaded for info in backend.models()}
    assert not any(before.values())
    info = backend.load(str(tiny))
    assert (info.source, info.family, info.loaded) == ("folder", "decoder-only", True)
    assert info.context_length == 24
    assert {known.name for known in backend.models()} == {*before, str(tiny)}
    assert info in backend.models()
