"""`question_tokens`: questions about a text, and their answers, as tokens.

Knows tokenizers and the words in which a model is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xla_backend.checkpoints.prompts import check_length, encode_prompt
from xla_backend.interface.decisions import QuestionTokens
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.prompt import Message, Prompt, question
from xla_backend.prediction.prefixes import common

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.interface.decisions import Question
    from xla_backend.interface.results import ModelInfo

_NO_THINKING = {"enable_thinking": False}
"""For chat templates: the answer comes at once."""


def question_tokens(
    tokenizer: Tokenizer, info: ModelInfo, text: Prompt, questions: Sequence[Question]
) -> QuestionTokens:
    """Encodes questions about a text, and their answers.

    Raises:
        InvalidRequest: the text is empty or no text, or an answer has no tokens.
        ContextLengthExceeded: the text and a question are too long for the model.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("The text is empty. Send a text that the questions are about.")
    prompts = [
        tuple(encode_prompt(tokenizer, _prompt(info, each.prompt_for(text)), info, _NO_THINKING))
        for each in questions
    ]
    encode = functools.cache(functools.partial(_encode_answer, tokenizer, info))
    answers = [tuple(encode(answer) for answer in each.answers) for each in questions]
    # Sequences that are sorted begin with what the first and the last of them begin with.
    alike = common(min(prompts), max(prompts)) if len(questions) > 1 else 0
    tokens = QuestionTokens(tuple(prompts), tuple(answers), prompts[0][:alike])
    check_length(tokens.longest, info)
    return tokens


def _prompt(info: ModelInfo, text: str, answer: str = "") -> Prompt:
    """What a model reads, up to an answer, or to its end."""
    if not info.is_instruct:
        return f"{text}\nAnswer: {answer}".rstrip()
    return question(text) + ((Message("assistant", answer),) if answer else ())


def _encode_answer(tokenizer: Tokenizer, info: ModelInfo, answer: str) -> tuple[int, ...]:
    """The tokens with which a model answers, behind any question.

    Raises:
        InvalidRequest: there are none.
    """
    before, after = (
        tokenizer.encode(_prompt(info, "?", word), template=_NO_THINKING) for word in ("", answer)
    )
    ids = after[len(before) :]
    if after[: len(before)] != before:  # a template may write given answers in another way
        ids = tokenizer.encode(answer, special=False)
    if not ids:
        raise InvalidRequest(f"The answer {answer[:80]!r} has no tokens: choose another.")
    return tuple(ids)
