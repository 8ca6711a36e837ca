"""Kept keys and values: a talk that reuses them says what one says that computes all anew.

The oracle is this engine without a salt, which `model/test_parity*.py` compare with others' code.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from xla_backend.backend.prefix_cache import PrefixCache
from xla_backend.model.kept_prompt import KeptPrompt

from tests import checkpoints
from tests.waiting import wait_until
from xla_backend import (
    Backend,
    BackendProcess,
    BucketRules,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
)
from xla_backend.interface.prompt import TokenIds
from xla_backend.model.engine import Engine

CONTEXT, NEW = 120, 6
RULES = BucketRules((CONTEXT,), (NEW,), chunked_lengths=(48, CONTEXT))
OPTIONS = GenerationOptions(max_new_tokens=NEW)
FORMS = checkpoints.growing(CONTEXT)


@pytest.fixture(scope="module")
def engine() -> Iterator[Backend]:
    made = Backend(rules=RULES, store="off", batch_sizes=(1, 2))
    yield made
    made.close()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(FORMS["GPT-2"](tmp_path_factory.mktemp("kept") / "gpt2"))


class Talk:
    """A conversation of random tokens with a model; every turn is compared with a whole prefill."""

    def __init__(self, engine: Backend, model: str, salt: str, seed: int) -> None:
        self._engine, self._model, self._salt = engine, model, salt
        self._random = random.Random(seed)
        self.asked: list[int] = []
        self.text: list[int] = []

    def words(self, count: int) -> list[int]:
        return [self._random.randrange(3, 250) for _ in range(count)]

    def ask(self, prompt: list[int], options: GenerationOptions = OPTIONS) -> GenerationResult:
        """Goes on from a prompt, with what is kept and without."""
        reusing = self._generate(prompt, options, self._salt)
        whole = self._generate(prompt, options, "")
        assert whole.cached_tokens == 0
        assert reusing.key.in_chunks
        assert [token.id for token in reusing.tokens] == [token.id for token in whole.tokens]
        for one, other in zip(reusing.tokens, whole.tokens, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        self.asked, self.text = prompt, prompt + [token.id for token in reusing.tokens]
        return reusing

    def turn(self) -> tuple[GenerationResult, int]:
        """A further question, or another move of a visitor; and how much it could reuse."""
        known, room = self.text, CONTEXT - NEW
        move = self._random.choice(["next", "next", "next", "retry", "undo", "edit", "rewrite"])
        question = self.words(self._random.randint(1, 60))
        if not known or len(known) + len(question) > room:
            return self.ask(self.words(self._random.randint(1, 70))), 0
        if move == "next":
            return self.ask(known + question), len(known) - 1
        if move == "retry":
            return self.ask(self.asked), len(self.asked) - 1
        if move == "rewrite":  # the template drops the first half of the answer
            answer = known[len(self.asked) :]
            known_still = len(self.asked)
            return self.ask(self.asked + answer[len(answer) // 2 :] + question), known_still
        place = self._random.randrange(len(self.asked))
        prompt = known[:place] + question
        if move == "edit":
            prompt = (prompt + known[place + 1 :])[:room]
        return self.ask(prompt), min(place, len(prompt) - 1)

    def _generate(
        self, prompt: list[int], options: GenerationOptions, salt: str
    ) -> GenerationResult:
        prompted = TokenIds(tuple(prompt))
        return self._engine.generate(self._model, prompted, options, cache_salt=salt)


@pytest.mark.parametrize("form", FORMS)
def test_fifty_talks_say_what_whole_prefill_says(
    engine: Backend, tmp_path: Path, form: str
) -> None:
    model = str(FORMS[form](tmp_path / "model"))
    for seed in range(10):
        # Two talks of one visitor at a time, which begin alike, and a third of somebody else.
        one, branch = (Talk(engine, model, f"visitor {seed}", 2 * seed + i) for i in range(2))
        other = Talk(engine, model, f"other {seed}", seed)
        start = one.words(20)
        assert one.ask(start + one.words(5)).cached_tokens == 0
        assert branch.ask(start + branch.words(5)).cached_tokens >= 20
        assert other.ask(start + other.words(5)).cached_tokens == 0
        for _ in range(3):
            one.turn()
            branch.turn()
            result, known = other.turn()
            assert result.cached_tokens >= known


@pytest.mark.parametrize(
    "changes",
    [
        {"num_beams": 3},
        {"temperature": 0.9, "seed": 7},
        {"repetition_penalty": 1.6},  # counts tokens of the prompt that are not run again
        {"max_new_tokens": 1},
    ],
)
def test_other_options_reuse_too(engine: Backend, gpt2: str, changes: dict[str, float]) -> None:
    talk = Talk(engine, gpt2, f"options {changes}", seed=1)
    options = OPTIONS.replace(**changes)
    start = talk.words(30)
    assert talk.ask(start, options).cached_tokens == 0
    after = talk.ask(start + talk.words(4), options)
    assert after.cached_tokens >= 30


class LongPrompts:
    """An engine whose prompts take several chunks; what happens after the first one is chosen."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = str(checkpoints.gpt2(folder / "long", seed=8, n_positions=600))
        self.engine = Backend(
            rules=BucketRules((16, 600), (NEW,), chunked_lengths=(600,)), store="off"
        )
        self.talk = Talk(self.engine, self.model, "long", seed=8)
        self.prompt = self.talk.words(500)
        self.chunks = 0
        self.after_first: Callable[[], None] = lambda: None
        extend = Engine.extend

        def counted(*arguments: Any) -> Any:
            chunk = extend(*arguments)
            self.chunks += 1
            if self.chunks == 1:
                self.after_first()
            return chunk

        self.expected = self.engine.generate(self.model, TokenIds(tuple(self.prompt)), OPTIONS)
        self.engine.generate(self.model, TokenIds((5,)), OPTIONS, cache_salt="made")
        monkeypatch.setattr(Engine, "extend", counted)

    def ask(self) -> GenerationResult | None:
        stream = self.engine.stream(
            self.model, TokenIds(tuple(self.prompt)), OPTIONS, cache_salt="long"
        )
        self.stop = stream.stop
        for _ in stream:
            pass
        return stream.result


