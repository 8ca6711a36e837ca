"""`LostPrefixes`: the names of blocks that were cached, and why they are not any more.

Knows names, which are hashes, and times; a bounded number of them. Must not know texts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.prediction.prefixes import block_name

MOST = 20_000
"""Names, of some 200 bytes each."""


class Lost(NamedTuple):
    """When a block was lost (seconds since 1970), and why.

    `by_others` says whether a request of another salt needed its memory.
    """

    cause: Literal["evicted", "restarted"]
    at: float
    by_others: bool = False


class LostPrefixes:
    """The blocks that were lost last."""

    def __init__(self, before_restart: Iterable[str] = ()) -> None:
        """Takes the names of the blocks that an earlier engine had."""
        self._lost = dict.fromkeys(islice(before_restart, MOST), Lost("restarted", time.time()))

    def add(self, name: str, by_others: bool) -> None:
        """A block was evicted."""
        self._lost.pop(name, None)
        self._lost[name] = Lost("evicted", time.time(), by_others)
        if len(self._lost) > MOST:
            del self._lost[next(iter(self._lost))]

    def discard(self, name: str) -> None:
        """A block is cached again."""
        self._lost.pop(name, None)

    def find(self, parent: str, token_ids: Sequence[int]) -> tuple[int, Lost | None]:
        """How many tokens behind a block were cached once, and what became of the last of them."""
        known, lost = 0, None
        if not self._lost:
            return known, lost
        while len(block := token_ids[known : known + BLOCK]) == BLOCK:
            if (found := self._lost.get(name := block_name(parent, block))) is None:
                break
            known, parent, lost = known + BLOCK, name, found
        for end in range(min(len(token_ids), known + BLOCK - 1), known, -1):
            if found := self._lost.get(block_name(parent, token_ids[known:end])):
                return end, found
        return known, lost
