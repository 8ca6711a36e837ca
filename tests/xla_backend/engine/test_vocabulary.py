"""Tests of `vocabulary`: keys and counts, without an engine."""

import dataclasses
import pickle
from typing import Any

import pytest

from xla_backend import BucketRules, CacheKey, GenerationOptions, InvalidRequest, ModelInfo
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.buckets import pool_key
from xla_backend.interface.decisions import Question
from xla_backend.interface.errors import ContextLengthExceeded
from xla_backend.interface.grammar import Grammar
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.prediction.vocabulary import REMEMBERED_LENGTH, Vocabulary

INFO = ModelInfo("letters", "decoder-only", "folder", "one token a letter", context_length=64)
OPTIONS = GenerationOptions(max_new_tokens=16)


class Letters(Tokenizer):
    """One token a letter; keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, text: str, **_: Any) -> list[int]:  # type: ignore[override]
        self.asked.append(text)
        return list(range(len(text)))


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def vocabulary(letters: Letters) -> Vocabulary:
    return Vocabulary(INFO, letters, None, "identity")


def test_a_prompt_is_tokenized_once(vocabulary: Vocabulary, letters: Letters) -> None:
    rules = BucketRules()

    def prepare(prompt: str, options: GenerationOptions, **fields: Any) -> Prepared:
        return vocabulary.prepare(TextRequest("m", prompt, options, **fields), rules)

    assert prepare("a" * 20, OPTIONS).key == pool_key(64)
    prepared = prepare("a" * 20, OPTIONS, mode="padded")
    assert (prepared.key, prepared.token_ids) == (CacheKey(32, 1, 16), tuple(range(20)))
    assert prepare("a" * 20, OPTIONS.replace(exact_key=True)).key == CacheKey(32, 1, 16)
    beams = prepare("a" * 20, OPTIONS.replace(num_beams=2, max_new_tokens=30))
    assert (beams.key, beams.options.max_new_tokens) == (CacheKey(32, 2, 32), 30)
    more = prepare("a" * 20, OPTIONS.replace(max_new_tokens=48), mode="padded")
    assert more.options.max_new_tokens == 44  # as many as there is room for
    assert more.key == rules.key_for(20, 1, 44, 64)
    assert letters.asked == ["a" * 20]
    prepare("b", OPTIONS)
    assert letters.asked == ["a" * 20, "b"]
    with pytest.raises(ContextLengthExceeded, match="shorten it by 1"):
        prepare("a" * 64, OPTIONS)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (
            {"mode": "rows", "options": OPTIONS.replace(exact_key=True)},
            "mode rows needs .* no exact_key",
        ),
        ({"mode": "padded", "with_prompt_logprobs": True}, "cannot give the log-probabilities"),
        ({"mode": "rows", "options": OPTIONS.replace(num_beams=2)}, "mode rows needs .* one beam"),
        ({"mode": "padded", "options": OPTIONS.replace(grammar=Grammar.choice(["a"]))}, "grammar"),
        ({"mode": "padded", "questions": (Question("is it", "yes_no"),)}, "answer questions"),
    ],
)
def test_contradictions_are_refused(
    vocabulary: Vocabulary, fields: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidRequest, match=what):
        TextRequest("m", "a", **fields).mode_with(vocabulary.info)


def test_a_request_is_sent_to_other_processes_as_it_was_prepared(vocabulary: Vocabulary) -> None:
    prepared = vocabulary.prepare(TextRequest("m", "a" * 20, OPTIONS), BucketRules())
    assert pickle.loads(pickle.dumps(prepared)) == prepared
    assert pickle.loads(pickle.dumps(vocabulary)).info == INFO  # although it remembers a prompt


def test_what_is_no_prompt_or_long_is_not_kept(vocabulary: Vocabulary, letters: Letters) -> None:
    for prompt in ("", " \n", ["Once"], None):
        with pytest.raises(InvalidRequest):
            vocabulary.prepare(TextRequest("m", prompt, OPTIONS), BucketRules())
    assert letters.asked == []

    long = "a" * (REMEMBERED_LENGTH + 1)
    info = dataclasses.replace(INFO, context_length=None)
    large = Vocabulary(info, letters, None, "identity")
    for _ in range(2):
        with pytest.raises(ContextLengthExceeded):
            large.prepare(TextRequest("m", long, OPTIONS), BucketRules())
    assert letters.asked == [long, long]
