"""`Automaton`: which tokens may follow, as tables: a regular expression over a vocabulary's bytes.

Knows regular expressions and the bytes of tokens. Must not know schemas, models or TensorFlow. A
library makes an automaton over bytes. Each token is then a function from states to states, the one
of its bytes one after the other; there are few different ones, and tokens of one function are a
class. Axes: S states, C classes, V vocabulary.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xla_backend.grammar import byte_automaton
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import MAX_DRAFTS

START = 0
"""The state before the first token."""
NONE = -1
"""The state behind a token that may not come."""
MAX_STATES = 30_000
MAX_ENTRIES = 40_000_000
"""S times C: 80 MB."""
MAX_BANNED = 500
"""Tokens of all banned sequences together."""
MAX_FORCED = 24
"""How many bytes that must come are looked at from each state: longer tokens are rare."""
_MAX_ROUNDS = 100
"""Of merging equal states: a long count takes as many, and merges nothing."""
_LONGEST_S = 60.0
"""Of making an automaton over bytes: on a busy machine, longer than its processor time."""


class TokenBytes:
    """The bytes of a model's tokens, level by level.

    Attributes:
        size: V.
        texts: of each token, then of those that are others at a text's beginning, `changed`, what
            they are there.
    """

    def __init__(
        self, tokens: Sequence[bytes], ends: Collection[int], drops_first_space: bool
    ) -> None:
        """Takes the tokens.

        Args:
            tokens: the bytes of each; empty for those that are no text.
            ends: tokens that end a text.
            drops_first_space: whether a text's first token loses the space that it begins with.
        """
        self.size = len(tokens)
        self.texts = texts = list(tokens)
        self.ends = np.array(sorted(end for end in ends if end < self.size), np.int64)
        for end in self.ends:
            texts[end] = b""
        # What the first tokens of a text are, where that is something else.
        self.changed = np.array(
            [id for id, text in enumerate(texts) if drops_first_space and text[:1] == b" "],
            np.int64,
        )
        texts += [texts[id][1:] for id in self.changed]
        lengths = np.array([len(text) for text in texts])
        starts = np.cumsum(lengths) - lengths
        data = np.frombuffer(b"".join(texts), np.uint8)
        # A first token that is a space is an empty text, which is one.
        self.has_text = (lengths > 0) | (np.arange(len(texts)) >= self.size)
        self.lengths = lengths[: self.size].astype(np.int32)
        self.longest_draft = min(MAX_FORCED, int(lengths.max(initial=0)))
        self._ids: dict[bytes, int] = {}
        self.has_all_bytes = len({text for text in tokens if len(text) == 1}) >= 255
        self.levels = []
        """For each place: the tokens that have a byte there, and that byte."""
        for place in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > place)
            self.levels.append((longer, data[starts[longer] + place].astype(np.int64)))

    @functools.cached_property
    def identity(self) -> str:
        """A hash of all that automata depend on."""
        digest = hashlib.blake2b(b"".join(self.texts), digest_size=16)
        lengths = np.array([len(text) for text in self.texts])
        for numbers in (lengths, self.ends, self.changed):
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    @functools.cache  # noqa: B019
    def sorted_texts(self, is_stripped: bool) -> tuple[list[bytes], list[int]]:
        """The texts in order, with or without the white space that they begin with, and whose they
        are."""
        texts = [text.lstrip(b" \t\r\n") if is_stripped else text for text in self.texts]
        ids = sorted(range(len(texts)), key=texts.__getitem__)
        return [texts[id] for id in ids], ids

    def longest(self, text: bytes) -> int:
        """The longest token that a text begins with; `NONE` if there is none."""
        if not self._ids:
            self._ids = {text: id for id, text in enumerate(self.texts[: self.size]) if text}
        sizes = range(len(text), 0, -1)
        return next((id for n in sizes if (id := self._ids.get(text[:n])) is not None), NONE)


@dataclass(frozen=True, eq=False)
class Automaton:
    """Which tokens may follow.

    Attributes:
        class_of_token: `[V]` uint16.
        next_state: `[S, C]` int16, `NONE` where a token of the class may not come.
        forced: `[S]` int32, how many bytes can be nothing else.
        drafts: `[S, MAX_DRAFTS]` int32, the tokens that come next if white space is as usual, each
            as long as possible; then `NONE`.
        lengths: `[V]` int32, the bytes of each token.
    """

    class_of_token: np.ndarray
    next_state: np.ndarray
    forced: np.ndarray
    drafts: np.ndarray
    lengths: np.ndarray

    @property
    def bytes(self) -> int:
        """Of memory."""
        tables = self.class_of_token, self.next_state, self.forced, self.drafts
        return sum(table.nbytes for table in tables)

    def are_forced(self, token_ids: Iterable[int]) -> list[bool]:
        """Which tokens of a text are part of what could be nothing else."""
        state, found = START, []
        for id in token_ids:
            found.append(bool(0 < self.lengths[id] <= self.forced[state]))
            state = max(START, int(self.next_state[state, self.class_of_token[id]]))
        return found

    def for_row(self) -> Automaton:
        """One for a further text: itself."""
        return self


def build(regex: str, vocabulary: TokenBytes) -> Automaton:
    """The automaton of a regular expression, which whole texts must match."""
    step, is_end = _minimal(*_over_bytes(regex))
    states, none = len(is_end), len(is_end)
    if len(vocabulary.ends) == 0:
        raise InvalidRequest("this model has no token that ends a text, so no grammar can hold.")
    columns, byte_class = _classes(step)
    columns = np.concatenate([columns, np.full([1, columns.shape[1]], none)]).astype(np.int16)
    forced, drafts = _drafts(columns, byte_class, is_end, vocabulary)
    functions, of_token = _functions(columns, byte_class, vocabulary)
    functions[:, none] = none

    # A further state, the first one, in which tokens are those that begin a text.
    first_of = of_token.copy()[: vocabulary.size]
    first_of[vocabulary.changed] = of_token[vocabulary.size :]
    of_token = of_token[: vocabulary.size]
    pairs, class_of_token = np.unique(of_token * len(functions) + first_of, return_inverse=True)
    if len(pairs) >= np.iinfo(np.uint16).max:
        raise _too_large()
    may_start = functions[pairs % len(functions), 0]
    next_state = np.concatenate([may_start[None], functions[pairs // len(functions), :none].T])
    next_state = np.where(next_state == none, NONE, next_state + 1).astype(np.int16)
    is_end = np.concatenate([is_end[:1], is_end])

    # The tokens that end a text are a class of their own.
    own = np.arange(states + 1, dtype=np.int16)
    next_state = np.concatenate([next_state, np.where(is_end, own, NONE)[:, None]], axis=1)
    class_of_token = class_of_token.reshape(-1).astype(np.uint16)
    class_of_token[vocabulary.ends] = next_state.shape[1] - 1
    if not vocabulary.has_all_bytes:
        _remove_dead_ends(next_state, is_end)
    if not (next_state[START] != NONE).any():
        raise InvalidRequest("no text that the model's tokens can write has the form asked for.")
    next_state = np.ascontiguousarray(next_state)
    return Automaton(class_of_token, next_state, forced, drafts, vocabulary.lengths)


def of_tokens(
    allowed: Sequence[int] | None, banned: Sequence[Sequence[int]], vocabulary: TokenBytes
) -> Automaton:
    """The automaton of texts of some tokens alone (None: of all), without banned sequences of them.

    A state is what a banned sequence may begin with (A. V. Aho and M. J. Corasick, 1975).
    """
    named = sorted({id for each in banned for id in each})
    if wrong := [id for id in (*named, *(allowed or ())) if not 0 <= id < vocabulary.size]:
        raise InvalidRequest(f"token ids are from 0 to {vocabulary.size - 1}, not {wrong[0]}.")
    if sum(map(len, banned)) > MAX_BANNED:
        raise InvalidRequest(f"all bad words together may have {MAX_BANNED} tokens: send fewer.")
    class_of_token = np.zeros([vocabulary.size], np.uint16)
    class_of_token[named] = np.arange(len(named)) + 1
    if allowed is not None:
        class_of_token[np.setdiff1d(np.arange(vocabulary.size), allowed)] = len(named) + 1
    sequences = set(map(tuple, banned))
    prefixes = sorted({each[:size] for each in sequences for size in range(1, len(each))} | {()})
    number = {text: state for state, text in enumerate(prefixes)}
    next_state = np.full([len(prefixes), len(named) + 2], START, np.int16)
    for state, text in enumerate(prefixes):
        for place, id in enumerate(named, 1):
            ends = [(*text, id)[at:] for at in range(len(text) + 2)]
            follows = next(number[end] for end in ends if end in number)
            next_state[state, place] = NONE if sequences.intersection(ends) else follows
    next_state[:, np.bincount(class_of_token, minlength=len(named) + 2) == 0] = NONE
    next_state[:, -1] = NONE
    while (stuck := (next_state == NONE).all(axis=1)).any():
        leads = (next_state != NONE) & stuck[next_state]
        if not leads.any():
            break
        next_state[leads] = NONE
    if stuck[START]:
        raise InvalidRequest("no token is allowed: allow more of them.")
    drafts = np.full([len(prefixes), MAX_DRAFTS], NONE, np.int32)
    forced = np.zeros([len(prefixes)], np.int32)
    return Automaton(class_of_token, next_state, forced, drafts, vocabulary.lengths)


def _over_bytes(regex: str) -> tuple[np.ndarray, np.ndarray]:
    """The automaton over bytes: `[S, 256]`, S where there is no transition; and `[S]`, its ends."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", byte_automaton.__file__],
            input=regex.encode(),
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_large() from None
    if done.returncode == byte_automaton.REFUSED:
        reason = done.stderr.decode(errors="replace")[:100]
        raise InvalidRequest(f"the grammar cannot become an automaton: {reason}.")
    if done.returncode != 0:
        raise _too_large()
    numbers = np.frombuffer(done.stdout, np.int32)
    states, lists, at = int(numbers[0]), [], 1
    while at < len(numbers):
        lists.append(numbers[at + 1 : at + 1 + numbers[at]])
        at += 1 + int(numbers[at])
    before, read, after, first, ends = lists
    step = np.full([states, 257], states, np.int32)  # and the library's own end of a text
    step[before, read] = after
    is_end = np.zeros([states], bool)
    is_end[ends] = True
    begin = int(step[first[0], byte_automaton.BEGIN])
    step[:, byte_automaton.BEGIN] = states
    if begin == states:
        raise InvalidRequest("no text has the form asked for.")
    return _reachable(step[:, :256], is_end, begin)


