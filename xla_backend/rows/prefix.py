"""`PrefixTree`: blocks of keys and values of earlier texts, for texts with the same prefix.

Knows which tokens are in which block, and which block is the least recently used. A prefix is found
by its tokens, so an edited or repeated conversation reuses exactly what is unchanged: a radix tree
over blocks (after SGLang's RadixAttention, arXiv:2312.07104).
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.model.kv_memory import KVMemory, OutOfBlocks
from xla_backend.prediction.prefix_misses import Parting, in_both
from xla_backend.prediction.prefixes import block_name, common, resumable, root_name
from xla_backend.rows.prefix_store import PrefixStore

Tokens = tuple[int, ...]
MOST_ROOTS = 1000
"""Bound on the salts without cached blocks."""
BEGINNING = 8 * BLOCK
"""Tokens of a text that are its beginning."""
LATEST_TEXTS = 8
"""How many texts of a salt are compared with one that does not go on where an earlier one ended."""
COMPARED = 2048
"""How many tokens of each."""
MOST_LOST = 20_000
"""Names of blocks that are not cached any more, of some 200 bytes each."""


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
        self._lost = dict.fromkeys(
            islice(before_restart, MOST_LOST), Lost("restarted", time.time())
        )

    def add(self, name: str, by_others: bool) -> None:
        """A block was evicted."""
        self._lost.pop(name, None)
        self._lost[name] = Lost("evicted", time.time(), by_others)
        if len(self._lost) > MOST_LOST:
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


@dataclass(eq=False)
class Node:
    """A block of the tree."""

    tokens: Tokens  # in the block; fewer than `BLOCK` only in a leaf
    address: int  # of the block; 0 for a root
    parent: Node | None  # the block before it
    name: str  # a hash of the model, the salt and all tokens up to its last: its name on disk
    children: dict[Tokens, Node] = field(default_factory=dict)
    users: int = 0  # how many rows read it now
    used_at: int = 0  # time of the last use, on the tree's own clock
    state: int = 0  # address of the state of a row behind its last token; 0 for none
    state_used_at: int = 0  # time of that one's last use


class PrefixTree:
    """The cached prefixes of one model, separately for each salt. For one thread."""

    def __init__(
        self,
        memory: KVMemory,
        identity: str = "",
        store: PrefixStore | None = None,
        before_restart: Collection[str] = (),
    ) -> None:
        """Starts without prefixes in memory.

        Args:
            memory: makes this tree evict when it has no free blocks.
            identity: of the model and its weights.
            store: saves evicted blocks; None for no disk.
            before_restart: the names of blocks that an earlier engine had in memory.
        """
        self._memory = memory
        self._identity = identity
        self._store = store
        memory.make_room = self.evict
        self._roots: dict[str, Node] = {}
        self._names: set[str] = set()
        self._resumable: set[str] = set()
        self._clock = 0
        self._lost = LostPrefixes(before_restart)
        self.tokens = 0
        self.evicts_for = ""  # the salt of the row that needs memory

    @property
    def nodes(self) -> int:
        """Number of cached blocks."""
        return len(self._names)

    def names(self) -> frozenset[str]:
        """The names of all blocks in memory, and of their roots."""
        # May be called from any thread: copying a set or a list is atomic.
        roots = [root.name for root in list(self._roots.values()) if root.children]
        if self._memory.state_bytes:
            roots += [*map(resumable, [*roots, *self._resumable])]
        return frozenset(self._names).union(roots)

    def match(self, salt: str, token_ids: Sequence[int]) -> tuple[list[Node], Node | None, int]:
        """The cached prefix of a text; blocks on disk are restored to memory.

        Of a model with states, up to the end of a block that has one.

        Returns:
            The nodes of its full blocks, in order; a node that holds some of the tokens after them,
            or None; and how many.
        """
        node = self._root(salt)
        path: list[Node] = []
        while True:
            rest = tuple(token_ids[len(path) * BLOCK : (len(path) + 1) * BLOCK])
            if len(rest) == BLOCK and (child := node.children.get(rest)) is not None:
                path.append(child)
                node = child
                continue
            if rest and self._store is not None and self._restore(self._store, node, rest):
                continue
            alike = [(common(child.tokens, rest), child) for child in node.children.values()]
            if self._memory.state_bytes:
                alike = [each for each in alike if each[1].state and each[0] == len(each[1].tokens)]
            count, best = max(alike, key=lambda pair: pair[0], default=(0, None))
            if self._memory.state_bytes and not count:
                while path and not path[-1].state:
                    path.pop()
            used = [*path, best] if best is not None and count else path
            self._use(used)
            if used:
                used[-1].state_used_at = self._clock
            return path, best if count else None, count

    def beginnings(self, salt: str) -> Iterator[list[int]]:
        """The first tokens of each cached text of a salt."""
        root = self._roots.get(salt)
        for node in root.children.values() if root else ():
            yield self._text(node)[:BEGINNING]

    def part(self, salt: str, token_ids: Sequence[int], reused: int) -> Parting | None:
        """Why no more of a text is reused; None if nothing of this model ever had more.

        Args:
            salt, token_ids: of the text.
            reused: how many of its tokens are.
        """
        node = self._root(salt)
        known, last = 0, len(token_ids) - 1  # the last is always read
        while (
            child := node.children.get(tuple(token_ids[known : known + BLOCK]))
        ) is not None and len(child.tokens) == BLOCK:
            known, node = known + BLOCK, child
        count, lost = self._lost.find(node.name, token_ids[known:])
        if lost is not None and (end := min(known + count, last)) > reused:
            return Parting(lost.cause, reused, end, at=lost.at, by_others=lost.by_others)
        if node.parent is None and not node.children:
            return Parting("new salt", 0, 0)
        rest = token_ids[known : known + BLOCK]
        alike = [(common(child.tokens, rest), child) for child in node.children.values()]
        count, best = max(alike, key=lambda pair: (pair[0], pair[1].used_at), default=(0, None))
        place = min(known + count, last)
        if place > reused:
            return Parting("no state", reused, place)
        if best is None or (count == len(best.tokens) and not best.children):
            return None  # it goes on where an earlier one ended
        # The text with the longest common beginning need not be the one that this one was made of:
        # another of today has the new date.
        return max(
            self._parted(self._text(best), token_ids),
            *(self._parted(self._text(leaf), token_ids) for leaf in self._latest(salt)),
            key=lambda found: in_both(token_ids[found.place :][:COMPARED], found.cached[:COMPARED]),
        )

    def _latest(self, salt: str) -> list[Node]:
        """The ends of the texts of a salt that were used last."""
        leaves = (node for node in self._all(self._root(salt)) if not node.children)
        return heapq.nlargest(LATEST_TEXTS, leaves, key=lambda node: node.used_at)

    def _text(self, node: Node) -> list[int]:
        """All tokens of a text that goes through a block, as it was used last."""
        tokens: list[int] = []
        above = node
        while above.parent is not None:
            tokens[:0] = above.tokens
            above = above.parent
        while node.children:
            node = max(node.children.values(), key=lambda child: child.used_at)
            tokens += node.tokens
        return tokens

    @staticmethod
    def _parted(text: Sequence[int], token_ids: Sequence[int]) -> Parting:
        place = common(text, token_ids)
        return Parting("differs", place, place, tuple(text[place:]))

    def insert(
        self,
        salt: str,
        token_ids: Sequence[int],
        addresses: Sequence[int],
        known: list[Node],
        state: int = 0,
    ) -> list[Node]:
        """Adds the blocks of a text, which then belong to the tree.

        Blocks whose tokens the tree already has are freed.

        Args:
            salt: of the text.
            token_ids: all tokens whose keys are in the blocks.
            addresses: of the blocks; the first are those of `known`.
            known: the nodes that `match` returned for the text.
            state: of a row behind all tokens; 0 for none. It belongs to the tree, too.

        Returns:
            The nodes of all blocks.
        """
        node = known[-1] if known else self._root(salt)
        path = list(known)
        for place in range(len(known), len(addresses)):
            tokens = tuple(token_ids[place * BLOCK : (place + 1) * BLOCK])
            if not tokens:
                self._memory.give_back(addresses[place])
                continue
            if (child := node.children.get(tokens)) is not None:
                self._memory.give_back(addresses[place])
            else:
                child = Node(tokens, addresses[place], node, block_name(node.name, tokens))
                self._replace_shorter(node, tokens)
                node.children[tokens] = child
                self._names.add(child.name)
                self._lost.discard(child.name)
                self.tokens += len(tokens)
            path.append(child)
            node = child
        self._use(path)
        if state and path and not node.state:
            self._set_state(node, state)
        else:
            self._memory.give_back_state(state)
        return path

    def _set_state(self, node: Node, state: int) -> None:
        node.state, node.state_used_at = state, self._clock
        self._resumable.add(node.name)

    def evict(self) -> None:
        """Frees what was not used longest: a leaf that no row reads, or a state before others."""
        nodes = [*self._all()]
        leaves = [(node.used_at, node) for node in nodes if not node.children and not node.users]
        states = [
            (node.state_used_at, node)
            for node in nodes
            if node.state and (node.children or node.users)
        ]
        if leaves or states:
            _, oldest = min(states + leaves, key=lambda pair: pair[0])
            self._save(oldest)
            if oldest.children or oldest.users:
                self._remove_state(oldest)
            else:
                root = oldest
                while root.parent is not None:
                    root = root.parent
                by_others = root.name != root_name(self._identity, self.evicts_for)
                self._lost.add(oldest.name, by_others)
                self._remove(oldest)

    def unused(self) -> int:
        """How many blocks could be freed."""
        blocks = self._memory.state_blocks
        return sum((not node.users) + blocks * bool(node.state) for node in self._all())

    def clear(self) -> None:
        """Frees all blocks that no row reads."""
        while leaves := [node for node in self._all() if not node.children and not node.users]:
            for leaf in leaves:
                self._remove(leaf)

    def save(self) -> None:
        """Saves all blocks to disk and waits for it."""
        if self._store is not None:
            for node in self._all():
                self._save(node)
            self._store.flush()

    def _root(self, salt: str) -> Node:
        if salt not in self._roots:
            if len(self._roots) >= MOST_ROOTS:
                self._roots = {of: root for of, root in self._roots.items() if root.children}
            self._roots[salt] = Node((), 0, None, root_name(self._identity, salt))
        return self._roots[salt]

    def _save(self, node: Node) -> None:
        """Queues a node's block for writing to disk."""
        if self._store is not None and node.parent is not None:
            block = self._memory.content(node.address).copy()
            if node.state:
                block = np.concatenate([block, self._memory.state(node.state)])
            self._store.save(node.parent.name, node.name, node.tokens, block)

    def _restore(self, store: PrefixStore, parent: Node, tokens: Tokens) -> bool:
        """Restores a block that has more of the tokens than those in memory; whether it did."""
        best = max((common(child, tokens) for child in parent.children), default=0)
        in_memory = {child.name for child in parent.children.values()}
        found = [
            (common(held, tokens), name, held)
            for name in store.children(parent.name)
            if name not in in_memory and (held := store.tokens(name))
        ]
        count, name, held = max(found, default=(0, "", ()))
        if count <= best or block_name(parent.name, held) != name:
            return False
        parent.users += 1  # must not be evicted to make room for its child
        try:
            address = self._memory.take()
        except OutOfBlocks:
            return False
        finally:
            parent.users -= 1
        size, state_bytes = self._memory.block_bytes, self._memory.state_bytes
        block = store.load(name)
        if block is None or len(block) not in (size, size + state_bytes):
            self._memory.give_back(address)
            return False
        self._memory.write(address, block[:size])
        node = Node(held, address, parent, name)
        parent.children[held] = node
        self._names.add(name)
        self._lost.discard(name)
        self.tokens += len(held)
        if len(block) > size:
            node.users += 1
            with contextlib.suppress(OutOfBlocks):
                self._set_state(node, self._memory.take_state())
                self._memory.write_state(node.state, block[size:])
            node.users -= 1
        return True

    def _replace_shorter(self, parent: Node, tokens: Tokens) -> None:
        """Removes a leaf whose tokens a longer block contains."""
        for child in list(parent.children.values()):
            if (
                len(child.tokens) < len(tokens)
                and not child.users
                and tokens[: len(child.tokens)] == child.tokens
            ):
                self._remove(child)

    def _remove(self, node: Node) -> None:
        assert node.parent is not None, "a root is no leaf"
        self._remove_state(node)
        del node.parent.children[node.tokens]
        self._memory.give_back(node.address)
        self._names.remove(node.name)
        self.tokens -= len(node.tokens)

    def _remove_state(self, node: Node) -> None:
        self._memory.give_back_state(node.state)
        self._resumable.discard(node.name)
        node.state = 0

    def _use(self, path: list[Node]) -> None:
        self._clock += 1
        for node in path:
            node.used_at = self._clock

    def _all(self, *roots: Node) -> Iterator[Node]:
        """The nodes below some roots, or below all."""
        below = roots or self._roots.values()
        waiting = [child for root in below for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())
