"""A result's fields in the answers of the protocols."""

import dataclasses
from pathlib import Path

import pytest

from tests.playground.samples import result
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.results import PrefixMiss, Token
from xla_backend.openai_api.answers import Offsets, timings


@pytest.mark.parametrize(
    "miss",
    [
        PrefixMiss("new salt", 0),
        PrefixMiss("evicted", 64, 3, 0.0, at=0.0, by_others=True),
        PrefixMiss("differs", 0, 9, 0.5, 0, "user", "date", "a", "b", "c"),
        PrefixMiss("other model", 0, model="gpt2"),
    ],
)
def test_a_miss_has_what_is_known_of_it_and_no_more(miss: PrefixMiss) -> None:
    """Zero is a number like others."""
    answer = timings(dataclasses.replace(result(), prefix_miss=miss)).model_dump()["cache_miss"]
    known = {
        each.name
        for each in dataclasses.fields(miss)
        if getattr(miss, each.name) != each.default or each.name == "tokens"
    }
    assert answer == miss.to_json()
    assert answer.keys() == {"reason", "ms", *(known - {"seconds"})}


def test_special_tokens_of_an_echoed_prompt_have_their_places(small_gpt2: Path) -> None:
    tokenizer = Tokenizer.load(small_gpt2)
    ids = tokenizer.encode("<|endoftext|>Once<|endoftext|>")
    text, offsets = tokenizer.decode(ids, shown=ids), Offsets(tokenizer, ids)
    found = [offsets.of(Token(id, tokenizer.token_text(id), 0.0)) for id in ids]
    assert [text[at:][:4] for at in (found[0], found[-1])] == ["<|en", "<|en"]
    assert text[found[1] : found[-1]] == "Once"
