"""Tests of `options`: every wrong value is refused in a sentence that helps."""

import dataclasses
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from xla_backend import GenerationOptions, InvalidRequest
from xla_backend.interface.options import MAX_NEW_TOKENS, MAX_NUM_BEAMS, MAX_SEED, MAX_TOP_K

INTEGERS = {"max_new_tokens": (1, MAX_NEW_TOKENS), "num_beams": (1, MAX_NUM_BEAMS)}
REALS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "length_penalty": (-10.0, 10.0),
}
HUGE = 10**5000  # more digits than Python agrees to print


def refusal(**options: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        GenerationOptions(**options)
    message = str(caught.value)
    assert len(message) < 200
    return message


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers_beyond_their_limits_are_refused(name: str) -> None:
    low, high = INTEGERS[name]
    for value in (low, high, np.int64(low), float(high)):
        kept = getattr(GenerationOptions(**{name: value}), name)
        assert kept == value
        assert type(kept) is int
    for value in (low - 1, high + 1, -(2**63), 1e300, HUGE, -HUGE):
        message = refusal(**{name: value})
        assert f"{name} must be from {low} to {high}" in message


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    "value",
    [1.5, float("nan"), float("inf"), True, False, None, "8", "", [8], {}, 1j, Decimal(8), object],
)
def test_values_that_are_no_whole_numbers_are_refused(name: str, value: Any) -> None:
    assert f"{name} must be a whole number" in refusal(**{name: value})


@pytest.mark.parametrize("name", REALS)
def test_numbers_beyond_their_limits_are_refused(name: str) -> None:
    low, high = REALS[name]
    for value in (low or 0.5, high, np.float32(1), int(high)):
        kept = getattr(GenerationOptions(**{name: value}), name)
        assert kept == value
        assert type(kept) is float
    beyond = (low - 0.001, high + 0.001, -1e6 - 1, 1e6, HUGE, -HUGE)
    for value in (*beyond, float("nan"), float("inf"), -float("inf")):
        message = refusal(**{name: value})
        assert f"{name} must be from {low:g} to {high:g}" in message


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("value", [True, False, "0.7", "", [0.7], {}, 1j, Decimal(1), object])
def test_values_that_are_no_numbers_are_refused(name: str, value: Any) -> None:
    assert f"{name} must be a number" in refusal(**{name: value})


def test_messages_show_the_value_but_never_much_of_it() -> None:
    assert "not 9" in refusal(num_beams=9)
    assert "'eight'" in refusal(num_beams="eight")
    assert "..." in refusal(num_beams="8" * 1_000_000)
    assert "..." in refusal(early_stopping=[1] * 1000)
    assert "nan" in refusal(temperature=float("nan"))

    for value in (None, 1, 0, "always", "True", 1.0, HUGE):
        assert "early_stopping" in refusal(early_stopping=value)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"top_k": -1}, {"top_k": 0}),
        ({"top_k": MAX_TOP_K}, {"top_k": MAX_TOP_K}),
        ({"top_p": 0}, {"top_p": 0.0}),
        ({"temperature": 1e-5}, {"temperature": 0.0}),
        ({"temperature": 0.01}, {"temperature": 0.01}),
        ({"stop": ["", "a"]}, {"stop": ("a",)}),
        ({"stop": ""}, {"stop": ()}),
        ({"stop": [str(each) for each in range(9)]}, {"stop": tuple("012345678")}),
        ({"seed": MAX_SEED}, {"seed": MAX_SEED}),
    ],
)
def test_what_has_an_obvious_meaning_is_taken(given: dict[str, Any], taken: dict[str, Any]) -> None:
    options = GenerationOptions(**given)
    assert {name: getattr(options, name) for name in taken} == taken


def test_a_seed_is_any_integer_of_64_bits_and_minus_1_is_a_new_one() -> None:
    wide = (-(2**63), -2, 2**31, 2**31 + 1, 2**32, 2**40 + 7, 2**63, 2**64 - 1)
    folded = [GenerationOptions(seed=seed).seed for seed in wide]
    assert folded == [GenerationOptions(seed=seed).seed for seed in wide]
    assert len(set(folded)) == len(wide)
    drawn = {GenerationOptions(seed=-1).seed for _ in range(9)}
    assert len(drawn) > 1
    assert all(0 <= seed <= MAX_SEED for seed in (*folded, *drawn))
    assert "seed must be from" in refusal(seed=2**64)
    assert "top_k must be from -1" in refusal(top_k=-2)


