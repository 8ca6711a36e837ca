"""Token for token: what `Backend` writes against Transformers' own eager `model.generate`.

Nothing here has a tolerance but the log-probabilities: both sides choose from the same float32
logits up to rounding (about 1e-5), and the weights of these checkpoints let the chosen token lead
by far more. Were a near-tie ever to flip a token on another processor, `assert_same_text` says by
how little the oracle itself preferred its own text.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests import checkpoints
from xla_backend import Backend, BucketRules, GenerationOptions, GenerationResult
from xla_backend.models import BUNDLED_FOLDER, DEFAULT_MODEL
from xla_backend.tokenization import Tokenizer

NEW_TOKENS = 10
SHORT, LONG = 8, 24
RULES = BucketRules(padded_lengths=(SHORT, LONG), max_new_tokens=(NEW_TOKENS,))


@dataclass(frozen=True)
class Pair:
    """One model twice: through the backend, and as Transformers runs it.

    Attributes:
        oracle: the `TF...LMHeadModel`.
        prompts: by their number of tokens.
    """

    backend: Backend
    name: str
    tokenizer: Tokenizer
    oracle: Any
    prompts: dict[int, str]

    def ours(self, prompt: str, **options: Any) -> GenerationResult:
        """The backend's answer."""
        return self.backend.generate(
            self.name, prompt, GenerationOptions(**{"max_new_tokens": NEW_TOKENS, **options})
        )

    def theirs(self, prompt: str, **options: Any) -> list[int]:
        """The oracle's new tokens, an end-of-text token included. The prompt is not padded."""
        return expected_tokens(
            self.oracle,
            self.tokenizer.encode(prompt),
            **{"max_new_tokens": NEW_TOKENS, **options},
        )

    def assert_same_text(self, prompt: str, **options: Any) -> GenerationResult:
        """Both write the same tokens; returns the backend's answer."""
        result, expected = self.ours(prompt, **options), self.theirs(prompt, **options)
        ids = [token.id for token in result.tokens]
        if ids != expected:
            ours, theirs = (sum(self.logprobs(prompt, text)) for text in (ids, expected))
            pytest.fail(
                f"{options} after {prompt!r}:\n{ids} instead of\n{expected};\nthe oracle gives "
                f"them log-probabilities of {ours:.5f} and {theirs:.5f}"
            )
        ends = ids[-1] in self.eos_token_ids
        assert result.finish == ("eos" if ends else "length")
        assert ends or len(ids) == options.get("max_new_tokens", NEW_TOKENS)
        return result

    def logprobs(self, prompt: str, ids: list[int]) -> list[float]:
        """The oracle's log-probability of each new token, all positions at once, no cache."""
        prompt_ids = self.tokenizer.encode(prompt)
        logits = self.oracle(tf.constant([prompt_ids + ids])).logits[0, len(prompt_ids) - 1 : -1]
        return tf.gather(tf.nn.log_softmax(logits), ids, batch_dims=1).numpy().tolist()

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end a text."""
        return np.atleast_1d(self.oracle.generation_config.eos_token_id).tolist()


def expected_tokens(oracle: Any, prompt_ids: list[int], **options: Any) -> list[int]:
    """What eager `oracle.generate` adds to a prompt, up to its first end-of-text token."""
    written = oracle.generate(
        tf.constant([prompt_ids]),
        attention_mask=tf.ones([1, len(prompt_ids)], tf.int32),
        do_sample=False,
        pad_token_id=0,
        **options,
    )
    ids = written.numpy()[0, len(prompt_ids) :].tolist()
    ends = np.atleast_1d(oracle.generation_config.eos_token_id)
    stops = [place for place, token in enumerate(ids) if token in ends]
    return ids[: stops[0] + 1] if stops else ids


def prompts_by_length(tokenizer: Tokenizer, lengths: tuple[int, ...]) -> dict[int, str]:
    """The beginning of a story for each number of tokens."""
    prompts: dict[int, str] = {}
    for end in range(1, len(checkpoints.TEXT)):
        text = checkpoints.TEXT[:end]
        if text.strip():
            prompts.setdefault(len(tokenizer.encode(text)), text)
        if prompts.keys() >= set(lengths):
            return {length: prompts[length] for length in lengths}
    raise AssertionError(f"no prompts of {lengths} tokens")


def make_pair(folder: Path, backend: Backend, lengths: tuple[int, ...]) -> Pair:
    """Both sides of a checkpoint whose text ends early after some prompts and not after others.

    Texts end at tokens that the model likes to write: a random one would never end.
    """
    oracle = checkpoints.oracle(folder)
    tokenizer = Tokenizer.load(folder)
    prompts = prompts_by_length(tokenizer, lengths)
    written = [
        expected_tokens(oracle, tokenizer.encode(prompts[length]), max_new_tokens=NEW_TOKENS)
        for length in (lengths[1], lengths[-1])
    ]
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] = [written[0][3], written[1][6]]
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return Pair(backend, str(folder), tokenizer, checkpoints.oracle(folder), prompts)


@pytest.fixture(scope="module")
def engine() -> Backend:
    return Backend(rules=RULES)


@pytest.fixture(scope="module")
def gpt2(engine: Backend, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = checkpoints.gpt2(tmp_path_factory.mktemp("gpt2"))
    return make_pair(folder, engine, (1, 5, SHORT, SHORT + 1, 17, LONG))


OPT_LENGTHS = (2, 5, SHORT, SHORT + 3, LONG)


@pytest.fixture(scope="module")
def opt(engine: Backend, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(checkpoints.opt(tmp_path_factory.mktemp("opt")), engine, OPT_LENGTHS)


@pytest.fixture(scope="module")
def post_norm_opt(engine: Backend, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The form of facebook/opt-350m: norms behind, embeddings narrower than the layers."""
    folder = checkpoints.opt(
        tmp_path_factory.mktemp("post-norm-opt"), do_layer_norm_before=False, word_embed_proj_dim=32
    )
    return make_pair(folder, engine, OPT_LENGTHS)


