"""`Pool`: the rows of one model and their KV memory.

Knows where each row's keys and values are, and runs chunks of prompts and of text. Must not know
requests, their order, or time: `scheduler` does. For one thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from xla_backend.grammar.automaton import START, Automaton
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.buckets import chunk_rows, chunk_size
from xla_backend.interface.options import GenerationOptions
from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.kernels.grammar import FIELDS
from xla_backend.kernels.graph.grammar_operations import GrammarAddresses
from xla_backend.kernels.xla.grammar_tables import GrammarTables, OutOfTables
from xla_backend.model import output, sampling
from xla_backend.model.functions import PoolFunctions
from xla_backend.model.kv_memory import KVMemory, OutOfBlocks
from xla_backend.model.output import Output
from xla_backend.model.pool_decoding import MAX_STEPS
from xla_backend.model.prompt_lookup import Lookup
from xla_backend.prediction.prefix_misses import Parting
from xla_backend.prediction.prefixes import common
from xla_backend.rows.prefix import Node, PrefixTree

_NUMBERS = ("tokens", "lengths", "generated", "grammar")
"""The integers in a row's state."""
STATES_EVERY = 512
"""After how many tokens of a prompt a state is cached, a multiple of `BLOCK`; and at its end."""


@dataclass(eq=False)
class Row:
    """One text: its prompt and its generated tokens."""

    token_ids: list[int]  # the prompt, then the generated tokens
    prompt_tokens: int  # length of the prompt
    salt: str  # it may reuse prefixes of this salt; if empty, it reuses and shares none
    options: GenerationOptions  # of the text
    grammar: Automaton | StepByStep | None = None  # restricts the text; None for any text
    grammar_state: int = START  # the automaton's state
    in_memory: int = 0  # how many tokens have their keys and values in memory
    reused: int = 0  # how many of them were cached
    is_done: bool = False  # whether the text has ended
    parting: Parting | None = None  # why no more of them were; None if nothing was there
    # of a row that is only read: for each of its last tokens, the following tokens whose
    # log-probability is wanted; None if text is to be generated
    targets: tuple[tuple[int, ...], ...] | None = None
    # those of `targets`, float64, as far as they are known
    logprobs: list[np.ndarray] = field(default_factory=list)
    # records of the prompt's tokens after its first, as far as they are read; None if not wanted
    prompt_records: list[np.ndarray] | None = None
    addresses: list[int] = field(default_factory=list)
    path: list[Node] = field(default_factory=list)
    records: list[np.ndarray] = field(default_factory=list)
    passes: list[np.ndarray] = field(default_factory=list)
    state: int = 0  # address of its state; 0 for none
    logits: np.ndarray | None = None
    counts: np.ndarray | None = None
    lookup: Lookup | None = None

    @property
    def generated(self) -> int:
        return len(self.token_ids) - self.prompt_tokens

    @property
    def unread(self) -> int:
        """How many tokens are not in memory yet."""
        return len(self.token_ids) - self.in_memory

    @property
    def tail(self) -> int:
        """The number of last tokens after which logits are wanted."""
        if self.targets is not None:
            return len(self.targets)
        if self.prompt_records is not None:
            return max(1, self.prompt_tokens - len(self.prompt_records))
        return 1

    @property
    def most_steps(self) -> int:
        """How many tokens a call may add at most."""
        if isinstance(self.grammar, StepByStep):
            return 1
        return self.options.max_new_tokens - self.generated

    @property
    def is_read(self) -> bool:
        """Whether its next token can be generated without reading more."""
        goes_on = self.generated > 0 and self.in_memory == len(self.token_ids) - 1
        return goes_on or self.logits is not None

    def output(self) -> Output:
        fields = output.num_fields(1) if not self.records else self.records[0].shape[1]
        return output.read(np.concatenate(self.records or [np.zeros([0, fields], np.int32)]))

    def passes_of_tokens(self) -> np.ndarray:
        """For each generated token, its index in the pass that generated it."""
        return np.concatenate(self.passes or [np.zeros([0], np.int32)])


