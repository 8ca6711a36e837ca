"""Token for token: what is special to prompts and penalties, with GPT-2 and OPT.

What `Backend` writes against Transformers' own eager `model.generate`; plain greedy and beam search
of every form is `test_parity_matrix`'s business.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.oracle import load_oracle
from tests.xla_backend.model.parity import NEW_TOKENS, DecoderOnlyPair, Pair
from xla_backend import Backend, BucketRules
from xla_backend.checkpoints.models import BUNDLED_FOLDER, DEFAULT_MODEL
from xla_backend.kernels.graph.matrix import SMALL
from xla_backend.model.families import blocks

# Each number of beams takes a compiled function more for each padded length: 8 beams, which the
# matrix has not, are tested at the first one only.
FIRST, SECOND, THIRD = range(3)
"""Places of the pair's inputs, by their padded length."""


@pytest.fixture(scope="module")
def gpt2(pair_of: Callable[[str], Pair]) -> DecoderOnlyPair:
    return pair_of("GPT-2")


@pytest.fixture(scope="module")
def often_ending(gpt2: DecoderOnlyPair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The same GPT-2, but texts end at tokens that it likes even more: beams then have ended texts
    of many lengths to choose from, and penalties decide."""
    folder = checkpoints.gpt2(tmp_path_factory.mktemp("often-ending"))
    pair = DecoderOnlyPair(gpt2.backend, folder, load_oracle(folder))
    inputs = (pair.passage(5), pair.passage(8))
    pair.configure(eos_token_id=[pair.theirs(inputs[FIRST])[3], pair.theirs(pair.passage(24))[6]])
    return dataclasses.replace(pair, inputs=inputs)


@pytest.mark.release
@pytest.mark.parametrize(
    ("num_beams", "lengths"),
    [(1, {1: 8, 8: 8, 9: 16, 17: 40}), (4, {1: 8, 8: 8, 9: 16}), (8, {1: 8, 5: 8, 8: 8})],
)
def test_gpt2_prompts_at_the_edges_of_their_padding(
    gpt2: DecoderOnlyPair, num_beams: int, lengths: dict[int, int]
) -> None:
    for tokens, padded_length in lengths.items():
        prompt = gpt2.passage(tokens)
        result = gpt2.assert_same_text(prompt, num_beams=num_beams)
        assert (result.prompt_tokens, result.key.padded_length) == (tokens, padded_length)


@pytest.mark.release
@pytest.mark.parametrize("num_beams", [1, 2, 4])
@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_gpt2_repetition_penalty(gpt2: DecoderOnlyPair, num_beams: int, penalty: float) -> None:
    options = {"num_beams": num_beams, "repetition_penalty": penalty}
    gpt2.assert_same_text(gpt2.inputs[FIRST], **options)
    gpt2.assert_same_text(gpt2.inputs[THIRD], **options)


@pytest.mark.parametrize(
    ("form", "num_beams"),
    [
        ("GPT-2", 1),
        *(
            pytest.param(*each, marks=pytest.mark.release)
            for each in (("GPT-2", 2), ("T5", 1), ("T5", 2))
        ),
    ],
)
def test_penalties_and_biases(pair_of: Callable[[str], Pair], form: str, num_beams: int) -> None:
    """Each by itself, and all with the repetition penalty, which comes before them."""
    pair = pair_of(form)
    prompt = pair.inputs[FIRST]
    plain = pair.assert_same_text(prompt, num_beams=num_beams)
    first, second = plain.tokens[0].id, plain.tokens[1].id
    some = {"presence_penalty": 1.5, "logit_bias": {first: -2.0, second: 0.7}}
    choices: list[dict[str, Any]] = [
        {"presence_penalty": 2.0},
        {"presence_penalty": -2.0},
        {"frequency_penalty": 1.2},
        {"frequency_penalty": -2.0},
        {"logit_bias": {first: -100.0}},
        {**some, "frequency_penalty": 0.6, "repetition_penalty": 1.3},
    ]
    texts = [pair.assert_same_text(prompt, num_beams=num_beams, **chosen) for chosen in choices]
    assert first not in [token.id for token in texts[4].tokens]
    assert len({text.text for text in texts} | {plain.text}) > 3, "the options would not matter"
    always = {"logit_bias": {second: 100.0}}
    result = pair.assert_same_text(prompt, num_beams=num_beams, **always)
    assert {token.id for token in result.tokens} == {second}


@pytest.mark.parametrize("num_beams", [1, pytest.param(4, marks=pytest.mark.release)])
def test_where_a_text_ends(often_ending: Pair, num_beams: int) -> None:
    """In a row of the pool, too."""
    pooled = dataclasses.replace(often_ending, is_pooled=True)
    prompt = often_ending.inputs[FIRST]
    usual = often_ending.assert_same_text(prompt, num_beams=num_beams)
    assert len(usual.tokens) < 5
    choices: list[dict[str, Any]] = [{"min_new_tokens": 7}, {"ignore_eos": True}]
    if num_beams == 1:
        choices += [
            {"stop_token_ids": [usual.tokens[1].id]},
            {"stop_token_ids": [usual.tokens[1].id], "ignore_eos": True, "min_new_tokens": 5},
        ]
    for chosen in choices:
        texts = [
            pair.assert_same_text(prompt, num_beams=num_beams, **chosen)
            for pair in (often_ending, pooled)[: 1 + (num_beams == 1)]
        ]
        assert len({tuple(token.id for token in text.tokens) for text in (usual, *texts)}) == 2


def test_gpt2_length_penalty_and_early_stopping(often_ending: Pair) -> None:
    texts: dict[tuple, set[str]] = {}
    for beams, length_penalty, early_stopping in itertools.product(
        (2, 4), (-1.0, 0.0, 0.5, 2.0), (True, False, "never")
    ):
        result = often_ending.assert_same_text(
            often_ending.inputs[FIRST],
            num_beams=beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        texts.setdefault((beams, "length", length_penalty), set()).add(result.text)
        texts.setdefault((beams, "early", early_stopping), set()).add(result.text)
    # Otherwise the penalties would not have been tested: they all would write the same.
    assert any(len(found) > 1 for name, found in texts.items() if "length" in name)
    assert any(len(found) > 1 for name, found in texts.items() if "early" in name)


@pytest.mark.release
@pytest.mark.parametrize("length_penalty", [-10.0, 10.0])
def test_gpt2_length_penalty_at_its_limits(often_ending: Pair, length_penalty: float) -> None:
    for prompt in often_ending.inputs:
        often_ending.assert_same_text(prompt, num_beams=4, length_penalty=length_penalty)


@pytest.mark.release
def test_gpt2_all_penalties_at_once_with_8_beams(gpt2: DecoderOnlyPair) -> None:
    options = {"num_beams": 8, "repetition_penalty": 1.2, "length_penalty": 1.7}
    prompt = gpt2.passage(8)
    gpt2.assert_same_text(prompt, **options, early_stopping="never")
    gpt2.assert_same_text(gpt2.inputs[FIRST], **options, early_stopping=True)


@pytest.mark.release
@pytest.mark.parametrize("num_beams", [1, 4])
def test_fewer_new_tokens_than_there_is_room_for(gpt2: DecoderOnlyPair, num_beams: int) -> None:
    results = [
        gpt2.assert_same_text(
            gpt2.inputs[THIRD], num_beams=num_beams, max_new_tokens=limit, early_stopping="never"
        )
        for limit in (1, 2, NEW_TOKENS - 1)
    ]
    assert {result.key.max_new_tokens for result in results} == {NEW_TOKENS}
    assert results[0].finish == "length"


@pytest.mark.release
@pytest.mark.parametrize(
    ("form", "repetition_penalty", "length_penalty"),
    [("OPT", 1.3, 0.5), ("OPT post-norm", 0.8, 2.0)],
)
@pytest.mark.parametrize("num_beams", [1, 2])
def test_opt_with_penalties(
    pair_of: Callable[[str], Pair],
    form: str,
    num_beams: int,
    repetition_penalty: float,
    length_penalty: float,
) -> None:
    pair = pair_of(form)
    pair.assert_same_text(
        pair.inputs[FIRST],
        num_beams=num_beams,
        repetition_penalty=repetition_penalty,
        length_penalty=length_penalty,
    )


@pytest.mark.release
@pytest.mark.parametrize("num_beams", [1, 4])
def test_log_probabilities_are_before_penalties(gpt2: DecoderOnlyPair, num_beams: int) -> None:
    for place in (FIRST, SECOND):
        prompt = gpt2.inputs[place]
        for options in ({"repetition_penalty": 1.3}, {"temperature": 3.0, "seed": 5}):
            result = gpt2.ours(prompt, num_beams=num_beams, **options)
            assert gpt2.logprob_difference(prompt, result) < 1e-4
            assert any(token.id != token.top_logprobs[0].id for token in result.tokens)


@pytest.mark.parametrize(
    ("make", "longest", "padded_length"),
    [
        (checkpoints.gpt2, "n_positions", 257),
        *(
            pytest.param(*each, marks=pytest.mark.release)
            for each in (
                (checkpoints.gpt2, "n_positions", 256),
                (checkpoints.opt, "max_position_embeddings", 257),
            )
        ),
    ],
)
def test_long_prompts_whose_halves_attend_apart(
    tmp_path: Path, make: Callable[..., Path], longest: str, padded_length: int
) -> None:
    assert padded_length >= blocks.HALVED_FROM
    folder = make(tmp_path / "long", **{longest: 300})
    with contextlib.closing(Backend(rules=BucketRules(padded_lengths=(padded_length,)))) as backend:
        pair = DecoderOnlyPair(backend, folder, load_oracle(folder))
        # More padding than half, the second half alone, one token before it, and all of both.
        for tokens in (3, 128, 129, padded_length - 1, padded_length):
            result = pair.assert_same_text(pair.passage(tokens))
            assert (result.prompt_tokens, result.key.padded_length) == (tokens, padded_length)


@pytest.mark.release
def test_longer_prompts_that_attend_piece_by_piece(tmp_path: Path) -> None:
    folder = checkpoints.gpt2(tmp_path / "longer", n_positions=1400)
    with contextlib.closing(Backend(rules=BucketRules(padded_lengths=(1345,)))) as backend:
        pair = DecoderOnlyPair(backend, folder, load_oracle(folder))
        words = 4 * checkpoints.TEXT.split()
        for share in (0.5, 0.9, 1.0):  # less than the first half, and more
            prompt = " ".join(
                words[
                    : int(share * 1345 * len(words) / len(pair.tokenizer.encode(" ".join(words))))
                ]
            )
            result = pair.assert_same_text(prompt)
            assert 0.4 * 1345 < result.prompt_tokens <= result.key.padded_length == 1345


# In tiles, and in a width that no group of lines fits.
@pytest.mark.release
@pytest.mark.parametrize("width", [640, 634])
def test_matrices_of_more_than_a_megabyte(
    gpt2: DecoderOnlyPair, tmp_path_factory: pytest.TempPathFactory, width: int
) -> None:
    assert width * width > SMALL
    folder = checkpoints.gpt2(
        tmp_path_factory.mktemp("wide"), n_layer=2, n_embd=width, n_head=2, n_positions=64
    )
    pair = DecoderOnlyPair(gpt2.backend, folder, load_oracle(folder))
    for tokens in (3, 8):
        pair.assert_same_text(pair.passage(tokens))
    pair.assert_same_text(pair.passage(8), num_beams=2)


@pytest.mark.parametrize(
    "num_beams", [4, *(pytest.param(n, marks=pytest.mark.release) for n in (2, 7))]
)
def test_rows_of_tiled_matrices(tmp_path_factory: pytest.TempPathFactory, num_beams: int) -> None:
    folder = checkpoints.gpt2(
        tmp_path_factory.mktemp("few"), n_layer=2, n_embd=640, n_head=2, n_positions=64
    )
    with contextlib.closing(Backend(store="off")) as backend:
        pair = DecoderOnlyPair(backend, folder, load_oracle(folder))
        for tokens in (3, 14):
            pair.assert_same_text(pair.passage(tokens), num_beams=num_beams)


@pytest.mark.release
def test_the_bundled_model() -> None:
    folder = BUNDLED_FOLDER / DEFAULT_MODEL
    backend = Backend(rules=BucketRules(padded_lengths=(16,), max_new_tokens=(60,)))
    pair = DecoderOnlyPair(backend, folder, load_oracle(folder))
    for prompt in ("The", "One day, a little fox named Lily went to the"):
        for num_beams in (1, 4):
            pair.assert_same_text(prompt, num_beams=num_beams)
        pair.assert_same_text(prompt, num_beams=4, length_penalty=2.0, repetition_penalty=1.3)
    result = pair.assert_same_text("Once upon a time", max_new_tokens=60)
    assert {entry.key.num_beams for entry in backend.cached_functions()} == {1, 4}
    assert result.new_tokens > NEW_TOKENS
