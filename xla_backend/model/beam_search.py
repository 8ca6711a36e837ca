"""Beam search, rule for rule as Transformers' `generate` does it, as pure TensorFlow.

Knows running beams, finished hypotheses, and when a text can stop. Axes: see `families.blocks`; F
fields of a record: see `output`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.model import output, sampling
from xla_backend.model.families.blocks import KeysValues, dynamic_update_slice
from xla_backend.model.output import Output
from xla_backend.model.sampling import STOP_WHEN_ENOUGH, STOP_WHEN_IMPOSSIBLE, Controls

NO_BEAM = -1.0e9
"""The score of a beam that does not exist, as in Hugging Face."""


class BeamRules(NamedTuple):
    """A model's rules for the end of texts.

    Attributes:
        eos_token_ids: tokens that end a text.
        forced_tokens: how many tokens count as generated beyond those of the output where scores
            are divided by the length.
        ends_at_limit: whether the token limit ends the running beams, so that they compete with the
            finished hypotheses, as in Transformers' PyTorch classes. In its TensorFlow classes they
            count only where nothing has finished.
    """

    eos_token_ids: tuple[int, ...]
    forced_tokens: int = 0
    ends_at_limit: bool = False

    @property
    def candidates_of_beam(self) -> int:
        """How many candidates a step selects for each beam.

        Two: even if half of them end, every beam goes on. With several tokens that end a text, more
        than half may; PyTorch's classes take more then.
        """
        return max(2, 1 + len(self.eos_token_ids)) if self.ends_at_limit else 2


class BeamSearchState(NamedTuple):
    """K running beams of each text and its K best finished hypotheses.

    Beams change places at every step, but neither records nor keys and values are moved:
    `beam_parents` says in which place each token of a beam lies.

    Attributes:
        outputs: `[B, N, K, F]` int32, the record of the token that each beam took at each step.
        beam_parents: `[B, K, N]` int32, for each running beam the place on axis K of `outputs` and
            `kv_cache` where each of its tokens lies; the last token lies in the beam's own place
            and is not listed yet.
        running_scores: `[B, K]`, summed log-probabilities, best first.
        finished: `[B, K, F + 1]` int32, of each hypothesis the last token's record, then the number
            of its tokens, 0 where there is no hypothesis yet.
        finished_parents: `[B, K, N]` int32, as `beam_parents`.
        finished_scores: `[B, K]`, divided by length ** length_penalty, best first.
        counts: `[B, K, V]` int32, how often each token was generated.
        count, lengths, done, kv_cache: as in `decoding.SingleBeamState`.
    """

    outputs: tf.Tensor
    beam_parents: tf.Tensor
    running_scores: tf.Tensor
    finished: tf.Tensor
    finished_parents: tf.Tensor
    finished_scores: tf.Tensor
    count: tf.Tensor
    lengths: tf.Tensor
    done: tf.Tensor
    counts: tf.Tensor
    kv_cache: list[KeysValues]

    @classmethod
    def initial(cls, **common: Any) -> BeamSearchState:
        """The state before the first token; `common` has the fields of a `SingleBeamState`."""
        batch_size, max_new_tokens, num_beams, num_fields = common["outputs"].shape
        parents = tf.zeros([batch_size, num_beams, max_new_tokens], tf.int32)
        return cls(
            beam_parents=parents,
            running_scores=tf.constant([[0.0] + [NO_BEAM] * (num_beams - 1)] * batch_size),
            finished=tf.zeros([batch_size, num_beams, num_fields + 1], tf.int32),
            finished_parents=parents,
            finished_scores=tf.fill([batch_size, num_beams], NO_BEAM),
            **common,
        )

    def visible(self) -> tf.Tensor:
        """Which keys in the KV cache are of the beam's own tokens: `[K, B, N * K]` bool."""
        (batch_size, num_beams), slots = self.running_scores.shape, tf.shape(self.outputs)[1]
        is_written = tf.range(slots) < self.count - 1
        is_own = tf.equal(self.beam_parents[..., None], tf.range(num_beams))
        visible = tf.transpose(is_written[:, None] & is_own, [1, 0, 2, 3])
        return tf.reshape(visible, [num_beams, batch_size, slots * num_beams])

    def output(self, index: int) -> Output:
        """The best finished hypothesis of a text, or its best running beam if none has finished."""
        outputs, count = self.outputs.numpy()[index], int(self.lengths.numpy()[index])
        parents, last = self.beam_parents.numpy()[index, 0], outputs[count - 1, 0]
        finished = self.finished.numpy()[index]
        if finished[:, -1].any():
            *_, count = finished[0]
            parents, last = self.finished_parents.numpy()[index, 0], finished[0, :-1]
        steps = np.arange(max(count - 1, 0))
        return output.read(np.concatenate([outputs[steps, parents[steps]], [last]])[:count])