@pytest.fixture
def long_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LongPrompts]:
    made = LongPrompts(tmp_path, monkeypatch)
    yield made
    made.engine.close()


def test_between_the_chunks_of_a_long_prompt_others_have_their_turn(
    long_prompts: LongPrompts,
) -> None:
    engine, chunks_before = long_prompts.engine, []

    def short() -> None:
        engine.generate(long_prompts.model, TokenIds((7, 8, 9)), OPTIONS)
        chunks_before.append(long_prompts.chunks)

    with ThreadPoolExecutor(1) as threads:

        def come() -> None:
            threads.submit(short)
            wait_until(lambda: len(engine._access.scheduler.waiting()) == 1)

        long_prompts.after_first = come
        result = long_prompts.ask()
    assert result is not None
    assert chunks_before == [1]
    assert long_prompts.chunks == 4
    assert [token.id for token in result.tokens] == [
        token.id for token in long_prompts.expected.tokens
    ]
    assert result.timing.queue_s > 0
    assert engine.status.state == "ready"


def test_a_long_prompt_that_is_given_up_is_kept_as_far_as_it_came(
    long_prompts: LongPrompts,
) -> None:
    long_prompts.after_first = lambda: long_prompts.stop()
    assert long_prompts.ask() is None
    assert long_prompts.chunks == 1
    assert long_prompts.engine.status.state == "ready"
    result = long_prompts.ask()
    assert result is not None
    assert (result.cached_tokens, long_prompts.chunks) == (128, 4)
    assert result.text == long_prompts.expected.text


def test_without_a_salt_nothing_is_kept(gpt2: str) -> None:
    engine = Backend(rules=RULES, store="off")
    for _ in range(2):
        result = engine.generate(gpt2, "Once upon a time", OPTIONS)
        assert (result.cached_tokens, result.key.in_chunks) == (0, False)
    assert engine.prefix_cache().prompts == 0
    engine.close()


def test_an_encoder_decoder_ignores_the_salt(engine: Backend, tmp_path: Path) -> None:
    model = str(checkpoints.t5(tmp_path / "t5"))
    for _ in range(2):
        result = engine.generate(model, "Once upon a time", OPTIONS, cache_salt="mine")
        assert (result.cached_tokens, result.key.in_chunks) == (0, False)


