"""The loops: greedy search and sampling, and beam search, as pure TensorFlow for XLA.

Knows how tokens follow from logits and when a text ends; the model is whatever offers `prefill` and
`step` (see `families.model`). Must not know architectures, keys, files or time. Two functions serve
every request: `prefill` runs the prompt, `decode` adds up to `steps` tokens to a state. `steps` is
a runtime tensor, so one executable serves one token, a chunk of a stream or a whole text, and with
zero steps nothing runs, which is how compiling is timed apart from running. Axes: see
`families.blocks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend import sampling
from xla_backend.families.blocks import MASKED, KeysValues, dynamic_update_slice, write_slot
from xla_backend.families.model import Model, Prefilled
from xla_backend.operations import log_softmax
from xla_backend.sampling import FILTERED, STOP_WHEN_ENOUGH, STOP_WHEN_IMPOSSIBLE, Controls

# The score of a beam that is not there, as Hugging Face writes it.
NO_BEAM = -1.0e9

# A in shapes: of how many likeliest tokens each step keeps the probabilities.
LIKELIEST = 5


class Text(NamedTuple):
    """State of greedy search or sampling: one text of up to N tokens.

    Attributes:
        tokens: `[N]` int32. logprobs: `[N]`, of each token before penalties and filters.
        likeliest: `[N, A]` int32, the tokens that the model found likeliest in the place of each,
            best first, before penalties and filters. likeliest_logprobs: `[N, A]`, theirs.
        count: scalar int32, tokens so far. done: scalar bool.
        seen: `[1, V]` bool. new: keys and values of the new tokens.
    """

    tokens: tf.Tensor
    logprobs: tf.Tensor
    likeliest: tf.Tensor
    likeliest_logprobs: tf.Tensor
    count: tf.Tensor
    done: tf.Tensor
    seen: tf.Tensor
    new: list[KeysValues]


class Beams(NamedTuple):
    """State of beam search over R beams: the R texts that run and the R best that ended.

    Attributes:
        tokens, logprobs: `[R, N]`, of the running texts. scores: `[R]`, their summed
            log-probabilities, best first. likeliest, likeliest_logprobs: `[R, N, A]`.
        ended_tokens, ended_logprobs: `[R, N]`. ended_lengths: `[R]` int32.
        ended_likeliest, ended_likeliest_logprobs: `[R, N, A]`.
        ended_scores: `[R]`, divided by length ** length_penalty. ended: `[R]` bool.
        writers: `[R, N]` int32, which row wrote the keys and values of each token of each text:
            beams change places, what they wrote stays.
        count, done, seen, new: as in `Text`, with R rows.
    """

    tokens: tf.Tensor
    logprobs: tf.Tensor
    likeliest: tf.Tensor
    likeliest_logprobs: tf.Tensor
    scores: tf.Tensor
    ended_tokens: tf.Tensor
    ended_logprobs: tf.Tensor
    ended_likeliest: tf.Tensor
    ended_likeliest_logprobs: tf.Tensor
    ended_lengths: tf.Tensor
    ended_scores: tf.Tensor
    ended: tf.Tensor
    writers: tf.Tensor
    count: tf.Tensor
    done: tf.Tensor
    seen: tf.Tensor
    new: list[KeysValues]


@dataclass(frozen=True)
class Decoder:
    """The loops over one model.

    Attributes:
        model: see `Model`.
        eos_token_ids: tokens that end a text.
        suppressed: tokens that may never be chosen. suppressed_first: nor as the first one.
        forced_tokens: tokens that the decoder prompt holds beyond its start token; Hugging Face
            counts them as generated where beam scores are divided by the length.
    """

    model: Model
    eos_token_ids: tuple[int, ...]
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    forced_tokens: int = 0

    def prefill(self, run: tf.Tensor, *inputs: tf.Tensor) -> Prefilled:
        """Runs the prompt, or with `run` (scalar bool) false returns zeros of the same shapes."""
        outputs = None

        def running() -> Prefilled:
            nonlocal outputs
            outputs = self.model.prefill(*inputs)
            return outputs

        def nothing() -> Prefilled:
            # Traced after `running`. The only size a trace leaves open is the padded length.
            open_size = tf.shape(inputs[0])[0]

            def zeros(x: tf.Tensor) -> tf.Tensor:
                return tf.zeros([open_size if d is None else d for d in x.shape], x.dtype)

            return tf.nest.map_structure(zeros, outputs)

        return tf.cond(run, running, nothing)

    def initial_state(self, num_beams: int, slots: int) -> Text | Beams:
        """The state before the first token, for texts of up to `slots` tokens."""
        rows, vocabulary = num_beams, self.model.vocabulary_size
        common = {
            "count": tf.constant(0),
            "done": tf.constant(False),
            "seen": tf.zeros([rows, vocabulary], tf.bool),
            "new": self.model.empty_new(rows, slots),
        }
        listed = min(LIKELIEST, vocabulary)
        if num_beams == 1:
            return Text(
                tokens=tf.zeros([slots], tf.int32),
                logprobs=tf.zeros([slots]),
                likeliest=tf.zeros([slots, listed], tf.int32),
                likeliest_logprobs=tf.zeros([slots, listed]),
                **common,
            )
        return Beams(
            tokens=tf.zeros([rows, slots], tf.int32),
            logprobs=tf.zeros([rows, slots]),
            likeliest=tf.zeros([rows, slots, listed], tf.int32),
            likeliest_logprobs=tf.zeros([rows, slots, listed]),
            scores=tf.constant([0.0] + [NO_BEAM] * (rows - 1)),
            ended_tokens=tf.zeros([rows, slots], tf.int32),
            ended_logprobs=tf.zeros([rows, slots]),
            ended_likeliest=tf.zeros([rows, slots, listed], tf.int32),
            ended_likeliest_logprobs=tf.zeros([rows, slots, listed]),
            ended_lengths=tf.zeros([rows], tf.int32),
            ended_scores=tf.fill([rows], NO_BEAM),
            ended=tf.zeros([rows], tf.bool),
            writers=tf.zeros([rows, slots], tf.int32),
            **common,
        )

    def decode(
        self,
        steps: tf.Tensor,
        reals: tf.Tensor,
        integers: tf.Tensor,
        prefilled: Prefilled,
        state: Text | Beams,
    ) -> Text | Beams:
        """Adds up to `steps` tokens.

        Args:
            steps: scalar int32; zero runs nothing.
            reals, integers: the options, from `sampling.pack`.
            prefilled: from `prefill`.
            state: from `initial_state` or an earlier call.
        """
        controls = sampling.unpack(reals, integers)
        choose = _choose_text if isinstance(state, Text) else _choose_beams
        rows, vocabulary = state.seen.shape
        # Loops carry flat lists: a NamedTuple with a list inside does not survive them.
        structure = state.new

        def more(step: tf.Tensor, state: Text | Beams, new: list[tf.Tensor]) -> tf.Tensor:
            return (step < steps) & ~state.done

        def one(step: tf.Tensor, state: Text | Beams, new: list[tf.Tensor]) -> tuple:
            index = state.count - 1

            def run_model() -> tuple[tf.Tensor, list[tf.Tensor]]:
                fed = tf.reshape(tf.gather(state.tokens, index, axis=-1), [rows])
                kept = tf.nest.pack_sequence_as(structure, new)
                bias = tf.where(_visible(state), 0.0, MASKED)
                logits, own = self.model.step(fed, index, prefilled.context, kept, bias)
                return logits, tf.nest.flatten(own)

            def take_prefilled() -> tuple[tf.Tensor, list[tf.Tensor]]:
                nothing = [tf.zeros([rows, x.shape[0], x.shape[3]]) for x in new]
                return tf.broadcast_to(prefilled.logits, [rows, vocabulary]), nothing

            # Choosing stands in the loop once, for the first token too: it is a quarter of what
            # XLA compiles.
            is_first = state.count == 0
            state = state._replace(
                seen=state.seen | (is_first & prefilled.seen),
            )
            logits, own = tf.cond(is_first, take_prefilled, run_model)
            # Before the first token this writes zeros into slot 0, which the first one then takes.
            new = [write_slot(x, fresh, index) for x, fresh in zip(new, own, strict=True)]
            state = choose(self, logits, self._suppression(is_first), state, controls)
            return step + 1, state, new

        _, state, new = tf.while_loop(
            more, one, (0, state._replace(new=[]), tf.nest.flatten(structure))
        )
        return state._replace(new=tf.nest.pack_sequence_as(structure, new))

    def _suppression(self, is_first: tf.Tensor) -> tf.Tensor | float:
        """What is added to scores `[R, V]` so that suppressed tokens are not chosen."""
        if not self.suppressed and not self.suppressed_first:
            return 0.0
        always, first = (
            np.zeros(self.model.vocabulary_size, np.float32),
            np.zeros(self.model.vocabulary_size, np.float32),
        )
        # A checkpoint may list tokens beyond its own vocabulary.
        for tokens, added in ((self.suppressed, always), (self.suppressed_first, first)):
            added[[token for token in tokens if 0 <= token < len(added)]] = FILTERED
        return tf.where(is_first, np.minimum(always, first), always)

    def _is_eos(self, tokens: tf.Tensor) -> tf.Tensor:
        hits = [tf.equal(tokens, eos) for eos in self.eos_token_ids]
        return tf.reduce_any(tf.stack(hits), axis=0) if hits else tf.zeros_like(tokens, tf.bool)


def _visible(state: Text | Beams) -> tf.Tensor:
    """Which keys of new tokens a row may look at: those of its own text so far, `[R, N * R]`."""
    rows, slots = state.seen.shape[0], tf.shape(state.tokens)[-1]
    visible = tf.range(slots)[:, None] < state.count - 1
    if isinstance(state, Text):
        return tf.transpose(visible)
    visible &= tf.equal(state.writers[:, :, None], tf.range(rows))
    return tf.reshape(visible, [rows, slots * rows])


def _choose_text(
    decoder: Decoder,
    logits: tf.Tensor,
    suppression: tf.Tensor | float,
    state: Text,
    controls: Controls,
) -> Text:
    scores = sampling.penalize(logits, state.seen, controls.repetition_penalty) + suppression

    def sampled() -> tf.Tensor:
        uniform = sampling.noise(controls.seed, state.count, 1)
        return sampling.draw(sampling.filter_scores(scores, controls), uniform)

    token = tf.cond(
        controls.do_sample > 0,
        sampled,
        lambda: tf.argmax(scores, axis=-1, output_type=tf.int32),
    )
    likeliest = sampling.likeliest(logits, state.likeliest.shape[1])
    told = tf.concat([token[:, None], likeliest], axis=1)
    logprobs = tf.gather(log_softmax(logits), told, batch_dims=1)
    count, row = state.count + 1, tf.stack([state.count, 0])
    return state._replace(
        tokens=dynamic_update_slice(state.tokens, token, state.count[None]),
        logprobs=dynamic_update_slice(state.logprobs, logprobs[:, 0], state.count[None]),
        likeliest=dynamic_update_slice(state.likeliest, likeliest, row),
        likeliest_logprobs=dynamic_update_slice(state.likeliest_logprobs, logprobs[:, 1:], row),
        count=count,
        done=decoder._is_eos(token)[0] | (count >= controls.token_limit),
        seen=dynamic_update_slice(state.seen, tf.constant([[True]]), tf.stack([0, token[0]])),
    )


def _choose_beams(
    decoder: Decoder,
    logits: tf.Tensor,
    suppression: tf.Tensor | float,
    state: Beams,
    controls: Controls,
) -> Beams:
    """One step of beam search, rule for rule as `generate` does it in Transformers 4.57."""
    rows, slots = state.tokens.shape[0], tf.shape(state.tokens)[1]
    vocabulary = logits.shape[1]
    raw = log_softmax(logits)
    # Hugging Face penalises log-probabilities here, where it penalises logits without beams.
    scores = sampling.penalize(raw, state.seen, controls.repetition_penalty) + suppression
    scores = tf.cond(
        controls.do_sample > 0, lambda: sampling.filter_scores(scores, controls), lambda: scores
    )
    totals = tf.reshape(scores + state.scores[:, None], [rows * vocabulary])

    # Twice as many candidates as beams: even if half of them end, every beam goes on.
    def likeliest() -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.math.top_k(totals, 2 * rows))

    def drawn() -> tuple[tf.Tensor, tf.Tensor]:
        # Drawing without replacement is taking the best after adding Gumbel noise.
        uniform = sampling.noise(controls.seed, state.count, rows * vocabulary)
        picked = tf.math.top_k(totals - tf.math.log(-tf.math.log(uniform)), 2 * rows)[1]
        return tf.gather(totals, picked), picked

    candidate_scores, picked = tf.cond(controls.do_sample > 0, drawn, likeliest)
    parents, tokens = picked // vocabulary, picked % vocabulary
    logprobs = tf.gather(tf.reshape(raw, [-1]), picked)
    likeliest = sampling.likeliest(raw, state.likeliest.shape[2])
    likeliest_logprobs = tf.gather(raw, likeliest, batch_dims=1)

    def extend(history: tf.Tensor, latest: tf.Tensor) -> tf.Tensor:
        kept = tf.gather(history, parents)
        place = tf.stack([0, state.count, 0][: len(history.shape)])
        return dynamic_update_slice(kept, latest[:, None], place)

    candidates, candidate_logprobs = extend(state.tokens, tokens), extend(state.logprobs, logprobs)
    candidate_likeliest = extend(state.likeliest, tf.gather(likeliest, parents))
    candidate_likeliest_logprobs = extend(
        state.likeliest_logprobs, tf.gather(likeliest_logprobs, parents)
    )
    is_eos = decoder._is_eos(tokens)

    # Candidates that ended cannot run on.
    running_scores = candidate_scores + tf.cast(is_eos, tf.float32) * NO_BEAM
    running = tf.math.top_k(running_scores, rows)[1]

    # Only the better half may end a text, and none any more once enough have ended.
    count = state.count + 1
    length = tf.cast(count + decoder.forced_tokens, tf.float32)
    just_ended = is_eos & (tf.range(2 * rows) < rows)
    is_full = tf.reduce_all(state.ended) & (controls.early_stopping == STOP_WHEN_ENOUGH)
    final_scores = candidate_scores / length**controls.length_penalty
    final_scores += tf.cast(~just_ended | is_full, tf.float32) * NO_BEAM
    all_scores = tf.concat([state.ended_scores, final_scores], 0)
    best = tf.math.top_k(all_scores, rows)[1]

    def keep_best(old: tf.Tensor, fresh: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.concat([old, fresh], 0), best)

    scores = tf.gather(running_scores, running)
    ended_scores = tf.gather(all_scores, best)
    ended = keep_best(state.ended, just_ended)

    # Can a running text still beat the ended ones?
    longest = tf.cast(controls.token_limit + decoder.forced_tokens, tf.float32)
    optimistic = (controls.early_stopping == STOP_WHEN_IMPOSSIBLE) & (controls.length_penalty > 0.0)
    best_possible = scores[0] / tf.where(optimistic, longest, length) ** controls.length_penalty
    worst_ended = tf.where(ended, tf.reduce_min(ended_scores), NO_BEAM)
    can_improve = tf.reduce_any(best_possible > worst_ended)
    is_enough = tf.reduce_all(ended) & (controls.early_stopping == STOP_WHEN_ENOUGH)

    parents_of_running = tf.gather(parents, running)
    seen = tf.gather(state.seen, parents_of_running)
    seen |= tf.range(vocabulary)[None, :] == tf.gather(tokens, running)[:, None]
    # What the model was just fed, each row has written itself.
    writers = dynamic_update_slice(
        state.writers, tf.range(rows)[:, None], tf.stack([0, state.count - 1])
    )
    return Beams(
        tokens=tf.gather(candidates, running),
        logprobs=tf.gather(candidate_logprobs, running),
        likeliest=tf.gather(candidate_likeliest, running),
        likeliest_logprobs=tf.gather(candidate_likeliest_logprobs, running),
        scores=scores,
        ended_tokens=keep_best(state.ended_tokens, candidates),
        ended_logprobs=keep_best(state.ended_logprobs, candidate_logprobs),
        ended_likeliest=keep_best(state.ended_likeliest, candidate_likeliest),
        ended_likeliest_logprobs=keep_best(
            state.ended_likeliest_logprobs, candidate_likeliest_logprobs
        ),
        ended_lengths=keep_best(state.ended_lengths, tf.fill([2 * rows], count)),
        ended_scores=ended_scores,
        ended=ended,
        writers=tf.gather(writers, parents_of_running),
        count=count,
        done=(count >= controls.token_limit) | ~can_improve | is_enough | (count >= slots),
        seen=seen,
        new=state.new,
    )


class Chosen(NamedTuple):
    """The text that a state stands for, n tokens.

    Attributes:
        tokens: `[n]` int32. logprobs: `[n]`.
        likeliest: `[n, A]` int32. likeliest_logprobs: `[n, A]`. See `Text`.
    """

    tokens: np.ndarray
    logprobs: np.ndarray
    likeliest: np.ndarray
    likeliest_logprobs: np.ndarray


def chosen(state: Text | Beams) -> Chosen:
    """For beams this is the best text that ended, or the best running one if none has."""
    texts = Chosen(state.tokens, state.logprobs, state.likeliest, state.likeliest_logprobs)
    if isinstance(state, Text):
        count = int(state.count)
        return Chosen(*(values.numpy()[:count] for values in texts))
    count = int(state.count)
    if bool(tf.reduce_any(state.ended)):
        count = int(state.ended_lengths[0])
        texts = Chosen(
            state.ended_tokens,
            state.ended_logprobs,
            state.ended_likeliest,
            state.ended_likeliest_logprobs,
        )
    return Chosen(*(values.numpy()[0, :count] for values in texts))
