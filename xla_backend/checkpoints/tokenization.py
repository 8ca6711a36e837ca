"""Tokenizers: text to token ids and back, whole or incrementally.

Knows the tokenizer of a model's folder and how its pieces become text. Imports Transformers only to
load a tokenizer.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from xla_backend.answers import channels, tool_format
from xla_backend.answers.decoder import BYTE_PIECE
from xla_backend.answers.reader import split_thoughts
from xla_backend.answers.tool_format import CHANNELS, GENERIC, ToolFormat
from xla_backend.checkpoints.formats import gguf_file, gguf_tokenizer
from xla_backend.checkpoints.text_files import read_text, without_marks
from xla_backend.checkpoints.transformers_import import locked_transformers
from xla_backend.interface.errors import InvalidRequest, ModelUnavailable
from xla_backend.interface.prompt import Message, Prompt, TokenIds

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

# Whisper's timestamps are ordinary tokens to its tokenizer, but not part of the text.
_TIMESTAMP = re.compile(r"<\|\d+\.\d\d\|>")

# Tokens of a tool's call, as <|tool_call|> and [TOOL_CALLS]: text, though files call them special.
_TOOL_TOKEN = re.compile(r"[<\[].*tool.?(call|sep).*[>\]]|\[(ARGS|CALL_ID)\]", re.IGNORECASE)

LONGEST_TEMPLATE_S = 1.0
"""Bound on a chat template's processor time in seconds: Jinja's sandbox bounds neither time nor
memory."""
MOST_TEMPLATE_BYTES = 2**28
"""Bound on the growth of this process meanwhile."""
LARGEST_NUMBER = 100_000
"""Largest whole number in a template, as Jinja's sandbox bounds a range."""
_PROCESSOR_TEMPLATE = "chat_template.json"
LONGEST_VARIABLES = 20_000
"""Bound on a template's variables, in characters of JSON."""
_CHECK_AFTER_S = 0.02
"""Memory is checked only after this time, when most templates have ended: a check is slow."""


class TooMuch(Exception):
    """A template takes too much time or memory."""


_MIDDLE_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
)
"""Tokens before a prefix, before a suffix and before what is between: of Qwen and Gemma, StarCoder
and Granite, InCoder, DeepSeek and Code Llama."""
TURN_ENDS = frozenset(
    "<|im_end|> <|eot_id|> <|eom_id|> <|end|> <|return|> <end_of_turn> <turn|> <|end_of_turn|> "
    "<|END_OF_TURN_TOKEN|> <|endofturn|> <end_of_utterance> <EOT> [EOT] <|endoftext|> "
    "<|end_of_text|>".split()
)
"""Control tokens that always mean the end of a text or turn, but see `_ends`."""


