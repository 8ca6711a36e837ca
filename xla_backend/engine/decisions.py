"""`Deciding`: questions about one text on their way to the log-probabilities of their answers.

Knows how a text, its questions and their answers become rows of a pool, each of which begins with
what was read before: the text once, then each question, then answers of several tokens. Must not
know requests or timings: `text` does.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from xla_backend.checkpoints.prompts import check_length, encode_prompt
from xla_backend.interface.buckets import CHUNK_ROWS
from xla_backend.interface.decisions import Decision, Question
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.options import DEFAULT_OPTIONS
from xla_backend.interface.prompt import Message, Prompt, question
from xla_backend.model.kv_memory import OutOfBlocks
from xla_backend.rows.pool import Row
from xla_backend.rows.prefix import common

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.interface.results import ModelInfo
    from xla_backend.model.functions import PoolFunctions
    from xla_backend.rows.pool import Pool

_NO_THINKING = {"enable_thinking": False}
"""For chat templates: the answer comes at once."""


class Deciding:
    """Reads the rows of questions, chunk by chunk.

    Attributes:
        most_tokens: of the longest question with its longest answer.
        computed: tokens that were read so far. rows_at_once: the most rows side by side.
    """

    def __init__(
        self, tokenizer: Tokenizer, info: ModelInfo, text: Prompt, questions: Sequence[Question]
    ) -> None:
        """Encodes all of it.

        Raises:
            InvalidRequest: the text is empty or no text, or an answer has no tokens.
            ContextLengthExceeded: the text and a question are too long for the model.
        """
        if not isinstance(text, str) or not text.strip():
            raise InvalidRequest("The text is empty. Send a text that the questions are about.")
        self._tokenizer = tokenizer
        self._is_chat = info.is_instruct
        self._questions = questions
        self._prompts = [
            encode_prompt(tokenizer, self._prompt(each.asked(text)), info, template=_NO_THINKING)
            for each in questions
        ]
        encode = functools.cache(self._encode_answer)
        self._answers = [[encode(answer) for answer in each.answers] for each in questions]
        self.most_tokens = max(
            len(ids) + max(map(len, answers))
            for ids, answers in zip(self._prompts, self._answers, strict=True)
        )
        check_length(self.most_tokens, info)
        # Lists that are sorted begin with what the first and the last of them begin with.
        alike = common(min(self._prompts), max(self._prompts)) if len(questions) > 1 else 0
        self._shared = self._prompts[0][:alike]
        self._firsts: list[Row] = []
        self._rests: list[list[Row | None]] = []
        self._read_at: dict[Row, float] = {}
        self.computed = 0
        self.rows_at_once = 1

    @property
    def prompt_tokens(self) -> int:
        """Tokens to read: once what questions share; of answers, all but the last token."""
        behind = sum(len(ids) - len(self._shared) for ids in self._prompts)
        answers = (answer for answers in self._answers for answer in answers)
        return len(self._shared) + behind + sum(len(answer) - 1 for answer in answers)

    def steps(self, pool: Pool, functions: PoolFunctions, salt: str) -> Generator[None, None, None]:
        """Reads all rows; yields after each chunk.

        Args:
            pool: of the model. functions: that read.
            salt: of the prefixes that may be reused, and that are left.
        """

        def row(ids: list[int], targets: Sequence[tuple[int, ...]] = ()) -> Row:
            return Row(ids, len(ids), salt, DEFAULT_OPTIONS, targets=tuple(targets))

        if self._shared:
            text = [row(self._shared)]
            yield from self._read(text, pool, functions, text)
        each = list(zip(self._prompts, self._answers, strict=True))
        self._firsts = [row(ids, [tuple(answer[0] for answer in said)]) for ids, said in each]
        # Others are not cached: fresh memory costs more than reading a short question again.
        goes_on = [not self._shared or any(answer[1:] for answer in said) for _, said in each]
        cached = [*itertools.compress(self._firsts, goes_on)]
        yield from self._read(self._firsts, pool, functions, cached)
        self._rests = [
            [
                row(ids + answer[:-1], [(id,) for id in answer[1:]]) if answer[1:] else None
                for answer in said
            ]
            for ids, said in each
        ]
        rests = [rest for of_question in self._rests for rest in of_question if rest is not None]
        yield from self._read(rests, pool, functions, ())

    def decisions(self, started: float) -> tuple[Decision, ...]:
        """What `steps` has brought, `started` seconds of `time.perf_counter()`."""
        found = []
        for asked, first, rests in zip(self._questions, self._firsts, self._rests, strict=True):
            logprobs = first.logprobs[0].tolist()
            for place, rest in enumerate(rests):
                if rest is not None:
                    logprobs[place] += sum(float(logprob[0]) for logprob in rest.logprobs)
            read_at = max(self._read_at[each] for each in [first, *filter(None, rests)])
            found.append(Decision(asked, tuple(logprobs), read_at - started))
        return tuple(found)

    def _read(
        self, rows: Sequence[Row], pool: Pool, functions: PoolFunctions, cached: Collection[Row]
    ) -> Iterator[None]:
        """Reads rows, as many side by side as a chunk takes; some are cached when they are read."""
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

    def _prompt(self, text: str, answer: str = "") -> Prompt:
        """What a model reads, up to an answer, or to its end."""
        if not self._is_chat:
            return f"{text}\nAnswer: {answer}".rstrip()
        return question(text) + ((Message("assistant", answer),) if answer else ())

    def _encode_answer(self, answer: str) -> list[int]:
        """The tokens with which a model answers, behind any question.

        Raises:
            InvalidRequest: there are none.
        """
        before, after = (
            self._tokenizer.encode(self._prompt("?", said), template=_NO_THINKING)
            for said in ("", answer)
        )
        ids = after[len(before) :]
        if after[: len(before)] != before:  # a template may write given answers in another way
            ids = self._tokenizer.encode(answer, special=False)
        if not ids:
            raise InvalidRequest(f"The answer {answer[:80]!r} has no tokens: choose another.")
        return ids
