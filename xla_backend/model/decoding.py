"""The decoding loop: greedy search, sampling and beam search, as pure TensorFlow for XLA.

Knows how tokens follow from logits and when a text ends; the model is any that offers `prefill` and
`step` (see `families.model`). Must not know architectures, keys, files or time. Two functions serve
every request: `prefill` runs the prompt (`extend` runs it chunk by chunk), `decode` adds up to
`steps` tokens to a state. `steps` is a runtime tensor, so one executable serves one token, a chunk
of a stream or a whole text, and with zero steps nothing runs, which is how compiling is timed apart
from running. Axes: see `families.blocks`; F fields of a record: see `output`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from xla_backend.model import output, prompt_lookup, sampling
from xla_backend.model.beam_search import BeamRules, BeamSearchState, select_beams
from xla_backend.model.families.blocks import (
    MASKED,
    KeysValues,
    dynamic_update_slice,
    write_kv_cache,
)
from xla_backend.model.families.model import Chunk, GrowingModel, Model, Prefilled
from xla_backend.model.output import Output
from xla_backend.model.prompt_lookup import Lookup
from xla_backend.model.sampling import FILTERED, Controls


class SingleBeamState(NamedTuple):
    """State of greedy search or sampling: B texts of up to N tokens, with K = 1.

    Attributes:
        outputs: `[B, N, 1, F]` int32, the record of each token.
        count: scalar int32, tokens so far of the texts that go on. lengths: `[B]` int32, of each
            text. done: `[B]` bool, which have ended.
        counts: `[B, V]` int32, how often each token was generated.
        kv_cache: keys and values of the new tokens, `[G, N, 1, D]` a layer; with drafts, of T more.
        lookup: with drafts (B = 1), where they come from.
    """

    outputs: tf.Tensor
    count: tf.Tensor
    lengths: tf.Tensor
    done: tf.Tensor
    counts: tf.Tensor
    kv_cache: list[KeysValues]
    lookup: Lookup | tuple[()] = ()

    def visible(self) -> tf.Tensor:
        """Which keys in the KV cache are written: `[1, 1, N]` bool."""
        return (tf.range(tf.shape(self.outputs)[1]) < self.count - 1)[None, None, :]

    def output(self, index: int) -> Output:
        """The output of a text so far."""
        length = int(self.lengths.numpy()[index])
        return output.read(self.outputs.numpy()[index, :length, 0])


State = SingleBeamState | BeamSearchState


def _only_if(run: tf.Tensor, function: Callable[..., Any], *inputs: Any) -> Any:
    """A function's result; where `run` (scalar bool) is false, zeros of the same shapes."""
    outputs = None

    def running() -> Any:
        nonlocal outputs
        outputs = function(*inputs)
        return outputs

    def nothing() -> Any:
        # Traced after `running`. The only size that a result leaves open is that of the input.
        length = tf.shape(inputs[0])[0]

        def zeros(x: tf.Tensor) -> tf.Tensor:
            return tf.zeros([length if d is None else d for d in x.shape], x.dtype)

        return tf.nest.map_structure(zeros, outputs)

    return tf.cond(run, running, nothing)


