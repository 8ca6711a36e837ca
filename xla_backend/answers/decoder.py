"""`AnswerDecoder`: an answer's tokens, as they come, become text.

Knows characters that several tokens make, channels, and thoughts that the prompt has opened. Must
not know what the text says: see `reader`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from xla_backend.answers.channels import Channels
from xla_backend.interface.grammar import Preamble

BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A piece for a single byte, which some sentencepiece vocabularies have."""


class Pieces(Protocol):
    """The part of `checkpoints.tokenization.Tokenizer` that decodes."""

    channel_tokens: dict[int, str]
    is_byte_level: bool

    def visible(self, ids: Iterable[int], shown: Iterable[int] = ()) -> list[int]: ...
    def piece(self, id: int) -> str: ...
    def piece_bytes(self, id: int) -> bytes: ...
    def decode(self, ids: Sequence[int], shown: Iterable[int] = ()) -> str: ...


class IncrementalDecoder:
    """Decodes tokens as they come, in linear time.

    The returned texts, joined, are `tokenizer.decode` of all ids, for any chunking. Text that a
    later token could change is held back: the bytes of an incomplete character.
    """

    def __init__(self, tokenizer: Pieces, shown: frozenset[int] = frozenset()) -> None:
        """Starts an empty text; `shown` special tokens are part of it."""
        self._tokenizer = tokenizer
        self._shown = shown
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held: list[int] = []
        self._previous: list[int] = []

    def push(self, ids: Iterable[int]) -> str:
        """Takes the next ids; returns the text that is final now, which may be empty."""
        ids = self._tokenizer.visible(ids, self._shown)
        if self._tokenizer.is_byte_level:
            return self._bytes.decode(b"".join(map(self._tokenizer.piece_bytes, ids)))
        self._held += ids
        # Consecutive byte pieces decode together; the next other piece completes them.
        certain = len(self._held)
        while certain and BYTE_PIECE.fullmatch(self._tokenizer.piece(self._held[certain - 1])):
            certain -= 1
        return self._take(certain)

    def finish(self) -> str:
        """The text that was held back; an incomplete character becomes `\\ufffd`."""
        if self._tokenizer.is_byte_level:
            return self._bytes.decode(b"", final=True)
        return self._take(len(self._held))

    def _take(self, count: int) -> str:
        """Removes the first held ids; returns their text."""
        ids, self._held = self._held[:count], self._held[count:]
        if not ids:
            return ""
        # Decoding drops the leading space of a text's first piece. So we decode with the previous
        # piece in front, and cut that off again.
        past = self._tokenizer.decode(self._previous, self._shown)
        text = self._tokenizer.decode([*self._previous, *ids], self._shown)
        self._previous = ids[-1:]
        return text[len(past) :]


class AnswerDecoder:
    """Decodes the tokens of an answer as they come; one in channels becomes text, see `Channels`.

    Thoughts that the prompt has opened, as Qwen3.5's does, are opened in the text, too.

    Attributes:
        before: what the model writes before its text; "channels" if the prompt ends in a header.
    """

    def __init__(
        self,
        tokenizer: Pieces,
        shown: frozenset[int],
        prompt_ids: Sequence[int],
        opening: str = "",
    ) -> None:
        """Starts after a prompt, which has begun the text with `opening`; `shown` special tokens
        are part of the text."""
        self._opening = opening
        self._decoder = IncrementalDecoder(tokenizer, shown)
        tokens = tokenizer.channel_tokens
        starts = []
        if tokens:
            starts = [at for at, id in enumerate(prompt_ids) if tokens.get(id) == "<|start|>"]
        self._channels = Channels() if starts else None
        self._tokens: dict[int, str] = {}
        if starts:
            self._tokens = tokens
            self.push(prompt_ids[starts[-1] + 1 :])
            self._tokens = {id: name for id, name in tokens.items() if id not in shown}
        self.before: Preamble = "thoughts" if self._opening else ""
        if self._channels is not None and self._channels.starts_message:
            self.before = "channels"

    def push(self, ids: Iterable[int]) -> str:
        """Takes the next ids; returns the text that is final now, which may be empty."""
        text, self._opening = self._opening, ""
        if self._channels is None:
            return text + self._decoder.push(ids)
        for id in ids:
            name = self._tokens.get(id)
            text += self._channels.text(
                self._decoder.finish() if name else self._decoder.push([id])
            )
            text += self._channels.token(name) if name else ""
        return text

    def finish(self) -> str:
        """The text that was held back."""
        rest = self._decoder.finish()
        return self._channels.text(rest) + self._channels.finish() if self._channels else rest