class _Candidates(NamedTuple):
    """The C candidates of each text, best first, or when sampling in the order of the draw.

    Attributes:
        scores: `[B, C]`, summed log-probabilities. parents: `[B, C]` int32, the running beams that
            they continue. records: `[B, C, F]` int32. is_eos: `[B, C]` bool.
    """

    scores: tf.Tensor
    parents: tf.Tensor
    records: tf.Tensor
    is_eos: tf.Tensor


def select_beams(
    logits: tf.Tensor,
    suppression: tf.Tensor | float,
    prompted: tf.Tensor,
    state: BeamSearchState,
    controls: Controls,
    rules: BeamRules,
) -> BeamSearchState:
    """One step of beam search.

    Args:
        logits: `[B * K, V]`, text by text.
        suppression: added to the scores, broadcastable to `[B * K, V]`.
        prompted: `[B, V]` bool, see `sampling.adjust`.
        state: before the step; its KV cache already has the keys and values of the step.
        controls: one value a text, `[B]`.
    """
    batch_size, num_beams = state.running_scores.shape
    count = state.count + 1
    length = tf.cast(count + rules.forced_tokens, tf.float32)
    max_length = tf.cast(controls.token_limit + rules.forced_tokens, tf.float32)
    stops_when_enough = controls.early_stopping == STOP_WHEN_ENOUGH
    # The current token lies in each beam's own place.
    own = tf.broadcast_to(tf.range(num_beams)[None, :, None], [batch_size, num_beams, 1])
    parents = dynamic_update_slice(state.beam_parents, own, tf.stack([0, 0, state.count - 1]))
    candidates = _candidates(logits, suppression, prompted, state, controls, rules)
    after = _with_running(state, candidates, parents)._replace(count=count)
    ends = candidates.is_eos
    if rules.ends_at_limit:
        ends |= (count >= controls.token_limit)[:, None]
    after = _with_finished(
        after, candidates, ends, parents, length**controls.length_penalty, stops_when_enough
    )
    stops = _stops(after, length, max_length, stops_when_enough, controls)
    return after._replace(
        lengths=tf.where(state.done, state.lengths, count),
        done=state.done
        | (count >= controls.token_limit)
        | stops
        | (count >= tf.shape(state.outputs)[1]),
    )


def _candidates(
    logits: tf.Tensor,
    suppression: tf.Tensor | float,
    prompted: tf.Tensor,
    state: BeamSearchState,
    controls: Controls,
    rules: BeamRules,
) -> _Candidates:
    """Selects the candidates among all continuations of a text's beams, logits `[B * K, V]`."""
    (batch_size, num_beams), vocabulary_size = state.running_scores.shape, logits.shape[1]
    num_candidates = rules.candidates_of_beam * num_beams
    of_beams = sampling.for_each_beam(controls, num_beams)
    logprobs = tf.nn.log_softmax(logits)
    # Hugging Face penalizes log-probabilities here, where it penalizes logits without beams.
    processed = sampling.adjust(logprobs, prompted, state.counts, state.count, controls)
    processed += suppression

    def summed(scores: tf.Tensor) -> tf.Tensor:
        sums = tf.reshape(scores, [batch_size, num_beams, vocabulary_size])
        sums += state.running_scores[:, :, None]
        return tf.reshape(sums, [batch_size, num_beams * vocabulary_size])

    def greedy() -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.math.top_k(summed(processed), num_candidates))

    def sampled() -> tuple[tf.Tensor, tf.Tensor]:
        # Sampling without replacement is taking the best after adding Gumbel noise.
        uniform = sampling.noise(controls.seed, state.count, num_beams * vocabulary_size)
        scores = summed(sampling.filter_scores(processed, of_beams))
        noisy = scores - tf.math.log(-tf.math.log(uniform))
        selected = tf.math.top_k(noisy, num_candidates)[1]
        return tf.gather(scores, selected, batch_dims=1), selected

    scores, selected = sampling.where_sampling(controls, sampled, greedy)
    parents, tokens = selected // vocabulary_size, selected % vocabulary_size
    top_tokens = sampling.top_tokens(logprobs, output.num_top_tokens(state.outputs.shape[3]))
    top_logprobs = tf.gather(logprobs, top_tokens, batch_dims=1)

    def of_parents(x: tf.Tensor) -> tf.Tensor:
        by_text = tf.reshape(x, [batch_size, num_beams, x.shape[1]])
        return tf.gather(by_text, parents, batch_dims=1)

    by_text = tf.reshape(logprobs, [batch_size, num_beams * vocabulary_size])
    records = output.as_records(
        tokens,
        tf.gather(by_text, selected, batch_dims=1),
        of_parents(top_tokens),
        of_parents(top_logprobs),
    )
    return _Candidates(scores, parents, records, sampling.are_ends(tokens, controls))