def test_a_stopped_answer_is_kept_as_far_as_it_came(engine: Backend, gpt2: str) -> None:
    stream = engine.stream(gpt2, TokenIds((5, 6, 7)), OPTIONS, cache_salt="stopped")
    next(stream)
    stream.stop()
    for _ in stream:
        pass
    assert stream.result is not None
    assert stream.result.finish == "stopped"
    text = [5, 6, 7] + [token.id for token in stream.result.tokens]
    talk = Talk(engine, gpt2, "stopped", seed=3)
    assert talk.ask([*text, 9]).cached_tokens == len(text) - 1


def test_what_a_reader_leaves_is_kept(engine: Backend, gpt2: str) -> None:
    stream = engine.stream(gpt2, TokenIds((8, 9, 10)), OPTIONS, cache_salt="left")
    next(stream)
    stream.close()
    assert Talk(engine, gpt2, "left", seed=4).ask([8, 9, 10, 11]).cached_tokens == 3


def test_prediction_names_the_key_in_chunks(engine: Backend, gpt2: str) -> None:
    predicted = engine.predict(gpt2, "Once", OPTIONS, cache_salt="predicted")
    result = engine.generate(gpt2, "Once", OPTIONS, cache_salt="predicted")
    assert predicted.requested_key == result.requested_key == CacheKey(48, 1, NEW, True)
    assert predicted.outcome == result.cache
    again = engine.predict(gpt2, "Once", OPTIONS, cache_salt="predicted")
    assert again.outcome is CacheOutcome.HIT
    assert not engine.predict(gpt2, "Once", OPTIONS).key.in_chunks


def test_two_hundred_talks_stay_within_the_limit(gpt2: str) -> None:
    limit = 2_000_000
    engine = Backend(rules=RULES, store="off", prefix_cache_bytes=limit)
    held = []
    for number in range(200):
        talk = Talk(engine, gpt2, f"visitor {number}", seed=number)
        start = talk.words(8)
        engine.generate(gpt2, TokenIds(tuple(start)), OPTIONS, cache_salt=f"visitor {number}")
        held.append(engine.prefix_cache().held_bytes)
    assert max(held) <= limit
    assert held[-1] == held[100]  # full, and flat
    latest = engine.generate(gpt2, TokenIds((*start, 7)), OPTIONS, cache_salt="visitor 199")
    assert latest.cached_tokens >= 8
    first = Talk(engine, gpt2, "visitor 0", seed=0).ask(Talk(engine, gpt2, "", 0).words(8))
    assert first.cached_tokens == 0
    engine.close()


def kept(token_ids: list[int], answer_from: int | None = None) -> KeptPrompt:
    made = KeptPrompt([(1, 2)], 16)
    made.token_ids = list(token_ids)
    made.answer_from = len(token_ids) if answer_from is None else answer_from
    return made


def test_a_branch_leaves_what_it_began_from() -> None:
    cache = PrefixCache()
    cache.put("model", "mine", kept([1, 2, 3, 4, 5, 6], answer_from=5))
    branch = cache.take("model", "mine", [1, 2, 9, 9], 16)
    assert branch is not None
    assert branch.token_ids == [1, 2]
    whole = cache.take("model", "mine", [1, 2, 3, 4, 5, 6, 7], 16)
    assert whole is not None
    assert whole.token_ids == [1, 2, 3, 4, 5, 6]
    assert cache.use.prompts == 0


def test_a_rewritten_answer_is_given_up() -> None:
    cache = PrefixCache()
    cache.put("model", "mine", kept([1, 2, 3, 4, 5, 6], answer_from=3))
    again = cache.take("model", "mine", [1, 2, 3, 8, 9], 16)
    assert again is not None
    assert again.token_ids == [1, 2, 3]
    assert cache.use.prompts == 0


def test_the_last_token_of_a_prompt_always_runs() -> None:
    cache = PrefixCache()
    cache.put("model", "mine", kept([1, 2, 3]))
    same = cache.take("model", "mine", [1, 2, 3], 16)
    assert same is not None
    assert same.token_ids == [1, 2]
    cache.put("model", "mine", kept([1, 2, 3]))
    assert cache.take("model", "mine", [1], 16) is None


@pytest.mark.parametrize("owner", [("model", "yours"), ("another", "mine"), ("model", "")])
def test_nobody_else_finds_anything(owner: tuple[str, str]) -> None:
    cache = PrefixCache()
    cache.put("model", "mine", kept([1, 2, 3]))
    assert cache.take(*owner, [1, 2, 3, 4], 16) is None


