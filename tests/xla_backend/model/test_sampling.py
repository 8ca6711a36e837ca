"""Tests of `xla_backend.model.sampling`: what may be sampled, how often, and from which noise.

The sampled tokens are judged by chi-square tests at a level of one in a thousand; seeds are fixed,
so that a test passes always or never.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from tests.oracle import formulas, load_oracle
from xla_backend import Backend, GenerationOptions
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.model import sampling
from xla_backend.model.sampling import FILTERED
from xla_backend.model.selection import Selection

ROWS, VOCABULARY = 16, 300
FEW = sampling.TOP_TOKENS_SEARCHED
LEVEL = 0.001
PROMPT = "Once upon a time"


def xla(function: Callable) -> Callable:
    """A function compiled as the engine compiles its own."""
    return tf.function(function, jit_compile=True, autograph=False)


def pack(*options: dict[str, Any], size: int = VOCABULARY) -> tuple[tf.Tensor, ...]:
    """The options of texts, as compiled functions take them."""
    return sampling.pack([GenerationOptions(**each) for each in options], size)


@pytest.fixture(scope="module")
def filter_scores() -> Callable[..., np.ndarray]:
    """`sampling.filter_scores` of logits `[B, V]` and options, compiled once for every shape."""

    @xla
    def compiled(scores: tf.Tensor, *packed: tf.Tensor) -> tf.Tensor:
        return sampling.filter_scores(scores, sampling.unpack(*packed))

    def run(scores: np.ndarray, **options: Any) -> np.ndarray:
        packed = pack({"top_k": 0, "temperature": 1.0, **options})
        return compiled(tf.constant(scores, tf.float32), *packed).numpy()

    return run


@pytest.fixture(scope="module")
def noise() -> Callable[[int, int, int], np.ndarray]:
    """`sampling.noise`, compiled."""
    compiled = xla(sampling.noise)
    return lambda seed, step, size: compiled(tf.constant([seed]), tf.constant(step), size).numpy()[
        0
    ]


@pytest.fixture(scope="module")
def first_noise() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The one number that greedy sampling draws, for many pairs of seed and step."""

    @xla
    def compiled(seeds: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            lambda at: sampling.noise(at[0][None], at[1], 1)[0, 0], (seeds, steps), tf.float32
        )

    return lambda seeds, steps: compiled(
        tf.constant(seeds, tf.int32), tf.constant(np.broadcast_to(steps, seeds.shape), tf.int32)
    ).numpy()


def random_logits(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (ROWS, VOCABULARY)).astype(np.float32)


def transformers_filter(scores: np.ndarray, **options: Any) -> np.ndarray:
    """The same logits through Transformers' own warpers, in `generate`'s order."""
    chosen = GenerationOptions(**{"top_k": 0, "temperature": 1.0, **options})
    return formulas().filtered(scores, chosen.temperature, chosen.top_k, chosen.top_p)


