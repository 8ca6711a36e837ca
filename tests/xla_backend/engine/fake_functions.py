"""Compiled functions of a pool without XLA: the keys and values of their "model" are the tokens.

Knows what real functions are given and give back. A block of memory holds the tokens at its
positions, and the next token depends on all tokens of a row: a row that reads another's block, or
one that was not written, gets another text. Must not know the scheduler.
"""

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.model import output, sampling
from xla_backend.model.functions import PoolFunctions
from xla_backend.model.kv_memory import KVMemory
from xla_backend.model.pool_decoding import MAX_STEPS, Decoded, PoolState
from xla_backend.rows.pool import Pool
from xla_backend.rows.prefix import PrefixTree
from xla_backend.rows.prefix_store import PrefixStore
from xla_backend.rows.scheduler import ROW_COUNTS

VOCABULARY = 97
END = 7
BLOCK_BYTES = 4 * BLOCK
CHUNKS = (4, 16)


def next_token(token_ids: Sequence[int]) -> int:
    """What the model says after some tokens."""
    digest = hashlib.blake2b(np.array(token_ids, np.int32).tobytes(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % VOCABULARY


def text_alone(prompt: Sequence[int], most: int) -> list[int]:
    """The text that a row alone should get: up to `END`, or so many tokens."""
    token_ids = list(prompt)
    while len(token_ids) - len(prompt) < most:
        token_ids.append(next_token(token_ids))
        if token_ids[-1] == END:
            break
    return token_ids[len(prompt) :]


def pool(
    blocks: int, blocks_of_row: int = 32, store: PrefixStore | None = None, state_bytes: int = 0
) -> Pool:
    """A pool with so many blocks of memory, whose rows have states of 0 or 16 bytes."""
    memory = KVMemory(BLOCK_BYTES, blocks * BLOCK_BYTES, state_bytes)
    return Pool(PrefixTree(memory, "fake", store), memory, VOCABULARY, blocks_of_row, (END,))


@dataclass
class FakeFunctions:
    """The functions of a pool; see `scheduler.Functions`."""

    # for how many rows there are some
    in_memory: set[int] = field(default_factory=lambda: {*ROW_COUNTS})
    asked: list[int] = field(default_factory=list)  # for how many some were asked for
    seconds: float = 0.02  # that a step of theirs takes, on a clock of their own, `now`
    now: float = 0.0
    # called before each, with its name and how many rows take part
    on_call: Callable[[str, int], None] = lambda name, rows: None

    def of(self, rows: int, drafts: int = 0) -> PoolFunctions | None:
        return self.compiled(rows) if rows in self.in_memory and not drafts else None

    def make(self, rows: int, drafts: int = 0) -> None:
        self.asked.append(rows)

    def compiled(self, rows: int) -> PoolFunctions:
        """Those for so many rows."""
        state = PoolState(
            *(tf.zeros([rows], tf.int32) for _ in range(2)),
            has_logits=tf.zeros([rows], tf.bool),
            generated=tf.zeros([rows], tf.int32),
            done=tf.ones([rows], tf.bool),
            counts=tf.zeros([rows, VOCABULARY], tf.int32),
            grammar=tf.zeros([rows], tf.int32),
        )
        return PoolFunctions(dict.fromkeys(CHUNKS, self._read), self._decode, state, 0)

    def _read(self, run: Any, needed: Any, token_ids: Any, places: Any, blocks: Any) -> tf.Tensor:
        of_rows, places = blocks.numpy(), places.numpy()
        self.on_call("read", len({row for row, _ in places if row >= 0}))
        for token, (row, position) in zip(token_ids.numpy(), places, strict=True):
            if row >= 0:
                _write(of_rows[row], position, token)
        logits = np.full([len(needed), VOCABULARY], np.nan, np.float32)
        for number, place in enumerate(needed.numpy()):
            if place >= 0:
                row, position = places[place]
                logits[number] = _logits(_tokens(of_rows[row], position + 1))
        return tf.constant(logits)

    def _decode(
        self,
        steps: Any,
        reals: Any,
        integers: Any,
        bias: Any,
        is_end: Any,
        seen: Any,
        logits: Any,
        grammars: Any,
        blocks: Any,
        state: Any,
    ) -> Decoded:
        tokens, lengths, has_logits, generated, done, counts = (
            np.array(x.numpy()) for x in state[:6]
        )
        self.on_call("decode", int((~done).sum()))
        limits = sampling.unpack(reals, integers, bias, is_end).token_limit.numpy()
        fields = output.num_fields(VOCABULARY)
        records = np.zeros([MAX_STEPS, len(tokens), fields], np.int32)
        for step in range(int(steps)):
            self.now += self.seconds
            for row in np.flatnonzero(~done):
                given = logits.numpy()[row]
                if not has_logits[row]:
                    addresses = blocks.numpy()[row]
                    _write(addresses, lengths[row], tokens[row])
                    lengths[row] += 1
                    given = _logits(_tokens(addresses, lengths[row]))
                has_logits[row] = False
                tokens[row] = records[step, row, 0] = given.argmax()
                counts[row, tokens[row]] += 1
                generated[row] += 1
                done[row] = is_end[row, tokens[row]] or generated[row] >= limits[row]
        after = PoolState(
            *(tf.constant(x) for x in (tokens, lengths, has_logits, generated, done, counts)),
            grammar=state.grammar,
        )
        return Decoded(after, tf.constant(records), tf.zeros([MAX_STEPS], tf.int32))


def _slot(addresses: np.ndarray, position: int) -> ctypes.c_int32:
    block, place = divmod(int(position), BLOCK)
    return ctypes.c_int32.from_address(int(addresses[block]) + 4 * place)


def _write(addresses: np.ndarray, position: int, token: int) -> None:
    """Writes a token, and into the state of a row, if it has one, that of all before it."""
    _slot(addresses, position).value = token
    if address := int(addresses[-1]):
        state = (ctypes.c_int64 * 2).from_address(address)
        held, before = state if position else (0, 0)
        known = _digest(_tokens(addresses, position))
        assert (held, before) == (position, known), "the state of another text"
        state[:] = position + 1, _digest(_tokens(addresses, position + 1))


def _digest(token_ids: Sequence[int]) -> int:
    return hash(tuple(token_ids)) if token_ids else 0


def _tokens(addresses: np.ndarray, count: int) -> list[int]:
    return [_slot(addresses, position).value for position in range(count)]


def _logits(token_ids: list[int]) -> np.ndarray:
    return np.eye(VOCABULARY, dtype=np.float32)[next_token(token_ids)]
