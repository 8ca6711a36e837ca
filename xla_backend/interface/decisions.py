"""`Question`: what is asked about a text, with the answers that are allowed; `Decisions`: how
likely each of them is.

Knows the JSON of both (that of Transformers' `decision/`, where it fits) and the words in which a
model is asked.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.results import GenerationResult

KINDS = ("yes_no", "noul", "choice", "score")
"""Kinds of questions; "noul" is Transformers' name for yes or no."""
MAX_QUESTIONS = 400
"""Questions of a request."""
MAX_ANSWERS = 255
"""Allowed answers of a question."""
MAX_CHARACTERS = 16_000
"""Of a question with its answers and what they mean."""
_EXAMPLES = {
    "yes_no": '{"type": "yes_no", "instructions": "Is it spam?"}',
    "noul": '{"type": "noul", "instructions": "Is it spam?"}',
    "choice": '{"type": "choice", "instructions": "Which tone?", "criteria": ["calm", "angry"]}',
    "score": '{"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "now"]}',
}


@dataclass(frozen=True)
class Question:
    """A question about a text.

    Example:
        >>> Question("tone", "choice", "Which tone?", ("calm", "angry")).prompt_for("Hello!")
        'Hello!\\n\\nAnswer with one of: calm, angry.\\nWhich tone?'

    Attributes:
        name: of its answer.
        kind: one of `KINDS`.
        instructions: what is asked; may be empty.
        options: names of the allowed answers: "true" and "false" for yes or no, "0", "1" and so on
            of a score.
        meanings: what each stands for; empty texts where nothing is said.
    """

    name: str
    kind: Literal["yes_no", "noul", "choice", "score"]
    instructions: str = ""
    options: tuple[str, ...] = ("true", "false")
    meanings: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, value: Any) -> Self:
        """A question as JSON has it: `{"type": ..., "instructions": ..., "criteria": ...}`.

        Args:
            name: of the question.
            value: its `criteria` are, for yes or no, what "true" and "false" mean (optional); for a
                choice, a list of options, or an object with what each means; for a score, a list
                with the meaning of each level, from 0.

        Raises:
            InvalidRequest: it is none.
        """
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind not in KINDS:
            raise InvalidRequest(
                f"question {name[:80]!r} must be an object whose type is one of "
                f"{', '.join(KINDS)}, as {_EXAMPLES['yes_no']}."
            )
        wrong = InvalidRequest(
            f"question {name[:80]!r} cannot be read: a {kind} question looks like "
            f"{_EXAMPLES[kind]}, with at most {MAX_ANSWERS} different answers, none of them empty, "
            f"and {MAX_CHARACTERS} characters."
        )
        criteria, instructions = value.get("criteria"), _as_text(value.get("instructions"))
        if value.keys() - {"type", "instructions", "criteria"}:
            raise wrong
        if kind in ("yes_no", "noul"):
            options: tuple[str, ...] = ("true", "false")
            meant = {} if criteria is None else criteria
            if not isinstance(meant, Mapping) or meant.keys() - set(options):
                raise wrong
        elif kind == "choice":
            is_list = isinstance(criteria, Sequence) and not isinstance(criteria, str)
            if not is_list and not isinstance(criteria, Mapping):
                raise wrong
            options = tuple(criteria)
            meant = criteria if isinstance(criteria, Mapping) else {}
        else:
            if not isinstance(criteria, Sequence) or isinstance(criteria, str):
                raise wrong
            options = tuple(map(str, range(len(criteria))))
            meant = dict(zip(options, criteria, strict=True))
        is_text = all(isinstance(option, str) and option.strip() for option in options)
        if not is_text or not 0 < len(set(options)) == len(options) <= MAX_ANSWERS:
            raise wrong
        meanings = tuple(_as_text(meant.get(option)) for option in options)
        if sum(map(len, (instructions, *options, *meanings))) > MAX_CHARACTERS:
            raise wrong
        return cls(name, kind, instructions, options, meanings)

    @classmethod
    def all_of(cls, values: Any) -> tuple[Self, ...]:
        """Questions as they are, or as JSON has them: an object with each by its name.

        Raises:
            InvalidRequest: they are none, or too many.
        """
        if isinstance(values, Mapping):
            values = [cls.of(str(name), value) for name, value in values.items()]
        are = isinstance(values, Sequence) and all(isinstance(each, cls) for each in values)
        if not are or not 0 < len({each.name for each in values}) == len(values) <= MAX_QUESTIONS:
            raise InvalidRequest(
                f"questions must be an object of 1 to {MAX_QUESTIONS} questions by their names, as "
                f'{{"spam": {_EXAMPLES["yes_no"]}}}.'
            )
        return tuple(values)

    @property
    def is_yes_no(self) -> bool:
        """Whether it is answered with yes or no."""
        return self.kind in ("yes_no", "noul")

    @property
    def answers(self) -> tuple[str, ...]:
        """What the model is to say for each option."""
        return ("Yes", "No") if self.is_yes_no else self.options

    def prompt_for(self, text: str) -> str:
        """The words in which a model is asked; what questions share comes first."""
        pairs = zip(self.answers, self.meanings, strict=False)
        lines = [f"{answer}: {meaning}" for answer, meaning in pairs if meaning]
        how = {
            "choice": f"Answer with one of: {', '.join(self.options)}.",
            "score": f"Answer with a number from 0 to {len(self.options) - 1}.",
        }.get(self.kind, "Answer Yes or No.")
        return "\n".join([text, "", how, *filter(None, [self.instructions]), *lines])


