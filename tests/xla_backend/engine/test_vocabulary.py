"""Tests of `vocabulary`: keys and counts, without an engine."""

import pytest

from xla_backend import BucketRules, CacheKey, GenerationOptions, InvalidRequest, ModelInfo
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.errors import ContextLengthExceeded
from xla_backend.interface.requests import TextRequest
from xla_backend.prediction.vocabulary import REMEMBERED_LENGTH, Vocabulary

INFO = ModelInfo("letters", "decoder-only", "folder", "one token a letter", context_length=64)
OPTIONS = GenerationOptions(max_new_tokens=16)


class Letters(Tokenizer):
    """One token a letter; keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, text: str) -> list[int]:
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
    asked = TextRequest("m", "a" * 20, OPTIONS)
    assert vocabulary.asked(rules, asked) == (CacheKey(32, 1, 16), tuple(range(20)), 16)
    beams = TextRequest("m", "a" * 20, OPTIONS.replace(num_beams=2, max_new_tokens=30))
    assert vocabulary.asked(rules, beams) == (CacheKey(32, 2, 32), tuple(range(20)), 30)
    more = TextRequest("m", "a" * 20, OPTIONS.replace(max_new_tokens=48))
    key, *_ = vocabulary.asked(rules, more)  # as many as there is room for
    assert key == rules.key_for(20, 1, vocabulary.info.context_length - 20, 64)
    assert letters.asked == ["a" * 20]
    vocabulary.asked(rules, TextRequest("m", "b", OPTIONS))
    assert letters.asked == ["a" * 20, "b"]
    long = "a" * vocabulary.info.context_length
    with pytest.raises(ContextLengthExceeded, match="Shorten the prompt by 1"):
        vocabulary.asked(rules, TextRequest("m", long, OPTIONS))


def test_what_is_no_prompt_or_long_is_not_kept(vocabulary: Vocabulary, letters: Letters) -> None:
    for prompt in ("", " \n", ["Once"], None):
        with pytest.raises(InvalidRequest):
            vocabulary.asked(BucketRules(), TextRequest("m", prompt, OPTIONS))
    assert letters.asked == []

    long = "a" * (REMEMBERED_LENGTH + 1)
    assert vocabulary.encoded(long) == vocabulary.encoded(long) == tuple(range(len(long)))
    assert letters.asked == [long, long]