def test_the_least_recently_used_goes_first() -> None:
    size = kept([]).size_bytes
    cache = PrefixCache(2 * size)
    for salt in ("a", "b"):
        cache.put("model", salt, kept([1, 2, 3]))
    used = cache.take("model", "a", [1, 2, 3, 4], 16)
    assert used is not None
    cache.put("model", "a", used)
    cache.put("model", "c", kept([1, 2, 3]))
    assert cache.use.held_bytes == 2 * size
    assert cache.take("model", "b", [1, 2, 3, 4], 16) is None
    assert cache.take("model", "a", [1, 2, 3, 4], 16) is not None


def test_rows_of_a_batch_reuse_each_their_own(engine: Backend, gpt2: str) -> None:
    salts = ("row 0", "row 1")
    prompts = [[30, 31, 32, 33], [40, 41]]
    for salt, prompt in zip(salts, prompts, strict=True):
        engine.generate(gpt2, TokenIds(tuple(prompt)), OPTIONS, cache_salt=salt)
    engine.warm(gpt2, [CacheKey(48, 1, NEW, in_chunks=True)], batch_size=2)
    with ThreadPoolExecutor(2) as threads:
        with engine._access.scheduler.acquire():  # so that both wait for it together
            answers = []
            for salt, prompt in zip(salts, prompts, strict=True):
                asked = TokenIds((*prompt, 50, 51))
                answers.append(
                    threads.submit(engine.generate, gpt2, asked, OPTIONS, cache_salt=salt)
                )
                waiting = len(answers)
                wait_until(lambda: len(engine._access.scheduler.waiting()) == waiting)  # noqa: B023
        results = [answer.result() for answer in answers]
    assert [result.batch_size for result in results] == [2, 2]
    assert [result.cached_tokens for result in results] == [4, 2]
    for result, salt, prompt in zip(results, salts, prompts, strict=True):
        alone = engine.generate(gpt2, TokenIds((*prompt, 50, 51)), OPTIONS)
        assert [token.id for token in result.tokens] == [token.id for token in alone.tokens]
        # What the batch has written is kept too, each row's its own.
        text = [*prompt, 50, 51, *(token.id for token in result.tokens)]
        assert Talk(engine, gpt2, salt, seed=0).ask([*text, 9]).cached_tokens == len(text) - 1


def test_the_next_length_is_ready_before_a_talk_needs_it(gpt2: str) -> None:
    engine = Backend(rules=RULES, store="off")
    start = list(range(5, 45))
    engine.generate(gpt2, TokenIds(tuple(start)), OPTIONS, cache_salt="long")
    longer = CacheKey(CONTEXT, 1, NEW, in_chunks=True)
    assert (gpt2, longer) in engine.prefetching()
    wait_until(lambda: not engine.prefetching())
    result = engine.generate(
        gpt2, TokenIds((*start, *start, *start[:20])), OPTIONS, cache_salt="long"
    )
    assert (result.cache, result.key, result.cached_tokens) == (CacheOutcome.HIT, longer, 40)
    engine.close()


def test_a_killed_engine_reads_the_talk_once_more(gpt2: str, tmp_path: Path) -> None:
    process = BackendProcess(
        rules=RULES, default_model=gpt2, store=tmp_path, warm_up=None, prefix_cache="5MB"
    )
    prompt = (5, 6, 7, 8)
    ask = partial(process.generate, gpt2, options=OPTIONS, cache_salt="mine")
    first = ask(prompt=TokenIds(prompt))
    text = prompt + tuple(token.id for token in first.tokens)
    second = ask(prompt=TokenIds((*text, 9)))
    assert second.cached_tokens == len(text) - 1
    use = process.health().prefix_cache
    assert (use.prompts, use.limit_bytes) == (1, 5_000_000)
    assert 0 < use.held_bytes <= use.limit_bytes
    os.kill(process.pid, signal.SIGKILL)
    again = ask(prompt=TokenIds((*text, 9)))
    assert (again.cached_tokens, again.cache) == (0, CacheOutcome.DISK)
    assert again.text == second.text
    assert ask(prompt=TokenIds((*text, 9, 10))).cached_tokens == len(text) + 1
    process.close()