def _reachable(step: np.ndarray, is_end: np.ndarray, begin: int) -> tuple[np.ndarray, np.ndarray]:
    """Only the states that can be reached, the first one in front."""
    none = len(step)
    seen = np.zeros([none + 1], bool)
    seen[none] = True
    order, front = [], np.array([begin])
    while len(front):
        seen[front] = True
        order.append(front)
        follows = np.zeros([none + 1], bool)
        follows[step[front]] = True
        front = np.flatnonzero(follows & ~seen)
    retained = np.concatenate(order)
    number = np.full([none + 1], len(retained), np.int64)
    number[retained] = np.arange(len(retained))
    return number[step[retained]], is_end[retained]


def _minimal(step: np.ndarray, is_end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """States that the same texts lead to an end from are merged (E. F. Moore, 1956).

    Classes of states are split by the classes that follow, until none is.
    """
    states = len(is_end)
    columns, byte_class = _classes(step)
    weights = _weights(columns.shape[1] + 1)
    of_state: np.ndarray = np.append(is_end.astype(np.uint64), np.uint64(2))
    count = 0
    for _ in range(_MAX_ROUNDS):
        # Hashes stand for the classes that follow: 64 bits, so that equal ones are the same.
        hashes = (of_state[columns] * weights[1:]).sum(axis=1) + of_state[:states] * weights[0]
        different, first, of_state = np.unique(hashes, return_index=True, return_inverse=True)
        if len(different) == count:
            break
        count = len(different)
        of_state = np.append(of_state.reshape(-1), count).astype(np.uint64)
        of_state = of_state * np.uint64(0x9E3779B97F4A7C15) ^ (of_state >> np.uint64(7))
    else:
        if states > MAX_STATES:
            raise _too_large()
        return step, is_end
    if count > MAX_STATES:
        raise _too_large()
    of_state = np.append(of_state.reshape(-1), count)
    merged = of_state[columns[first]][:, byte_class]
    return _reachable(merged, is_end[first], int(of_state[0]))


def _classes(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different columns of a table `[S, 256]`, by hashes of 64 bits; and which one each is."""
    hashes = _weights(len(step)) @ step.astype(np.uint64)
    _, first, byte_class = np.unique(hashes, return_index=True, return_inverse=True)
    return step[:, first], byte_class.reshape(-1)


def _weights(count: int) -> np.ndarray:
    """Odd numbers of 64 bits: sums of numbers times these are different for different numbers."""
    return np.random.default_rng(0).integers(1, 2**63, [count], np.uint64) | np.uint64(1)


def _functions(
    columns: np.ndarray, byte_class: np.ndarray, vocabulary: TokenBytes
) -> tuple[np.ndarray, np.ndarray]:
    """The different functions of tokens, `[F, S + 1]`, and of each token which one: 0 is nowhere.

    Args:
        columns: `[S + 1, B]`, the next states for classes of bytes.
        byte_class: `[256]`.
    """
    states, classes = columns.shape
    weights = _weights(states)
    functions = [np.full([states], states - 1, np.int16), np.arange(states, dtype=np.int16)]
    known = {int((each.astype(np.uint64) * weights).sum()): at for at, each in enumerate(functions)}
    of_token = vocabulary.has_text.astype(np.int64)
    for tokens, read in vocabulary.levels:
        goes_on = of_token[tokens] > 0
        tokens, read = tokens[goes_on], byte_class[read[goes_on]]
        pairs, of_pair = np.unique(of_token[tokens] * classes + read, return_inverse=True)
        numbers = np.zeros([len(pairs)], np.int64)
        for at, pair in enumerate(pairs.tolist()):
            made = columns[functions[pair // classes], pair % classes]
            key = int((made.astype(np.uint64) * weights).sum())
            if key not in known:
                known[key] = len(functions)
                functions.append(made)
                if len(functions) * states > MAX_ENTRIES:
                    raise _too_large()
            numbers[at] = known[key]
        of_token[tokens] = numbers[of_pair.reshape(-1)]
    return np.stack(functions), of_token


def _drafts(
    columns: np.ndarray, byte_class: np.ndarray, is_end: np.ndarray, vocabulary: TokenBytes
) -> tuple[np.ndarray, np.ndarray]:
    """`Automaton.forced` and `drafts`; there are none in its first state.

    Args:
        columns, byte_class, vocabulary: as of `_functions`.
        is_end: `[S]`.
    """
    states = len(is_end)
    allowed = columns[:states, byte_class] != states
    is_forced = (allowed.sum(axis=1) == 1) & ~is_end
    # A choice of white space alone is guessed as most programs write JSON.
    others = allowed.copy()
    others[:, list(b" \n\r\t")] = False
    may_start = others.copy()
    may_start[:, list(b'"-0123456789[{tfn')] = False
    read = others.argmax(axis=1)
    is_space = allowed[:, ord(" ")] & ~may_start.any(axis=1) & others.any(axis=1)
    read[is_space | ~others.any(axis=1)] = ord(" ")
    is_known = (is_forced | is_space | (others.sum(axis=1) == 1)) & ~is_end
    read[is_forced] = allowed.argmax(axis=1)[is_forced]
    after = np.where(is_known, columns[np.arange(states), byte_class[read]], states)
    # Behind the last state is one that leads nowhere.
    after, is_forced = np.append(after, states), np.append(is_forced, False)
    read = np.append(read, 0).astype(np.uint8)
    path = np.arange(states + 1)
    paths = [path, *(path := after[path] for _ in range(vocabulary.longest_draft))]
    reads = np.stack([read[each] for each in paths[:-1]], axis=1)
    lengths = (np.stack(paths[1:], axis=1) != states).sum(axis=1)
    forced = np.stack([is_forced[each] for each in paths[:-1]], axis=1).cumprod(axis=1).sum(axis=1)
    first, following = np.full([states + 1], NONE, np.int32), np.full([states + 1], states)
    known: dict[bytes, int] = {}
    for state in np.flatnonzero(lengths).tolist():
        text = reads[state, : lengths[state]].tobytes()
        if text not in known:
            known[text] = vocabulary.longest(text)
        if (token := known[text]) != NONE:
            first[state], following[state] = token, paths[vocabulary.lengths[token]][state]
    drafts, place = np.full([states + 2, MAX_DRAFTS], NONE, np.int32), np.arange(states + 1)
    for at in range(MAX_DRAFTS):
        drafts[1:, at] = first[place]
        place = following[place]
    return np.append(0, forced[:states]).astype(np.int32), drafts[: states + 1]


def _remove_dead_ends(next_state: np.ndarray, is_end: np.ndarray) -> None:
    """Takes out what leads to where the tokens cannot go on to an end."""
    before, _ = (next_state != NONE).nonzero()
    edges = np.unique(before * len(is_end) + next_state[next_state != NONE])
    before, after = np.divmod(edges, len(is_end))
    can_end = is_end.copy()
    while True:
        more = before[can_end[after] & ~can_end[before]]
        if not len(more):
            break
        can_end[more] = True
    next_state[(next_state != NONE) & ~can_end[next_state]] = NONE


def _too_large() -> InvalidRequest:
    return InvalidRequest(
        f"the grammar is too large: it needs more than {MAX_STATES:,} states. Use smaller bounds "
        "on lengths and counts (maxLength, maxItems), or fewer optional properties in a row."
    )
