"""`Conversation`: settings and turns, as values and as the JSON that the browser keeps.

Knows what a turn is, which part of a conversation a model reads, and that a browser or a file may
bring anything. Must not know components, HTML or the engine.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from playground.context import json_values as kinds
from playground.tabs.generate import in_words
from playground.ui.markup import clean
from xla_backend import CacheOutcome, GenerationOptions, GenerationResult, Message
from xla_backend.interface.results import Finish

MAX_TURNS = 500
MAX_JSON_CHARACTERS = 400_000
"""Characters of one conversation: it travels with every turn."""
MAX_NAME = 60
_MAX_MODEL = 1000


@dataclass(frozen=True)
class Figures:
    """What one answer cost; seconds, and counts of tokens, as in `GenerationResult`."""

    cache: CacheOutcome
    finish: Finish
    ttft_s: kinds.Seconds | None
    tpot_s: kinds.Seconds | None
    prompt_tokens: kinds.Whole
    cached_tokens: kinds.Whole
    new_tokens: kinds.Whole
    reuses: kinds.Truth  # whether kept keys and values might serve, which a visitor can forbid
    left_out: kinds.Whole  # turns at the beginning that the model did not read
    waited_s: kinds.Date  # of TTFT, waiting for others
    # to how many bits weights were rounded; None if they were not
    rounded_bits: kinds.Positive | None = None
    read_again: kinds.Text = ""  # why a part of the prompt was read again
    latency: kinds.Text = ""  # in a sentence to quote
    about: kinds.Text = ""  # model, machine and date of the sentence

    @classmethod
    def of(cls, result: GenerationResult, reuses: bool, left_out: int) -> Figures:
        own: dict[str, Any] = {
            "reuses": reuses,
            "left_out": left_out,
            "waited_s": result.ttft_queue_s,
            "read_again": in_words.read_again(result.prefix_miss),
            "latency": in_words.latency(result),
            "about": in_words.about(result, time.time()),
        }
        same = [each.name for each in fields(cls) if each.name not in own]
        return cls(**own, **{name: getattr(result, name) for name in same})


def name_for(text: str) -> str:
    """A name made of the beginning of a text's first line."""
    line = next(iter(text.split("\n")), "").strip() if (text := text.strip()) else ""
    return line if len(line) <= MAX_NAME else line[: MAX_NAME - 1].rstrip() + "…"


# A NUL that a model wrote stays: else its next turn would begin with other tokens.
_Answer = Annotated[str, BeforeValidator(lambda text: "\0".join(map(clean, text.split("\0"))))]


@dataclass(frozen=True)
class Turn:
    """A question and its answer."""

    question: Annotated[kinds.Text, Field(max_length=MAX_JSON_CHARACTERS)]
    answer: Annotated[_Answer, Field(max_length=MAX_JSON_CHARACTERS)]
    figures: Figures | None = None  # None where an error cut the answer
    is_edited: kinds.Truth = False  # whether the visitor has changed the answer since


@dataclass(frozen=True)
class Conversation:
    """A conversation.

    Attributes:
        id: unguessable; the browser keeps it under this name.
        name: for the list; empty before the first turn.
        changed_s: when it changed last, seconds since 1970.
        system: the system prompt.
        options: of the last turn.
        left_out: turns at the beginning that the model reads no more.
    """

    model: Annotated[kinds.Text, Field(max_length=_MAX_MODEL)]
    system: Annotated[kinds.Text, Field(max_length=MAX_JSON_CHARACTERS)] = ""
    options: kinds.Options = field(default_factory=GenerationOptions)
    turns: Annotated[tuple[Turn, ...], Field(max_length=MAX_TURNS)] = ()
    left_out: kinds.Whole = 0
    name: Annotated[kinds.Text, AfterValidator(name_for)] = ""
    id: Annotated[str, Field(pattern="^[0-9A-Za-z]{1,32}$")] = field(
        default_factory=lambda: secrets.token_hex(8)
    )
    changed_s: kinds.Date = field(default_factory=lambda: round(time.time(), 3))

    def messages(self, question: str, left_out: int) -> tuple[Message, ...]:
        """The messages for the next answer, without this many of the oldest turns.

        A turn without an answer is none to a chat template.
        """
        system = [Message("system", self.system)] if self.system.strip() else []
        read = [turn for turn in self.turns[left_out:] if turn.answer.strip()]
        return (
            *system,
            *(
                message
                for turn in read
                for message in (Message("user", turn.question), Message("assistant", turn.answer))
            ),
            Message("user", question),
        )

    def before(self, turn: int) -> Conversation:
        """A copy that ends before a turn, counted from 0; before the first turn it has no name."""
        turns = self.turns[:turn]
        is_named = bool(turns) or self.name != name_for(self.turns[0].question)
        return self._changed(
            turns=turns,
            left_out=self.left_out if self.left_out < len(turns) else 0,
            name=self.name if is_named else "",
        )

    def after(self, turn: Turn, left_out: int) -> Conversation:
        """A copy with one more turn."""
        name = self.name or name_for(turn.question)
        return self._changed(turns=(*self.turns, turn), left_out=left_out, name=name)

    def answered(self, turn: int, answer: str) -> Conversation:
        """With another answer in a turn; where turns followed, as a conversation of its own that
        goes on from there."""
        before, edited = self.before(turn), replace(self.turns[turn], answer=answer, is_edited=True)
        changed = before.after(edited, before.left_out)
        return changed.branch() if turn < len(self.turns) - 1 else changed

    def named(self, name: str) -> Conversation:
        """A copy with another name; a blank name becomes the first question's."""
        first = self.turns[0].question if self.turns else ""
        return self._changed(name=name_for(name) or name_for(first))

    def set_to(self, model: str, system: str, options: GenerationOptions) -> Conversation:
        """A copy with other settings."""
        return self._changed(model=model, system=system, options=options)

    def branch(self) -> Conversation:
        """A copy with a new id."""
        return self._changed(id=secrets.token_hex(8))

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "options": self.options.to_dict()}

    def to_json(self) -> str:
        """As the browser keeps it."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def _changed(self, **changes: Any) -> Conversation:
        return replace(self, changed_s=round(time.time(), 3), **changes)


_CONVERSATION = TypeAdapter(Conversation)


def readable(stored: object) -> Conversation | None:
    """What `to_json` has written; None for anything else."""
    if not isinstance(stored, str) or len(stored) > 2 * MAX_JSON_CHARACTERS:
        return None
    try:
        return checked(json.loads(stored))
    except (ValueError, RecursionError):
        return None


def checked(values: object) -> Conversation | None:
    """A conversation from outside, as of `to_dict`; None where something is missing or wrong."""
    try:
        found = _CONVERSATION.validate_python(values)
    except kinds.ERRORS:
        return None
    return replace(found, left_out=min(found.left_out, max(0, len(found.turns) - 1)))
