"""`Deciding`: the log-probabilities of all answers to questions about one text.

Knows how a text, its questions and their answers become rows of a pool, each of which begins with
what was read before: the text once, then each question, then answers of several tokens. Must not
know requests or timings: `text` does.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from xla_backend.interface.buckets import CHUNK_ROWS
from xla_backend.interface.decisions import Decision
from xla_backend.interface.options import DEFAULT_OPTIONS
from xla_backend.model.kv_memory import OutOfBlocks
from xla_backend.rows.pool import Row

if TYPE_CHECKING:
    from xla_backend.interface.decisions import Question, QuestionTokens
    from xla_backend.model.functions import PoolFunctions
    from xla_backend.rows.pool import Pool


class QuestionRows:
    """Reads the rows of questions, chunk by chunk.

    Attributes:
        computed: tokens that were read so far. rows_at_once: the largest number of rows in a chunk.
    """

    def __init__(self, questions: Sequence[Question], tokens: QuestionTokens) -> None:
        self._tokens = tokens
        self._questions = questions
        self._firsts: list[Row] = []
        self._rests: list[list[Row | None]] = []
        self._read_at: dict[Row, float] = {}
        self.computed = 0
        self.rows_at_once = 1

    def steps(self, pool: Pool, functions: PoolFunctions, salt: str) -> Generator[None, None, None]:
        """Reads all rows; yields after each chunk.

        Args:
            pool: of the model. functions: that read.
            salt: of the prefixes that are reused and cached.
        """

        def row(ids: Sequence[int], targets: Sequence[tuple[int, ...]] = ()) -> Row:
            return Row(list(ids), len(ids), salt, DEFAULT_OPTIONS, targets=tuple(targets))

        shared = self._tokens.shared
        if shared:
            text = [row(shared)]
            yield from self._read(text, pool, functions, text)
        each = list(zip(self._tokens.prompts, self._tokens.answers, strict=True))
        self._firsts = [row(ids, [tuple(answer[0] for answer in choices)]) for ids, choices in each]
        # Others are not cached: fresh memory costs more than reading a short question again.
        goes_on = [not shared or any(answer[1:] for answer in choices) for _, choices in each]
        cached = [*itertools.compress(self._firsts, goes_on)]
        yield from self._read(self._firsts, pool, functions, cached)
        self._rests = [
            [
                row(ids + answer[:-1], [(id,) for id in answer[1:]]) if answer[1:] else None
                for answer in choices
            ]
            for ids, choices in each
        ]
        rests = [rest for of_question in self._rests for rest in of_question if rest is not None]
        yield from self._read(rests, pool, functions, ())

    def decisions(self, started: float) -> tuple[Decision, ...]:
        """The decisions, after `steps`; `started` as `time.perf_counter()`."""
        found = []
        for question, first, rests in zip(self._questions, self._firsts, self._rests, strict=True):
            logprobs = first.logprobs[0].tolist()
            for place, rest in enumerate(rests):
                if rest is not None:
                    logprobs[place] += sum(float(logprob[0]) for logprob in rest.logprobs)
            read_at = max(self._read_at[each] for each in [first, *filter(None, rests)])
            found.append(Decision(question, tuple(logprobs), read_at - started))
        return tuple(found)

    def _read(
        self, rows: Sequence[Row], pool: Pool, functions: PoolFunctions, cached: Collection[Row]
    ) -> Iterator[None]:
        """Reads rows, as many at once as a chunk takes; then caches those in `cached`."""
        waiting, reading = deque(rows), list[Row]()
        try:
            while waiting or reading:
                while waiting and len(reading) < CHUNK_ROWS:
                    if reading and not pool.has_room(waiting[0]):
                        break
                    pool.admit(waiting[0])
                    reading.append(waiting.popleft())
                unread = [each for each in reading if each.unread]
                self.rows_at_once = max(self.rows_at_once, len(unread))
                before = sum(each.unread for each in unread)
                try:
                    if unread:
                        pool.read(unread, functions)
                except OutOfBlocks:  # alone, it waits for texts that are being generated
                    waiting.appendleft(reading.pop())
                    pool.suspend(waiting[0])
                else:
                    self.computed += before - sum(each.unread for each in unread)
                for each in [each for each in reading if not each.unread]:
                    self._read_at[each] = time.perf_counter()
                    reading.remove(each)
                    pool.leave(each, each in cached)
                yield
        finally:
            for each in reading:
                pool.leave(each, False)