def _with_running(
    state: BeamSearchState, candidates: _Candidates, beam_parents: tf.Tensor
) -> BeamSearchState:
    """The K best candidates that have not ended become the running beams.

    Args:
        beam_parents: `[B, K, N]`, with the current token.
    """
    num_beams, vocabulary_size = state.counts.shape[1:]
    scores = candidates.scores + tf.cast(candidates.is_eos, tf.float32) * NO_BEAM
    best = tf.math.top_k(scores, num_beams)[1]

    def selected(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, best, batch_dims=1)

    parents, records = selected(candidates.parents), selected(candidates.records)
    is_token = tf.equal(tf.range(vocabulary_size), records[:, :, :1])
    return state._replace(
        outputs=output.write(state.outputs, records, state.count),
        beam_parents=tf.gather(beam_parents, parents, batch_dims=1),
        running_scores=selected(scores),
        counts=tf.gather(state.counts, parents, batch_dims=1) + tf.cast(is_token, tf.int32),
    )


def _with_finished(
    state: BeamSearchState,
    candidates: _Candidates,
    ends: tf.Tensor,
    beam_parents: tf.Tensor,
    divisor: tf.Tensor,
    stops_when_enough: tf.Tensor,
) -> BeamSearchState:
    """The K best of the finished hypotheses and of the candidates that end now.

    Only the K best candidates may end a text, and none where enough have ended.

    Args:
        state: with the finished hypotheses before the step, and the count after it.
        ends: `[B, C]` bool, which of them end a text.
        beam_parents: `[B, K, N]`, of the beams that the candidates continue.
        divisor: `[B]`, length ** length_penalty.
        stops_when_enough: `[B]` bool.
    """
    batch_size, num_beams = state.running_scores.shape
    ends &= tf.range(ends.shape[1]) < num_beams
    enough_ended = tf.reduce_all(_is_finished(state.finished), axis=1) & stops_when_enough
    scores = candidates.scores / divisor[:, None]
    scores += tf.cast(~ends | enough_ended[:, None], tf.float32) * NO_BEAM
    scores = tf.concat([state.finished_scores, scores], axis=1)
    best = tf.math.top_k(scores, num_beams)[1]

    lengths = tf.where(ends, state.count, 0)
    ending = tf.concat([candidates.records, lengths[:, :, None]], axis=2)
    # The hypotheses have their own list of places, the candidates that of the beam they continue.
    before = tf.broadcast_to(tf.range(num_beams), [batch_size, num_beams])
    origins = tf.concat([before, num_beams + candidates.parents], axis=1)
    parents = tf.concat([state.finished_parents, beam_parents], axis=1)
    return state._replace(
        finished=tf.gather(tf.concat([state.finished, ending], axis=1), best, batch_dims=1),
        finished_parents=tf.gather(parents, tf.gather(origins, best, batch_dims=1), batch_dims=1),
        finished_scores=tf.gather(scores, best, batch_dims=1),
    )


def _stops(
    state: BeamSearchState,
    length: tf.Tensor,
    max_length: tf.Tensor,
    stops_when_enough: tf.Tensor,
    controls: Controls,
) -> tf.Tensor:
    """Which texts stop, `[B]` bool: no running beam can improve on them, or enough have ended.

    Args:
        state: with the running beams and the finished hypotheses after the step.
        length: scalar float32, of the running beams. max_length: `[B]`, their limit.
        stops_when_enough: `[B]` bool.
        controls: one value a text, `[B]`.
    """
    is_optimistic = controls.early_stopping == STOP_WHEN_IMPOSSIBLE
    is_optimistic &= controls.length_penalty > 0.0
    length = tf.where(is_optimistic, max_length, length)
    best_possible = state.running_scores[:, 0] / length**controls.length_penalty
    is_finished = _is_finished(state.finished)
    worst = tf.reduce_min(state.finished_scores, axis=1, keepdims=True)
    worst = tf.where(is_finished, worst, NO_BEAM)
    can_improve = tf.reduce_any(best_possible[:, None] > worst, axis=1)
    return ~can_improve | (tf.reduce_all(is_finished, axis=1) & stops_when_enough)


def _is_finished(finished: tf.Tensor) -> tf.Tensor:
    """Which of `[B, K, F + 1]` hold a hypothesis: `[B, K]` bool."""
    return finished[..., -1] > 0
