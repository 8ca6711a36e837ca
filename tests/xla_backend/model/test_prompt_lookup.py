"""Prompt lookup: where drafts come from, and the same text in fewer passes of the model.

The oracle is the same row without it, which `test_pool` and `test_parity_rotary` compare with
others' code.
"""

import contextlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import checkpoints
from xla_backend import Backend, GenerationOptions, GenerationResult, InvalidRequest
from xla_backend.interface.buckets import pool_key
from xla_backend.interface.prompt import TokenIds
from xla_backend.model import prompt_lookup
from xla_backend.model.prompt_lookup import NO_TOKEN, Lookup

CONTEXT, NEW, DRAFTS = 160, 64, 3
FORMS = checkpoints.growing(CONTEXT)


@pytest.fixture(scope="module")
def engine() -> Iterator[Backend]:
    with contextlib.closing(Backend(store="off")) as backend:
        yield backend


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(FORMS["GPT-2"](tmp_path_factory.mktemp("lookup") / "gpt2"))


def prompts(count: int, longest: int = 90) -> list[TokenIds]:
    """Prompts that repeat themselves: a few tokens again and again, now and then another one."""
    made = []
    for seed in range(count):
        dice = random.Random(seed)
        motif = [dice.randrange(3, 250) for _ in range(dice.randint(1, 12))]
        text = motif * 40
        for _ in range(dice.choice([0, 0, 3])):
            text[dice.randrange(60)] = dice.randrange(3, 250)
        made.append(TokenIds(tuple(text[: dice.randint(1, longest)])))
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


def both(engine: Backend, model: str, prompt: TokenIds, **options: Any) -> GenerationResult:
    """The same request with and without: the same result but for the passes."""
    settings = {"max_new_tokens": NEW, "prompt_lookup_num_tokens": DRAFTS, **options}
    wanted = GenerationOptions(**settings)
    plain = wanted.replace(prompt_lookup_num_tokens=0)
    without = engine.generate(model, prompt, plain, cache_salt="plain")
    stream = engine.stream(model, prompt, wanted, cache_salt="fast")
    chunks = list(stream)
    fast = stream.result
    assert (ids(fast), fast.text, fast.finish) == (ids(without), without.text, without.finish)
    assert "".join(chunks) == fast.text
    assert [token.logprob for token in fast.tokens] == pytest.approx(
        [token.logprob for token in without.tokens], abs=1e-4
    )
    assert sum(span.tokens for span in fast.spans) == fast.new_tokens + fast.cut_tokens
    assert fast.key == pool_key(CONTEXT, wanted.prompt_lookup_num_tokens)
    assert fast.cached_tokens == without.cached_tokens
    assert (without.passes, without.tokens_per_pass) == (None, None)
    return fast


@pytest.mark.parametrize(
    "form", [pytest.param(x, marks=() if x == "GPT-2" else pytest.mark.release) for x in FORMS]
)
def test_tokens_are_those_without(engine: Backend, tmp_path: Path, form: str) -> None:
    model = str(FORMS[form](tmp_path / "model"))
    for prompt in prompts(8):
        accepted(both(engine, model, prompt))
    # Texts of four tokens repeat themselves, whatever the model likes.
    few = {"logit_bias": dict.fromkeys(range(40, 44), 100.0)}
    results = [both(engine, model, prompt, **few) for prompt in prompts(8)]
    assert sum(map(accepted, results)) > 30
    assert max(result.tokens_per_pass or 0 for result in results) > 1.5


@pytest.mark.release
@pytest.mark.parametrize("drafts", [1, 7])
def test_fewer_and_more_drafts(engine: Backend, gpt2: str, drafts: int) -> None:
    results = [both(engine, gpt2, prompt, prompt_lookup_num_tokens=drafts) for prompt in prompts(8)]
    assert sum(map(accepted, results)) > 50


def test_each_place_has_its_own_options_and_noise(engine: Backend, gpt2: str) -> None:
    for options in (
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.5, "frequency_penalty": 0.1},
        {"logit_bias": {7: 3.0, 11: -100.0}},
        {"temperature": 0.3, "seed": 5},
        {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 6, "repetition_penalty": 1.05},
    ):
        found = [accepted(both(engine, gpt2, prompt, **options)) for prompt in prompts(8)]
        assert sum(found) > 5, options


