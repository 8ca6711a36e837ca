"""A real engine: what it traces and builds, what it refuses, and the edges of a context.

Its texts are `test_parity`'s business; the way of a request `test_text`'s.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.oracle import load_oracle
from tests.xla_backend.engine.answers import assert_adds_up, ids
from tests.xla_backend.model.parity import DecoderOnlyPair
from xla_backend import (
    Backend,
    BucketRules,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    InvalidRequest,
    ModelUnavailable,
)
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.buckets import pool_key
from xla_backend.model.decoding import Decoder
from xla_backend.model.functions import FunctionBuilder
from xla_backend.model.pool_decoding import PoolDecoder

PROMPT = "Once upon a time"
SHORT = GenerationOptions(max_new_tokens=8)
HIT, MISS = CacheOutcome.HIT, CacheOutcome.MISS
CONTEXT = 48


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model that reads 48 tokens."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return str(checkpoints.gpt2(folder, n_positions=CONTEXT, n_layer=1))


class Counted:
    """An engine that counts how often its functions are traced and its keys are built."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        for owner, name in (
            (Decoder, "prefill"),
            (Decoder, "decode"),
            (PoolDecoder, "read"),
            (PoolDecoder, "decode"),
            (FunctionBuilder, "build"),
        ):
            counting = self._counting(f"{owner.__name__}.{name}", getattr(owner, name))
            patch.setattr(owner, name, counting)
        self.backend = Backend(rules=BucketRules((16, 32), (16, 32)))

    def _counting(self, name: str, function: Callable) -> Callable:
        def counting(*arguments: Any) -> Any:
            self.counts[name] += 1
            return function(*arguments)

        return counting


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    with pytest.MonkeyPatch.context() as patch:
        made = Counted(patch)
        yield made
        made.backend.close()


OTHER_OPTIONS = (
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 0, "seed": 9},
    {"temperature": 1.0, "top_k": 1_000_000},
    {"temperature": 1.0, "top_p": 0.3, "min_p": 0.1},
    {"repetition_penalty": 1.7},
    {"presence_penalty": 1.0, "frequency_penalty": -1.0, "logit_bias": {5: 3.0}},
    {"seed": 2**31 - 1},
    {"max_new_tokens": 1},
    {"max_new_tokens": 16},
)
OF_BEAMS = ({"length_penalty": -2.0}, {"early_stopping": True}, {"early_stopping": "never"})


@pytest.mark.parametrize(
    ("num_beams", "salt", "traced"),
    [
        (1, "", {"Decoder.prefill": 1, "Decoder.decode": 1}),
        (2, "", {"Decoder.decode": 1}),  # the model's prompt was traced for all
        (1, "mine", {"PoolDecoder.read": 1, "PoolDecoder.decode": 1}),
    ],
)
def test_options_outside_the_key_neither_trace_nor_build(
    counted: Counted, model: str, num_beams: int, salt: str, traced: dict[str, int]
) -> None:
    options = SHORT.replace(num_beams=num_beams)
    mode = "rows" if salt else "padded"
    before = counted.counts.copy()
    first = counted.backend.generate(model, PROMPT, options, mode=mode)
    key = pool_key(CONTEXT) if salt else CacheKey(16, num_beams, 16)
    assert (first.cache, first.key) == (MISS, key)
    assert counted.counts - before == Counter({**traced, "FunctionBuilder.build": 1})
    before = counted.counts.copy()
    for changes in (*OTHER_OPTIONS, *OF_BEAMS * (num_beams > 1)):
        result = counted.backend.generate(model, PROMPT, options.replace(**changes), mode=mode)
        assert (result.cache, result.key) == (HIT, key)
        assert_adds_up(result.timing)
    for prompt in ("The", "The old grey owl", "naïve — Ü", PROMPT * (3 if salt else 1)):
        assert counted.backend.generate(model, prompt, options, mode=mode).cache is HIT
    assert counted.counts == before


def test_other_sizes_are_built_without_tracing_again(counted: Counted, model: str) -> None:
    counted.backend.generate(model, PROMPT, SHORT, mode="padded")
    before = counted.counts.copy()
    result = counted.backend.generate(model, " ".join([PROMPT] * 2), SHORT, mode="padded")
    assert (result.cache, result.key) == (MISS, CacheKey(32, 1, 16))
    assert counted.counts - before == Counter({"FunctionBuilder.build": 1})


