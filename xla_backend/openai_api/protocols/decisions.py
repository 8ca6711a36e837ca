"""Decisions: questions about a text, in OpenAI's form and in that of Transformers and TypeSafe.

Knows the fields of both, and their answers. Must not know HTTP, nor how questions are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from xla_backend.interface.decisions import Decision, Decisions, Question
from xla_backend.openai_api.fields import Fields
from xla_backend.openai_api.history import text_of
from xla_backend.openai_api.protocols.responses import ResponseRequest
from xla_backend.openai_api.requests import MAX_SALT, ChatMessage

Salt = Annotated[str, Field(max_length=MAX_SALT)]


class DecideRequest(Fields):
    """Questions by their names about a text or any JSON, in the form of `/v1/systemone`."""

    model: str | None = None
    state: str | dict[str, Any] | list[Any]
    questions: dict[str, Any]
    cache_salt: Salt | None = None

    @property
    def text(self) -> str:
        """What the questions are about."""
        if isinstance(self.state, str):
            return self.state
        return json.dumps(self.state, ensure_ascii=False)

    def all_questions(self) -> tuple[Question, ...]:
        """In the engine's form.

        Raises:
            InvalidRequest: one cannot be read.
        """
        return Question.all_of(self.questions)

    def answer(self, result: Decisions, model: str) -> dict[str, Any]:
        """The answer; `model` is the model's name for callers."""
        return result.to_json() | {"model": model, **self.ignored}


class AllowedAnswer(Fields):
    """An allowed answer; a truth value is not the text of the same name."""

    value: str | bool
    description: str | None = None


class Level(Fields):
    """A level of a score, from 0."""

    label: str
    description: str | None = None


class DecisionsQuestion(Fields):
    """A predicate (is it true?), a choice or a score."""

    type: Literal["predicate", "choice", "score"]
    name: str | None = None
    instructions: str | list[Any]
    choices: list[AllowedAnswer] = Field([])
    levels: list[Level] = Field([])

    def question(self, name: str) -> Question:
        """In the engine's form."""
        criteria: Any = None
        if self.type == "choice":
            options = self.options
            criteria = dict(zip(options, (c.description for c in self.choices), strict=True))
            criteria = criteria if len(criteria) == len(options) else options  # which is refused
        elif self.type == "score":
            criteria = [": ".join(filter(None, (e.label, e.description))) for e in self.levels]
        instructions = text_of(self.instructions, is_newest=True)
        kind = "yes_no" if self.type == "predicate" else self.type
        question = {"type": kind, "instructions": instructions, "criteria": criteria}
        return Question.of(name, question)

    @property
    def options(self) -> list[str]:
        """The text of each choice."""
        values = [each.value for each in self.choices]
        texts = [value if isinstance(value, str) else str(value).lower() for value in values]
        return [
            f"{text} (boolean)" if isinstance(value, bool) and text in values else text
            for text, value in zip(texts, values, strict=True)
        ]

    def answer(self, decision: Decision) -> dict[str, Any]:
        """The answer to it."""
        answer: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.type == "predicate":
            return answer | {"probability": decision.value}
        likely = list(decision.probabilities.values())
        answer["confidence"] = decision.confidence
        if self.type == "choice":
            pairs = zip(self.choices, likely, strict=True)
            probabilities = [{"value": c.value, "probability": p} for c, p in pairs]
            best = self.choices[likely.index(max(likely))].value
            return answer | {"choice": best, "probabilities": probabilities}
        levels = enumerate(zip(self.levels, likely, strict=True))
        probabilities = [
            {"label": level.label, "value": place, "probability": p} for place, (level, p) in levels
        ]
        return answer | {"score": decision.value, "probabilities": probabilities}


class DecisionsRequest(Fields):
    """Questions about a text, or about messages with calls of tools, in OpenAI's form."""

    model: str | None = None
    input: str | list[dict[str, Any]]
    questions: list[DecisionsQuestion]
    prompt_cache_key: Salt | None = None
    prompt_cache_options: dict[str, Any] | None = None

    @property
    def cache_salt(self) -> str | None:
        """Requests with the same one share what was read."""
        return self.prompt_cache_key

    @property
    def text(self) -> str:
        """What the questions are about: messages become lines with their roles."""
        if isinstance(self.input, str):
            return self.input
        items = ResponseRequest.model_validate({"input": self.input}).messages()
        newest = max((at for at, item in enumerate(items) if item["role"] == "user"), default=-1)
        lines = []
        for place, item in enumerate(items):
            message = ChatMessage(**item).to_message(is_newest=place == newest)
            lines += [f"{message.role}: {message.content}"] if message.content else []
            lines += [f"{message.role} calls {c.name} {c.arguments}" for c in message.tool_calls]
        return "\n".join(lines)

    def all_questions(self) -> tuple[Question, ...]:
        """As of `DecideRequest`."""
        return Question.all_of([q.question(str(place)) for place, q in enumerate(self.questions)])

    def answer(self, result: Decisions, model: str) -> dict[str, Any]:
        """As of `DecideRequest`; answers are in the order of the questions."""
        read, cached = result.prompt_tokens, result.cached_tokens
        pairs: Sequence[tuple[DecisionsQuestion, Decision]]
        pairs = list(zip(self.questions, result.decisions, strict=True))
        return {
            "model": model,
            "answers": [question.answer(decision) for question, decision in pairs],
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read,
            },
            **self.ignored,
        }
