"""The requests of OpenAI's protocol, typed: what they may hold, and what the engine is asked then.

Knows the fields, and which of OpenAI's mean what this engine does not do: those are refused by
their name. Fields that nobody knows are ignored, as OpenAI does. Must not know HTTP.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from xla_backend.interface.options import MAX_SEED, OPTIONS, GenerationOptions
from xla_backend.interface.prompt import Message, Prompt, TokenIds
from xla_backend.openai_api.errors import NotSupported

MAX_CHOICES = 8
"""Texts that one request may ask for, of all its prompts."""
MAX_TOP_LOGPROBS = 5
CHAT_TOKENS = 256
"""Most tokens of an answer with several beams where a chat says nothing: they are compiled for."""
COMPLETION_TOKENS = 16
"""Most tokens where a completion says nothing, as OpenAI's own."""
_REFUSED: dict[str, tuple[object, ...]] = {
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "echo": (None, False),
    "suffix": (None, ""),
    "best_of": (None, 1),
}
"""What is not supported, with the values that ask for nothing."""

MAX_SALT = 256
"""Characters of a `cache_salt`."""

Tokens = Annotated[int, Field(ge=-1)]
"""Most tokens of a text; -1 for as many as there is room for, as llama.cpp has it."""


class Fields(BaseModel):
    """An object of a request."""

    model_config = ConfigDict(strict=True, extra="ignore")


class TextPart(Fields):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class ChatMessage(Fields):
    """A message. "developer" is OpenAI's newer word for "system"."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if values.get("role") in ("tool", "function") or values.get("tool_calls"):
            raise NotSupported("messages", "Tools are not supported, nor messages of tools.")
        content = values.get("content")
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise NotSupported(
                    "messages",
                    f"Content of the type {kind[:40]!r} is not supported: send text alone.",
                )
        return values

    def to_message(self) -> Message:
        """As the engine takes it."""
        content = self.content
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return Message("system" if self.role == "developer" else self.role, text)


class ResponseFormat(Fields):
    """What form an answer shall have; only text is supported."""

    type: Literal["text"] = "text"

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        kind = values.get("type") if isinstance(values, dict) else None
        if isinstance(kind, str) and kind != "text":
            raise NotSupported(
                "response_format",
                f"The response format {kind[:40]!r} is not supported: answers are text.",
            )
        return values


class StreamOptions(Fields):
    """How an answer is streamed."""

    include_usage: bool = Field(False, description="a last chunk with the request's usage")


def _option_fields() -> dict[str, Any]:
    """The engine's options under their own names, each of which may be left out."""
    kinds: dict[str, Any] = get_type_hints(GenerationOptions)
    kinds |= {"logit_bias": dict[str, float], "stop": str | list[str]}  # as JSON has them
    said = {
        "temperature": "; 1 where it is left out, but 0 with several beams",
        "seed": "; a new one at each request if left out",
    }
    fields = {}
    for name, option in OPTIONS.items():
        about = Field(None, description=option.help + said.get(name, ""))
        bounds = Field(ge=option.low, le=option.high)
        kind = Annotated[kinds[name], bounds] if option.range else kinds[name]
        fields[name] = (kind | None, about)
    del fields["max_new_tokens"]  # max_tokens
    return fields


if TYPE_CHECKING:
    OptionFields = Fields
else:
    OptionFields = create_model("OptionFields", __base__=Fields, **_option_fields())


class Generation(OptionFields):
    """What chats and completions have in common."""

    model: str = Field(description="name of a model that /v1/models lists")
    max_tokens: Tokens | None = Field(None, description="most tokens; part of the compiled shape")
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, description="how many texts; they run side by side, with seeds from seed on"
    )
    stream: bool | None = Field(None, description="send the text while it grows")
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, description="ignored")
    exact_key: bool | None = Field(
        None, description="of this engine: a larger compiled function may not serve instead"
    )
    cache_salt: Annotated[str, Field(max_length=MAX_SALT)] | None = Field(
        None,
        description="of vLLM: requests with the same one reuse each other's keys and values; "
        "choose what nobody guesses",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name, harmless in _REFUSED.items():
                if name in values and values[name] not in harmless:
                    raise NotSupported(name, f"{name} is not supported. Leave it out.")
        return values

    def prompts(self) -> list[Prompt]:
        """What is to be continued or answered."""
        raise NotImplementedError

    def wanted_tokens(self) -> int | None:
        """The tokens asked for; None for as many as there is room for."""
        raise NotImplementedError

    def runs(self, new_tokens: int) -> list[tuple[Prompt, GenerationOptions]]:
        """What the engine is asked: n times each prompt, each time with another seed.

        Args:
            new_tokens: most that a run may write where the request says nothing.

        Raises:
            InvalidRequest: an option is out of range, or there are too many texts.
        """
        prompts, times = self.prompts(), self.n or 1
        if len(prompts) * times > MAX_CHOICES:
            raise NotSupported(
                "prompt",
                f"{len(prompts)} prompts {times} times are more than the {MAX_CHOICES} texts that "
                "one request may ask for. Send several requests.",
            )
        given = {
            name: value
            for name in OPTIONS
            if (value := getattr(self, name, None)) is not None and name != "seed"
        }
        beams = given.get("num_beams", 1)
        most = self.wanted_tokens() or (CHAT_TOKENS if beams > 1 else new_tokens)
        options = GenerationOptions.from_dict(
            {"temperature": 0.0 if beams > 1 else 1.0, "top_k": 0, **given}
            | {"max_new_tokens": min(most, new_tokens)}
        )
        seed = getattr(self, "seed", None)
        first = secrets.randbelow(MAX_SEED) if seed is None else seed
        return [
            (prompt, options.replace(seed=(first + time) % (MAX_SEED + 1)))
            for prompt in prompts
            for time in range(times)
        ]


def _bound(tokens: int | None) -> int | None:
    if tokens == 0:
        raise NotSupported("max_tokens", "max_tokens is 0: ask for one token at least.")
    return None if tokens is None or tokens < 0 else tokens


class ChatRequest(Generation):
    """Messages that an instruct model answers."""

    messages: list[ChatMessage]
    max_completion_tokens: Tokens | None = Field(None, description="OpenAI's newer max_tokens")
    logprobs: bool | None = Field(None, description="with the tokens and their logprobs")
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="how many of the most likely tokens at each position"
    )
    response_format: ResponseFormat | None = None

    def prompts(self) -> list[Prompt]:
        return [tuple(message.to_message() for message in self.messages)]

    def wanted_tokens(self) -> int | None:
        return _bound(self.max_completion_tokens or self.max_tokens)


class CompletionRequest(Generation):
    """A text that a model continues, or several."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field(
        description="a text, texts, token ids, or lists of token ids"
    )
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="how many of the most likely tokens at each position"
    )

    def prompts(self) -> list[Prompt]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise NotSupported("prompt", "prompt is an empty list. Send at least one text.")
        prompts: list[Prompt] = []
        for each in self.prompt:
            if isinstance(each, int):
                return [TokenIds(tuple(self.prompt))]  # type: ignore[arg-type]
            prompts.append(each if isinstance(each, str) else TokenIds(tuple(each)))
        return prompts

    def wanted_tokens(self) -> int | None:
        return COMPLETION_TOKENS if self.max_tokens is None else _bound(self.max_tokens)
