"""The decoding loop: greedy search, sampling and beam search, as pure TensorFlow for XLA.

Knows how tokens follow from logits and when a text ends; the model can be any with `prefill` and
`step` (see `families.model`). Two functions serve every request: `prefill` runs the prompt
(`extend` runs it chunk by chunk), `decode` adds up to `steps` tokens to a state. `steps` is a
runtime tensor, so one executable serves one token, a chunk of a stream or a whole text. With zero
steps nothing runs, so that compiling can be timed apart from running. Axes: see `families.blocks`;
F fields of a record: see `output`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from xla_backend.model import output, sampling
from xla_backend.model.beam_search import BeamRules, BeamSearchState, select_beams
from xla_backend.model.families.blocks import MASKED, KeysValues, write_kv_cache
from xla_backend.model.families.model import Model, Prefilled
from xla_backend.model.output import Output
from xla_backend.model.sampling import Controls
from xla_backend.model.selection import Selection


class SingleBeamState(NamedTuple):
    """State of greedy search or sampling: a text of up to N tokens, with B = K = 1.

    Attributes:
        outputs: `[B, N, 1, F]` int32, the record of each token.
        count: scalar int32, tokens so far of the texts that go on. lengths: `[B]` int32, of each
            text. done: `[B]` bool, which have ended.
        counts: `[B, V]` int32, how often each token was generated.
        kv_cache: keys and values of the new tokens, `[H, N, 1, D]` a layer.
    """

    outputs: tf.Tensor
    count: tf.Tensor
    lengths: tf.Tensor
    done: tf.Tensor
    counts: tf.Tensor
    kv_cache: list[KeysValues]

    def visible(self) -> tf.Tensor:
        """Which keys in the KV cache are written: `[1, 1, N]` bool."""
        return (tf.range(tf.shape(self.outputs)[1]) < self.count - 1)[None, None, :]

    def output(self, index: int) -> Output:
        """The output of a text so far."""
        length = int(self.lengths.numpy()[index])
        return output.read(self.outputs.numpy()[index, :length, 0])


State = SingleBeamState | BeamSearchState


def only_if(run: tf.Tensor, function: Callable[..., Any], *inputs: Any) -> Any:
    """A function's result; where `run` (scalar bool) is false, zeros of the same shapes."""
    outputs = None

    def running() -> Any:
        nonlocal outputs
        outputs = function(*inputs)
        return outputs

    def nothing() -> Any:
        # Traced after `running`. The only open size of a result is that of the input.
        length = tf.shape(inputs[0])[0]

        def zeros(x: tf.Tensor) -> tf.Tensor:
            return tf.zeros([length if d is None else d for d in x.shape], x.dtype)

        return tf.nest.map_structure(zeros, outputs)

    return tf.cond(run, running, nothing)


@dataclass(frozen=True)
class Decoder:
    """The decoding loop over one model."""

    model: Model
    rules: BeamRules
    selection: Selection

    def prefill(self, run: tf.Tensor, *inputs: tf.Tensor) -> Prefilled:
        """Runs the prompt; where `run` (scalar bool) is false, returns zeros of the same shapes."""
        return only_if(run, self.model.prefill, *inputs)

    def initial_state(self, num_beams: int, max_new_tokens: int) -> State:
        vocabulary_size = self.model.vocabulary_size
        num_fields = output.num_fields(vocabulary_size)
        each = [1] if num_beams == 1 else [1, num_beams]
        common = {
            "outputs": tf.zeros([1, max_new_tokens, num_beams, num_fields], tf.int32),
            "count": tf.constant(0),
            "lengths": tf.zeros([1], tf.int32),
            "done": tf.zeros([1], tf.bool),
            "counts": tf.zeros([*each, vocabulary_size], tf.int32),
            "kv_cache": self.model.empty_kv_cache(num_beams, max_new_tokens),
        }
        return (SingleBeamState if num_beams == 1 else BeamSearchState.initial)(**common)

    def decode(
        self,
        steps: tf.Tensor,
        reals: tf.Tensor,
        integers: tf.Tensor,
        logit_bias: tf.Tensor,
        is_end: tf.Tensor,
        prefilled: Prefilled,
        state: State,
    ) -> State:
        """Adds up to `steps` tokens to each text that has not ended.

        Args:
            steps: scalar int32; zero runs nothing.
            reals, integers, logit_bias, is_end: the options, from `sampling.pack`.
            state: from `initial_state` or an earlier call.
        """
        controls = sampling.unpack(reals, integers, logit_bias, is_end)
        num_beams = tf.nest.flatten(state.kv_cache)[0].shape[2]
        # Loops carry flat lists: a NamedTuple with a list inside does not survive them.
        structure = state.kv_cache

        def goes_on(step: tf.Tensor, state: State, kv_cache: list[tf.Tensor]) -> tf.Tensor:
            return (step < steps) & ~tf.reduce_all(state.done)

        def one_step(step: tf.Tensor, state: State, kv_cache: list[tf.Tensor]) -> tuple:
            index = state.count - 1

            def run_model() -> tuple[tf.Tensor, list[tf.Tensor]]:
                token_ids = tf.gather(state.outputs, index, axis=1)[0, :, 0]
                packed = tf.nest.pack_sequence_as(structure, kv_cache)
                bias = tf.where(state.visible(), 0.0, MASKED)
                given = prefilled.context, packed, bias
                logits, current = self.model.step(token_ids, index, *given)
                return logits, tf.nest.flatten(current)

            def take_prefilled() -> tuple[tf.Tensor, list[tf.Tensor]]:
                zeros = [tf.zeros([num_beams, x.shape[0], x.shape[3]]) for x in kv_cache]
                logits = prefilled.logits
                return tf.broadcast_to(logits, [num_beams, logits.shape[1]]), zeros

            # The loop has the code that selects tokens only once, for the first token too: it is a
            # quarter of what XLA compiles.
            is_first = state.count == 0
            logits, current = tf.cond(is_first, take_prefilled, run_model)
            # Before the first token this writes zeros into slot 0, which the first one then takes.
            kv_cache = [
                write_kv_cache(x, new, index) for x, new in zip(kv_cache, current, strict=True)
            ]
            if isinstance(state, SingleBeamState):
                state = self._select_token(logits, is_first, prefilled.seen, state, controls)
            else:
                suppression = self.selection.suppression(is_first)
                state = select_beams(
                    logits, suppression, prefilled.seen, state, controls, self.rules
                )
            return step + 1, state, kv_cache

        _, state, kv_cache = tf.while_loop(
            goes_on, one_step, (0, state._replace(kv_cache=[]), tf.nest.flatten(structure))
        )
        return state._replace(kv_cache=tf.nest.pack_sequence_as(structure, kv_cache))

    def _select_token(
        self,
        logits: tf.Tensor,
        is_first: tf.Tensor,
        prompted: tf.Tensor,
        state: SingleBeamState,
        controls: Controls,
    ) -> SingleBeamState:
        """One step of greedy search or sampling, from logits `[B, V]`."""
        count = state.count + 1
        token, records, counts = self.selection.select(
            logits,
            is_first,
            prompted,
            state.counts,
            state.count,
            controls,
            last=tf.gather(state.outputs, tf.maximum(state.count - 1, 0), axis=1)[:, 0, 0],
        )
        return state._replace(
            outputs=output.write(state.outputs, records[:, None], state.count),
            count=count,
            lengths=tf.where(state.done, state.lengths, count),
            done=state.done | sampling.are_ends(token, controls) | (count >= controls.token_limit),
            counts=counts,
        )
