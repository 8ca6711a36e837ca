"""`GrammarStore`: automata on disk, which survive a restart."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np

from xla_backend.compilation.store import Store
from xla_backend.grammar.automaton import Automaton, TokenBytes
from xla_backend.interface.grammar import Grammar

SIZE_BOUND = 2**26
"""Of all automata: some thousands of 20 to 140 KB, so that they evict no compiled functions."""
_TABLES = ("class_of_token", "next_state", "forced", "drafts")


class GrammarStore:
    """Automata by grammar and vocabulary; a damaged one is made again."""

    def __init__(self, store: Store) -> None:
        self._entries = Store(store.root / "grammars", SIZE_BOUND)

    def load(self, grammar: Grammar, vocabulary: TokenBytes) -> Automaton | None:
        if (entry := self._entries.load(_name(grammar, vocabulary))) is None:
            return None
        described, blobs = entry
        tables = {
            name: np.frombuffer(zlib.decompress(blob), kind).reshape(shape)
            for name, blob, (kind, shape) in zip(_TABLES, blobs, described["tables"], strict=True)
        }
        return Automaton(**tables, lengths=vocabulary.lengths)

    def save(self, grammar: Grammar, vocabulary: TokenBytes, made: Automaton) -> None:
        tables = [getattr(made, name) for name in _TABLES]
        described = {"tables": [(table.dtype.str, table.shape) for table in tables]}
        blobs = [zlib.compress(table.tobytes(), 1) for table in tables]
        self._entries.save(_name(grammar, vocabulary), described, blobs)


def _name(grammar: Grammar, vocabulary: TokenBytes) -> str:
    content = (
        f"{vocabulary.identity} {grammar.preamble} {grammar.strict} {grammar.kind} {grammar.text}"
    )
    return hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=16).hexdigest()
