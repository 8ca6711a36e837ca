"""The words that differ between two texts, as pairs and marked in the texts.

Knows words and the fewest edits between two lists of them. Must not know where the texts are from.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import htpy as h


@dataclass(frozen=True)
class WordPair:
    """A spoken word and the transcribed one in its place."""

    expected: str | None  # None if the transcript has an extra word
    found: str | None  # None if it lacks a word

    @property
    def is_same(self) -> bool:
        """Whether both exist and are equal, except for capitals and punctuation."""
        if self.expected is None or self.found is None:
            return False
        return _plain(self.expected) == _plain(self.found)


def word_pairs(expected: str, found: str) -> list[WordPair]:
    """The words of both texts in pairs, in order, with as few differences as possible.

    The number of pairs that differ is the number of word errors (substitutions, deletions and
    insertions), which over the number of words that were said is the word error rate.
    """
    ours, theirs = expected.split(), found.split()
    errors = _error_table([*map(_plain, ours)], [*map(_plain, theirs)])
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


def marked_pair(one: str, other: str) -> tuple[h.Node, h.Node]:
    """Both texts, with the words marked that the other one does not have at their place."""
    pairs = word_pairs(one, other)
    return (
        marked(
            one,
            [pair.expected == pair.found for pair in pairs if pair.expected is not None],
            h.mark,
        ),
        marked(
            other,
            [pair.expected == pair.found for pair in pairs if pair.found is not None],
            h.mark,
        ),
    )


def marked(text: str, are_same: Iterable[bool], tag: h.Element) -> h.Node:
    """A text with `tag` around some words: those whose `are_same` is false."""
    runs: list[tuple[bool, str, str]] = []  # runs of such words, after white space
    for (space, word), is_same in zip(re.findall(r"(\s*)(\S+)", text), are_same, strict=True):
        if runs and runs[-1][0] == is_same:
            runs[-1] = (is_same, runs[-1][1], runs[-1][2] + space + word)
        else:
            runs.append((is_same, space, word))
    return [(space, words if is_same else tag[words]) for is_same, space, words in runs]


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
