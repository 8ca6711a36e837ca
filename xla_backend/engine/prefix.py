"""`PrefixTree`: blocks of keys and values of earlier texts, for those that begin likewise.

Knows whose tokens are in which block, and which block was used longest ago. Must not know models,
rows or how keys are computed. A prefix is found by the tokens themselves, so that an edited,
rewritten or repeated conversation reuses what is still true of it and nothing else: a radix tree
over blocks (after SGLang's RadixAttention, arXiv:2312.07104).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xla_backend.model.kv_memory import KVMemory
from xla_backend.products.attention import BLOCK

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """A block of the tree.

    Attributes:
        tokens: those in the block; fewer than `BLOCK` only in a leaf.
        address: of the block; 0 of a root.
        parent: whose tokens come before.
        users: how many rows read it now.
        used_at: of the last use, on the tree's own clock.
    """

    tokens: Tokens
    address: int
    parent: Node | None
    children: dict[Tokens, Node] = field(default_factory=dict)
    users: int = 0
    used_at: int = 0


class PrefixTree:
    """The cached prefixes of one model, apart for each salt. For one thread."""

    def __init__(self, memory: KVMemory) -> None:
        """Knows no prefix; gives blocks back where `memory` has none left."""
        self._memory = memory
        memory.make_room = self.evict
        self._roots: dict[str, Node] = {}
        self._clock = 0
        self.nodes = self.tokens = 0

    def match(self, salt: str, token_ids: Sequence[int]) -> tuple[list[Node], Node | None, int]:
        """What is cached of a text's beginning.

        Returns:
            The nodes whose blocks hold it, from the first on; a node whose block holds a part of
            the tokens that follow, or None; and how many of them.
        """
        node = self._roots.get(salt)
        path: list[Node] = []
        while node is not None:
            rest = tuple(token_ids[len(path) * BLOCK : (len(path) + 1) * BLOCK])
            if len(rest) == BLOCK and (child := node.children.get(rest)) is not None:
                path.append(child)
                node = child
                continue
            alike = [(_common(child.tokens, rest), child) for child in node.children.values()]
            count, best = max(alike, key=lambda pair: pair[0], default=(0, None))
            self._use(path if best is None else [*path, best])
            return path, best if count else None, count
        return path, None, 0

    def insert(
        self, salt: str, token_ids: Sequence[int], addresses: Sequence[int], known: list[Node]
    ) -> list[Node]:
        """Takes over the blocks of a text, as far as there are tokens.

        A block whose tokens the tree has already is given back; the memory is the tree's then.

        Args:
            salt: whose text it is.
            token_ids: all tokens whose keys are in the blocks.
            addresses: of the blocks. The first are those of `known`.
            known: the nodes that the text was found to begin with.

        Returns:
            The nodes of all blocks.
        """
        node = known[-1] if known else self._roots.setdefault(salt, Node((), 0, None))
        path = list(known)
        for place in range(len(known), len(addresses)):
            tokens = tuple(token_ids[place * BLOCK : (place + 1) * BLOCK])
            if not tokens:
                self._memory.give_back(addresses[place])
                continue
            if (child := node.children.get(tokens)) is not None:
                self._memory.give_back(addresses[place])
            else:
                child = Node(tokens, addresses[place], node)
                self._replace_shorter(node, tokens)
                node.children[tokens] = child
                self.nodes += 1
                self.tokens += len(tokens)
            path.append(child)
            node = child
        self._use(path)
        return path

    def evict(self) -> None:
        """Gives back the leaf that was used longest ago, if no row reads it."""
        leaves = [node for node in self._all() if not node.children and not node.users]
        if leaves:
            self._remove(min(leaves, key=lambda node: node.used_at))

    def unused(self) -> int:
        """How many blocks could be given back."""
        return sum(not node.users for node in self._all())

    def clear(self) -> None:
        """Gives back all that no row reads."""
        while leaves := [node for node in self._all() if not node.children and not node.users]:
            for leaf in leaves:
                self._remove(leaf)

    def _replace_shorter(self, parent: Node, tokens: Tokens) -> None:
        """Drops a leaf that a longer block holds as well."""
        for child in list(parent.children.values()):
            if (
                len(child.tokens) < len(tokens)
                and not child.users
                and tokens[: len(child.tokens)] == child.tokens
            ):
                self._remove(child)

    def _remove(self, node: Node) -> None:
        assert node.parent is not None, "a root is no leaf"
        del node.parent.children[node.tokens]
        self._memory.give_back(node.address)
        self.nodes -= 1
        self.tokens -= len(node.tokens)

    def _use(self, path: list[Node]) -> None:
        self._clock += 1
        for node in path:
            node.used_at = self._clock

    def _all(self) -> Iterator[Node]:
        waiting = [child for root in self._roots.values() for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