def test_sampling_is_on_with_a_temperature_and_a_changed_copy_is_checked() -> None:
    assert not GenerationOptions().do_sample
    assert not GenerationOptions(temperature=0).do_sample
    assert not GenerationOptions(temperature=None).do_sample  # a field that was left empty
    assert not GenerationOptions(top_k=5, top_p=0.5, seed=3).do_sample
    assert GenerationOptions(temperature=0.7).do_sample

    options = GenerationOptions(num_beams=2)
    assert options.replace(seed=5) == GenerationOptions(num_beams=2, seed=5)
    with pytest.raises(InvalidRequest, match="num_beams"):
        options.replace(num_beams=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.seed = 1  # type: ignore[misc]


def test_options_survive_json() -> None:
    options = GenerationOptions(
        num_beams=4,
        temperature=0.7,
        early_stopping="never",
        seed=9,
        presence_penalty=-0.5,
        logit_bias={50: -100, 7: 1.5},
        stop=["\n", "The end"],
    )
    sent = json.loads(json.dumps(options.to_dict()))
    assert sent["logit_bias"] == {"7": 1.5, "50": -100.0}
    assert sent["stop"] == ["\n", "The end"]
    assert GenerationOptions.from_dict(sent) == options
    older = {name: sent[name] for name in ("num_beams", "temperature", "seed")}
    assert GenerationOptions.from_dict(older).stop == GenerationOptions().logit_bias == ()
    assert GenerationOptions.from_dict({}) == GenerationOptions()
    with pytest.raises(InvalidRequest, match="unknown option beams, sampling; the options are"):
        GenerationOptions.from_dict({"sampling": True, "beams": 3, "num_beams": 2})
    with pytest.raises(InvalidRequest, match="unknown option 3;"):
        GenerationOptions.from_dict({3: "names can be anything"})


def test_biases_are_pairs_sorted_by_token_and_stop_strings_one_or_several() -> None:
    options = GenerationOptions(logit_bias={9: 1, "3": -100, np.int64(4): 0.5})
    assert options.logit_bias == ((3, -100.0), (4, 0.5), (9, 1.0))
    assert hash(options) == hash(GenerationOptions(logit_bias={"3": -100.0, "9": 1, "4": 0.5}))
    assert options.replace(seed=1).logit_bias == options.logit_bias

    assert GenerationOptions(stop="The end").stop == ("The end",)
    assert GenerationOptions(stop=["b", "a", "b"]).stop == ("b", "a")
    assert hash(GenerationOptions(stop=["a"])) == hash(GenerationOptions(stop="a"))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([[3, 1.0]], "must map token ids to numbers from -100 to 100"),
        ((3, 1.0), "must map token ids"),
        (None, "must map token ids"),
        ("198", "must map token ids"),
        ({"the": 1}, "a token id of logit_bias must be a whole number"),
        ({"-3": 1}, "a token id of logit_bias must be a whole number"),
        ({"٣": 1}, "a token id of logit_bias must be a whole number"),
        ({"9" * 5000: 1}, "a token id of logit_bias must be a whole number"),
        ({2**31: 1}, "a token id of logit_bias must be from 0"),
        ({-1: 1}, "a token id of logit_bias must be from 0"),
        ({3: 100.5}, "logit_bias of token 3 must be from -100 to 100"),
        ({3: float("nan")}, "logit_bias of token 3 must be from -100 to 100"),
        ({3: "1"}, "logit_bias of token 3 must be a number"),
        ({3: 1, "3": 1}, "logit_bias names token 3 twice"),
        (dict.fromkeys(range(301), 1), "logit_bias can name at most 300 tokens, not 301"),
    ],
)
def test_biases_that_make_no_sense_are_refused(value: Any, sentence: str) -> None:
    assert sentence in refusal(logit_bias=value)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "stop must be a string or a list of strings"),
        (7, "stop must be a string or a list of strings"),
        (["a", 7], "stop must be a string or a list of strings"),
        ({"a": 1}, "stop must be a string or a list of strings"),
        (list(map(str, range(65))), "stop can have at most 64 strings, not 65"),
        (["a", "b" * 101], "a stop string can have 100 characters, not 101"),
        ("a\ud800", "half of a surrogate pair"),
    ],
)
def test_stop_strings_that_make_no_sense_are_refused(value: Any, sentence: str) -> None:
    assert sentence in refusal(stop=value)