def test_a_text_ends_where_it_ends(engine: Backend, gpt2: str, tmp_path: Path) -> None:
    """At any number of tokens, at a stop string, and where the model ends it among drafts."""
    prompt = prompts(1)[0]
    whole = both(engine, gpt2, prompt)
    assert accepted(whole) > 5
    for limit in (1, 2, 3, 4, 5, 6, 7, 31, NEW - 1):
        short = both(engine, gpt2, prompt, max_new_tokens=limit)
        assert (ids(short), short.finish) == (ids(whole)[:limit], "length")
    for place in (5, 9, 20):
        stopped = both(engine, gpt2, prompt, stop=whole.tokens[place].text)
        assert stopped.finish == "stop"
    seen = ids(whole)
    end = next(
        place
        for place, token in enumerate(whole.tokens)
        if token.in_same_pass and token.id not in seen[:place]
    )
    model = Path(shutil.copytree(gpt2, tmp_path / "ends"))
    settings = json.loads((model / "generation_config.json").read_text())
    settings["eos_token_id"] = whole.tokens[end].id
    (model / "generation_config.json").write_text(json.dumps(settings))
    result = both(engine, str(model), prompt)
    assert (result.finish, result.new_tokens) == ("eos", end + 1)
    assert result.tokens[-1].in_same_pass


def test_a_text_without_repetition_runs_row_by_row(engine: Backend, gpt2: str) -> None:
    result = both(engine, gpt2, TokenIds((7, 8, 9)), max_new_tokens=2)
    assert (accepted(result), result.passes, result.tokens_per_pass) == (0, 1, 1.0)
    only = both(engine, gpt2, TokenIds((7, 8, 9)), max_new_tokens=1)
    assert (only.passes, only.tokens_per_pass) == (0, None)


def test_what_cannot_have_drafts_says_so(engine: Backend, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="one beam, not with 2"):
        GenerationOptions(num_beams=2, prompt_lookup_num_tokens=DRAFTS)
    for wrong in (-1, 8, 2.5, "three"):
        with pytest.raises(InvalidRequest, match="prompt_lookup_num_tokens must be"):
            GenerationOptions(prompt_lookup_num_tokens=wrong)
    assert GenerationOptions(prompt_lookup_num_tokens=None) == GenerationOptions()
    t5, whisper = checkpoints.t5(tmp_path / "t5"), checkpoints.whisper(tmp_path / "whisper")
    options = GenerationOptions(prompt_lookup_num_tokens=DRAFTS)
    for ask in (engine.generate, engine.predict):
        with pytest.raises(InvalidRequest, match=r"decoder-only models, and .* is not one"):
            ask(str(t5), "Once", options)
    with pytest.raises(InvalidRequest, match="a recording has none"):
        noise = np.random.default_rng(0).standard_normal(1600, np.float32)
        engine.transcribe(str(whisper), (16_000, 0.1 * noise), options)


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
    dice, found = random.Random(0), 0
    for _ in range(200):
        text = [dice.randrange(4) for _ in range(dice.randint(1, 30))]
        count = dice.randint(1, 7)
        drafts = prompt_lookup.find(Lookup.of(text, 32), count)
        expected = drafts_of(text, count)
        assert bool(drafts.is_found) == (expected is not None), (text, count)
        if expected is not None:
            assert drafts.tokens.numpy().tolist() == expected
            assert int(drafts.verified) == count
            found += 1
    assert found > 50


def test_drafts_that_are_wrong_too_often_are_not_verified() -> None:
    lookup, verified = Lookup.of([1, 2, 3, 4, 1], 8).with_token(np.int32([2])), []
    assert lookup.text.numpy().tolist() == [1, 2, 3, 4, 1, 2, NO_TOKEN, NO_TOKEN]
    for token in (9, 9, 9, 3, 3, 3, 3):
        drafts = prompt_lookup.find(lookup, 1)
        assert drafts.tokens.numpy().tolist() == [3]
        verified.append(int(drafts.verified))
        lookup = prompt_lookup.with_hit(lookup, drafts, np.int32(token))
    assert (verified[0], verified[3], verified[-1]) == (1, 0, 1)
    other = lookup.with_token(np.int32([9]))
    nothing = prompt_lookup.find(other, 1)
    assert not bool(nothing.is_found)
    assert prompt_lookup.with_hit(other, nothing, np.int32(9)).hit_rate == lookup.hit_rate
