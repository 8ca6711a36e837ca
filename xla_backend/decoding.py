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
from xla_backend.sampling import FILTERED, STOP_WHEN_ENOUGH, STOP_WHEN_IMPOSSIBLE, Controls

# The score of a beam that is not there, as Hugging Face writes it.
NO_BEAM = -1.0e9

# A in shapes: of how many likeliest tokens each step keeps the probabilities.
LIKELIEST = 5


class Text(NamedTuple):
    """State of greedy search or sampling: B texts of up to N tokens, each of R = 1 row.

    Attributes:
        written: `[B, N, R, F]` int32, a record of each token; see `_record`.
        count: scalar int32, tokens so far of the texts that go on. lengths: `[B]` int32, of each
            text. done: `[B]` bool, which have ended.
        seen: `[B, V]` bool. new: keys and values of the new tokens.
    """

    written: tf.Tensor
    count: tf.Tensor
    lengths: tf.Tensor
    done: tf.Tensor
    seen: tf.Tensor
    new: list[KeysValues]


class Beams(NamedTuple):
    """State of beam search: R beams of each text that run and its R best that ended.

    Beams change places, what they wrote stays: neither records nor keys and values are moved, and
    `writers` says whose they are.

    Attributes:
        written: `[B, N, R, F]` int32, the record of the token that each row took at each step.
        writers: `[B, R, N]` int32, which row wrote each token of each running beam but its last,
            which is its own. scores: `[B, R]`, summed log-probabilities, best first.
        ended: `[B, R, F + 1]` int32, of those that ended: the last token's record, then the length,
            0 where none has ended. ended_writers: `[B, R, N]`, of all tokens but the last.
            ended_scores: `[B, R]`, divided by length ** length_penalty, best first.
        seen: `[B, R, V]` bool.
        count, lengths, done, new: as in `Text`.
    """

    written: tf.Tensor
    writers: tf.Tensor
    scores: tf.Tensor
    ended: tf.Tensor
    ended_writers: tf.Tensor
    ended_scores: tf.Tensor
    count: tf.Tensor
    lengths: tf.Tensor
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

    def initial_state(self, num_beams: int, slots: int, batch_size: int = 1) -> Text | Beams:
        """The state before the first token, for texts of up to `slots` tokens."""
        vocabulary = self.model.vocabulary_size
        each = [batch_size] if num_beams == 1 else [batch_size, num_beams]
        fields = 2 + 2 * min(LIKELIEST, vocabulary)
        common = {
            "written": tf.zeros([batch_size, slots, num_beams, fields], tf.int32),
            "count": tf.constant(0),
            "lengths": tf.zeros([batch_size], tf.int32),
            "done": tf.zeros([batch_size], tf.bool),
            "seen": tf.zeros([*each, vocabulary], tf.bool),
            "new": self.model.empty_new(batch_size, num_beams, slots),
        }
        if num_beams == 1:
            return Text(**common)
        return Beams(
            writers=tf.zeros([*each, slots], tf.int32),
            scores=tf.constant([[0.0] + [NO_BEAM] * (num_beams - 1)] * batch_size),
            ended=tf.zeros([*each, fields + 1], tf.int32),
            ended_writers=tf.zeros([*each, slots], tf.int32),
            ended_scores=tf.fill(each, NO_BEAM),
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
        """Adds up to `steps` tokens to each text that has not ended.

        Args:
            steps: scalar int32; zero runs nothing.
            reals, integers: the options, from `sampling.pack`.
            prefilled: from `prefill`, side by side.
            state: from `initial_state` or an earlier call.
        """
        controls = sampling.unpack(reals, integers)
        choose = _choose_text if isinstance(state, Text) else _choose_beams
        texts, vocabulary = state.seen.shape[0], state.seen.shape[-1]
        rows = state.new[0].keys.shape[2]
        # Loops carry flat lists: a NamedTuple with a list inside does not survive them.
        structure = state.new

        def more(step: tf.Tensor, state: Text | Beams, new: list[tf.Tensor]) -> tf.Tensor:
            return (step < steps) & ~tf.reduce_all(state.done)

        def one(step: tf.Tensor, state: Text | Beams, new: list[tf.Tensor]) -> tuple:
            index = state.count - 1

            def run_model() -> tuple[tf.Tensor, list[tf.Tensor]]:
                fed = tf.gather(state.written, index, axis=1)[..., 0]
                kept = tf.nest.pack_sequence_as(structure, new)
                bias = tf.where(_visible(state), 0.0, MASKED)
                logits, own = self.model.step(
                    tf.transpose(fed), index, prefilled.context, kept, bias
                )
                return logits, tf.nest.flatten(own)

            def take_prefilled() -> tuple[tf.Tensor, list[tf.Tensor]]:
                nothing = [tf.zeros([rows, x.shape[0], x.shape[3]]) for x in new]
                logits = tf.broadcast_to(prefilled.logits[:, None], [texts, rows, vocabulary])
                return tf.reshape(logits, [texts * rows, vocabulary]), nothing

            # Choosing stands in the loop once, for the first token too: it is a quarter of what
            # XLA compiles.
            is_first = state.count == 0
            given = tf.reshape(prefilled.seen, [texts, *[1] * (len(state.seen.shape) - 2), -1])
            state = state._replace(seen=state.seen | (is_first & given))
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
        """What is added to scores `[B * R, V]` so that suppressed tokens are not chosen."""
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
    """Which keys of new tokens a row may look at: those of its own beam so far.

    Returns:
        Broadcastable to `[R, B, N * R]`.
    """
    slots = tf.shape(state.written)[1]
    visible = tf.range(slots) < state.count - 1
    if isinstance(state, Text):
        return visible[None, None, :]
    texts, rows = state.scores.shape
    visible = visible[:, None] & tf.equal(state.writers[..., None], tf.range(rows))
    return tf.reshape(tf.transpose(visible, [1, 0, 2, 3]), [rows, texts, slots * rows])


def _record(
    tokens: tf.Tensor, logprobs: tf.Tensor, likeliest: tf.Tensor, likeliest_logprobs: tf.Tensor
) -> tf.Tensor:
    """All that is kept of a step, as one tensor: for each further one XLA would compile as much.

    Args:
        tokens: `[...]` int32. logprobs: `[...]`, of each before penalties and filters.
        likeliest: `[..., A]` int32, the tokens that the model found likeliest in the place of
            each, best first, before penalties and filters. likeliest_logprobs: `[..., A]`, theirs.

    Returns:
        `[..., F]` int32, of reals the bits; F is 2 + 2 A.
    """
    parts = [tokens[..., None], logprobs[..., None], likeliest, likeliest_logprobs]
    bits = [x if x.dtype == tf.int32 else tf.bitcast(x, tf.int32) for x in parts]
    return tf.concat(bits, axis=-1)


def _choose_text(
    decoder: Decoder,
    logits: tf.Tensor,
    suppression: tf.Tensor | float,
    state: Text,
    controls: Controls,
) -> Text:
    texts = logits.shape[0]
    scores = sampling.penalize(logits, state.seen, controls.repetition_penalty) + suppression

    def sampled() -> tf.Tensor:
        uniform = sampling.noise(controls.seed, state.count, 1)[:, 0]
        return sampling.draw(sampling.weigh(scores, controls), uniform)[:, None]

    def greedy() -> tf.Tensor:
        return tf.argmax(scores, axis=-1, output_type=tf.int32)[:, None]

    token = sampling.where_sampling(controls, sampled, greedy)
    likeliest = sampling.likeliest(logits, _listed(state))
    told = tf.concat([token, likeliest], axis=1)
    logprobs = tf.gather(tf.nn.log_softmax(logits), told, batch_dims=1)
    record = _record(token[:, 0], logprobs[:, 0], likeliest, logprobs[:, 1:])
    count = state.count + 1
    seen = state.seen
    for text in range(texts):
        seen = dynamic_update_slice(seen, tf.constant([[True]]), tf.stack([text, token[text, 0]]))
    return state._replace(
        written=_write(state, record[:, None]),
        count=count,
        lengths=tf.where(state.done, state.lengths, count),
        done=state.done | decoder._is_eos(token)[:, 0] | (count >= controls.token_limit),
        seen=seen,
    )


def _listed(state: Text | Beams) -> int:
    """How many of the likeliest tokens a record holds."""
    return (state.written.shape[3] - 2) // 2


def _write(state: Text | Beams, records: tf.Tensor) -> tf.Tensor:
    """`written` with those of a step, `[B, R, F]`.

    A text that has ended is written on, beyond its length: nobody reads that.
    """
    return dynamic_update_slice(state.written, records[:, None], tf.stack([0, state.count, 0, 0]))


def _choose_beams(
    decoder: Decoder,
    logits: tf.Tensor,
    suppression: tf.Tensor | float,
    state: Beams,
    controls: Controls,
) -> Beams:
    """One step of beam search, rule for rule as `generate` does it in Transformers 4.57."""
    (texts, rows), slots = state.scores.shape, tf.shape(state.written)[1]
    vocabulary = logits.shape[1]
    of_rows = sampling.for_each_row(controls, rows)
    raw = tf.nn.log_softmax(logits)
    # Hugging Face penalises log-probabilities here, where it penalises logits without beams.
    seen = tf.reshape(state.seen, logits.shape)
    scores = sampling.penalize(raw, seen, of_rows.repetition_penalty) + suppression

    def totals(scores: tf.Tensor) -> tf.Tensor:
        sums = tf.reshape(scores, [texts, rows, vocabulary]) + state.scores[:, :, None]
        return tf.reshape(sums, [texts, rows * vocabulary])

    # Twice as many candidates as beams: even if half of them end, every beam goes on.
    def likeliest() -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.math.top_k(totals(scores), 2 * rows))

    def drawn() -> tuple[tf.Tensor, tf.Tensor]:
        # Drawing without replacement is taking the best after adding Gumbel noise.
        uniform = sampling.noise(controls.seed, state.count, rows * vocabulary)
        filtered = totals(sampling.filter_scores(scores, of_rows))
        picked = tf.math.top_k(filtered - tf.math.log(-tf.math.log(uniform)), 2 * rows)[1]
        return tf.gather(filtered, picked, batch_dims=1), picked

    candidate_scores, picked = sampling.where_sampling(controls, drawn, likeliest)
    parents, tokens = picked // vocabulary, picked % vocabulary
    logprobs = tf.gather(tf.reshape(raw, [texts, rows * vocabulary]), picked, batch_dims=1)
    likeliest = sampling.likeliest(raw, _listed(state))
    likeliest_logprobs = tf.gather(raw, likeliest, batch_dims=1)

    def of_parents(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(x, [texts, rows, x.shape[1]]), parents, batch_dims=1)

    records = _record(tokens, logprobs, of_parents(likeliest), of_parents(likeliest_logprobs))
    is_eos = decoder._is_eos(tokens)

    # Candidates that ended cannot run on.
    running_scores = candidate_scores + tf.cast(is_eos, tf.float32) * NO_BEAM
    running = tf.math.top_k(running_scores, rows)[1]

    def keep_running(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, running, batch_dims=1)

    # Only the better half may end a text, and none any more once enough have ended.
    count = state.count + 1
    length = tf.cast(count + decoder.forced_tokens, tf.float32)
    just_ended = is_eos & (tf.range(2 * rows) < rows)
    stops_when_enough = controls.early_stopping == STOP_WHEN_ENOUGH
    is_full = tf.reduce_all(_has_ended(state.ended), axis=1) & stops_when_enough
    final_scores = candidate_scores / (length**controls.length_penalty)[:, None]
    final_scores += tf.cast(~just_ended | is_full[:, None], tf.float32) * NO_BEAM
    all_scores = tf.concat([state.ended_scores, final_scores], 1)
    best = tf.math.top_k(all_scores, rows)[1]

    scores = keep_running(running_scores)
    ended_scores = tf.gather(all_scores, best, batch_dims=1)
    lengths = tf.where(just_ended, count, 0)
    just = tf.concat([records, lengths[:, :, None]], axis=2)
    ended = tf.gather(tf.concat([state.ended, just], axis=1), best, batch_dims=1)
    has_ended = _has_ended(ended)

    # Can a running beam still beat the ended ones?
    longest = tf.cast(controls.token_limit + decoder.forced_tokens, tf.float32)
    optimistic = (controls.early_stopping == STOP_WHEN_IMPOSSIBLE) & (controls.length_penalty > 0.0)
    best_possible = scores[:, 0] / tf.where(optimistic, longest, length) ** controls.length_penalty
    worst_ended = tf.where(has_ended, tf.reduce_min(ended_scores, axis=1, keepdims=True), NO_BEAM)
    can_improve = tf.reduce_any(best_possible[:, None] > worst_ended, axis=1)
    is_enough = tf.reduce_all(has_ended, axis=1) & stops_when_enough

    parents_of_running, records_of_running = keep_running(parents), keep_running(records)
    seen = tf.gather(state.seen, parents_of_running, batch_dims=1)
    seen |= tf.range(vocabulary) == records_of_running[:, :, :1]
    # What the model was just fed, each row has written itself.
    own = tf.broadcast_to(tf.range(rows)[None, :, None], [texts, rows, 1])
    writers = dynamic_update_slice(state.writers, own, tf.stack([0, 0, state.count - 1]))
    # Of those that had ended before, and then of the parents of those that have just ended.
    before = tf.broadcast_to(tf.range(rows), [texts, rows])
    origins = tf.gather(tf.concat([before, rows + parents], axis=1), best, batch_dims=1)
    all_writers = tf.concat([state.ended_writers, writers], axis=1)
    after = Beams(
        written=_write(state, records_of_running),
        writers=tf.gather(writers, parents_of_running, batch_dims=1),
        scores=scores,
        ended=ended,
        ended_writers=tf.gather(all_writers, origins, batch_dims=1),
        ended_scores=ended_scores,
        count=count,
        lengths=tf.where(state.done, state.lengths, count),
        done=state.done
        | (count >= controls.token_limit)
        | ~can_improve
        | is_enough
        | (count >= slots),
        seen=seen,
        new=state.new,
    )
    return after if texts == 1 else _without_ended(state, after)