@pytest.mark.parametrize("num_beams", [1, 2, 4, 8])
def test_gpt2_prompts_of_every_length(gpt2: Pair, num_beams: int) -> None:
    results = {
        length: gpt2.assert_same_text(prompt, num_beams=num_beams)
        for length, prompt in gpt2.prompts.items()
    }
    for length, result in results.items():
        assert result.prompt_tokens == length
        assert result.key.padded_length == (SHORT if length <= SHORT else LONG)
    # Beams nearly always find an end; that they need not is seen with fewer new tokens below.
    finishes = {result.finish for result in results.values()}
    assert finishes == {"eos", "length"} if num_beams == 1 else "eos" in finishes
    assert min(result.new_tokens for result in results.values()) < NEW_TOKENS


@pytest.mark.parametrize("num_beams", [1, 2, 4, 8])
@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_gpt2_repetition_penalty(gpt2: Pair, num_beams: int, penalty: float) -> None:
    options = {"num_beams": num_beams, "repetition_penalty": penalty}
    gpt2.assert_same_text(gpt2.prompts[5], **options)
    gpt2.assert_same_text(gpt2.prompts[LONG], **options)


def test_gpt2_length_penalty_and_early_stopping(gpt2: Pair) -> None:
    texts: dict[tuple, set[str]] = {}
    for beams, length_penalty, early_stopping in itertools.product(
        (2, 4), (-1.0, 0.0, 0.5, 2.0), (True, False, "never")
    ):
        result = gpt2.assert_same_text(
            gpt2.prompts[5],
            num_beams=beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        texts.setdefault((beams, "length", length_penalty), set()).add(result.text)
        texts.setdefault((beams, "early", early_stopping), set()).add(result.text)
    # Otherwise the penalties would not have been tested: they all would write the same.
    assert any(len(found) > 1 for name, found in texts.items() if "length" in name)
    assert any(len(found) > 1 for name, found in texts.items() if "early" in name)


@pytest.mark.parametrize("length_penalty", [-10.0, 10.0])
def test_gpt2_length_penalty_at_its_limits(gpt2: Pair, length_penalty: float) -> None:
    for length in (5, SHORT):
        gpt2.assert_same_text(gpt2.prompts[length], num_beams=4, length_penalty=length_penalty)


def test_gpt2_all_penalties_at_once_with_8_beams(gpt2: Pair) -> None:
    options = {"num_beams": 8, "repetition_penalty": 1.2, "length_penalty": 1.7}
    gpt2.assert_same_text(gpt2.prompts[17], **options, early_stopping="never")
    gpt2.assert_same_text(gpt2.prompts[5], **options, early_stopping=True)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_fewer_new_tokens_than_the_function_has_room_for(gpt2: Pair, num_beams: int) -> None:
    results = [
        gpt2.assert_same_text(
            gpt2.prompts[17], num_beams=num_beams, max_new_tokens=limit, early_stopping="never"
        )
        for limit in (1, 2, NEW_TOKENS - 1)
    ]
    assert {result.key.max_new_tokens for result in results} == {NEW_TOKENS}
    assert results[0].finish == "length"


@pytest.mark.parametrize("num_beams", [1, 2, 4, 8])
def test_opt(opt: Pair, num_beams: int) -> None:
    # Compiling is what takes long: the longer prompts only with 1 and 4 beams.
    limit = LONG if num_beams in (1, 4) else SHORT
    finishes = {
        opt.assert_same_text(prompt, num_beams=num_beams).finish
        for length, prompt in opt.prompts.items()
        if length <= limit
    }
    assert finishes == {"eos", "length"}
    opt.assert_same_text(
        opt.prompts[5], num_beams=num_beams, repetition_penalty=1.3, length_penalty=0.5
    )


@pytest.mark.parametrize("num_beams", [1, 4])
def test_opt_with_norms_behind_and_narrow_embeddings(post_norm_opt: Pair, num_beams: int) -> None:
    for length in (2, 5, SHORT):
        post_norm_opt.assert_same_text(post_norm_opt.prompts[length], num_beams=num_beams)
    post_norm_opt.assert_same_text(
        post_norm_opt.prompts[5], num_beams=num_beams, repetition_penalty=0.8, length_penalty=2.0
    )


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.3}, {"num_beams": 4}])
def test_reported_log_probabilities_are_the_models_own(gpt2: Pair, options: dict) -> None:
    for length in (5, SHORT):
        result = gpt2.ours(gpt2.prompts[length], **options)
        expected = gpt2.logprobs(gpt2.prompts[length], [token.id for token in result.tokens])
        # Logits here are within ±40; float32 sums in another order move them by some 1e-5.
        np.testing.assert_allclose(
            [token.logprob for token in result.tokens], expected, rtol=0, atol=1e-4
        )


@pytest.mark.skipif(
    not (BUNDLED_FOLDER / DEFAULT_MODEL / "model.safetensors").exists(),
    reason=f"{DEFAULT_MODEL} has no weights: python -m demo_models.train {DEFAULT_MODEL}",
)
def test_the_bundled_model() -> None:
    folder = BUNDLED_FOLDER / DEFAULT_MODEL
    tokenizer, oracle = Tokenizer.load(folder), checkpoints.oracle(folder)
    pair = Pair(Backend(rules=RULES), DEFAULT_MODEL, tokenizer, oracle, {})
    for prompt in ("Once upon a time", "The", "One day, a little fox named Lily went to the"):
        for num_beams in (1, 2, 4, 8):
            pair.assert_same_text(prompt, num_beams=num_beams)
        pair.assert_same_text(prompt, num_beams=4, length_penalty=2.0, repetition_penalty=1.3)
    pair.assert_same_text("Once upon a time", max_new_tokens=60)
