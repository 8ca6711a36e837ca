"""Tests of `xla_backend.interface.buckets`: which compiled function a request asks for."""

import pytest

from xla_backend import BucketRules, CacheKey, InvalidRequest

RULES = BucketRules(padded_lengths=(4, 16, 48), max_new_tokens=(8, 20))


@pytest.mark.parametrize(
    ("prompt_tokens", "padded_length"),
    [(1, 4), (4, 4), (5, 16), (16, 16), (17, 48), (48, 48), (49, 96), (96, 96), (97, 144)],
)
def test_prompts_round_up_to_a_size_or_a_multiple(prompt_tokens: int, padded_length: int) -> None:
    assert RULES.key_for(prompt_tokens, 1, 8).padded_length == padded_length


@pytest.mark.parametrize(
    ("asked", "compiled"), [(1, 8), (8, 8), (9, 20), (20, 20), (21, 40), (41, 60)]
)
def test_new_tokens_round_up_the_same_way(asked: int, compiled: int) -> None:
    assert RULES.key_for(4, 1, asked).max_new_tokens == compiled


@pytest.mark.parametrize(
    ("prompt_tokens", "context_length", "padded_length"),
    [(17, 32, 32), (32, 32, 32), (17, 64, 48), (5, None, 16), (3, 4, 4), (5, 5, 5)],
)
def test_the_context_bounds_the_padding_but_never_cuts_the_prompt(
    prompt_tokens: int, context_length: int | None, padded_length: int
) -> None:
    assert RULES.key_for(prompt_tokens, 1, 8, context_length).padded_length == padded_length


def test_every_prompt_fits_its_key_and_default_keys_are_few() -> None:
    rules = BucketRules()
    keys = {rules.key_for(tokens, 1, 32, 1024) for tokens in range(1, 1025)}
    assert len(keys) == 14
    assert len({rules.key_for(tokens, 1, 32, 8192) for tokens in range(1, 8193)}) == 20
    assert rules.key_for(448, 1, 32).padded_length == 448
    for tokens in (*range(1, 1025), *range(1025, 8193, 7)):
        key = rules.key_for(tokens, 3, tokens)
        assert tokens <= key.padded_length < max((1.5 if tokens > 128 else 2) * tokens, 17)
        assert tokens <= key.max_new_tokens < max(2 * tokens, 17)
        assert key.num_beams == 3

    key = CacheKey(padded_length=16, num_beams=4, max_new_tokens=32)
    assert str(key) == "padded 16 · beams 4 · new 32"
    assert key.to_dict() == {"padded_length": 16, "num_beams": 4, "max_new_tokens": 32}
    assert CacheKey(**key.to_dict()) == key
    assert len({key, CacheKey(16, 4, 32)}) == 1


@pytest.mark.parametrize("sizes", [(), (0, 8), (-4,), (16, 8), (8, 8)])
@pytest.mark.parametrize("name", ["padded_lengths", "max_new_tokens"])
def test_rules_that_make_no_sense_are_refused_by_name(name: str, sizes: tuple) -> None:
    with pytest.raises(InvalidRequest, match=name):
        BucketRules(**{name: sizes})