class Pool:
    """The rows of one model."""

    def __init__(
        self,
        prefixes: PrefixTree,
        memory: KVMemory,
        vocabulary_size: int,
        blocks_of_row: int,
        eos_token_ids: tuple[int, ...] = (),
        grammars: GrammarAddresses | GrammarTables | None = None,
    ) -> None:
        """Starts without rows.

        Args:
            prefixes: the cached prefixes in the memory.
            memory: for keys and values.
            vocabulary_size: V. blocks_of_row: M.
            eos_token_ids: tokens that end a text.
            grammars: holds those of rows; None for own machine code.
        """
        self.memory = memory
        self.prefixes = prefixes
        self._vocabulary_size = vocabulary_size
        self._blocks_of_row = blocks_of_row
        self._eos_token_ids = eos_token_ids
        self._running: list[Row] = []
        self._batch: tuple[Row, ...] = ()
        self._state: Any = None
        self._options: Any = None
        self._seen: Any = None
        self._grammars = grammars or GrammarAddresses()
        self._no_logits: dict[int, tf.Tensor] = {}

    def admit(self, row: Row) -> None:
        """Gives a row its cached prefix, up to the first token whose logits are wanted.

        Raises:
            OutOfBlocks: there is no room for its state; nothing has changed.
        """
        path: list[Node] = []
        partial: Node | None = None
        count = 0
        self.prefixes.evicts_for = row.salt
        if row.salt:
            silent = len(row.token_ids) - row.tail
            path, partial, count = self.prefixes.match(row.salt, row.token_ids[:silent])
        used = path if partial is None else [*path, partial]
        for node in used:
            node.users += 1  # must not be evicted to make room for copies
        row.path, row.addresses = path, [node.address for node in path]
        row.in_memory = len(path) * BLOCK
        try:
            self._copy(row, used, count)
        finally:
            if partial is not None:
                partial.users -= 1
        if not row.generated:
            row.reused = row.in_memory
            row.parting = self._part(row)
        self._running.append(row)

    def _part(self, row: Row) -> Parting | None:
        """Why no more of a prompt is reused."""
        ids, last = row.token_ids, len(row.token_ids) - 1
        is_read_whole = row.targets is not None or row.prompt_records is not None
        if not row.salt or is_read_whole or row.reused >= last:
            return None
        found = self.prefixes.part(row.salt, ids, row.reused)
        others = (each.token_ids for each in self._running if each.salt == row.salt)
        longer = (each for each in others if each[: row.reused + 1] == ids[: row.reused + 1])
        end = min(last, max((common(each, ids) for each in longer), default=0))
        if end > (found.end if found else row.reused):
            return Parting("not written", row.reused, end)
        return found

    def _copy(self, row: Row, used: list[Node], count: int) -> None:
        """Copies what other rows have, too, and a new one changes: a state, a block in part.

        Args:
            row: has the full blocks.
            used: their nodes, and that of the block in part.
            count: how many tokens of that one are used; 0 if there is none.
        """
        resumes = True
        if self.memory.state_bytes:
            try:
                row.state = self.memory.take_state()
            except OutOfBlocks:
                self._release(row)
                raise
            resumes = bool(used and used[-1].state)  # it may have made room
        if resumes and row.state:
            self.memory.copy_state(used[-1].state, row.state)
        if resumes and count:
            try:
                row.addresses.append(self.memory.copy(used[-1].address))
                row.in_memory += count
            except OutOfBlocks:  # these tokens are read again; with a state, all are
                resumes = not row.state
        if not resumes:
            for node in row.path:
                node.users -= 1
            row.path, row.addresses, row.in_memory = [], [], 0

    def read(self, rows: Sequence[Row], functions: PoolFunctions) -> None:
        """Reads the next chunk that is not in memory, of one row or of several rows side by side.

        Args:
            rows: at most `CHUNK_ROWS`; those beyond the chunk's end are left for the next.
            functions: that read.

        Raises:
            OutOfBlocks: there is no room; nothing was read.
        """
        sizes = tuple(functions.read)
        is_one = len(rows) == 1 and rows[0].tail <= 1
        size = chunk_size(rows[0].unread, sizes) if is_one else max(sizes)
        most = chunk_rows(size, sizes)
        tokens, places = np.zeros([size], np.int32), np.full([size, 2], -1, np.int32)
        logit_rows, scored = np.full([most], -1, np.int32), list[tuple[Row, int]]()
        at, ends = 0, []
        for number, row in enumerate(rows):
            first, silent = row.in_memory, len(row.token_ids) - row.tail
            most_needed = max(first, silent) + most - len(scored)
            end = min(len(row.token_ids), first + size - at, most_needed)
            if row.state and row.salt:
                end = self._cut(row, end)
            self._reserve(row, end)
            tokens[at : at + end - first] = row.token_ids[first:end]
            places[at : at + end - first, 0] = number
            places[at : at + end - first, 1] = np.arange(first, end)
            for position in range(max(first, silent), end):
                logit_rows[len(scored)] = at + position - first
                scored.append((row, position))
            at += end - first
            ends.append(end)
        logits = functions.read[size](
            tf.constant(True),
            tf.constant(logit_rows),
            tf.constant(tokens),
            tf.constant(places),
            tf.constant(self._blocks(rows, most)),
        )
        for row, end in zip(rows, ends, strict=True):
            row.in_memory = end
            if row.targets is None and not row.unread:
                self._share(row)
            elif row.state and row.salt and row.unread and self._is_saved(row):
                self._save_state_of(row)
        for (row, position), given in zip(scored, logits.numpy() if scored else (), strict=False):
            if row.targets is not None:
                ids = row.targets[len(row.logprobs)]
                row.logprobs.append(output.log_softmax(given)[[*ids]])
            elif row.prompt_records is not None and position + 1 < row.prompt_tokens:
                row.prompt_records.append(output.record(given, row.token_ids[position + 1]))
            else:
                row.logits = given

    def decode(self, rows: Sequence[Row], functions: PoolFunctions, steps: int) -> None:
        """Adds up to `steps` tokens to each row; all must have been read.

        Raises:
            OutOfBlocks: there is no room; nothing was generated.
        """
        steps = min(steps, MAX_STEPS - functions.drafts)
        for row in rows:
            self._reserve(row, len(row.token_ids) + steps + functions.drafts)
        state = self._state_of(rows, functions)
        fields = np.zeros([functions.rows, FIELDS], np.int64)
        if any(row.grammar is not None for row in rows):
            try:
                fields[: len(rows)] = self._grammars.fields([row.grammar for row in rows])
            except OutOfTables as error:
                raise OutOfBlocks from error
        decoded = functions.decode(
            tf.constant(steps),
            *self._options,
            self._seen,
            self._logits_of(rows, functions.rows),
            tf.constant(fields),
            tf.constant(self._blocks(rows, functions.rows)),
            state,
        )
        generated, done = decoded.state.generated.numpy(), decoded.state.done.numpy()
        lengths, records = decoded.state.lengths.numpy(), decoded.records.numpy()
        passes, grammar_states = decoded.passes.numpy(), decoded.state.grammar.numpy()
        for place, row in enumerate(rows):
            new = int(generated[place]) - row.generated
            row.records.append(records[:new, place].copy())
            row.passes.append(passes[:new].copy())
            row.token_ids.extend(records[:new, place, 0].tolist())
            row.is_done, row.in_memory = bool(done[place]), int(lengths[place])
            row.grammar_state = int(grammar_states[place])
            row.logits = None
        self._state = decoded.state

    def leave(self, row: Row, is_cached: bool = True) -> None:
        """Removes a row; caches its keys and values if `is_cached` and it has a salt."""
        if row in self._running:  # not if it got no room
            self._running.remove(row)
        self._save_state()
        self._batch = ()
        known = row.token_ids[: row.in_memory]
        if not is_cached or not row.salt:
            self._release(row)
            return
        for node in row.path:
            node.users -= 1
        used = -(-len(known) // BLOCK)
        for address in row.addresses[used:]:
            self.memory.give_back(address)
        self.prefixes.insert(row.salt, known, row.addresses[:used], row.path, row.state)
        row.addresses, row.path, row.in_memory, row.state = [], [], 0, 0

    def _release(self, row: Row) -> None:
        for node in row.path:
            node.users -= 1
        for address in row.addresses[len(row.path) :]:
            self.memory.give_back(address)
        self.memory.give_back_state(row.state)
        row.addresses, row.path, row.in_memory, row.state = [], [], 0, 0

    def suspend(self, row: Row) -> None:
        """Removes a row for now; it must be admitted and read again to go on."""
        self.leave(row)
        row.logits = None
        row.logprobs.clear()

    def _share(self, row: Row) -> None:
        """Shares the full blocks of a prompt that was just read with other rows."""
        whole = row.in_memory // BLOCK
        if not row.salt or whole <= len(row.path):
            return
        path = self.prefixes.insert(
            row.salt, row.token_ids[: whole * BLOCK], row.addresses[:whole], row.path
        )
        for node in path[len(row.path) :]:
            node.users += 1
        row.path = path
        row.addresses[:whole] = [node.address for node in path]

    def _cut(self, row: Row, end: int) -> int:
        """Where a chunk ends that might end at `end`: of a row with a state whose prompt is cached,
        with a block, so that others can go on there; the last one ends that fits."""
        cut = min(end, self._last_state(row)) // BLOCK * BLOCK
        return cut if cut > row.in_memory else end

    def _last_state(self, row: Row) -> int:
        return (len(row.token_ids) - row.tail) // BLOCK * BLOCK

    def _is_saved(self, row: Row) -> bool:
        """Whether a row's state is cached where a chunk has ended."""
        return row.in_memory == self._last_state(row) or not row.in_memory % STATES_EVERY

    def _save_state_of(self, row: Row) -> None:
        """Caches a copy of a row's state behind its full blocks, if there is room."""
        self._share(row)
        if row.path[-1].state:
            return
        with contextlib.suppress(OutOfBlocks):
            state = self.memory.take_state()
            self.memory.copy_state(row.state, state)
            tokens = row.token_ids[: row.in_memory]
            self.prefixes.insert(row.salt, tokens, [], row.path, state)

    def _reserve(self, row: Row, positions: int) -> None:
        """Allocates blocks for this many positions of a row."""
        self.prefixes.evicts_for = row.salt
        needed = min(-(-positions // BLOCK), self._blocks_of_row)
        while len(row.addresses) < needed:
            row.addresses.append(self.memory.take())

    def _blocks(self, rows: Sequence[Row], count: int) -> np.ndarray:
        blocks = np.zeros([count, self._blocks_of_row + 1], np.int64)
        for place, row in enumerate(rows):
            blocks[place, : len(row.addresses)] = row.addresses
            blocks[place, -1] = row.state
        return blocks

    def has_room(self, row: Row) -> bool:
        """Whether a row's tokens and some more fit beside the running rows."""
        needed = len(row.token_ids) // BLOCK + 2 + self.memory.state_blocks
        return needed <= self.memory.limit - self.memory.used + self.prefixes.unused()

    def _logits_of(self, rows: Sequence[Row], count: int) -> tf.Tensor:
        """The logits that rows have from reading; zeros for the others."""
        if all(row.logits is None for row in rows):
            if count not in self._no_logits:
                self._no_logits[count] = tf.zeros([count, self._vocabulary_size])
            return self._no_logits[count]
        logits = np.zeros([count, self._vocabulary_size], np.float32)
        for place, row in enumerate(rows):
            if row.logits is not None:
                logits[place] = row.logits
        return tf.constant(logits)

    def _state_of(self, rows: Sequence[Row], functions: PoolFunctions) -> Any:
        """The state of rows; that of the last call, if it was for the same rows."""
        batch = tuple(rows)
        if self._batch == batch and functions.rows == self._state.done.shape[0]:
            is_same = bool(functions.drafts) == bool(self._state.lookup)
            if is_same and not any(row.logits is not None for row in rows):
                return self._state
        self._save_state()
        empty, size = functions.rows, self._vocabulary_size
        counts, seen = np.zeros([empty, size], np.int32), np.zeros([empty, size], bool)
        numbers = {name: np.zeros([empty], np.int32) for name in _NUMBERS}
        done, has_logits = np.ones([empty], bool), np.zeros([empty], bool)
        for place, row in enumerate(rows):
            if row.counts is not None:
                counts[place] = row.counts
            if row.options.repetition_penalty != 1.0:
                seen[place, row.token_ids[: row.prompt_tokens]] = True
            numbers["tokens"][place] = row.token_ids[-1]
            numbers["lengths"][place] = row.in_memory
            numbers["generated"][place] = row.generated
            numbers["grammar"][place] = row.grammar_state
            done[place], has_logits[place] = False, row.logits is not None
        options = [row.options for row in rows]
        options += options[:1] * (empty - len(rows))
        self._options = sampling.pack(options, size, self._eos_token_ids)
        self._seen = tf.constant(seen)
        lookup: Any = ()
        if functions.drafts:
            assert isinstance(functions.state.lookup, Lookup), "only with drafts"
            length = functions.state.lookup.text.shape[0]
            lookup = rows[0].lookup or Lookup.of(rows[0].token_ids, length)
        self._batch = batch
        self._state = functions.state._replace(
            **{name: tf.constant(values) for name, values in numbers.items()},
            done=tf.constant(done),
            has_logits=tf.constant(has_logits),
            counts=tf.constant(counts),
            lookup=lookup,
        )
        return self._state

    def _save_state(self) -> None:
        """Copies to the rows what only the state of the last call has."""
        for place, row in enumerate(self._batch):
            if sampling.is_counted(row.options):
                row.counts = self._state.counts.numpy()[place]
            row.lookup = self._state.lookup or None