@dataclass(frozen=True)
class QuestionTokens:
    """The tokens of some questions about a text.

    Attributes:
        prompts: of each question, with the text before it.
        answers: of each question, of each answer.
        shared: what all prompts begin with; nothing if there is one.
    """

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[tuple[int, ...], ...], ...]
    shared: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest question with its longest answer."""
        return max(
            len(ids) + max(map(len, answers))
            for ids, answers in zip(self.prompts, self.answers, strict=True)
        )

    @property
    def to_read(self) -> tuple[int, ...]:
        """Once what questions share, then what follows; of answers, all but the last token."""
        rest = [ids[len(self.shared) :] for ids in self.prompts]
        ends = [answer[:-1] for answers in self.answers for answer in answers]
        return (*self.shared, *itertools.chain(*rest, *ends))


@dataclass(frozen=True)
class Decision:
    """The answer to a question.

    Attributes:
        question: what was asked.
        logprobs: of each option, the natural logarithm of the probability with which the model
            says all tokens of its answer.
        known_s: seconds from the start of the work until they were known.
    """

    question: Question
    logprobs: tuple[float, ...]
    known_s: float = 0.0

    @property
    def probabilities(self) -> dict[str, float]:
        """Of each option, among those that are allowed: they add up to 1."""
        highest = max(self.logprobs)
        weights = [math.exp(logprob - highest) for logprob in self.logprobs]
        return {
            option: weight / sum(weights)
            for option, weight in zip(self.question.options, weights, strict=True)
        }

    @property
    def best(self) -> str:
        """The most likely option."""
        found = self.probabilities
        return max(found, key=found.__getitem__)

    @property
    def value(self) -> float | str:
        """The probability of yes, the most likely choice, or the score that is to be expected."""
        found = self.probabilities
        if self.question.is_yes_no:
            return found["true"]
        if self.question.kind == "choice":
            return self.best
        return sum(level * probability for level, probability in enumerate(found.values()))

    @property
    def confidence(self) -> float:
        """0 where all options are as likely, 1 where one is certain, as Transformers defines it.

        Of a score it falls with the distance of likely levels from the most likely one.
        """
        found, number = self.probabilities, len(self.logprobs)
        if number == 1:
            return 1.0
        if self.question.kind != "score":
            return max(0.0, (found[self.best] - 1 / number) / (1 - 1 / number))
        off = sum(abs(level - int(self.best)) * p for level, p in enumerate(found.values()))
        off_at_random = sum(abs(level - (number - 1) / 2) for level in range(number)) / number
        return max(0.0, 1 - off / off_at_random)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the API; what was decided has the name of the question's type.

        "noul" has no confidence, as in the form that its clients know.
        """
        question = self.question
        legend = dict(zip(question.options, question.meanings, strict=False))
        return {
            "type": question.kind,
            question.kind: self.value,
            **({"legend": legend} if question.kind == "score" else {}),
            **({} if question.kind == "noul" else {"confidence": self.confidence}),
            "probabilities": self.probabilities,
            "logprobs": dict(zip(question.options, self.logprobs, strict=True)),
            "known_s": round(self.known_s, 6),
        }


@dataclass(frozen=True)
class Decisions(GenerationResult):
    """The answers to all questions of a request, which generate nothing.

    The inherited fields are about the whole request: `prompt_tokens` counts what questions share
    once.

    Attributes:
        decisions: in the order of the questions.
        rows_at_once: the most questions, or answers, that were read side by side.
    """

    decisions: tuple[Decision, ...] = ()
    rows_at_once: int = 1

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line; answers by the names of their questions."""
        return {
            "model": self.model,
            "answers": {each.question.name: each.to_json() for each in self.decisions},
            "usage": {"input_tokens": self.prompt_tokens, "output_tokens": 0},
            "cached_tokens": self.cached_tokens,
            "cache": self.cache.value,
            "timing": self.timing.to_dict(),
        }


def _as_text(value: Any) -> str:
    """Text as it is, nothing as empty, other JSON values as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
