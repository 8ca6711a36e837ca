"""How many tokens of a prompt are cached, from the names of the cached blocks.

Knows how a block of KV memory is named: by all tokens up to its last, its model and its salt. Must
not know the blocks themselves: the page's process has only their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from xla_backend.kernels.attention.kv_blocks import BLOCK

_LAYOUT = "float32 in blocks of 64, 1"
"""Format of a block; part of its name, so that files in another format are not found."""


def root_name(identity: str, salt: str) -> str:
    """The name of a salt's root; `identity` is the model's."""
    return block_name(f"{_LAYOUT} {identity} {salt}", ())


def block_name(parent: str, tokens: Sequence[int]) -> str:
    text = " ".join([parent, *map(str, tokens)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def resumable(name: str) -> str:
    """Stands beside the name of a block behind which a model with states can go on, and of each
    root of such a model."""
    return f"{name} state"


def cached_tokens(names: Collection[str], root: str, token_ids: Sequence[int]) -> tuple[int, int]:
    """How many tokens of a prompt a row would find cached, at least and at most.

    A row always reads its last token. A block that agrees with the prompt only in part has another
    name, so up to a block more may be cached than the names show.

    Args:
        names: of the cached blocks, and of the root if the salt has any.
        root: see `root_name`.
        token_ids: of the prompt.
    """
    known, parent, most = 0, root, len(token_ids) - 1
    if root not in names:
        return 0, 0
    if resumable(root) in names:
        end = _resumed(names, root, token_ids[:-1])
        return end, end
    while (name := block_name(parent, token_ids[known : known + BLOCK])) in names and known < most:
        known, parent = known + BLOCK, name
    if known >= most:
        return most, most
    for end in range(min(most, known + BLOCK - 1), known, -1):
        if block_name(parent, token_ids[known:end]) in names:
            return end, end
    return known, min(most, known + BLOCK - 1)


def _resumed(names: Collection[str], root: str, token_ids: Sequence[int]) -> int:
    """The same of a model with states: it goes on only where there is one."""
    known, parent, found = 0, root, 0
    while (end := known + BLOCK) <= len(token_ids):
        if (name := block_name(parent, token_ids[known:end])) not in names:
            break
        known, parent = end, name
        found = known if resumable(name) in names else found
    ends = range(min(len(token_ids), known + BLOCK - 1), known, -1)
    named = ((end, resumable(block_name(parent, token_ids[known:end]))) for end in ends)
    return next((end for end, name in named if name in names), found)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two texts."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
