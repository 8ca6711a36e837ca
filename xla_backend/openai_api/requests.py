"""The typed requests of OpenAI's protocol, and what they mean for the engine.

Knows the fields; `fields` knows those of other programs. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

from pydantic import ConfigDict, Field, PrivateAttr, create_model, model_validator

from xla_backend.answers.reader import AnswerReader
from xla_backend.answers.tool_format import ToolFormat
from xla_backend.grammar import grammars
from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.grammar import KINDS, Grammar
from xla_backend.interface.options import MAX_NEW_TOKENS, MAX_SEED, OPTIONS, GenerationOptions
from xla_backend.interface.prompt import Message, Prompt, TokenIds
from xla_backend.interface.tools import Tools
from xla_backend.openai_api.errors import NotSupported
from xla_backend.openai_api.fields import Fields, translated
from xla_backend.openai_api.history import calls_of, role_of, text_of

MAX_CHOICES = 16
"""Bound on the texts per prompt."""
MAX_TEXTS = 128
"""Bound on the texts per request, over all prompts. LangChain sends 20 prompts at once."""
MAX_TOP_LOGPROBS = 20
CHAT_TOKENS = 256
"""Default `max_tokens` of a chat with several beams, for which a function is compiled."""
COMPLETION_TOKENS = 16
"""Default `max_tokens` of a completion, as OpenAI's."""
MAX_TEMPLATE = 100_000
"""Characters of a `chat_template`."""
MAX_SALT = 256
"""Characters of a `cache_salt`."""

Tokens = Annotated[int, Field(ge=-1)]
"""Bound on the tokens of a text; -1 for the room in the context, as in llama.cpp."""


class ChatMessage(Fields):
    """A message, see `history`.

    An assistant's message may have tool calls; a tool's message has the id of the call whose result
    it is.
    """

    role: str = Field(description="system, user, assistant or tool; others are the user's")
    content: Any = None
    refusal: Any = None
    images: list[Any] | None = None
    name: Any = None  # which has no effect
    tool_calls: Any = None
    function_call: Any = None
    tool_call_id: Any = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def speaker(self) -> str:
        """The engine's role."""
        return role_of(self.role)[0]

    def to_message(self, is_newest: bool = False) -> Message:
        """In the engine's form; the newest message of the user may have nothing but text.

        Raises:
            NotSupported: it has.
        """
        role, before = role_of(self.role)
        thoughts = next((t for t in (self.reasoning_content, self.reasoning) if t), "")
        content = text_of(self.content or self.refusal, is_newest)
        content += text_of([{"type": "image"}] * len(self.images or ()), is_newest)
        return Message(
            role,
            before + content,
            tuple(calls_of(self.tool_calls or self.function_call or ())),
            str(self.tool_call_id or ""),
            thoughts if isinstance(thoughts, str) else "",
        )


class StreamOptions(Fields):
    """How an answer is streamed."""

    include_usage: bool = Field(False, description="a last chunk with the request's usage")
    continuous_usage_stats: bool = Field(False, description="of vLLM: every chunk has its usage")


def _option_fields() -> dict[str, Any]:
    """The engine's options under their own names, all optional."""
    kinds: dict[str, Any] = get_type_hints(GenerationOptions)
    # Their types in JSON.
    kinds |= {"stop": str | list[str], "stop_token_ids": list[int]}
    defaults = {
        "temperature": "; default: the model's own or 1, but 0 with several beams",
        "seed": "; default: a new one for each request",
    }
    fields = {}
    for name, option in OPTIONS.items():
        if name in (
            "max_new_tokens",
            "min_new_tokens",
            "grammar",
            "logit_bias",
        ):  # see `Generation`
            continue
        about = Field(None, description=option.help + defaults.get(name, ""))
        bounds = Field(ge=option.low, le=option.high)
        kind = Annotated[kinds[name], bounds] if option.range else kinds[name]
        fields[name] = (kind | None, about)
    return fields


if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer

    OptionFields = Fields
else:
    OptionFields = create_model("OptionFields", __base__=Fields, **_option_fields())


@contextlib.contextmanager
def _named(field: str) -> Iterator[None]:
    """Names the field of a grammar that is refused."""
    try:
        yield
    except InvalidRequest as error:
        raise NotSupported(field, f"{field}: {error}", "invalid_value") from error


