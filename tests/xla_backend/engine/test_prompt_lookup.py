"""Prompt lookup: the same text in fewer passes of the model.

The oracles are this engine without it, which `model/test_parity*.py` compare with others' code, and
Transformers' eager `model.generate`.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import checkpoints
from tests.oracle import load_oracle
from xla_backend import (
    Backend,
    BucketRules,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
)
from xla_backend.interface.prompt import TokenIds
from xla_backend.model import prompt_lookup
from xla_backend.model.prompt_lookup import Lookup

CONTEXT, NEW, DRAFTS = 160, 64, 3
RULES = BucketRules((32, 96), (NEW,))
LOOKUP = {"prompt_lookup_num_tokens": DRAFTS}
FORMS = checkpoints.growing(CONTEXT)


@pytest.fixture(scope="module")
def engine() -> Iterator[Backend]:
    made = Backend(rules=RULES, store="off")
    yield made
    made.close()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(FORMS["GPT-2"](tmp_path_factory.mktemp("lookup") / "gpt2"))


def prompts(count: int, longest: int = 90) -> list[TokenIds]:
    """Prompts that repeat themselves: a few tokens again and again, now and then another one."""
    made = []
    for seed in range(count):
        chance = random.Random(seed)
        motif = [chance.randrange(3, 250) for _ in range(chance.randint(1, 12))]
        text = motif * 40
        for _ in range(chance.choice([0, 0, 3])):
            text[chance.randrange(60)] = chance.randrange(3, 250)
        made.append(TokenIds(tuple(text[: chance.randint(1, longest)])))
    return made


def ids(result: GenerationResult) -> list[int]:
    return [token.id for token in result.tokens]


def accepted(result: GenerationResult) -> int:
    """How many drafts were right; and what is said of the passes must fit that."""
    found = sum(token.in_same_pass for token in result.tokens)
    assert result.passes is not None
    assert result.new_tokens + result.cut_tokens >= 1 + result.passes
    if not result.cut_tokens:
        assert result.passes == result.new_tokens - 1 - found
    return found


def both(
    engine: Backend, model: str, prompt: TokenIds | str, salt: str = "", **options: object
) -> GenerationResult:
    """The same request with and without: the same result but for the passes."""
    wanted = GenerationOptions(**{"max_new_tokens": NEW, **LOOKUP, **options})
    plain = wanted.replace(prompt_lookup_num_tokens=0)
    without = engine.generate(model, prompt, plain, cache_salt=salt)
    fast = engine.generate(model, prompt, wanted, cache_salt=f"{salt} fast" if salt else "")
    assert (ids(fast), fast.text, fast.finish) == (ids(without), without.text, without.finish)
    for one, other in zip(fast.tokens, without.tokens, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert one.text == other.text
    assert (without.passes, without.tokens_per_pass) == (None, None)
    assert "tokens_per_pass" not in without.to_json()
    return fast


@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_those_without(engine: Backend, tmp_path: Path, form: str) -> None:
    model = str(FORMS[form](tmp_path / "model"))
    for prompt in prompts(12):
        accepted(both(engine, model, prompt))
    # Texts of four tokens repeat themselves, whatever the model likes.
    few = {"logit_bias": dict.fromkeys(range(40, 44), 100.0)}
    results = [both(engine, model, prompt, **few) for prompt in prompts(12)]
    assert sum(map(accepted, results)) > 50
    assert max(result.tokens_per_pass or 0 for result in results) > 1.5


@pytest.mark.parametrize("drafts", [1, 7])
def test_fewer_and_more_drafts(engine: Backend, gpt2: str, drafts: int) -> None:
    results = [both(engine, gpt2, prompt, prompt_lookup_num_tokens=drafts) for prompt in prompts(8)]
    assert sum(map(accepted, results)) > 50
    assert {result.key.prompt_lookup_num_tokens for result in results} == {drafts}


@pytest.mark.release
def test_tokens_are_those_of_transformers(engine: Backend, gpt2: str) -> None:
    oracle, found = load_oracle(gpt2), 0
    for prompt in prompts(12):
        read = {
            "input_ids": np.int32([prompt.ids]),
            "attention_mask": np.ones((1, len(prompt.ids))),
        }
        theirs = oracle.generate(read, do_sample=False, max_new_tokens=NEW, pad_token_id=0)[0]
        options = GenerationOptions(max_new_tokens=NEW, **LOOKUP)
        ours = engine.generate(gpt2, prompt, options)
        written = theirs[len(prompt.ids) :].tolist()
        assert ids(ours) == written[: len(ours.tokens)]
        assert ours.finish == "eos" or len(ours.tokens) == NEW
        found += accepted(ours)
    assert found > 50


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.5, "frequency_penalty": 0.1},
        {"logit_bias": {7: 3.0, 11: -100.0}},
        {"temperature": 0.3, "seed": 5},
        {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 6, "repetition_penalty": 1.05},
    ],
    ids=str,
)
def test_each_place_has_its_own_options_and_noise(
    engine: Backend, gpt2: str, options: dict[str, object]
) -> None:
    assert sum(accepted(both(engine, gpt2, prompt, **options)) for prompt in prompts(12)) > 5


def test_any_number_of_new_tokens(engine: Backend, gpt2: str) -> None:
    prompt = prompts(1)[0]
    whole = both(engine, gpt2, prompt)
    assert accepted(whole) > 5
    for limit in range(1, NEW + 1):
        short = both(engine, gpt2, prompt, max_new_tokens=limit)
        assert ids(short) == ids(whole)[:limit]
        assert short.finish == "length"


def test_a_text_ends_among_accepted_drafts(engine: Backend, gpt2: str, tmp_path: Path) -> None:
    ended = 0
    for prompt in prompts(12):
        tokens = both(engine, gpt2, prompt).tokens
        ends = [
            place
            for place, token in enumerate(tokens)
            if token.in_same_pass and token.id not in [before.id for before in tokens[:place]]
        ]
        if not ends:
            continue
        model = Path(shutil.copytree(gpt2, tmp_path / f"ends-{len(prompt.ids)}"))
        settings = json.loads((model / "generation_config.json").read_text())
        settings["eos_token_id"] = tokens[ends[0]].id
        (model / "generation_config.json").write_text(json.dumps(settings))
        result = both(engine, str(model), prompt)
        assert result.finish == "eos"
        assert len(result.tokens) == ends[0] + 1
        ended += result.tokens[-1].in_same_pass
        if ended == 2:
            break
    assert ended == 2


def test_a_stop_string_cuts_accepted_drafts(engine: Backend, gpt2: str) -> None:
    prompt = prompts(1)[0]
    whole = both(engine, gpt2, prompt)
    for place in (5, 9, 20):
        stop = whole.tokens[place].text
        result = both(engine, gpt2, prompt, stop=stop)
        assert result.finish == "stop"
        assert stop not in result.text


def test_a_stream_brings_the_same_text(engine: Backend, gpt2: str) -> None:
    for prompt in prompts(4):
        whole = both(engine, gpt2, prompt)
        options = GenerationOptions(max_new_tokens=NEW, **LOOKUP)
        stream = engine.stream(gpt2, prompt, options)
        chunks = list(stream)
        assert stream.result is not None
        assert "".join(chunks) == stream.result.text == whole.text
        assert ids(stream.result) == ids(whole)
        spans = [span.tokens for span in stream.result.spans]
        assert sum(spans) == len(whole.tokens)


def test_cached_prefixes_with_drafts(engine: Backend, gpt2: str) -> None:
    found = 0
    for seed, prompt in enumerate(prompts(6, longest=20)):
        first = both(engine, gpt2, prompt, salt=f"conversation {seed}", max_new_tokens=20)
        turn = TokenIds((*prompt.ids, *ids(first), 9, 10))
        second = both(engine, gpt2, turn, salt=f"conversation {seed}")
        assert first.key.is_pooled
        assert second.cached_tokens == len(turn.ids) - 3  # the last token was not run
        found += accepted(first) + accepted(second)
    assert found > 20


def test_what_cannot_have_drafts_says_so(engine: Backend, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="one beam, not with 2"):
        GenerationOptions(num_beams=2, **LOOKUP)
    for wrong in (-1, 8, 2.5, "three"):
        with pytest.raises(InvalidRequest, match="prompt_lookup_num_tokens must be"):
            GenerationOptions(prompt_lookup_num_tokens=wrong)
    assert GenerationOptions(prompt_lookup_num_tokens=None) == GenerationOptions()
    t5, whisper = checkpoints.t5(tmp_path / "t5"), checkpoints.whisper(tmp_path / "whisper")
    options = GenerationOptions(**LOOKUP)
    for ask in (engine.generate, engine.predict):
        with pytest.raises(InvalidRequest, match=r"decoder-only models, and .* is none"):
            ask(str(t5), "Once", options)
    with pytest.raises(InvalidRequest, match="a recording has none"):
        noise = np.random.default_rng(0).standard_normal(1600, np.float32)
        engine.transcribe(str(whisper), (16_000, 0.1 * noise), options)


def test_a_text_without_repetition_runs_row_by_row(engine: Backend, gpt2: str) -> None:
    result = both(engine, gpt2, TokenIds((7, 8, 9)), max_new_tokens=2)
    assert (accepted(result), result.passes, result.tokens_per_pass) == (0, 1, 1.0)
    only = both(engine, gpt2, TokenIds((7, 8, 9)), max_new_tokens=1)
    assert (only.passes, only.tokens_per_pass) == (0, None)


def drafts_of(text: list[int], count: int) -> list[int] | None:
    """By its definition: what follows the latest of the places with the longest match."""
    for length in (3, 2):
        if len(text) < length:
            continue
        for end in range(len(text) - count, length - 1, -1):
            if text[end - length : end] == text[-length:]:
                return text[end : end + count]
    return None


def test_drafts_follow_the_latest_of_the_longest_matches() -> None:
    chance, found = random.Random(0), 0
    for _ in range(200):
        text = [chance.randrange(4) for _ in range(chance.randint(1, 30))]
        count = chance.randint(1, 7)
        drafts = prompt_lookup.find(Lookup.of(text, 40), count)
        expected = drafts_of(text, count)
        assert bool(drafts.is_found) == (expected is not None), (text, count)
        if expected is not None:
            assert drafts.tokens.numpy().tolist() == expected
            assert int(drafts.verified) == count
            found += 1
    assert found > 50


def test_drafts_that_are_wrong_too_often_are_not_verified() -> None:
    lookup = Lookup.of([1, 2, 3, 4, 1], 8).with_token(tf.constant([2]))
    verified = []
    for token in (9, 9, 9, 3, 3, 3, 3):
        drafts = prompt_lookup.find(lookup, 1)
        assert drafts.tokens.numpy().tolist() == [3]
        verified.append(int(drafts.verified))
        lookup = prompt_lookup.with_hit(lookup, drafts, tf.constant(token))
    assert (verified[0], verified[3], verified[-1]) == (1, 0, 1)
    other = lookup.with_token(tf.constant([9]))
    nothing = prompt_lookup.find(other, 1)
    assert not bool(nothing.is_found)
    assert prompt_lookup.with_hit(other, nothing, tf.constant(9)).hit_rate == lookup.hit_rate
