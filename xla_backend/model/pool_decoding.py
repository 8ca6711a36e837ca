"""The decoding loop over rows that join and leave, each with its own length, over KV memory.

Knows the state of the rows and their next tokens. One compiled function per number of rows serves
all lengths and arrival times. Axes: see `families.blocks`; R rows, M blocks of a row and its state,
T drafts, N tokens of a call, F fields of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from xla_backend.interface.options import MAX_DRAFTS
from xla_backend.kernels.graph.grammar_operations import GrammarAddresses, are_given
from xla_backend.kernels.graph.kv_operations import in_blocks, only_tokens
from xla_backend.kernels.xla.grammar_tables import GrammarTables
from xla_backend.model import output, prompt_lookup, sampling
from xla_backend.model.families.blocks import dynamic_update_slice, row
from xla_backend.model.families.model import LayerMemory, PooledModel
from xla_backend.model.prompt_lookup import Lookup
from xla_backend.model.row_memory import DeviceMemory, OwnMemory
from xla_backend.model.selection import Selection

MAX_STEPS = 128
"""N: the most tokens that a call adds to each row."""


class PoolState(NamedTuple):
    """The rows between two calls.

    Attributes:
        tokens: `[R]` int32, the last token of each row, whose keys are not in memory yet.
        lengths: `[R]` int32, how many positions of each row are in memory.
        has_logits: `[R]` bool, which rows have the logits of their next token, because their prompt
            has just been read.
        generated: `[R]` int32, tokens that were generated so far.
        done: `[R]` bool, which rows have ended, or are empty.
        counts: `[R, V]` int32, how often each token was generated.
        grammar: `[R]` int32, the states of the rows' grammars.
        lookup: with drafts (R = 1), where they come from.
    """

    tokens: tf.Tensor
    lengths: tf.Tensor
    has_logits: tf.Tensor
    generated: tf.Tensor
    done: tf.Tensor
    counts: tf.Tensor
    grammar: tf.Tensor
    lookup: Lookup | tuple[()] = ()


class Decoded(NamedTuple):
    """The result of a call.

    Attributes:
        state: the rows after it.
        records: `[N, R, F]` int32, of the new tokens, first those of the first step; see `output`.
        passes: `[N]` int32, with drafts: for each token, its row in the pass that generated it.
    """

    state: PoolState
    records: tf.Tensor
    passes: tf.Tensor


class _Given(NamedTuple):
    """The arguments that all passes of a call share; see `PoolDecoder.decode`."""

    controls: sampling.Controls
    seen: tf.Tensor
    logits: tf.Tensor
    grammars: tf.Tensor
    blocks: tf.Tensor


@dataclass(frozen=True)
class PoolDecoder:
    """Reads prompts and generates tokens over KV memory.

    Attributes:
        context_length: the positions that a row can have.
        memory: of the rows. grammars: that they follow.
        num_drafts: T, how many drafts a pass verifies, of one row; 0 for none.
    """

    model: PooledModel
    selection: Selection
    context_length: int
    memory: OwnMemory | DeviceMemory
    grammars: GrammarAddresses | GrammarTables
    num_drafts: int = 0

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """What functions read and change besides the model's weights, by name."""
        return {**self.memory.variables, **self.grammars.variables}

    def read(
        self, logit_places: tf.Tensor, token_ids: tf.Tensor, places: tf.Tensor, blocks: tf.Tensor
    ) -> tf.Tensor:
        """Reads a chunk of prompts: the logits of the tokens after them, `[K, V]`.

        Args:
            logit_places: `[K]` int32, the places of the tokens before the logits; then -1.
            token_ids, places: see `PooledModel.run`.
        """
        hidden = self._run(token_ids, places, blocks)
        read = tf.gather(hidden, tf.maximum(logit_places, 0))
        return self.model.logits(only_tokens(read, logit_places[:, None]))

    def _run(self, token_ids: tf.Tensor, places: tf.Tensor, blocks: tf.Tensor) -> tf.Tensor:
        """The last hidden states of tokens, `[T, E]`."""
        memory, of_layers = self.memory.of_rows(places, blocks), _in_memory(self.model.layer_memory)
        return self.model.run(token_ids, places, memory, of_layers)[0]

    def initial_state(self, rows: int) -> PoolState:
        return PoolState(
            tokens=tf.zeros([rows], tf.int32),
            lengths=tf.zeros([rows], tf.int32),
            has_logits=tf.zeros([rows], tf.bool),
            generated=tf.zeros([rows], tf.int32),
            done=tf.ones([rows], tf.bool),
            counts=tf.zeros([rows, self.model.vocabulary_size], tf.int32),
            grammar=tf.zeros([rows], tf.int32),
            lookup=Lookup.of([], self.context_length) if self.num_drafts else (),
        )

    def decode(
        self,
        steps: tf.Tensor,
        reals: tf.Tensor,
        integers: tf.Tensor,
        logit_bias: tf.Tensor,
        is_end: tf.Tensor,
        seen: tf.Tensor,
        logits: tf.Tensor,
        grammars: tf.Tensor,
        blocks: tf.Tensor,
        state: PoolState,
    ) -> Decoded:
        """Adds up to `steps` tokens to each row that has not ended; with drafts, up to T more.

        Args:
            steps: scalar int32, at most N - T; zero runs nothing.
            reals, integers, logit_bias, is_end: the options, from `sampling.pack`.
            seen: `[R, V]` bool, tokens that the repetition penalty counts as repeated.
            logits: `[R, V]`, of the next token of rows that have them.
            grammars: `[R, FIELDS]` int64, the rows' grammars; see `kernels.grammar`.
            blocks: `[R, M]` int64, addresses of the rows' blocks, for all positions to come, and of
                their states.
        """
        controls = sampling.unpack(reals, integers, logit_bias, is_end)
        given = _Given(controls, seen, logits, grammars, blocks)
        rows, fields = state.tokens.shape[0], output.num_fields(self.selection.vocabulary_size)
        one_pass = self._pass_with_drafts if self.num_drafts else self._pass

        def goes_on(step: tf.Tensor, decoded: Decoded) -> tf.Tensor:
            return (step < steps) & ~tf.reduce_all(decoded.state.done)

        def go_on(step: tf.Tensor, decoded: Decoded) -> tuple[tf.Tensor, Decoded]:
            return one_pass(step, decoded, given)

        nothing = Decoded(
            state, tf.zeros([MAX_STEPS, rows, fields], tf.int32), tf.zeros([MAX_STEPS], tf.int32)
        )
        return tf.while_loop(goes_on, go_on, (0, nothing))[1]

    def _pass(self, step: tf.Tensor, decoded: Decoded, given: _Given) -> tuple[tf.Tensor, Decoded]:
        """One token for each row."""
        state = decoded.state
        runs = ~state.done & ~state.has_logits

        def run_model() -> tf.Tensor:
            of_row = tf.where(runs, tf.range(state.tokens.shape[0]), -1)
            places = tf.stack([of_row, state.lengths], axis=1)
            logits = self.model.logits(self._run(state.tokens, places, given.blocks))
            return tf.where(runs[:, None], logits, given.logits)

        logits = tf.cond(tf.reduce_any(runs), run_model, lambda: given.logits)
        state, records = self._select(state, logits, given)
        state = state._replace(lengths=state.lengths + tf.cast(runs, tf.int32))
        written = dynamic_update_slice(decoded.records, records[None], tf.stack([step, 0, 0]))
        return step + 1, decoded._replace(state=state, records=written)

    def _select(
        self, state: PoolState, logits: tf.Tensor, given: _Given
    ) -> tuple[PoolState, tf.Tensor]:
        """The next token of each row that has not ended, and the records, `[R, F]`."""
        token, records, counts = self.selection.select(
            logits,
            state.generated == 0,
            given.seen,
            state.counts,
            state.generated,
            given.controls,
            lambda scores: self.grammars.allowed(scores, state.grammar, given.grammars),
            are_given(given.grammars),
        )
        generated = state.generated + tf.cast(~state.done, tf.int32)
        after = state._replace(
            tokens=token,
            has_logits=tf.zeros_like(state.has_logits),
            generated=generated,
            done=state.done
            | sampling.are_ends(token, given.controls)
            | (generated >= given.controls.token_limit),
            counts=counts,
            grammar=self.grammars.advanced(state.grammar, token, given.grammars),
        )
        return after, records

    def _pass_with_drafts(
        self, step: tf.Tensor, decoded: Decoded, given: _Given
    ) -> tuple[tf.Tensor, Decoded]:
        """One pass of the model: adds a token, and one more for each draft that is right.

        Each row of the pass gives the logits after one more draft. Tokens are selected one after
        the other, as without drafts, until one differs from the next row's draft. The next pass
        overwrites the keys and values of wrong drafts.
        """
        state, drafts_count = decoded.state, self.num_drafts
        length = state.lengths[0]
        drafts = prompt_lookup.find(_lookup(state), drafts_count)
        # Drafts of a grammar take precedence over earlier occurrences.
        by_grammar = self.grammars.drafts(state.grammar, given.grammars, MAX_DRAFTS)
        by_grammar = by_grammar[0, :drafts_count]
        count = tf.reduce_sum(tf.cast(by_grammar >= 0, tf.int32))
        drafted = tf.where(count > 0, tf.maximum(by_grammar, 0), drafts.tokens)

        def with_more_rows(logits: tf.Tensor) -> tf.Tensor:
            return tf.pad(logits, [[0, drafts_count], [0, 0]])

        def run(token_ids: tf.Tensor) -> tf.Tensor:
            count = token_ids.shape[0]
            places = tf.stack([tf.zeros([count], tf.int32), length + tf.range(count)], axis=1)
            return self.model.logits(self._run(token_ids, places, given.blocks))

        verified = tf.where(count > 0, count, drafts.verified)
        verified = tf.where(state.has_logits[0], 0, verified)
        branch = tf.where(state.has_logits[0], 0, 1 + tf.cast(verified > 0, tf.int32))
        logits = tf.switch_case(
            branch,
            [
                lambda: with_more_rows(given.logits),
                lambda: with_more_rows(run(state.tokens)),
                lambda: run(tf.concat([state.tokens, drafted], axis=0)),
            ],
        )

        def select(place: tf.Tensor, goes_on: tf.Tensor, decoded: Decoded) -> Any:
            at = step + place
            state, records = self._select(decoded.state, row(logits, place), given)
            token = state.tokens
            is_right = token[0] == tf.gather(drafted, tf.minimum(place, drafts_count - 1))
            goes_on = (place < verified) & is_right & ~state.done[0]
            state = state._replace(lookup=_lookup(state).with_token(token))
            passes = dynamic_update_slice(decoded.passes, place[None], at[None])
            written = dynamic_update_slice(decoded.records, records[None], tf.stack([at, 0, 0]))
            return place + 1, goes_on, Decoded(state, written, passes)

        brought, _, decoded = tf.while_loop(
            lambda place, goes_on, decoded: goes_on, select, (0, True, decoded)
        )
        first = decoded.records[:, 0, 0]
        lookup = prompt_lookup.with_hit(_lookup(decoded.state), drafts, tf.gather(first, step))
        # The keys of the last token are not in memory yet; tokens of given logits belong to no
        # pass.
        lengths = state.lengths + tf.where(branch > 0, brought, 0)
        state = decoded.state._replace(lookup=lookup, lengths=lengths)
        return step + brought, decoded._replace(state=state)


def _in_memory(layers: Sequence[LayerMemory]) -> list[Any]:
    """Where each layer's part of a block and of a row's state is; see `Memory.attend`."""
    of_blocks = in_blocks([of.block_bytes for of in layers], [of.window for of in layers])
    found: list[Any] = []
    for number, (of, state) in enumerate(
        zip(layers, in_blocks([of.row_bytes for of in layers]), strict=True)
    ):
        place = of_blocks[number if of.source is None else of.source]
        both = (place, state) if of.block_bytes else state
        found.append(both if of.row_bytes else place)
    return found


def _lookup(state: PoolState) -> Lookup:
    assert isinstance(state.lookup, Lookup), "only with drafts"
    return state.lookup