def mass_above(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """For each token of one row, the probability of the kept tokens with higher scores together."""
    weights = np.where(kept, np.exp(values - values.max()), 0.0)
    return np.array([weights[values > value].sum() for value in values]) / weights.sum()


def expected_kept(scores: np.ndarray, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """The rule in words, in float64 and token by token; ties stay or go together."""
    kept = np.ones(scores.shape, bool)
    for row, values in enumerate(scores.astype(np.float64)):
        if top_k:
            kept[row] = [np.sum(values > value) < top_k for value in values]
        if top_p < 1.0:
            kept[row] &= mass_above(values, kept[row]) < top_p
    return kept


# --- top tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocabulary", "count"),
    [(5, 5), (511, 5), (512, 64), (700, 16), (700, 17), (2048, 5), (50_257, 64)],
)
def test_top_tokens_are_found_wherever_they_stand(vocabulary: int, count: int) -> None:
    compiled = xla(lambda scores: sampling.top_tokens(scores, count))
    random = np.random.default_rng(vocabulary)
    even = random.permutation(3 * vocabulary).reshape(3, vocabulary)
    # In one group, next to each other, at both ends, and with the tail of a vocabulary hidden.
    grouped, neighbours, ends, hidden = (even.astype(np.float32) for _ in range(4))
    grouped[:, :: max(1, min(512, vocabulary // 5))] += 1e6
    neighbours[:, vocabulary // 3 : vocabulary // 3 + 5] += 1e6
    ends[:, [0, 1, -2, -1]] += 1e6
    hidden[:, 5:] = FILTERED
    for scores in (even.astype(np.float32), grouped, neighbours, ends, hidden):
        found = compiled(tf.constant(scores)).numpy()
        if scores is hidden:  # of equal ones any may come
            found, scores = found[:, :5], scores[:, :5]
        np.testing.assert_array_equal(found, np.argsort(-scores, axis=1)[:, : found.shape[1]])


@pytest.mark.parametrize("count", [5, 64])
@pytest.mark.parametrize("others", [0.0, -np.inf, FILTERED, np.nan])
def test_equally_likely_tokens_are_each_told_once(others: float, count: int) -> None:
    scores = np.full([1, 2048], others, np.float32)
    scores[0, 700] = 1.0
    found = xla(lambda scores: sampling.top_tokens(scores, count))(tf.constant(scores)).numpy()[0]
    assert found[0] == 700 or np.isnan(others)
    assert len(set(found.tolist())) == count
    assert all(0 <= token < 2048 for token in found)


# --- what may be sampled --------------------------------------------------------------------------

TOP_K = [0, 1, 2, 50, FEW - 1, FEW, FEW + 1, VOCABULARY - 1, VOCABULARY, VOCABULARY + 1, 1_000_000]
TOP_P = [1e-300, 1e-9, 0.1, 0.5, 0.9, 0.999, 1.0]


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("top_k", [0, 5])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_filtered_scores_are_transformers_own(
    filter_scores: Callable, temperature: float, top_k: int, top_p: float
) -> None:
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    ours = filter_scores(random_logits(), **options)
    theirs = transformers_filter(random_logits(), **options)
    np.testing.assert_array_equal(ours > FILTERED, theirs > -np.inf)
    # Kept scores agree to the last bits: XLA multiplies by the reciprocal of the temperature.
    np.testing.assert_allclose(ours, np.maximum(theirs, np.float32(FILTERED)), rtol=3e-7)


@pytest.mark.parametrize("top_k", TOP_K)
def test_top_k_keeps_what_transformers_keeps(filter_scores: Callable, top_k: int) -> None:
    for seed in range(5):
        kept = filter_scores(random_logits(seed), top_k=top_k) > FILTERED
        theirs = transformers_filter(random_logits(seed), top_k=top_k) > -np.inf
        np.testing.assert_array_equal(kept, theirs)
        assert (kept.sum(axis=1) == min(top_k or VOCABULARY, VOCABULARY)).all()


@pytest.mark.parametrize("top_p", TOP_P)
@pytest.mark.parametrize("top_k", [0, 40])
def test_top_p_is_transformers_own(filter_scores: Callable, top_p: float, top_k: int) -> None:
    for seed in range(5):
        scores = random_logits(seed)
        kept = filter_scores(scores, top_p=top_p, top_k=top_k) > FILTERED
        theirs = transformers_filter(scores, top_p=top_p, top_k=top_k) > -np.inf
        for row, values in enumerate(scores.astype(np.float64)):
            above = mass_above(values, expected_kept(scores[row : row + 1], top_k)[0])
            # Where the mass above a token is `top_p` to 6 digits, rounding decides on both sides.
            is_clear = (top_p == 1.0) | (above == 0.0) | (np.abs(above - top_p) > 1e-6)
            assert is_clear.mean() > 0.98
            np.testing.assert_array_equal(kept[row, is_clear], theirs[row, is_clear])
        assert kept.any(axis=1).all()


def test_ties_stay_or_go_together(filter_scores: Callable) -> None:
    """As in Transformers' top-k; its top-p lets the position in the vocabulary decide."""
    rng = np.random.default_rng(3)
    scores = rng.integers(-4, 5, (ROWS, VOCABULARY)).astype(np.float32)
    for top_k in (1, 7, 40, 150, VOCABULARY):
        kept = filter_scores(scores, top_k=top_k) > FILTERED
        np.testing.assert_array_equal(kept, expected_kept(scores, top_k=top_k))
        np.testing.assert_array_equal(kept, transformers_filter(scores, top_k=top_k) > -np.inf)
    for top_p in (0.1, 0.5, 0.95):
        for top_k in (0, 7, 40, 150):
            kept = filter_scores(scores, top_p=top_p, top_k=top_k) > FILTERED
            np.testing.assert_array_equal(kept, expected_kept(scores, top_k, top_p))
            theirs = transformers_filter(scores, top_p=top_p, top_k=top_k) > -np.inf
            assert not (theirs & ~kept).any()
            for row in range(ROWS):
                assert set(scores[row][kept[row]]) == set(scores[row][theirs[row]])


@pytest.mark.parametrize("last", [49, 50, FEW - 2, FEW - 1, FEW, FEW + 1, VOCABULARY - 1])
def test_ties_at_the_last_place_stay(filter_scores: Callable, last: int) -> None:
    rng = np.random.default_rng(last)
    descending = -np.arange(VOCABULARY, dtype=np.float32) / 50
    descending[49 : last + 1] = descending[49]
    scores = np.stack([rng.permutation(descending) for _ in range(ROWS)])
    for top_p in (0.9, 1.0):
        kept = filter_scores(scores, top_k=50, top_p=top_p) > FILTERED
        np.testing.assert_array_equal(kept, expected_kept(scores, 50, top_p))
        assert (kept.sum(axis=1) == last + 1).all() or top_p < 1.0


def test_texts_side_by_side_are_filtered_as_each_alone(filter_scores: Callable) -> None:
    options: list[dict[str, Any]] = [
        {"top_k": 50, "top_p": 0.9},
        {"top_k": 0, "top_p": 0.9},
        {"top_k": FEW + 1, "min_p": 0.1},
    ]
    scores = random_logits()[: len(options)]
    packed = pack(*({"temperature": 1.0, **each} for each in options))
    compiled = xla(lambda scores, *packed: sampling.filter_scores(scores, sampling.unpack(*packed)))
    together = compiled(tf.constant(scores), *packed).numpy()
    for row, each in enumerate(options):
        alone = filter_scores(scores[row : row + 1], **each)
        np.testing.assert_array_equal(together[row], alone[0])


def test_filters_take_scores_of_every_size_and_equal_ones(filter_scores: Callable) -> None:
    for value in (0.0, -7.25, 1e20):
        scores = np.full((ROWS, VOCABULARY), value, np.float32)
        for options in ({"top_k": 1}, {"top_p": 0.1}, {"top_k": 3, "top_p": 0.5}, {}):
            assert (filter_scores(scores, **options) > FILTERED).all()

    scores = np.full((ROWS, VOCABULARY), -1.0, np.float32)
    scores[:, 4], scores[:, 9], scores[:, 11] = 0.0, -0.0, -0.0
    for options in ({"top_k": 1}, {"top_p": 0.001}):
        kept = filter_scores(scores, **options) > FILTERED
        assert np.flatnonzero(kept[0]).tolist() == [4, 9, 11]

    rng = np.random.default_rng(5)
    scores = rng.normal(0, 1, (ROWS, VOCABULARY)) * 10.0 ** rng.uniform(-30, 30, (ROWS, 1))
    scores = scores.astype(np.float32)
    for top_k in (1, 10, 299):
        kept = filter_scores(scores, top_k=top_k) > FILTERED
        np.testing.assert_array_equal(kept, expected_kept(scores, top_k=top_k))


@pytest.fixture(scope="module")
def adjust() -> Callable[..., np.ndarray]:
    """`sampling.adjust` of scores `[B, V]`, compiled."""

    @xla
    def compiled(scores: Any, prompted: Any, counts: Any, *packed: tf.Tensor) -> tf.Tensor:
        return sampling.adjust(scores, prompted, counts, tf.constant(3), sampling.unpack(*packed))

    def run(
        scores: np.ndarray, prompted: np.ndarray, counts: np.ndarray, *options: dict[str, Any]
    ) -> np.ndarray:
        return compiled(scores, prompted, counts.astype(np.int32), *pack(*options)).numpy()

    return run


def test_repetition_penalty_is_transformers_own(adjust: Callable) -> None:
    scores, rng = random_logits(), np.random.default_rng(1)
    prompt = rng.integers(0, VOCABULARY, (ROWS, 40))
    seen = np.zeros(scores.shape, bool)
    np.put_along_axis(seen, prompt, True, axis=1)
    nothing = np.zeros(scores.shape)
    for penalty in (0.01, 0.8, 1.0, 1.3, 100.0):
        options = {"repetition_penalty": penalty}
        theirs = formulas().penalized(scores, prompt, penalty)
        np.testing.assert_array_equal(adjust(scores, seen, nothing, options), theirs)
        # What was generated is repeated, too.
        np.testing.assert_array_equal(adjust(scores, nothing > 0, 3 * seen, options), theirs)


def test_each_text_and_beam_has_its_own_penalties_and_biases(adjust: Callable) -> None:
    """By OpenAI's definition, after the repetition penalty, and nothing for texts without them."""
    rng, beams = np.random.default_rng(6), ROWS // 4
    scores, counts = random_logits(), rng.integers(0, 4, (4, beams, VOCABULARY))
    prompted = rng.random((4, VOCABULARY)) < 0.3
    options: list[dict[str, Any]] = [
        {"presence_penalty": 1.5, "frequency_penalty": -0.5},
        {"repetition_penalty": 1.4, "frequency_penalty": 2.0, "logit_bias": {7: 100, 299: -0.25}},
        {},
        {"logit_bias": {0: -100.0}},
    ]
    found = adjust(scores, prompted, counts, *options).reshape(counts.shape)
    for text, beam, token in np.ndindex(counts.shape):
        chosen = GenerationOptions(**options[text])
        expected = np.float64(scores[text * beams + beam, token])
        times = counts[text, beam, token]
        if times or prompted[text, token]:
            penalty = chosen.repetition_penalty
            expected = expected / penalty if expected > 0 else expected * penalty
        expected -= chosen.presence_penalty * (times > 0) + chosen.frequency_penalty * times
        expected += dict(chosen.logit_bias).get(token, 0.0)
        assert found[text, beam, token] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    np.testing.assert_array_equal(found[2], scores.reshape(counts.shape)[2])


@pytest.mark.parametrize("min_p", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("others", [{}, {"temperature": 2.5, "top_k": 40, "top_p": 0.9}], ids=str)
def test_min_p_keeps_what_is_likely_next_to_the_most_likely(
    filter_scores: Callable, min_p: float, others: dict[str, float]
) -> None:
    """`MinPLogitsWarper` in float64, after the other filters; rounding decides nothing here."""
    scores = random_logits(4)
    before = filter_scores(scores, **others).astype(np.float64)
    probabilities = special.softmax(before, axis=-1)
    least = min_p * probabilities.max(axis=-1, keepdims=True)
    assert (np.abs(probabilities - least) > 1e-6 * least).all() or min_p in (0.0, 1.0)
    kept = filter_scores(scores, min_p=min_p, **others) > FILTERED
    np.testing.assert_array_equal(kept, (probabilities >= least) & (before > FILTERED))
    assert kept.any(axis=-1).all()
    assert min_p == 0.0 or kept.sum() < (before > FILTERED).sum()


def test_options_survive_the_way_into_the_compiled_function() -> None:
    options = GenerationOptions(
        max_new_tokens=77,
        num_beams=3,
        temperature=0.5,
        top_k=1_000_000,
        top_p=0.25,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=-1.25,
        frequency_penalty=0.75,
        logit_bias={2: -100, "1": 0.5},
        length_penalty=-2.0,
        early_stopping="never",
        seed=2**31 - 1,
        min_new_tokens=5,
    )
    controls = sampling.unpack(*sampling.pack([options], 4, (1, 9)))
    values = {name: value.numpy()[0].tolist() for name, value in controls._asdict().items()}
    assert values == {
        "temperature": 0.5,
        "top_p": 0.25,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.25,
        "frequency_penalty": 0.75,
        "length_penalty": -2.0,
        "top_k": 1_000_000,
        "do_sample": 1,
        "is_adjusted": 1,
        "early_stopping": sampling.STOP_WHEN_IMPOSSIBLE,
        "seed": 2**31 - 1,
        "token_limit": 77,
        "min_new_tokens": 5,
        "logit_bias": [0.0, 0.5, -100.0, 0.0],
        "ends": [False, True, False, False],
    }
    for value, number in ((False, 0), (True, 1), ("never", 2)):
        packed = pack({"early_stopping": value})
        assert sampling.unpack(*packed).early_stopping == number


def test_times_follow_hugging_face_s_rules() -> None:
    """`WhisperTimeStampLogitsProcessor`, written down anew, over random logits."""
    size, first, end, new = 300, 40, 36, 40
    selection = Selection(size, first_timestamp=first)
    packed = sampling.pack([GenerationOptions()], size, (end,))
    prompted = np.zeros([1, size], bool)
    prompted[0, [37, first]] = True
    dice = np.random.default_rng(5)

    @xla
    def select(*given: tf.Tensor) -> tuple[tf.Tensor, ...]:
        logits, prompted, counts, step, last = given[:5]
        controls = sampling.unpack(*given[5:])
        return selection.select(
            logits, tf.equal(step, 0), prompted, counts, step, controls, last=last
        )

    def best(scores: np.ndarray, text: list[int]) -> int:
        scores, times = scores.copy(), [token for token in text if token >= first]
        if text[-1] >= first:
            is_pair = len(text) < 2 or text[-2] >= first
            scores[slice(first, None) if is_pair else slice(end)] = -np.inf
        closes = text[-1] >= first and not (len(text) < 2 or text[-2] >= first)
        scores[first : times[-1] + (not closes)] = -np.inf
        if special.logsumexp(scores[first:]) > scores[:first].max():
            scores[:first] = -np.inf
        return int(scores.argmax())

    for is_timed in (True, False):
        text, counts = [first], np.zeros([1, size], np.int32)
        prompted[0, first] = is_timed
        for step in range(new):
            if text[-1] == end:
                break
            scores = dice.normal(0, 2, size).astype(np.float32)
            scores[37:first] = -1e9  # suppressed
            given = (scores[None], prompted, counts, step, np.int32(text[-1:]))
            token, _, counts = select(*map(tf.constant, given), *packed)
            text.append(int(token[0]))
            assert text[-1] == (best(scores, text[:-1]) if is_timed else scores.argmax())
        assert len(text) > 9 and sum(token >= first for token in text) > 5


# --- how often ------------------------------------------------------------------------------------


def assert_follows(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square test of counts; what cannot occur must not have occurred."""
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities * counts.sum()
    rare = expected < 8
    if rare.any():  # put together: the test needs several expected of each
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        counts, expected = counts[expected > 0], expected[expected > 0]
    assert len(counts) > 1
    assert stats.chisquare(counts, expected).pvalue > LEVEL


def distribution(scores: np.ndarray, options: GenerationOptions) -> np.ndarray:
    """The probabilities that options leave of one row of logits, in float64."""
    scaled = scores.astype(np.float64) / options.temperature
    kept = expected_kept(scaled[None], options.top_k, options.top_p)[0]
    weights = np.where(kept, np.exp(scaled - scaled.max()), 0.0)
    weights = np.where(weights >= options.min_p, weights, 0.0)
    return weights / weights.sum()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.3},
        {"temperature": 5.0},
        {"temperature": 1.0, "top_k": 7},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 2.0, "top_k": 20, "top_p": 0.85},
        {"temperature": 2.0, "min_p": 0.2},
    ],
    ids=str,
)
def test_sampled_tokens_follow_the_filtered_distribution(options: dict) -> None:
    chosen = GenerationOptions(**{"top_k": 0, **options})
    scores = np.random.default_rng(11).normal(0, 2, (1, 60)).astype(np.float32)

    @xla
    def draw(seeds: tf.Tensor, *packed: tf.Tensor) -> tf.Tensor:
        weights = sampling.unnormalized_probabilities(tf.constant(scores), sampling.unpack(*packed))
        return tf.map_fn(
            lambda seed: sampling.sample(weights, sampling.noise(seed[None], 0, 1)[0])[0], seeds
        )

    sampled = draw(tf.range(40_000), *sampling.pack([chosen], 60)).numpy()
    assert_follows(np.bincount(sampled, minlength=60), distribution(scores[0], chosen))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.3, "top_k": 7},
        {"top_p": 0.6},
        {"temperature": 2.0, "top_k": 100, "top_p": 0.9},
        {"top_k": 1, "top_p": 1e-9},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [60, 2048])
def test_weights_are_the_probabilities(filter_scores: Callable, options: dict, size: int) -> None:
    scores = np.random.default_rng(size).normal(0, 3, (4, size)).astype(np.float32)
    options = {"temperature": 1.0, "top_k": 0, **options}
    packed = pack(options, size=size)
    weigh = xla(
        lambda scores, *packed: sampling.unnormalized_probabilities(
            scores, sampling.unpack(*packed)
        )
    )
    weights = weigh(tf.constant(scores), *packed).numpy()
    kept = filter_scores(scores, **options)
    assert (weights[kept <= FILTERED] == 0).all()
    assert (weights.max(axis=-1) == 1).all()
    np.testing.assert_allclose(
        weights / weights.sum(axis=-1, keepdims=True), special.softmax(kept, axis=-1), rtol=1e-5
    )


def weights_of(scores: np.ndarray) -> tf.Tensor:
    """What `sampling.unnormalized_probabilities` makes of scores that are cut already."""
    return tf.exp(scores - scores.max(axis=-1, keepdims=True))


@pytest.mark.parametrize("size", [2, 60, 2048, 50_257])
def test_filtered_tokens_are_never_sampled(size: int) -> None:
    """Sums are rounded: one that falls between two tokens must not be answered with a third."""
    rng = np.random.default_rng(size)
    draw = xla(sampling.sample)
    for _ in range(20):
        scores = rng.normal(0, 8, (50, size)).astype(np.float32)
        scores[rng.random(scores.shape) < 0.9] = sampling.FILTERED
        scores[:, rng.integers(size)] = 3.0  # each text has a token
        uniform = rng.random(50, np.float32) * (1 - 2.0**-24) + np.float32(2.0**-25)
        sampled = draw(weights_of(scores), tf.constant(uniform)).numpy()
        assert (np.take_along_axis(scores, sampled[:, None], axis=1) > sampling.FILTERED).all()


def test_the_ends_of_the_noise_draw_possible_tokens() -> None:
    """The first and last numbers that the noise can be, with impossible tokens at both ends."""
    draw = xla(sampling.sample)
    smallest, largest = 0.5 * 2.0**-23, 1 - 0.5 * 2.0**-23
    rng = np.random.default_rng(2)
    for size in (5, 128, 129, 1000):
        scores = rng.normal(0, 3, (1, size)).astype(np.float32)
        scores[:, :2] = scores[:, -2:] = FILTERED
        sampled = [
            draw(weights_of(scores), tf.constant([uniform], tf.float32)).numpy()[0]
            for uniform in (smallest, 0.5, largest)
        ]
        assert all(2 <= token < size - 2 for token in sampled)
        only = np.full((1, size), FILTERED, np.float32)
        only[0, 3] = -40.0
        assert draw(weights_of(only), tf.constant([0.5])).numpy().tolist() == [3]


# --- from which noise -----------------------------------------------------------------------------

SEEDS = np.concatenate([np.arange(200_000), 2**31 - 1 - np.arange(50_000)])


def assert_uniform(values: np.ndarray) -> None:
    """Kolmogorov-Smirnov, and never an end of the interval."""
    assert values.min() > 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > LEVEL


def assert_independent(first: np.ndarray, second: np.ndarray) -> None:
    """Chi-square on a grid: it also sees dependence that correlation does not."""
    grid, _, _ = np.histogram2d(first, second, bins=32, range=[[0, 1], [0, 1]])
    assert stats.chisquare(grid.ravel()).pvalue > LEVEL
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))


@pytest.mark.release
def test_noise_over_seeds_and_steps(first_noise: Callable) -> None:
    over_seeds = first_noise(SEEDS, 0)
    next_step = first_noise(SEEDS, 1)
    over_steps = first_noise(np.full(100_000, 42), np.arange(100_000))
    for values in (over_seeds, next_step, over_steps):
        assert_uniform(values)
        assert_independent(values[:-1], values[1:])
    assert_independent(over_seeds, next_step)
    assert_independent(over_seeds[:-1], next_step[1:])
    assert_independent(over_seeds, first_noise(SEEDS, 1023))


@pytest.mark.release
def test_noise_over_positions(noise: Callable) -> None:
    size = 8 * 50257  # eight beams of GPT-2's vocabulary
    here, there = noise(0, 0, size), noise(1, 0, size)
    for values in (here, there, noise(2**31 - 1, 1023, size)):
        assert_uniform(values)
        assert_independent(values[:-1], values[1:])
    assert_independent(here, there)
    assert_independent(here, noise(0, 1, size))
    # 23 bits of 400,000 positions collide now and then, but no stretch repeats.
    assert len(np.unique(here)) > 0.95 * size


def test_noise_is_the_documented_hash(noise: Callable) -> None:
    """The same in plain NumPy: what a seed draws does not depend on TensorFlow's version."""

    def mix(x: np.ndarray) -> np.ndarray:
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return x ^ (x >> np.uint32(16))

    golden = np.uint32(0x9E3779B9)
    with np.errstate(over="ignore"):
        for seed, step in ((0, 0), (1, 0), (0, 1), (2**31 - 1, 1023), (123456, 77)):
            stream = mix(mix(np.uint32([seed]) + golden) ^ np.uint32(step))
            bits = mix(mix(np.arange(100, dtype=np.uint32) * golden + stream) + stream)
            expected = ((bits >> np.uint32(9)).astype(np.float64) + 0.5) / 2**23
            np.testing.assert_array_equal(noise(seed, step, 100), expected.astype(np.float32))


# --- through the whole engine ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def next_logits(small_gpt2: Path) -> Callable[[list[int]], np.ndarray]:
    """The oracle's logits of the token after `PROMPT` and some more tokens."""
    oracle, prompt = load_oracle(small_gpt2), Tokenizer.load(small_gpt2).encode(PROMPT)
    return lambda more: oracle.logits({"input_ids": np.int32([prompt + more])})[0, -1]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 2.0, "top_k": 12},
        {"temperature": 1.5, "top_k": 0, "top_p": 0.7},
        {"temperature": 3.0, "top_k": 30, "top_p": 0.8},
        {"temperature": 3.0, "min_p": 0.3},
    ],
    ids=str,
)
@pytest.mark.release
def test_texts_of_one_token_follow_the_models_distribution(
    backend: Backend, small_gpt2: Path, next_logits: Callable, options: dict
) -> None:
    chosen = GenerationOptions(max_new_tokens=1, **options)
    scores = next_logits([])
    counts = np.zeros(len(scores))
    for seed in range(800):
        result = backend.generate(str(small_gpt2), PROMPT, chosen.replace(seed=seed), mode="padded")
        counts[result.tokens[0].id] += 1
    assert_follows(counts, distribution(scores, chosen))


def test_the_second_token_is_sampled_anew(
    backend: Backend, small_gpt2: Path, next_logits: Callable
) -> None:
    """Noise that came again at each step, as in TensorFlow's `generate`, would fail here."""
    chosen = GenerationOptions(max_new_tokens=2, temperature=8.0, top_k=3)
    first = distribution(next_logits([]), chosen)
    pairs = {
        (one, two): first[one] * second[two]
        for one in np.flatnonzero(first)
        for second in [distribution(next_logits([int(one)]), chosen)]
        for two in np.flatnonzero(second)
    }
    counts = dict.fromkeys(pairs, 0)
    for seed in range(800):
        result = backend.generate(str(small_gpt2), PROMPT, chosen.replace(seed=seed), mode="padded")
        counts[tuple(token.id for token in result.tokens)] += 1
    assert_follows(np.array(list(counts.values())), np.array(list(pairs.values())))


@pytest.mark.parametrize("num_beams", [1, 2])
def test_a_seed_decides_the_text(backend: Backend, small_gpt2: Path, num_beams: int) -> None:
    chosen = GenerationOptions(max_new_tokens=12, num_beams=num_beams, temperature=1.0)

    def ids(seed: int) -> tuple[int, ...]:
        result = backend.generate(str(small_gpt2), PROMPT, chosen.replace(seed=seed), mode="padded")
        return tuple(token.id for token in result.tokens)

    texts = [ids(seed) for seed in (*range(12), 2**31 - 1)]
    assert texts == [ids(seed) for seed in (*range(12), 2**31 - 1)]
    # Of the sampled candidates beam search keeps the best, and these are often the same.
    assert len(set(texts)) == 13 if num_beams == 1 else len(set(texts)) > 4


def test_one_kept_token_is_greedy_search(backend: Backend, small_gpt2: Path) -> None:
    greedy = backend.generate(
        str(small_gpt2), PROMPT, GenerationOptions(max_new_tokens=12), mode="padded"
    )
    for seed in range(3):
        for options in ({"top_k": 1}, {"top_k": 0, "top_p": 1e-6}, {"temperature": 0.01}):
            chosen = GenerationOptions(
                **{"max_new_tokens": 12, "temperature": 1.0, "seed": seed, **options}
            )
            assert (
                backend.generate(str(small_gpt2), PROMPT, chosen, mode="padded").text == greedy.text
            )


def test_the_long_tail_of_a_vocabulary_is_sampled_from() -> None:
    """50,256 tokens, each next to impossible, together hold one draw in 800."""
    scores = np.full([4, 50_257], -17.5, np.float32)
    scores[:, 0] = 0.0
    tail = 50_256 * np.exp(-17.5)
    share = tail / (1 + tail)  # tokens lie on [0, 1] from the last to the first
    uniform = np.array([share * 0.98, share * 0.5, share * 1.02, 0.9], np.float32)
    sampled = xla(sampling.sample)(weights_of(scores), tf.constant(uniform)).numpy()
    assert (sampled > 0).tolist() == [True, True, False, False]
