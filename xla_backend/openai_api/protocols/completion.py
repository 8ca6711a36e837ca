"""`/completion` and `/infill`: llama.cpp's own form of completions.

Knows the fields of both. Must not know HTTP, nor how a text is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr

from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.results import GenerationResult, Token, TopLogprob
from xla_backend.openai_api.answers import (
    chat_logprobs,
    finish_reason,
    generated,
    progress,
    timings,
    written,
)
from xla_backend.openai_api.errors import NotSupported
from xla_backend.openai_api.requests import MAX_TOP_LOGPROBS, GenerationRequest, bound
from xla_backend.openai_api.writers import Facts, Writer

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer


class OwnCompletionRequest(GenerationRequest):
    """A text to continue; or token ids, also between texts; or several of these."""

    prompt: str | dict[str, Any] | list[Any] = Field(
        description="a text, token ids and texts, an object with prompt_string, or a list of these"
    )
    n_probs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="how many of the most likely tokens at each position"
    )
    return_tokens: bool | None = Field(None, description="with the ids of the tokens")

    _prompts: list[Prompt] = PrivateAttr(default_factory=list)

    @property
    def logprobs(self) -> int | None:
        """Whether tokens come with the text."""
        return self.n_probs or (0 if self.return_tokens else None)

    @property
    def needs_tokenizer(self) -> bool:
        return super().needs_tokenizer or not isinstance(self.prompt, str)

    def resolve(self, tokenizer: Tokenizer) -> None:
        super().resolve(tokenizer)
        self._prompts = [_read(each, tokenizer) for each in self._listed()]

    def _listed(self) -> list[Any]:
        """The prompts: a list is one of them where it has token ids, else several."""
        prompt = self.prompt
        if isinstance(prompt, list) and not any(isinstance(each, int) for each in prompt):
            return prompt or [None]
        return [prompt]

    def prompts(self) -> list[Prompt]:
        return [self.prompt] if isinstance(self.prompt, str) else self._prompts

    def requested_tokens(self) -> int | None:
        return bound(self.max_tokens)


class InfillRequest(OwnCompletionRequest):
    """A text with a hole: what stands before and behind it."""

    prompt: str | list[int | str] = Field("", description="how the text in the hole begins")
    input_prefix: str = Field(description="the text before the hole")
    input_suffix: str = Field(description="the text behind it")

    @property
    def needs_tokenizer(self) -> bool:
        return True

    def resolve(self, tokenizer: Tokenizer) -> None:
        beginning = self.prompt
        ids = (
            tokenizer.encode(beginning, special=False) if isinstance(beginning, str) else beginning
        )
        self.prompt = [*tokenizer.fill_in(self.input_prefix, self.input_suffix), *ids]
        super().resolve(tokenizer)


class OwnCompletionWriter(Writer):
    """The writer for both."""

    done = ""

    def __init__(self, body: OwnCompletionRequest, facts: Facts) -> None:
        super().__init__()
        self._body = body
        self._tokenizer = facts.tokenizer
        self._runs = facts.runs

    def whole(self, results: Sequence[GenerationResult]) -> Any:
        answers = [
            self._answer(number, result, result.text, written(result))
            for number, result in enumerate(results)
        ]
        return answers[0] if len(answers) == 1 else answers

    def more(self, number: int, text: str) -> Iterator[dict[str, Any]]:
        tokens = self._tokens(self.new(number, text))
        yield {"index": number, "content": str(text), "stop": False, **tokens, **progress(text)}

    def end(self, number: int, result: GenerationResult) -> Iterator[dict[str, Any]]:
        yield self._answer(number, result, "", self.rest(number, result))

    def _answer(
        self, number: int, result: GenerationResult, text: str, tokens: Sequence[Token]
    ) -> dict[str, Any]:
        is_cut, is_word = finish_reason(result) == "length", result.finish == "stop"
        prompt, options = self._runs[number]
        return {
            "index": number,
            "content": text,
            "stop": True,
            "model": self._body.model,
            "prompt": prompt if isinstance(prompt, str) else "",
            "generation_settings": options.to_dict(),
            "tokens_evaluated": result.prompt_tokens,
            "tokens_predicted": generated(result),
            "tokens_cached": result.cached_tokens,
            "truncated": False,
            "has_new_line": "\n" in result.text,
            "stop_type": "limit" if is_cut else "word" if is_word else "eos",
            "stopping_word": result.stop_string,
            "timings": timings(result).model_dump(),
            **self._tokens(tokens),
            **self._body.ignored,
        }

    def _tokens(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """The fields for tokens, as far as they were requested."""
        ids = [token.id for token in tokens] if self._body.return_tokens else []
        if not self._body.n_probs:
            return {"tokens": ids}
        described = chat_logprobs(tokens, self._body.n_probs, self._tokenizer).model_dump()[
            "content"
        ]
        named = [
            {"id": token.id, **each, "top_logprobs": _named(token.top_logprobs, each)}
            for token, each in zip(tokens, described, strict=True)
        ]
        return {"tokens": ids, "completion_probabilities": named}


def _read(prompt: Any, tokenizer: Tokenizer) -> Prompt:
    """A prompt in one of its forms.

    Raises:
        NotSupported: it is none.
    """
    if isinstance(prompt, dict) and not prompt.get("multimodal_data"):
        prompt = prompt.get("prompt_string")
    if isinstance(prompt, str):
        return prompt
    ids: list[int] = []
    for each in prompt if isinstance(prompt, list) else [prompt]:
        if isinstance(each, str):
            ids += tokenizer.encode(each, special=not ids)
        elif type(each) is int:
            ids.append(each)
        else:
            sentence = "prompt must be a text, a list of token ids and texts, or a list of those."
            raise NotSupported("prompt", sentence)
    return TokenIds(tuple(ids))


def _named(tokens: Sequence[TopLogprob], token: dict[str, Any]) -> list[dict[str, Any]]:
    """The most likely tokens in a token's place, with their ids."""
    return [
        {"id": top.id, **each} for top, each in zip(tokens, token["top_logprobs"], strict=False)
    ]