# --- what is refused, and what is not -------------------------------------------------------------


def refusal(backend: Backend, model: Any, prompt: Any, options: GenerationOptions = SHORT) -> str:
    """The message, the same from each of the three ways in."""
    messages = []
    for request in (
        backend.generate,
        backend.predict,
        lambda *arguments: next(backend.stream(*arguments)),
    ):
        with pytest.raises((InvalidRequest, ModelUnavailable)) as caught:
            request(model, prompt, options)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1
    assert 20 < len(messages[0]) < 400
    return messages[0]


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        *((prompt, "The prompt is empty") for prompt in ("", " ", "\n\t \r\n", "\u3000\u2003")),
        (None, "must be text, not NoneType"),
        (5, "must be text, not int"),
        (b"Once", "must be text, not bytes"),
        (["Once"], "must be text, not list"),
        ("half \ud83d of it", "surrogate pair, not a character, at position 6"),
        ("\udc80", "at position 1"),
        ("back\udfff\ud800wards", "at position 5"),
    ],
)
def test_a_prompt_that_is_no_text(counted: Counted, model: str, prompt: Any, sentence: str) -> None:
    assert sentence in refusal(counted.backend, model, prompt)


def test_a_prompt_too_long_says_by_how_many_tokens(counted: Counted, model: str) -> None:
    for prompt in ("word " * 100, "x " * 500_000):
        tokens = len(Tokenizer.load(Path(model)).encode(prompt))
        message = refusal(counted.backend, model, prompt)
        assert f"The prompt has {tokens}: shorten it by {tokens - CONTEXT + 1}." in message
        assert f"maximum context length is {CONTEXT}" in message


def test_a_bias_for_a_token_that_the_model_has_not(counted: Counted, model: str) -> None:
    options = SHORT.replace(logit_bias={1_000_000: 1.0})
    for mode in ("padded", "rows"):
        with pytest.raises(InvalidRequest, match=r"token 1000000, but .* has the tokens 0 to"):
            counted.backend.generate(model, PROMPT, options, mode=mode)


@pytest.mark.parametrize("name", ["no-such-model", "gpt2", "", "a/b/c", "../x", "\x00", None, 7])
def test_an_unknown_model(counted: Counted, name: Any) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        counted.backend.load(name)
    assert refusal(counted.backend, name, PROMPT) == str(caught.value)


def test_a_folder_where_folders_are_not_allowed_and_one_that_is_listed(model: str) -> None:
    with contextlib.closing(Backend(registry=Registry(allow_folders=False))) as backend:
        assert "there is no model" in refusal(backend, model, PROMPT)
    with contextlib.closing(Backend()) as backend:
        before = {info.name: info.loaded for info in backend.models()}
        assert not any(before.values())
        info = backend.load(model)
        assert (info.source, info.family, info.loaded) == ("folder", "decoder-only", True)
        assert info.context_length == CONTEXT
        assert {known.name for known in backend.models()} == {*before, model}
        assert info in backend.models()


@pytest.mark.parametrize(
    "prompt",
    [
        "🦊 and 🦉",
        "كان يا",
        "NUL \x00 in the midst",
        "\ufeff\u200b\u202e",
        "<|endoftext|>",
        "a\r\nb\u2028c\x1b[31m",
        "Z̸̡a̷",
    ],
)
def test_every_text_of_characters_is_served(counted: Counted, model: str, prompt: str) -> None:
    result = counted.backend.generate(model, prompt, SHORT, cache_salt="mine")
    assert result.new_tokens == 8
    assert result.prompt_tokens == len(Tokenizer.load(Path(model)).encode(prompt))
    json.dumps(result.to_json(), ensure_ascii=False).encode("utf-8")


def test_prompt_and_text_may_fill_the_context(counted: Counted, model: str) -> None:
    pair = DecoderOnlyPair(counted.backend, Path(model), load_oracle(model))
    prompt = pair.passage(40)
    expected = pair.theirs(prompt, max_new_tokens=CONTEXT - 40)
    for salt, key in (("", CacheKey(CONTEXT, 1, 16)), ("mine", pool_key(CONTEXT))):
        asked = SHORT.replace(max_new_tokens=1000)  # as many as there is room for
        result = counted.backend.generate(model, prompt, asked, mode="rows" if salt else "padded")
        assert (result.key, ids(result)) == (key, expected)
        assert (result.finish, result.options) == ("length", asked)
