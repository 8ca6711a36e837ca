"""Token for token: T5 through `Backend` against Transformers' own eager `model.generate`.

The same way as in `test_parity`; here the prompt is the encoder's, padded on the right.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests import checkpoints
from xla_backend import (
    Backend,
    BucketRules,
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
)
from xla_backend.families.encoder_decoder import distance_buckets
from xla_backend.tokenization import Tokenizer

NEW_TOKENS = 12
PADDED_LENGTHS = (8, 16, 40)
FORMS: dict[str, dict[str, Any]] = {
    "v1.0": {"seed": 1},
    # Heads as wide as in the small T5 v1.1, wider than the model's width over their number; and
    # few buckets, so that the logarithmic ones are met after a dozen tokens.
    "v1.1": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "d_kv": 16,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20,
        "num_decoder_layers": 3,
    },
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """One model twice: through the backend, and as Transformers runs it.

    Attributes:
        prompts: by their padded length, all a little shorter than that.
    """

    backend: Backend
    name: str
    tokenizer: Tokenizer
    oracle: Any
    prompts: dict[int, str] = dataclasses.field(default_factory=dict)

    def ours(self, prompt: str, **options: Any) -> GenerationResult:
        """The backend's answer."""
        return self.backend.generate(
            self.name,
            prompt,
            GenerationOptions(**{"max_new_tokens": NEW_TOKENS, **options}),
            exact_key=True,
        )

    def theirs(self, prompt: str, **options: Any) -> list[int]:
        """The oracle's tokens after the start token, up to the first that ends a text."""
        written = self.oracle.generate(
            tf.constant([self.tokenizer.encode(prompt)]),
            do_sample=False,
            **{"max_new_tokens": NEW_TOKENS, **options},
        )
        ids = written.numpy()[0, 1:].tolist()
        ends = self.oracle.generation_config.eos_token_id
        stops = [place for place, token in enumerate(ids) if token in np.atleast_1d(ends)]
        return ids[: stops[0] + 1] if stops else ids

    def assert_same_text(self, prompt: str, **options: Any) -> GenerationResult:
        """Both write the same tokens; returns the backend's answer."""
        result = self.ours(prompt, **options)
        assert [token.id for token in result.tokens] == self.theirs(prompt, **options)
        return result


@pytest.fixture(scope="module", params=FORMS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = checkpoints.t5(tmp_path_factory.mktemp("t5"), **FORMS[request.param])
    rules = BucketRules(padded_lengths=PADDED_LENGTHS, max_new_tokens=(NEW_TOKENS,))
    pair = Pair(
        Backend(rules=rules), str(folder), Tokenizer.load(folder), checkpoints.oracle(folder)
    )
    prompts = {length: wandering_prompt(pair, length) for length in PADDED_LENGTHS}
    # A random model would never write the end: here texts end at a token that one of them has.
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] = pair.theirs(prompts[8])[4]
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return dataclasses.replace(pair, prompts=prompts, oracle=checkpoints.oracle(folder))


def wandering_prompt(pair: Pair, padded_length: int) -> str:
    """A prompt that needs the padded length, and after which the text does not repeat itself."""
    words = checkpoints.TEXT.split()
    for start in range(0, len(words), 3):
        end = start + 1
        while (
            end < len(words)
            and len(pair.tokenizer.encode(" ".join(words[start:end]))) < padded_length - 2
        ):
            end += 1
        prompt = " ".join(words[start:end])
        fits = padded_length - 2 <= len(pair.tokenizer.encode(prompt)) < padded_length
        if fits and len(set(pair.theirs(prompt, max_new_tokens=7))) >= 5:
            return prompt
    raise AssertionError(f"no prompt of {padded_length} tokens makes this model wander")


@pytest.mark.parametrize("num_beams", [1, 2, 4])
@pytest.mark.parametrize("padded_length", PADDED_LENGTHS)
def test_prompts_of_every_length(pair: Pair, padded_length: int, num_beams: int) -> None:
    result = pair.assert_same_text(pair.prompts[padded_length], num_beams=num_beams)
    assert result.key.padded_length == padded_length
    assert result.prompt_tokens < padded_length, "or padding would not have been tested"
    assert result.new_tokens > 1


def test_texts_end_early_and_late(pair: Pair) -> None:
    results = [pair.ours(prompt) for prompt in pair.prompts.values()]
    assert {result.finish for result in results} == {"eos", "length"}


@pytest.mark.parametrize("num_beams", [1, 4])
def test_penalties(pair: Pair, num_beams: int) -> None:
    plain = pair.ours(pair.prompts[16], num_beams=num_beams)
    penalised = pair.assert_same_text(pair.prompts[16], num_beams=num_beams, repetition_penalty=1.5)
    assert num_beams > 1 or penalised.text != plain.text
    pair.assert_same_text(
        pair.prompts[8], num_beams=num_beams, length_penalty=-1.0, early_stopping=num_beams > 1
    )


def test_a_stream_is_the_same_text(pair: Pair) -> None:
    whole = pair.ours(pair.prompts[16])
    stream = pair.backend.stream(
        pair.name, pair.prompts[16], GenerationOptions(max_new_tokens=NEW_TOKENS), exact_key=True
    )
    pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(pieces) == stream.result.text == whole.text
    assert stream.result.cache is CacheOutcome.HIT


def test_sampling_follows_its_seed(pair: Pair) -> None:
    texts = [pair.ours(pair.prompts[16], temperature=2.0, seed=seed).text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_one_trace_serves_every_padded_length(pair: Pair) -> None:
    """Each later length compiled, and traced nothing."""
    for prompt in pair.prompts.values():
        pair.ours(prompt)
    lengths = {
        entry.key.padded_length: entry.first_call
        for entry in pair.backend.entries()
        if entry.key.num_beams == 1
    }
    assert set(lengths) == set(PADDED_LENGTHS)
    first = max(lengths.values(), key=lambda call: call.trace_s)
    for call in lengths.values():
        assert call is first or call.trace_s < 0.5 * first.trace_s
        assert call.compile_s > 0


def test_an_endless_prompt_is_refused(pair: Pair) -> None:
    with pytest.raises(InvalidRequest, match=r"too long: it has .* at most 2048 are taken"):
        pair.ours("word " * 3000)


@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 20), (16, 64), (32, 500)])
@pytest.mark.parametrize("is_bidirectional", [True, False])
def test_distances_fall_into_the_oracles_buckets(
    buckets: int, most: int, is_bidirectional: bool
) -> None:
    from transformers.models.t5.modeling_tf_t5 import TFT5Attention

    offsets = np.arange(-2 * most, 2 * most + 1, dtype=np.int32)
    expected = TFT5Attention._relative_position_bucket(
        tf.constant(offsets), is_bidirectional, buckets, most
    ).numpy()
    half = buckets // 2 if is_bidirectional else buckets
    table = distance_buckets(half, most)
    if is_bidirectional:
        ours = table[np.minimum(abs(offsets), most)] + np.where(offsets > 0, half, 0)
    else:
        ours = table[np.clip(-offsets, 0, most)]
    np.testing.assert_array_equal(ours, expected)


def test_a_missing_activation_is_named(tmp_path: Path) -> None:
    from xla_backend import ModelUnavailable

    folder = checkpoints.t5(tmp_path / "odd", feed_forward_proj="quick_gelu")
    with pytest.raises(ModelUnavailable, match="'quick_gelu'; known are gelu, "):
        Backend().load(str(folder))