@dataclass(frozen=True)
class Decoder:
    """The decoding loop over one model.

    Attributes:
        model: see `Model`.
        rules: how texts end.
        suppressed: tokens that are never selected. suppressed_first: nor as the first one.
        num_drafts: T, how many drafts a pass verifies, of one text with one beam; 0 for none. The
            model is a `GrowingModel` then.
    """

    model: Model
    rules: BeamRules
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    num_drafts: int = 0

    def prefill(self, run: tf.Tensor, *inputs: tf.Tensor) -> Prefilled:
        """Runs the prompt; where `run` (scalar bool) is false, returns zeros of the same shapes."""
        return _only_if(run, self.model.prefill, *inputs)

    def extend(self, run: tf.Tensor, *inputs: Any) -> Chunk:
        """Runs a chunk of a prompt, likewise; see `GrowingModel`."""
        return _only_if(run, cast("GrowingModel", self.model).extend, *inputs)

    def initial_state(
        self, num_beams: int, max_new_tokens: int, padded_length: int, batch_size: int = 1
    ) -> State:
        """The state before the first token."""
        vocabulary_size = self.model.vocabulary_size
        num_fields = output.num_fields(vocabulary_size)
        each = [batch_size] if num_beams == 1 else [batch_size, num_beams]
        common = {
            "outputs": tf.zeros([batch_size, max_new_tokens, num_beams, num_fields], tf.int32),
            "count": tf.constant(0),
            "lengths": tf.zeros([batch_size], tf.int32),
            "done": tf.zeros([batch_size], tf.bool),
            "counts": tf.zeros([*each, vocabulary_size], tf.int32),
            "kv_cache": self.model.empty_kv_cache(
                batch_size, num_beams, max_new_tokens + self.num_drafts
            ),
        }
        if self.num_drafts:
            return SingleBeamState(**common, lookup=Lookup.initial(padded_length, max_new_tokens))
        return (SingleBeamState if num_beams == 1 else BeamSearchState.initial)(**common)

    def decode(
        self,
        steps: tf.Tensor,
        reals: tf.Tensor,
        integers: tf.Tensor,
        logit_bias: tf.Tensor,
        prefilled: Prefilled,
        state: State,
    ) -> State:
        """Adds up to `steps` tokens to each text that has not ended; with drafts, up to T more.

        Args:
            steps: scalar int32; zero runs nothing.
            reals, integers, logit_bias: the options, from `sampling.pack`.
            prefilled: from `prefill`, of one text or of several as one batch.
            state: from `initial_state` or an earlier call.
        """
        controls = sampling.unpack(reals, integers, logit_bias)
        batch_size, vocabulary_size = state.counts.shape[0], state.counts.shape[-1]
        num_beams = state.kv_cache[0].keys.shape[2]
        # Loops carry flat lists: a NamedTuple with a list inside does not survive them.
        structure = state.kv_cache

        def goes_on(step: tf.Tensor, state: State, kv_cache: list[tf.Tensor]) -> tf.Tensor:
            return (step < steps) & ~tf.reduce_all(state.done)

        def one_pass(step: tf.Tensor, state: SingleBeamState, kv_cache: list[tf.Tensor]) -> tuple:
            packed = tf.nest.pack_sequence_as(structure, kv_cache)
            after, kv_cache = self._verify_drafts(prefilled, state, packed, controls)
            return step + after.count - state.count, after, kv_cache

        def one_step(step: tf.Tensor, state: State, kv_cache: list[tf.Tensor]) -> tuple:
            index = state.count - 1

            def run_model() -> tuple[tf.Tensor, list[tf.Tensor]]:
                token_ids = tf.gather(state.outputs, index, axis=1)[..., 0]
                packed = tf.nest.pack_sequence_as(structure, kv_cache)
                bias = tf.where(state.visible(), 0.0, MASKED)
                logits, current = self.model.step(
                    tf.transpose(token_ids), index, prefilled.context, packed, bias
                )
                return logits, tf.nest.flatten(current)

            def take_prefilled() -> tuple[tf.Tensor, list[tf.Tensor]]:
                zeros = [tf.zeros([num_beams, x.shape[0], x.shape[3]]) for x in kv_cache]
                logits = tf.broadcast_to(
                    prefilled.logits[:, None], [batch_size, num_beams, vocabulary_size]
                )
                return tf.reshape(logits, [batch_size * num_beams, vocabulary_size]), zeros

            # The loop has the code that selects tokens only once, for the first token too: it is a
            # quarter of what XLA compiles.
            is_first = state.count == 0
            logits, current = tf.cond(is_first, take_prefilled, run_model)
            # Before the first token this writes zeros into slot 0, which the first one then takes.
            kv_cache = [
                write_kv_cache(x, new, index) for x, new in zip(kv_cache, current, strict=True)
            ]
            suppression = self._suppression(is_first)
            if isinstance(state, SingleBeamState):
                state, _ = self._select_token(logits, suppression, prefilled.seen, state, controls)
            else:
                state = select_beams(
                    logits, suppression, prefilled.seen, state, controls, self.rules
                )
            return step + 1, state, kv_cache

        _, state, kv_cache = tf.while_loop(
            goes_on,
            one_pass if self.num_drafts else one_step,
            (0, state._replace(kv_cache=[]), tf.nest.flatten(structure)),
        )
        return state._replace(kv_cache=tf.nest.pack_sequence_as(structure, kv_cache))

    def _verify_drafts(
        self,
        prefilled: Prefilled,
        state: SingleBeamState,
        kv_cache: list[KeysValues],
        controls: Controls,
    ) -> tuple[SingleBeamState, list[tf.Tensor]]:
        """One pass of the model: adds a token, and one more for each draft that turns out right.

        Each row of the pass gives the logits behind one more draft. Their tokens are selected one
        after the other, as without drafts, until one is not the draft that the next row took it
        for. What was written into the KV cache for wrong drafts, the next pass writes over.

        Returns:
            The state, and the KV cache as a flat list.
        """
        assert isinstance(state.lookup, Lookup)
        model, index = cast("GrowingModel", self.model), state.count - 1
        first, cached = state.count, tf.nest.flatten(kv_cache)
        drafts = prompt_lookup.find(
            state.lookup, state.outputs[0, :, 0, 0], state.count, self.num_drafts
        )
        current = tf.gather(state.outputs[0, :, 0, 0], index[None])

        def with_more_rows(logits: tf.Tensor, kv: list[tf.Tensor]) -> tuple:
            """Of one row as of all, whose others mean nothing: `[1, V]` and `[1, G, D]`."""
            more = [0, self.num_drafts]
            kv = [tf.pad(tf.transpose(x, [1, 0, 2]), [[0, 0], more, [0, 0]]) for x in kv]
            return tf.pad(logits, [more, [0, 0]]), kv

        def take_prefilled() -> tuple[tf.Tensor, list[tf.Tensor]]:
            zeros = [tf.zeros([1, x.shape[0], x.shape[3]]) for x in cached]
            return with_more_rows(prefilled.logits, zeros)

        def run_one() -> tuple[tf.Tensor, list[tf.Tensor]]:
            is_visible = (tf.range(tf.shape(cached[0])[1]) < index)[None, None]
            bias = tf.where(is_visible, 0.0, MASKED)
            logits, kv = model.step(current[None], index, prefilled.context, kv_cache, bias)
            return with_more_rows(logits, tf.nest.flatten(kv))

        def run_all() -> tuple[tf.Tensor, list[tf.Tensor]]:
            token_ids = tf.concat([current, drafts.tokens], axis=0)
            logits, kv = model.verify(token_ids, index, prefilled.context, kv_cache)
            return logits, tf.nest.flatten(kv)

        branch = tf.where(first > 0, 1 + tf.cast(drafts.verified > 0, tf.int32), 0)
        logits, kv = tf.switch_case(branch, [take_prefilled, run_one, run_all])
        # Before the first token this writes zeros into slot 0, as `decode` does.
        cached = [
            dynamic_update_slice(x, new[:, :, None], tf.stack([0, index, 0, 0]))
            for x, new in zip(cached, kv, strict=True)
        ]

        def select(row: tf.Tensor, goes_on: tf.Tensor, state: SingleBeamState) -> tuple:
            place = state.count
            state, tokens = self._select_token(
                tf.gather(logits, row[None]),
                self._suppression(place == 0),
                prefilled.seen,
                state,
                controls,
            )
            lookup = cast("Lookup", state.lookup)
            rows = dynamic_update_slice(lookup.rows, row[None], place[None])
            is_right = tokens[0] == tf.gather(drafts.tokens, tf.minimum(row, self.num_drafts - 1))
            goes_on = (row < drafts.verified) & is_right & ~state.done[0]
            return row + 1, goes_on, state._replace(lookup=lookup._replace(rows=rows))

        _, _, state = tf.while_loop(
            lambda row, goes_on, state: goes_on, select, (0, True, state._replace(kv_cache=[]))
        )
        token = tf.gather(state.outputs[0, :, 0, 0], first)
        lookup = cast("Lookup", state.lookup)
        rate = prompt_lookup.hit_rate(lookup, drafts, token)
        return state._replace(lookup=lookup._replace(hit_rate=rate)), cached

    def _suppression(self, is_first: tf.Tensor) -> tf.Tensor | float:
        """What is added to the scores so that suppressed tokens are not selected.

        Hugging Face's `SuppressTokensLogitsProcessor` and `SuppressTokensAtBeginLogitsProcessor`.

        Returns:
            Broadcastable to `[B * K, V]`.
        """
        if not self.suppressed and not self.suppressed_first:
            return 0.0
        always, first = np.zeros([2, self.model.vocabulary_size], np.float32)
        # A checkpoint may list tokens beyond its own vocabulary.
        for tokens, added in ((self.suppressed, always), (self.suppressed_first, first)):
            added[[token for token in tokens if 0 <= token < len(added)]] = FILTERED
        return tf.where(is_first, np.minimum(always, first), always)

    def _select_token(
        self,
        logits: tf.Tensor,
        suppression: tf.Tensor | float,
        prompted: tf.Tensor,
        state: SingleBeamState,
        controls: Controls,
    ) -> tuple[SingleBeamState, tf.Tensor]:
        """One step of greedy search or sampling, from logits `[B, V]`; also the tokens, `[B]`."""
        scores = sampling.adjust(logits, prompted, state.counts, controls) + suppression

        def sampled() -> tf.Tensor:
            uniform = sampling.noise(controls.seed, state.count, 1)[:, 0]
            probabilities = sampling.unnormalized_probabilities(scores, controls)
            return sampling.sample(probabilities, uniform)[:, None]

        def greedy() -> tf.Tensor:
            return tf.argmax(scores, axis=-1, output_type=tf.int32)[:, None]

        token = sampling.where_sampling(controls, sampled, greedy)
        top_tokens = sampling.top_tokens(logits, output.num_top_tokens(state.outputs.shape[3]))
        reported = tf.concat([token, top_tokens], axis=1)
        logprobs = tf.gather(tf.nn.log_softmax(logits), reported, batch_dims=1)
        records = output.as_records(token[:, 0], logprobs[:, 0], top_tokens, logprobs[:, 1:])
        count = state.count + 1
        is_eos = sampling.is_one_of(token, self.rules.eos_token_ids)[:, 0]
        # Slices in place of the gather keep XLA from updating in place: a third more time a token.
        counts, times = state.counts, tf.gather(state.counts, token, batch_dims=1) + 1
        for index in range(logits.shape[0]):
            start = tf.stack([index, token[index, 0]])
            counts = dynamic_update_slice(counts, times[index : index + 1], start)
        state = state._replace(
            outputs=output.write(state.outputs, records[:, None], state.count),
            count=count,
            lengths=tf.where(state.done, state.lengths, count),
            done=state.done | is_eos | (count >= controls.token_limit),
            counts=counts,
        )
        return state, token[:, 0]