class GenerationRequest(OptionFields):
    """What chats and completions have in common."""

    model: str | None = Field(
        None, description="a model that /v1/models lists; the first that fits if left out"
    )
    max_tokens: Tokens | None = Field(None, description="most tokens; part of the compiled shape")
    min_tokens: Annotated[int, Field(ge=0, le=MAX_NEW_TOKENS)] | None = Field(
        None, description=f"of vLLM: {OPTIONS['min_new_tokens'].help}"
    )
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, description="how many texts; they run side by side, with seeds from seed on"
    )
    stream: bool | None = Field(None, description="send the text while it grows")
    stream_options: StreamOptions | None = None
    return_progress: bool | None = Field(
        None, description="of llama.cpp: events while a long prompt is read"
    )
    logit_bias: dict[str, float | bool] | list[Any] | None = Field(
        None,
        description=f"{OPTIONS['logit_bias'].help}; of llama.cpp: texts, and pairs in a list, with "
        "false for never",
    )
    grammar: dict[str, Any] | str | None = Field(
        None,
        description="of llama.cpp: rules as text (GBNF); or one of json_schema, "
        "regex, choice, gbnf and json_object",
    )
    response_format: dict[str, Any] | None = Field(
        None, description="text, json_object, or json_schema; with strict, objects are closed"
    )
    guided_json: dict[str, Any] | str | None = Field(None, description="of vLLM: a JSON schema")
    guided_regex: str | None = Field(None, description="of vLLM: a regular expression")
    guided_choice: list[str] | None = Field(None, description="of vLLM: the answer is one of these")
    guided_grammar: str | None = Field(None, description="of vLLM: rules as text, as in grammar")
    structured_outputs: dict[str, Any] | None = Field(
        None, description="of vLLM: one of json, regex, choice and json_object"
    )
    json_schema: dict[str, Any] | str | None = Field(
        None, description="of llama.cpp and SGLang: a JSON schema"
    )
    bad_words: list[str] | None = Field(
        None, description="of vLLM: words that the text does not contain, as tokens"
    )
    allowed_token_ids: Annotated[list[int], Field(min_length=1)] | None = Field(
        None, description="of vLLM: the only tokens of the text, also to end it"
    )
    cache_salt: Annotated[str, Field(max_length=MAX_SALT)] | None = Field(
        None,
        description="of vLLM: requests with the same one reuse each other's keys and values; "
        "choose one that nobody can guess",
    )

    _grammar: Grammar | None = PrivateAttr(None)
    _grammar_field: str = PrivateAttr("")

    @classmethod
    def translated(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = translated(values, cls.model_fields)
        if values.get("stream_options") and not values.get("stream"):
            raise NotSupported("stream_options", "stream_options needs stream to be true.")
        return values

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        """Converts the fields for a grammar to one; `check_grammar` looks closer."""
        requested = [(name, form) for name, form in self._forms() if form]
        if len(requested) > 1:
            names = " and ".join(name for name, _ in requested)
            sentence = f"{names} each set a grammar: leave out all but one."
            raise NotSupported(requested[1][0], sentence)
        for name, form in requested:
            with _named(name):
                self._grammar, self._grammar_field = Grammar.of(form), name
        return self

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.stream and self.with_prompt_logprobs:
            raise NotSupported(
                "stream", "The log-probabilities of a prompt are not streamed: leave stream out."
            )
        return self

    async def check_grammar(self) -> None:
        """Checks that the grammar can be followed, if there is one; takes up to some seconds.

        Raises:
            NotSupported: it cannot be.
        """
        if self._grammar is not None:
            with _named(self._grammar_field):
                await asyncio.to_thread(grammars.check, self._grammar)

    def _forms(self) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
        """The requested grammars by field, in the form of `Grammar.of`."""
        rules = self.grammar
        yield "grammar", {"gbnf": rules} if rules and isinstance(rules, str) else rules or None
        yield "response_format", _response_format(self.response_format or {})
        for name, kind, value in (
            ("guided_json", "json_schema", self.guided_json),
            ("guided_regex", "regex", self.guided_regex),
            ("guided_choice", "choice", self.guided_choice),
            ("guided_grammar", "gbnf", self.guided_grammar),
            ("json_schema", "json_schema", self.json_schema),
        ):
            yield name, None if value is None else {kind: value}
        kinds = {"json": "json_schema", "grammar": "gbnf"}
        for name, value in (self.structured_outputs or {}).items():
            kind = kinds.get(name, name)
            if value and kind not in KINDS:
                raise NotSupported(
                    "structured_outputs",
                    f"{name[:40]!r} in structured_outputs is not supported: it takes one of json, "
                    "regex, choice, grammar and json_object.",
                )
            yield "structured_outputs", {kind: value} if value else None

    @property
    def needs_tokenizer(self) -> bool:
        """Whether something in it has a meaning only in tokens, see `resolve`."""
        biases = {} if self.logit_bias is None else self.logit_bias
        if self.bad_words or self.allowed_token_ids or isinstance(biases, list):
            return True
        return False in biases.values() or not all(map(str.isdecimal, biases))

    def resolve(self, tokenizer: Tokenizer) -> None:
        """Replaces texts by the tokens that they mean.

        Raises:
            InvalidRequest: they mean none.
        """
        biases = self.logit_bias or {}
        found: dict[str, float | bool] = {}
        for pair in biases if isinstance(biases, list) else biases.items():
            if not (isinstance(pair, list | tuple) and len(pair) == 2):
                raise NotSupported("logit_bias", "logit_bias must have pairs of token and number.")
            token, bias = pair
            is_id = not isinstance(token, str) or token.isdecimal()
            ids = [token] if is_id else tokenizer.encode(token, special=False)
            found |= dict.fromkeys(map(str, ids), -100.0 if bias is False else bias)
        self.logit_bias = found
        if self.bad_words or self.allowed_token_ids:
            name = "bad_words" if self.bad_words else "allowed_token_ids"
            if self._grammar is not None:
                sentence = f"{name} and {self._grammar_field} each set a grammar: leave one out."
                raise NotSupported(name, sentence)
            texts = [text for word in self.bad_words or () for text in (word, f" {word.lstrip()}")]
            words = [tokenizer.encode(text, special=False) for text in texts if text.strip()]
            self._grammar = Grammar.tokens(self.allowed_token_ids, words)
            self._grammar_field = name

    @property
    def times(self) -> int:
        """How many texts are generated for each prompt."""
        return self.n or 1

    def prompts(self) -> list[Prompt]:
        """The prompts to continue or answer."""
        raise NotImplementedError

    def requested_tokens(self) -> int | None:
        """The requested tokens, 0 if the prompt is only read; None for all the room."""
        raise NotImplementedError

    @property
    def with_prompt_logprobs(self) -> bool:
        """Whether the answer has the log-probabilities of the prompt."""
        return False

    @property
    def with_tokens(self) -> bool:
        """Whether the parts of a stream come with their tokens."""
        counts = self.stream_options is not None and self.stream_options.continuous_usage_stats
        return counts or getattr(self, "logprobs", None) not in (None, False)

    def runs(
        self, new_tokens: int, sampling: Mapping[str, float] = MappingProxyType({})
    ) -> list[tuple[Prompt, GenerationOptions]]:
        """The engine's runs: each prompt n times, each time with another seed.

        Args:
            new_tokens: default bound on a run's new tokens.
            sampling: the model's default options, see `ModelInfo`.

        Raises:
            InvalidRequest: an option is out of range, or there are too many texts.
        """
        prompts, times = self.prompts(), self.times
        if len(prompts) * times > MAX_TEXTS:
            raise NotSupported(
                "prompt",
                f"{len(prompts)} prompts {times} times are more than {MAX_TEXTS} texts, the limit "
                "of one request. Send several requests.",
            )
        given = {
            name: value for name in OPTIONS if (value := getattr(self, name, None)) is not None
        }
        beams, least = given.get("num_beams", 1), self.min_tokens or 0
        requested = self.requested_tokens()
        if least > (MAX_NEW_TOKENS if requested is None else requested):
            raise NotSupported(
                "min_tokens",
                f"min_tokens is {least}, but max_tokens is {requested}: lower min_tokens.",
            )
        most = CHAT_TOKENS if beams > 1 else new_tokens
        most = most if requested is None else max(1, requested)
        options = GenerationOptions.from_dict(
            {"temperature": 0.0, "top_k": 0, "seed": -1}
            | ({} if beams > 1 else {"temperature": 1.0, **sampling})
            | given
            | {"grammar": self._grammar}
            | {"max_new_tokens": min(most, new_tokens), "min_new_tokens": least}
        )
        return [
            (prompt, options.replace(seed=(options.seed + time) % (MAX_SEED + 1)))
            for prompt in prompts
            for time in range(times)
        ]


def _response_format(form: Mapping[str, Any]) -> dict[str, Any] | None:
    """The grammar of a response format: OpenAI's two forms, and llama.cpp's."""
    kind, about = form.get("type", "text"), form.get("json_schema") or form
    if kind == "text":
        return None
    schema = about.get("schema") if isinstance(about, Mapping) else None
    if kind == "json_object" and not schema:
        return {"json_object": True}
    if kind not in ("json_object", "json_schema"):
        raise NotSupported(
            "response_format",
            f"The response format {str(kind)[:40]!r} is not supported: text, json_object and "
            "json_schema are.",
        )
    if schema is None:
        raise NotSupported("response_format", "response_format has no schema: send one.")
    return {"json_schema": schema} | ({"strict": True} if about.get("strict") else {})


def bound(tokens: int | None) -> int | None:
    """The bound on a text's tokens that a request sets; None for all the room."""
    return None if tokens is None or tokens < 0 else tokens


class OpenAiRequest(GenerationRequest):
    """What only OpenAI's own two forms have: tokens in their answers."""

    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="of vLLM: how many of the most likely tokens at each place of the prompt"
    )
    return_token_ids: bool | None = Field(
        None, description="of vLLM: with the ids of the prompt's and the text's tokens"
    )
    return_tokens_as_token_ids: bool | None = Field(
        None, description="of vLLM: tokens of logprobs are named by their ids, as token_id:42"
    )

    @property
    def with_prompt_logprobs(self) -> bool:
        return self.prompt_logprobs is not None

    @property
    def with_tokens(self) -> bool:
        return bool(self.return_token_ids) or super().with_tokens