def _has_ended(ended: tf.Tensor) -> tf.Tensor:
    """Of `[B, R, F + 1]`: which hold a text that has ended, `[B, R]` bool."""
    return ended[..., -1] > 0


def _without_ended(before: Beams, after: Beams) -> Beams:
    """The state after a step of which texts that had ended before take no part."""

    def kept(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.reshape(before.done, [-1, *[1] * (len(old.shape) - 1)]), old, new)

    read = {name: getattr(after, name) for name in _READ_AT_THE_END}
    return after._replace(**{name: kept(getattr(before, name), new) for name, new in read.items()})


_READ_AT_THE_END = ("writers", "ended", "ended_writers", "ended_scores")


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


def chosen(state: Text | Beams, text: int) -> Chosen:
    """One of the texts; for beams the best one that ended, or the best running one if none has."""
    written, count = state.written.numpy()[text], int(state.lengths.numpy()[text])
    if isinstance(state, Text):
        return _read(written[:count, 0])
    writers, last = state.writers.numpy()[text, 0], written[count - 1, 0]
    ended = state.ended.numpy()[text]
    if ended[:, -1].any():
        *_, count = ended[0]
        writers, last = state.ended_writers.numpy()[text, 0], ended[0, :-1]
    steps = np.arange(max(count - 1, 0))
    return _read(np.concatenate([written[steps, writers[steps]], [last]])[:count])


def _read(records: np.ndarray) -> Chosen:
    """The inverse of `_record`, `[n, F]`."""
    listed = (records.shape[1] - 2) // 2
    reals = records.view(np.float32)
    return Chosen(records[:, 0], reals[:, 1], records[:, 2 : 2 + listed], reals[:, 2 + listed :])