class Tokenizer:
    """The tokenizer of one model.

    Attributes:
        channel_tokens: ids and names of the tokens of `channels`; empty for models that do not
            answer in them.
        is_byte_level: whether every token is a sequence of bytes, as in GPT-2, OPT and Whisper.

    Example:
        >>> tokenizer = Tokenizer.load(Path("demo_models/gpt2-stories"))
        >>> tokenizer.decode(tokenizer.encode("Once upon a time"))
        'Once upon a time'
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rows: int | None = None) -> None:
        """Use `load` for a folder; see there for `rows`."""
        from tokenizers import decoders

        self._rows = rows
        # Only a chat template needs more than the Rust tokenizer.
        self._chat = tokenizer if tokenizer.chat_template else None
        self._rust: tokenizers.Tokenizer = tokenizer.backend_tokenizer
        # A saved tokenizer may still truncate or pad to its training's lengths.
        self._rust.no_truncation()
        self._rust.no_padding()
        self.is_byte_level = isinstance(self._rust.decoder, decoders.ByteLevel)
        # T5 with a byte-level vocabulary decodes bytes, then strips the first space.
        state = self._rust.decoder.__getstate__() if self._rust.decoder else b""
        self._spells_bytes = b'"ByteLevel"' in state
        # Caches: six texts are needed for each new token.
        self._texts: dict[int, str] = {}
        self._bytes: dict[int, bytes] = {}
        added = self._rust.get_added_tokens_decoder().items()
        self._skipped = set(tokenizer.all_special_ids) | {
            token_id
            for token_id, token in added
            if token.special or _TIMESTAMP.fullmatch(token.content)
        }
        self._skipped -= {id for id, token in added if _TOOL_TOKEN.fullmatch(token.content)}
        names = {id: token.content for id, token in added if token.content in channels.TOKENS}
        is_used = len(names) == len(channels.TOKENS) and "<|channel|>" in self.chat_template
        self.channel_tokens: dict[int, str] = names if is_used else {}

    @classmethod
    def load(cls, folder: Path, rows: int | None = None) -> Tokenizer:
        """Reads the tokenizer of a model's folder or GGUF file; never runs code from the folder.

        Args:
            rows: of the model's embedding; added tokens beyond them are refused. None if nothing
                will be encoded.

        Raises:
            ModelUnavailable: its files are missing or damaged, or need a tokenizer in Python.
        """
        if (gguf_path := gguf_file.find(folder)) is not None:
            return cls(gguf_tokenizer.load(gguf_path), rows)
        try:
            with locked_transformers() as transformers, without_marks(folder) as plain:
                # This class follows tokenizer.json fully; an architecture's own class takes only
                # the vocabulary from it, not the normalisation of text, for example.
                is_whole = (folder / "tokenizer.json").is_file()
                name = "PreTrainedTokenizerFast" if is_whole else "AutoTokenizer"
                tokenizer = getattr(transformers, name).from_pretrained(
                    str(plain), local_files_only=True, trust_remote_code=False
                )
        except Exception as error:  # a damaged file raises any type, from Rust or Python
            first_line = str(error).strip().partition("\n")[0][:200]
            raise ModelUnavailable(
                f"the tokenizer in {folder} cannot be loaded ({first_line}). Download or copy its "
                "files again; a folder needs tokenizer.json, or vocab.json with merges.txt."
            ) from error
        if not tokenizer.is_fast:
            raise ModelUnavailable(
                f"the tokenizer in {folder} is not supported: it has no tokenizer.json. Save it "
                "once with Transformers' AutoTokenizer."
            )
        _set_usual_template(tokenizer, folder)
        return cls(tokenizer, rows)

    @property
    def rows(self) -> int:
        """Rows of the model's embedding: its tokens are those below."""
        assert self._rows is not None, "loaded to encode"
        return self._rows

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be encoded."""
        return self._chat is not None

    def to_json(self) -> str:
        return self._rust.to_str()

    @property
    def chat_template(self) -> str:
        """The chat template in Jinja; empty if there is none."""
        return str(self._chat.get_chat_template()) if self._chat else ""

    @functools.cached_property
    def tool_format(self) -> ToolFormat:
        """How the model writes tool calls, according to its chat template."""
        render = functools.partial(
            self._apply, tokenize=False, sanitize_control_tokens=False, continue_final_message=False
        )
        if self._chat is None:
            return GENERIC
        if self.channel_tokens:
            return CHANNELS
        form = tool_format.learn(self.chat_template, lambda *arguments: str(render(*arguments)))
        # Tokens without a text cannot be part of a grammar.
        hidden = filter(None, map(self._rust.id_to_token, self._skipped))
        return GENERIC if any(token in "".join(form[:3]) for token in hidden) else form

    def encode(
        self,
        prompt: Prompt,
        special: bool = True,
        tools: Sequence[dict[str, Any]] = (),
        template: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[int]:
        """The ids of a prompt, with the special tokens that the model expects around it.

        T5 gets its end-of-text token, OPT its beginning-of-text token, GPT-2 none. Messages are
        rendered by the chat template, up to the beginning of the answer; special tokens in them are
        plain text, so no message can end itself or imitate another.

        Args:
            prompt: a text, messages or token ids.
            special: whether a text gets special tokens.
            tools: that the model may call, in OpenAI's form; with messages. If the chat template
                does not know tools, they are described in the system message.
            template: variables of the chat template, as JSON values; `chat_template` is one to use
                instead.

        Raises:
            InvalidRequest: the text contains half of a surrogate pair or is not text; the model has
                no chat template, or it refuses the messages; a variable is reserved or too large; a
                token id is invalid, or a token has no row in the embedding.
        """
        if isinstance(prompt, tuple):
            ids = self._encode_messages(prompt, tools, template)
        elif isinstance(prompt, TokenIds):
            ids = self._checked_ids(prompt.ids)
        else:
            self._check(prompt)
            ids = self._rust.encode(prompt, add_special_tokens=special).ids
        if self._rows is not None and (last := max(ids, default=0)) >= self._rows:
            raise InvalidRequest(
                f"the prompt contains {self.token_text(last)[:60]!r}, a token that was added to "
                "the tokenizer but not to the model's weights; leave it out."
            )
        return ids

    def fill_in(self, prefix: str, suffix: str) -> list[int]:
        """The ids of a prompt for what stands between two texts.

        Raises:
            InvalidRequest: the model has no tokens for it.
        """
        for names in _MIDDLE_TOKENS:
            first, second, third = map(self._rust.token_to_id, names)
            if first is not None and second is not None and third is not None:
                begin = self._rust.encode("", add_special_tokens=True).ids
                before, after = (self.encode(text, special=False) for text in (prefix, suffix))
                return [*begin, first, *before, second, *after, third]
        raise InvalidRequest(
            "this model cannot fill in the middle: it has no tokens for it. Send only the text "
            "before, or choose a model for code."
        )

    def _checked_ids(self, ids: tuple[int, ...]) -> list[int]:
        size = self._rust.get_vocab_size()
        for token_id in ids:
            if not 0 <= token_id < size:
                raise InvalidRequest(
                    f"token id {str(token_id)[:20]} is not one of this model's, which are 0 to "
                    f"{size - 1}."
                )
        return list(ids)

    def _encode_messages(
        self,
        messages: tuple[Message, ...],
        tools: Sequence[dict[str, Any]],
        template: Mapping[str, Any],
    ) -> list[int]:
        from jinja2 import TemplateError

        if self._chat is None:
            raise InvalidRequest(
                "this model has no chat template, so it cannot be sent messages: send a text to "
                "continue, or choose an instruct model."
            )
        for message in messages:
            self._check(message.content)
        variables = {name: each for name, each in template.items() if name != "chat_template"}
        _check_variables(variables, inspect.signature(self._chat.apply_chat_template).parameters)
        if tools or any(each.tool_calls or each.role == "tool" for each in messages):
            messages = tool_format.as_text(messages, tools, self.tool_format)
            tools = tools if self.tool_format.has_tools else ()
        if self.channel_tokens:
            messages = tuple(map(_with_thoughts_apart, messages))
        problem: Exception | None = None
        for form in _forms(messages):
            try:
                if form is not messages or self._renders_all(messages, template):
                    return self._apply(form, tools, **template)
            except TooMuch as error:
                problem = error
                break
            except Exception as error:  # a template is a program and can raise anything
                problem = problem or error
        reason = str(problem).partition("\n")[0][:200] or type(problem).__name__
        if isinstance(problem, TemplateError):
            sentence = f"the model's chat template refuses these messages: {reason}."
        else:
            sentence = (
                f"the model's chat template fails with these messages: {reason}. Send a text to "
                "continue instead, or choose another model."
            )
        raise InvalidRequest(sentence) from problem

    def _apply(
        self, messages: tuple[Message, ...], tools: Sequence[dict[str, Any]] = (), **how: Any
    ) -> list[int]:
        """The tokens of rendered messages; an assistant's last one is to be continued."""
        assert self._chat is not None
        continues = messages[-1].role == "assistant"
        if continues and not (messages[-1].content or messages[-1].tool_calls):
            messages, continues = messages[:-1], False
        own = how.get("chat_template")
        # A request's own template is not remembered: strangers would fill the memory.
        check = _check_template.__wrapped__ if own else _check_template
        check(own or self._chat.get_chat_template())
        with _template_limits(forget=own is not None):
            usual = {
                "xml_tools": list(tools) or None,  # the name in SmolLM3's template
                "continue_final_message": continues,
                "return_dict": False,
                "sanitize_control_tokens": True,
            }
            ids = self._chat.apply_chat_template(
                [message.to_dict() for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=not continues,
                **usual | how,
            )
        return cast("list[int]", ids)

    def _renders_all(self, messages: tuple[Message, ...], template: Mapping[str, Any]) -> bool:
        """Whether the template renders all system messages, also several or later ones."""
        if all(message.role != "system" for message in messages[1:]):
            return True
        how = {**template, "tokenize": False, "sanitize_control_tokens": False}
        rendered = str(self._apply(messages, **how))
        return all(
            message.content.strip() in rendered for message in messages if message.role == "system"
        )

    @staticmethod
    def _check(text: str) -> None:
        if not isinstance(text, str):
            raise InvalidRequest(f"the prompt must be text, not {type(text).__name__}.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                "the prompt contains half of a surrogate pair, not a character, at position "
                f"{error.start + 1}; remove it."
            ) from error

    def decode(self, ids: Sequence[int], shown: Iterable[int] = ()) -> str:
        """The text of ids, see `visible`; invalid UTF-8 becomes `\\ufffd`."""
        return self._rust.decode(self.visible(ids, shown), skip_special_tokens=False)

    def token_text(self, id: int) -> str:
        """A token's text for display: with its leading space, or a special token's name."""
        if id not in self._texts:
            piece = self._rust.id_to_token(id)
            if piece is None:
                text = f"<{id}>"
            elif self._spells_bytes:
                text = self.piece_bytes(id).decode("utf-8", errors="replace")
            else:
                text = piece.replace("▁", " ")
            self._texts[id] = text
        return self._texts[id]

    def visible(self, ids: Iterable[int], shown: Iterable[int] = ()) -> list[int]:
        """The ids that have text: in the vocabulary, and not special unless `shown`."""
        skipped = self._skipped.difference(shown) if shown else self._skipped
        return [
            int(id)
            for id in ids
            if int(id) not in skipped and self._rust.id_to_token(int(id)) is not None
        ]

    def token_bytes(self, id: int) -> bytes:
        """A token's bytes, which may be a part of a character."""
        piece = self._rust.id_to_token(id) or ""
        if self._spells_bytes and piece:
            return self.piece_bytes(id)
        is_byte = BYTE_PIECE.fullmatch(piece)
        return bytes([int(piece[3:5], 16)]) if is_byte else self.token_text(id).encode()

    def vocabulary_bytes(self, size: int) -> list[bytes]:
        """The bytes of the first `size` tokens; empty for tokens without text.

        A token of `channels` is its mark, which no other token may contain.
        """
        texts = [
            b""
            if id in self._skipped or self._rust.id_to_token(id) is None
            else self.token_bytes(id)
            for id in range(size)
        ]
        if self.channel_tokens:
            marks = "".join(channels.MARKS.values()).encode()
            texts = [text if text == text.translate(None, marks) else b"" for text in texts]
            for id, name in self.channel_tokens.items():
                texts[id] = channels.written(name).encode()
        return texts

    def drops_first_space(self) -> bool:
        """Whether decoding drops a leading space of the first token."""
        ids = range(0 if self._spells_bytes else self._rust.get_vocab_size())
        spaced = (id for id in ids if (self._rust.id_to_token(id) or "").startswith("▁"))
        first = next((id for id in spaced if self.token_text(id).strip()), None)
        return first is not None and not self.decode([first]).startswith(" ")

    def special_ids(self, texts: Iterable[str]) -> frozenset[int]:
        ids = (self._rust.token_to_id(text) for text in texts)
        return frozenset(id for id in ids if id in self._skipped)

    def piece(self, id: int) -> str:
        piece = self._rust.id_to_token(id)
        assert piece is not None, "not an id of the vocabulary"
        return piece

    def piece_bytes(self, id: int) -> bytes:
        """The bytes of a token of a byte-level vocabulary."""
        if id not in self._bytes:
            piece = self.piece(id)
            try:
                self._bytes[id] = bytes(_BYTE_OF_CHARACTER[character] for character in piece)
            except KeyError:  # an added token, which is plain text in the vocabulary
                self._bytes[id] = piece.encode("utf-8")
        return self._bytes[id]


def _forms(messages: tuple[Message, ...]) -> Iterator[tuple[Message, ...]]:
    """The messages, then forms of them that more templates accept.

    First with one system message in front and alternating roles, then with the system message in
    the first user message.
    """
    yield messages
    system = "\n\n".join(each.content for each in messages if each.role == "system")
    rest: list[Message] = []
    for message in messages:
        if message.role == "system":
            continue
        may_join = message.role != "tool" and not message.tool_calls
        if may_join and rest and rest[-1].role == message.role and not rest[-1].tool_calls:
            both = (rest.pop().content, message.content)
            message = message._replace(content="\n\n".join(filter(None, both)))
        rest.append(message)
    merged = (*([Message("system", system)] if system else ()), *rest)
    if merged != messages:
        yield merged
    if system and rest and rest[0].role == "user":
        yield (rest[0]._replace(content=f"{system}\n\n{rest[0].content}"), *rest[1:])
    elif system:
        yield (Message("user", system), *rest)


def _with_thoughts_apart(message: Message) -> Message:
    """An assistant's message as templates with channels take it: what comes before a call, as
    thoughts."""
    if message.role != "assistant":
        return message
    thoughts, text = split_thoughts(message.content)
    thoughts = message.thoughts or thoughts
    if message.tool_calls:
        thoughts, text = "\n".join(filter(None, (thoughts, text))), ""
    return message._replace(content=text, thoughts=thoughts)


def _ends(names: Iterable[str]) -> frozenset[str]:
    """Those of a vocabulary that always mean the end of a turn."""
    in_channels = channels.TOKENS.issubset(names)  # where <|end|> ends only a message
    return TURN_ENDS - {"<|end|>"} | channels.ENDS if in_channels else TURN_ENDS


def turn_ends(folder: Path, is_chat: bool) -> list[int]:
    """End tokens that only the tokenizer of a model's folder or GGUF file names.

    llama.cpp and vLLM end a text at them; otherwise an answer goes on with the next question.

    Args:
        is_chat: whether it has a chat template; its `TURN_ENDS` then count, too. Those of a GGUF
            file always do.
    """
    if (gguf_path := gguf_file.find(folder)) is not None:
        named = gguf_tokenizer.control_tokens(gguf_path)
        ends = _ends(name for _, name in named)
        return [id for id, name in named if name in ends]
    settings = _object(folder / "tokenizer_config.json")
    end = settings.get("eos_token") or _object(folder / "special_tokens_map.json").get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    tokens = _read(folder / "tokenizer.json", "added_tokens")
    tokens = tokens if isinstance(tokens, list) else []
    if isinstance(added := settings.get("added_tokens_decoder"), dict):
        tokens += [{"id": int(id), **token} for id, token in added.items() if id.isdecimal()]
    tokens = [token for token in tokens if isinstance(token, dict)]
    ends = _ends(str(token.get("content")) for token in tokens) if is_chat else frozenset()
    found = [
        token["id"]
        for token in tokens
        if (token.get("content") == end or (token.get("special") and token.get("content") in ends))
        and type(token.get("id")) is int
    ]
    return list(dict.fromkeys(found))


def _object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty if the file has none."""
    values = _read(path)
    return values if isinstance(values, dict) else {}


def _read(path: Path, key: str = "") -> Any:
    """A JSON file, or only the value of one key, because a vocabulary of 30 MB takes long to read.

    None if it cannot be read.
    """
    try:
        text = read_text(path)
        if not key:
            return json.loads(text)
        start = text.index(":", text.index(f'"{key}"')) + 1
        return json.JSONDecoder().raw_decode(text[start : start + 2**22].lstrip())[0]
    except (OSError, ValueError, RecursionError):
        return None


def has_chat_template(folder: Path) -> bool:
    """Whether a folder's or GGUF file's tokenizer has a chat template; does not load it."""
    if (gguf_path := gguf_file.find(folder)) is not None:
        return gguf_tokenizer.has_chat_template(gguf_path)
    if (folder / "chat_template.jinja").is_file():
        return True
    files = ("tokenizer_config.json", _PROCESSOR_TEMPLATE)
    return any(_object(folder / name).get("chat_template") for name in files)


def _set_usual_template(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Chooses a chat template if none is the default, as llama.cpp does.

    Of several, the first that is not for tools or search; without any, the processor's.
    """
    templates = tokenizer.chat_template or _object(folder / _PROCESSOR_TEMPLATE).get(
        "chat_template"
    )
    if isinstance(templates, dict) and templates and "default" not in templates:
        names = [name for name in templates if name not in ("tool_use", "rag")] or [*templates]
        templates = {**templates, "default": templates[names[0]]}
    tokenizer.chat_template = templates


def _check_variables(variables: Mapping[str, Any], taken: Iterable[str]) -> None:
    """Raises `InvalidRequest` for variables that a template must not be given."""
    if found := {"messages", "conversations", "xml_tools", *taken}.intersection(variables):
        raise InvalidRequest(
            f"chat_template_kwargs cannot set {min(found)}: that follows from other fields."
        )
    text, numbers = json.dumps(dict(variables)), [0.0]
    note = lambda number: numbers.append(abs(float(number)))  # noqa: E731
    json.loads(text, parse_int=note, parse_float=note)
    if len(text) > LONGEST_VARIABLES or max(numbers) > LARGEST_NUMBER:
        raise InvalidRequest(
            f"chat_template_kwargs can have {LONGEST_VARIABLES} characters as JSON, and numbers up "
            f"to {LARGEST_NUMBER}."
        )


@functools.lru_cache
def _check_template(template: str) -> None:
    """Refuses operations that alone could take all memory."""
    from jinja2 import Environment, nodes
    from transformers.utils.chat_template_utils import _compile_jinja_template

    parser: Environment = _compile_jinja_template("").environment  # with Transformers' own tags
    parsed = parser.parse(template)
    products = list(parsed.find_all(nodes.Mul))
    numbers = (node.value for node in parsed.find_all(nodes.Const) if isinstance(node.value, int))
    if (
        any(number > LARGEST_NUMBER for number in numbers)
        or any(product.find(nodes.Mul) for product in products)
        or parsed.find(nodes.Pow)
    ):
        raise TooMuch("it multiplies by more than a template needs")


@contextlib.contextmanager
def _template_limits(forget: bool = False) -> Iterator[None]:
    """Ends templates rendered in the block if they take too much time or memory.

    Another thread could not end one, so a trace function checks at each line. `forget`: drops
    Transformers' compiled templates afterwards.
    """
    began, most = time.thread_time(), _bytes() + MOST_TEMPLATE_BYTES

    def check(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != "<template>":
            return None
        passed = time.thread_time() - began
        # Memory first: to take that much may take too long as well.
        if passed > _CHECK_AFTER_S and _bytes() > most:
            raise TooMuch(f"it takes more than {MOST_TEMPLATE_BYTES // 2**20} MB")
        if passed > LONGEST_TEMPLATE_S:
            raise TooMuch(f"it runs for more than {LONGEST_TEMPLATE_S:g} s")
        return check

    before = sys.gettrace()
    sys.settrace(check)
    try:
        yield
    finally:
        sys.settrace(before)
        if forget:
            from transformers.utils.chat_template_utils import _compile_jinja_template

            _compile_jinja_template.cache_clear()


def _bytes() -> int:
    """Resident bytes of this process; 0 on systems other than Linux."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _byte_of_character() -> dict[str, int]:
    """The characters of byte-level vocabularies: printable Latin-1 as is, others from U+0100."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + place): byte for place, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER = _byte_of_character()