class ChatRequest(OpenAiRequest):
    """Messages that an instruct model answers."""

    messages: list[ChatMessage]
    max_completion_tokens: Tokens | None = Field(None, description="OpenAI's newer max_tokens")
    logprobs: bool | None = Field(None, description="with the tokens and their logprobs")
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="how many of the most likely tokens at each position"
    )
    continue_final_message: bool | None = Field(
        None,
        description="of vLLM: true only if the last message is the assistant's, which is always "
        "continued",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="of vLLM and llama.cpp: variables of the model's chat template"
    )
    chat_template: str | None = Field(
        None,
        max_length=MAX_TEMPLATE,
        description="of vLLM: a chat template in Jinja instead of the model's own",
    )
    reasoning_effort: str | None = Field(
        None, description="a variable of the chat template of models that have one, as GPT-OSS"
    )
    include_reasoning: bool | None = Field(None, description="of vLLM: false leaves thoughts out")
    add_generation_prompt: bool | None = Field(None, description="of vLLM: false only in that case")
    tools: list[dict[str, Any]] | None = Field(None, description="functions that may be called")
    tool_choice: str | dict[str, Any] | None = Field(
        None, description="none, auto, required, or an object with the name of a tool"
    )
    parallel_tool_calls: bool | None = Field(
        None, description="true: several calls in one answer, where the model has a way"
    )

    _tools: Tools | None = PrivateAttr(None)
    _tool_format: ToolFormat | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_continued = bool(self.messages) and self.messages[-1].speaker == "assistant"
        for name, value, only in (
            ("continue_final_message", self.continue_final_message, is_continued),
            ("add_generation_prompt", self.add_generation_prompt, not is_continued),
        ):
            if value is not None and value is not only:
                raise NotSupported(
                    name,
                    f"{name} is {str(value).lower()}, but an answer continues the last message "
                    "exactly if that is the assistant's. Leave it out.",
                )
        if "chat_template" in (self.chat_template_kwargs or ()):
            raise NotSupported(
                "chat_template_kwargs",
                "chat_template_kwargs cannot set chat_template, which is a field of its own.",
            )
        if self.top_logprobs and not self.logprobs:
            raise NotSupported("top_logprobs", "top_logprobs needs logprobs to be true.")
        self.prompts()  # whose newest message must be text
        functions = []
        for place, tool in enumerate(self.tools or ()):
            kind = tool.get("type")
            if isinstance(kind, str) and kind != "function":
                self._ignored.append(f"tools.{place} ({kind[:40]})")
            else:
                functions.append(tool)
        try:
            self._tools = Tools.of(functions, self.tool_choice, self.parallel_tool_calls is True)
        except InvalidRequest as error:
            is_choice = "tool_choice" in str(error)
            raise NotSupported("tool_choice" if is_choice else "tools", str(error)) from error
        return self

    def prompts(self) -> list[Prompt]:
        of_user = [place for place, each in enumerate(self.messages) if each.speaker == "user"]
        return [
            tuple(
                message.to_message(is_newest=place in of_user[-1:])
                for place, message in enumerate(self.messages)
            )
        ]

    @property
    def listed_tools(self) -> tuple[dict[str, Any], ...]:
        """The tools for the chat template."""
        return self._tools.listed if self._tools else ()

    @property
    def template(self) -> dict[str, Any]:
        """Variables of the chat template."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        own = {"chat_template": self.chat_template} if self.chat_template else {}
        return effort | (self.chat_template_kwargs or {}) | own

    def call_as(self, form: ToolFormat) -> None:
        """Sets the grammar of calls: the model's format, and arguments by their schemas.

        Raises:
            NotSupported: see `grammars.of_tools`.
        """
        assert self._tools is not None, "there are tools"
        if form.in_channels and self.messages[-1].speaker == "assistant":
            raise NotSupported(
                "tools",
                "This model cannot call tools in an answer that has begun: leave out the tools, or "
                "the last message.",
            )
        if self._grammar is not None and self._grammar.kind == "tokens":
            name = self._grammar_field
            raise NotSupported(name, f"{name} and tools cannot be combined: leave one of them out.")
        try:
            self._grammar = grammars.of_tools(form, self._tools, self._grammar)
        except InvalidRequest as error:
            raise NotSupported("tools", str(error), "invalid_value") from error
        self._tool_format = form

    def reader(self) -> AnswerReader:
        """A reader for one answer."""
        return AnswerReader(self._tool_format)

    def requested_tokens(self) -> int | None:
        newer = self.max_completion_tokens
        return bound(self.max_tokens if newer is None else newer)


class OtherChat(Fields):
    """A chat in another protocol; other fields of chats, such as `temperature`, also apply."""

    model_config = ConfigDict(extra="allow")

    def as_chat(
        self,
        own: Mapping[str, Any],
        before: Iterable[ChatMessage],
        read: Mapping[str, Sequence[str]],
    ) -> ChatRequest:
        """The equivalent chat.

        Args:
            own: the protocol's own fields by their names in chats; None for what was not sent.
            before: messages before those of `own`. Errors count messages as they were sent.
            read: of fields that are objects or lists, what is read in them; the rest is listed.

        Raises:
            NotSupported: a field asks for what the protocol's answers have no place for.
        """
        extra = dict(self.model_extra or {})
        if extra.get("n") not in (None, 1):
            raise NotSupported("n", "n is not supported here: a request has one answer.")
        for name in OpenAiRequest.__annotations__:
            if extra.pop(name, None):
                raise NotSupported(name, f"{name} is not supported here: ask /v1/chat/completions.")
        given = {name: value for name, value in own.items() if value is not None}
        chat = ChatRequest.model_validate(extra | given)
        chat.messages = [*before, *chat.messages]
        for name, parts in read.items():
            sent = getattr(self, name) or ()
            if isinstance(sent, dict):
                sent = [part for part, value in sent.items() if value is not None]
            chat._ignored += [f"{name}.{each[:60]}" for each in sent if each not in parts]
        return chat


class CompletionRequest(OpenAiRequest):
    """One or several texts that a model continues."""

    prompt: str | list[int] | list[str | list[int]] = Field(
        description="a text, texts, token ids, or lists of token ids"
    )
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | bool | None = Field(
        None, description="how many of the most likely tokens at each position"
    )
    echo: bool | None = Field(None, description="begin each text with its prompt")
    suffix: str | None = Field(None, description="what follows the text: it fills in the middle")
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, description="how many texts are generated, of which the n most likely are returned"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.best_of or 1) > 1 and (self.stream or self.times < (self.n or 1)):
            raise NotSupported(
                "best_of", "best_of must be at least n, and is for answers that are not streamed."
            )
        texts = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        if self.suffix and (self.echo or not all(isinstance(each, str) for each in texts)):
            raise NotSupported("suffix", "suffix needs prompts that are texts, and no echo.")
        if isinstance(self.logprobs, bool):
            self.logprobs = 1 if self.logprobs else None
        return self

    @property
    def with_prompt_logprobs(self) -> bool:
        return super().with_prompt_logprobs or (bool(self.echo) and self.logprobs is not None)

    @property
    def needs_tokenizer(self) -> bool:
        return bool(self.suffix) or super().needs_tokenizer

    def resolve(self, tokenizer: Tokenizer) -> None:
        super().resolve(tokenizer)
        if self.suffix:
            texts = self.prompt if isinstance(self.prompt, list) else [self.prompt]
            filled = (tokenizer.fill_in(str(each), self.suffix) for each in texts)
            self.prompt = list[str | list[int]](filled)

    @property
    def times(self) -> int:
        return self.best_of or self.n or 1

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

    def requested_tokens(self) -> int | None:
        return COMPLETION_TOKENS if self.max_tokens is None else bound(self.max_tokens)
