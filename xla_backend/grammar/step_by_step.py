"""`StepByStep`: which tokens may follow, found before each: what no automaton holds, as recursion.

Knows the library that finds them, and the tables that a compiled loop reads. Must not know models.
To the loop it is an automaton of one state and two classes, what may come and what may not: the
classes of the tokens are written anew before each token. So nothing is compiled for it either.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from xla_backend.grammar.automaton import NONE, TokenBytes
from xla_backend.grammar.schemas.unique_items import UniqueItems
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import MAX_DRAFTS

_LIMITS = LLParserLimits(verbose_errors=False, max_grammar_size=3_000_000, max_items_in_row=20_000)
"""The library's own: below 100 MB of a text, and some 15 ms of a token."""
_ANY_TOKENS = '%llguidance {"no_forcing": true}\n'
"""A text may be written in any tokens, as where an automaton holds it."""


_LETTERS = TokenBytes([*(bytes([byte]) for byte in range(256)), b""], [256], False)
"""Where no model is known."""


def matching(regex: str) -> str:
    """The part of a rule that matches a regular expression."""
    made = json.loads(LLMatcher.grammar_from_regex(regex))
    return str(made["grammars"][0]["lark_grammar"]).removeprefix("start: ")


def check(rules: str) -> None:
    """Checks rules without a model."""
    StepByStep.of(rules, _LETTERS)


def has_text(rules: str) -> bool:
    """Whether rules allow any text."""
    matcher = LLMatcher(_tokenizer(_LETTERS), _ANY_TOKENS + rules, limits=_LIMITS, log_level=0)
    return any(matcher.compute_bitmask()) and not matcher.is_error()


class _Tokens:
    """A vocabulary as the library takes it; its own forced tokens are not used."""

    bos_token_id = None

    def __init__(self, vocabulary: TokenBytes) -> None:
        self.tokens = vocabulary.texts
        self.eos_token_id = int(vocabulary.ends[0])
        self.special_token_ids = [id for id, text in enumerate(vocabulary.texts) if not text]

    def __call__(self, text: str | bytes) -> list[int]:
        return []


@functools.lru_cache(4)
def _tokenizer(vocabulary: TokenBytes) -> LLTokenizer:
    ends = vocabulary.ends.tolist()
    return LLTokenizer(TokenizerWrapper(_Tokens(vocabulary)), len(vocabulary.texts), ends)


class StepByStep:
    """What may follow in one text.

    Attributes:
        class_of_token: `[V]` uint16, 1 for tokens that may come next; changed in place.
        next_state: `[1, 2]`, as of an automaton. drafts: none.
        bytes: of memory, about.
    """

    next_state = np.array([[NONE, 0]], np.int16)
    drafts = np.full([1, MAX_DRAFTS], NONE, np.int32)
    bytes = 2**23

    def __init__(
        self, matcher: LLMatcher, vocabulary: TokenBytes, unique: UniqueItems | None = None
    ) -> None:
        """Begins a text, of which `unique` holds items apart."""
        self._matcher = matcher
        self._unique = unique
        self._vocabulary = vocabulary
        self._is_first = True
        self.class_of_token = np.zeros([vocabulary.size], np.uint16)
        self._find()

    @classmethod
    def of(
        cls, rules: str, vocabulary: TokenBytes, unique: UniqueItems | None = None
    ) -> StepByStep:
        matcher = LLMatcher(
            _tokenizer(vocabulary), _ANY_TOKENS + rules, limits=_LIMITS, log_level=0
        )
        return cls(matcher, vocabulary, unique)

    def for_row(self) -> StepByStep:
        unique = self._unique and self._unique.for_row()
        return StepByStep(self._matcher.deep_copy(), self._vocabulary, unique)

    def follow(self, token_ids: Sequence[int]) -> None:
        """Finds what may follow behind further tokens."""
        for id in token_ids:
            if id in self._vocabulary.ends:
                return
            if self._is_first:
                (place,) = np.nonzero(self._vocabulary.changed == id)
                id = self._vocabulary.size + int(place[0]) if len(place) else id
                self._is_first = False
            if text := self._vocabulary.texts[id]:
                self._matcher.consume_token(id)
                if self._unique:
                    self._unique.follow(text)
        self._find()

    def _find(self) -> None:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, count=len(self._vocabulary.texts), bitorder="little")
        if self._unique:
            allowed[list(self._unique.repeating())] = 0
        size, changed = self._vocabulary.size, self._vocabulary.changed
        self.class_of_token[:] = allowed[:size]
        if self._is_first:
            # A first token that is a space is an empty text, which may always come.
            is_empty = np.array([not text for text in self._vocabulary.texts[size:]], bool)
            self.class_of_token[changed] = allowed[size:] | is_empty
        if self._matcher.is_error() or not self.class_of_token.any():
            problem = self._matcher.get_error()
            if not problem or "NoExtension" in problem:
                problem = "no text has the form asked for"
            raise InvalidRequest(f"the grammar cannot be followed further: {problem:.100}.")
