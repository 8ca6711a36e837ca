"""Text to token ids and back, whole or as it is generated.

Knows the tokenizer of a model's folder and how its pieces become text. Must not know models,
weights or TensorFlow, and imports Transformers only when a tokenizer is loaded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xla_backend.errors import InvalidRequest, ModelUnavailable
from xla_backend.transformers_import import transformers_alone

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

# Whisper's marks of time are ordinary tokens to its tokenizer, but no part of what was said.
_TIMESTAMP = re.compile(r"<\|\d+\.\d\d\|>")

# A piece that stands for one byte, in sentencepiece vocabularies that have such.
_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Tokenizer:
    """The tokenizer of one model.

    Example:
        >>> tokenizer = Tokenizer.load(Path("demo_models/gpt2-stories"))
        >>> tokenizer.decode(tokenizer.encode("Once upon a time"))
        'Once upon a time'
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Wraps a loaded tokenizer; `load` is the usual way."""
        from tokenizers import decoders

        self._rust: tokenizers.Tokenizer = tokenizer.backend_tokenizer
        # A saved tokenizer may remember lengths of its training, and cut or fill the prompt.
        self._rust.no_truncation()
        self._rust.no_padding()
        self._is_byte_level = isinstance(self._rust.decoder, decoders.ByteLevel)
        # T5 with a byte-level vocabulary decodes bytes, then strips the first space.
        state = self._rust.decoder.__getstate__() if self._rust.decoder else b""
        self._spells_bytes = b'"ByteLevel"' in state
        # Six of them are read for each new token.
        self._texts: dict[int, str] = {}
        self._skipped = set(tokenizer.all_special_ids) | {
            token_id
            for token_id, token in self._rust.get_added_tokens_decoder().items()
            if token.special or _TIMESTAMP.fullmatch(token.content)
        }

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Reads the tokenizer of a model's folder; code in the folder is never run.

        Raises:
            ModelUnavailable: its files are missing or damaged, or need a tokenizer written in
                Python.
        """
        try:
            with transformers_alone() as transformers:
                tokenizer = transformers.AutoTokenizer.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False
                )
        # A damaged file surfaces as whatever its first wrong value provokes, in Rust or Python.
        except Exception as error:
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
        return cls(tokenizer)

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with the tokens that the model expects around it.

        T5 gets its end-of-text token, OPT its token of beginning, GPT-2 nothing.

        Raises:
            InvalidRequest: the text holds half of a surrogate pair, or is no text.
        """
        if not isinstance(text, str):
            raise InvalidRequest(f"the prompt must be text, not {type(text).__name__}.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                "the prompt contains half of a surrogate pair, which is no character, at position "
                f"{error.start + 1}; remove it."
            ) from error
        return self._rust.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens; what is not valid UTF-8 becomes `\\ufffd`."""
        return self._rust.decode(self.visible(ids), skip_special_tokens=False)

    def token_text(self, id: int) -> str:
        """One token for display: its leading space kept, a special token by its name."""
        if id not in self._texts:
            self._texts[id] = self._read_token(id)
        return self._texts[id]

    def _read_token(self, id: int) -> str:
        piece = self._rust.id_to_token(id)
        if piece is None:
            return f"<{id}>"
        if self._spells_bytes:
            return self.piece_bytes(id).decode("utf-8", errors="replace")
        return piece.replace("▁", " ")

    @property
    def is_byte_level(self) -> bool:
        """Whether every token is a sequence of bytes, as in GPT-2, OPT and Whisper."""
        return self._is_byte_level

    def visible(self, ids: Iterable[int]) -> list[int]:
        """The ids that show in the text: no special tokens, and none beyond the vocabulary."""
        return [
            int(id)
            for id in ids
            if int(id) not in self._skipped and self._rust.id_to_token(int(id)) is not None
        ]

    def piece(self, id: int) -> str:
        """The entry of the vocabulary, as it is written there."""
        return self._rust.id_to_token(id)

    def piece_bytes(self, id: int) -> bytes:
        """The bytes of a token of a byte-level vocabulary."""
        piece = self.piece(id)
        try:
            return bytes(_BYTE_OF_CHARACTER[character] for character in piece)
        except KeyError:  # An added token, which is written as it reads.
            return piece.encode("utf-8")


class IncrementalDecoder:
    """Text as its tokens come, in time linear in their number.

    The deltas, joined, are `tokenizer.decode` of all ids, however they were chunked. Text that a
    later token could still change is held back: the bytes of an unfinished character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Starts an empty text."""
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held: list[int] = []
        self._previous: list[int] = []

    def push(self, ids: Iterable[int]) -> str:
        """Takes the next ids; returns the text that is certain now, which may be empty."""
        ids = self._tokenizer.visible(ids)
        if self._tokenizer.is_byte_level:
            return self._bytes.decode(b"".join(map(self._tokenizer.piece_bytes, ids)))
        self._held += ids
        # A run of byte pieces is read as one; it is complete when another piece follows.
        certain = len(self._held)
        while certain and _BYTE_PIECE.fullmatch(self._tokenizer.piece(self._held[certain - 1])):
            certain -= 1
        return self._take(certain)

    def finish(self) -> str:
        """The text that was held back; an unfinished character becomes `\\ufffd`."""
        if self._tokenizer.is_byte_level:
            return self._bytes.decode(b"", final=True)
        return self._take(len(self._held))

    def _take(self, count: int) -> str:
        """The text of the first held ids, which then are the past."""
        ids, self._held = self._held[:count], self._held[count:]
        if not ids:
            return ""
        # The first piece of a text loses its leading space. One piece of the past in front, and
        # cut off again, tells whether this is the first.
        past = self._tokenizer.decode(self._previous)
        text = self._tokenizer.decode([*self._previous, *ids])
        self._previous = ids[-1:]
        return text[len(past) :]


def _byte_of_character() -> dict[str, int]:
    """How byte-level vocabularies write bytes: printable Latin-1 as itself, others from U+0100."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + place): byte for place, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER = _byte_of_character()
