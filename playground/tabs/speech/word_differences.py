"""Which words of a transcript differ from what was said.

Knows words and the fewest edits between two lists of them. Must not know recordings or HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WordPair:
    """A spoken word beside the one that was heard in its place.

    Attributes:
        said: None if the transcript has an extra word.
        heard: None if it lacks a word.
    """

    said: str | None
    heard: str | None

    @property
    def is_same(self) -> bool:
        """Whether both are there and equal, capitals and punctuation aside."""
        if self.said is None or self.heard is None:
            return False
        return _plain(self.said) == _plain(self.heard)


def word_pairs(said: str, heard: str) -> list[WordPair]:
    """The words of both texts side by side, in order, with as few differences as possible.

    The number of pairs that differ is the number of word errors (substitutions, deletions and
    insertions), which over the number of words that were said is the word error rate.
    """
    ours, theirs = said.split(), heard.split()
    errors = _error_table([_plain(word) for word in ours], [_plain(word) for word in theirs])
    pairs = []
    i, j = len(ours), len(theirs)
    while i or j:
        if i and j:
            pair = WordPair(ours[i - 1], theirs[j - 1])
            if errors[i][j] == errors[i - 1][j - 1] + (not pair.is_same):
                i, j = i - 1, j - 1
                pairs.append(pair)
                continue
        if i and errors[i][j] == errors[i - 1][j] + 1:
            i -= 1
            pairs.append(WordPair(ours[i], None))
        else:
            j -= 1
            pairs.append(WordPair(None, theirs[j]))
    return pairs[::-1]


def _error_table(ours: Sequence[str], theirs: Sequence[str]) -> list[list[int]]:
    """Fewest edits between the first i words of one and the first j of the other (Levenshtein)."""
    table = [list(range(len(theirs) + 1))]
    for i, word in enumerate(ours, start=1):
        row = [i]
        for j, other in enumerate(theirs, start=1):
            row.append(min(table[-1][j - 1] + (word != other), table[-1][j] + 1, row[-1] + 1))
        table.append(row)
    return table


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum()) or word
