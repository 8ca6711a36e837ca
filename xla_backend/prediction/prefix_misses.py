"""Why a row reused no more of its prompt: where it parts from an earlier text, and what differs.

Knows tokens, messages and texts. Must not know the cache: `rows.prefix` finds the `Parting`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from xla_backend.answers.reader import split_thoughts
from xla_backend.interface.buckets import positions
from xla_backend.interface.prompt import THOUGHTS
from xla_backend.interface.requests import Prepared
from xla_backend.interface.results import PrefixCause, PrefixField, PrefixMiss
from xla_backend.prediction.prefixes import common

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer

RUN = 8
"""Tokens: so many in a row of both texts are no chance."""
AROUND = 48
"""Bytes of text that are shown on each side."""
_NEAR = 400
"""Bytes between a place and a tool's name by which it belongs to the tools."""
_SAME = 32
"""Bytes: texts that agree so far differ only in their tokens."""
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DATE = re.compile(
    rb"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}:\d\d(?::\d\d)?"
    rb"|\d{1,2}(?:st|nd|rd|th)? " + _MONTH + rb",? \d{4}|" + _MONTH + rb" \d{1,2},? \d{4}"
    rb"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
)


@dataclass(frozen=True)
class Parting:
    """Where the cached prefix of a prompt ends, and why.

    Attributes:
        cause: see `PrefixMiss`.
        place: number of tokens before it.
        end: up to where more could have been reused; `place` if only `cached` shows it.
        cached: the tokens of an earlier text from `place` on.
        at, by_others, model: see `PrefixMiss`.
    """

    cause: PrefixCause
    place: int
    end: int
    cached: tuple[int, ...] = ()
    at: float | None = None
    by_others: bool = False
    model: str = ""


def explain(
    parting: Parting,
    prepared: Prepared,
    reused: int,
    tokenizer: Tokenizer,
    read_s: float,
) -> PrefixMiss | None:
    """What became of a prefix; None if the prompt only goes on in another way than earlier ones.

    Args:
        parting: of the request's row.
        prepared: the request.
        reused: tokens of its prompt that were reused.
        tokenizer: of its model.
        read_s: seconds in which the rest of the prompt was read.
    """
    if parting.cause != "differs":
        return _costing(parting, prepared, reused, parting.end - reused, read_s)
    prompt = _Prompt.of(parting, prepared, tokenizer)
    again = in_both(prepared.token_ids[max(parting.place, reused) : prompt.end], parting.cached)
    if not again:
        return None
    found = _costing(parting, prepared, reused, again, read_s)
    return _with_place(found, prompt, parting, prepared)


def _costing(
    parting: Parting, prepared: Prepared, reused: int, again: int, read_s: float
) -> PrefixMiss:
    read = len(prepared.token_ids) - reused
    share = 1 - positions(read - again) / positions(read)
    return PrefixMiss(
        cause=parting.cause,
        place=parting.place,
        tokens=again,
        seconds=share * read_s,
        at=parting.at,
        by_others=parting.by_others,
        model=parting.model,
    )


def in_both(sent: Sequence[int], cached: Sequence[int]) -> int:
    """How many tokens of a text are in the other, too, in runs of at least `RUN`."""
    runs = {tuple(cached[at : at + RUN]) for at in range(len(cached) - RUN + 1)}
    count, counted_to = 0, 0
    for at in range(len(sent) - RUN + 1):
        if tuple(sent[at : at + RUN]) in runs:
            count += at + RUN - max(at, counted_to)
            counted_to = at + RUN
    return count


class _Prompt(NamedTuple):
    """A prompt as bytes, up to where it parts from an earlier text and behind that.

    Attributes:
        before, sent: of the prompt. cached: how the earlier text goes on.
        plain: the prompt, with zeros for tokens without text, such as the ends of turns.
        is_same: whether both go on with the same text, in other tokens.
        end: the number of tokens up to the end of its last message.
    """

    before: bytes
    sent: bytes
    cached: bytes
    plain: bytes
    is_same: bool
    end: int

    @classmethod
    def of(cls, parting: Parting, prepared: Prepared, tokenizer: Tokenizer) -> _Prompt:
        ids, messages = prepared.token_ids, prepared.request.prompt
        spelled = [tokenizer.token_bytes(id) for id in ids]
        has_text = frozenset(tokenizer.visible(frozenset(ids)))
        plain = b"".join(
            each if id in has_text else bytes(len(each))
            for id, each in zip(ids, spelled, strict=True)
        )
        text, place = b"".join(spelled), sum(map(len, spelled[: parting.place]))
        cached = b"".join(map(tokenizer.token_bytes, parting.cached))
        same = common(text[place : place + _SAME], cached[:_SAME])
        is_same = same == min(_SAME, len(cached), len(text) - place)
        end = len(text)
        if isinstance(messages, tuple) and (last := messages[-1].content.strip().encode()):
            end = plain.rfind(last) + len(last) if last in plain else end
        ends = itertools.accumulate(map(len, spelled))
        until = sum(each <= end for each in ends)
        place += same
        return cls(text[:place], text[place:], cached[same:], plain, is_same, until)


def _with_place(
    found: PrefixMiss, prompt: _Prompt, parting: Parting, prepared: Prepared
) -> PrefixMiss:
    """The miss with the place in the prompt's messages, and what differs there."""
    request = prepared.request
    message, is_inside, role = None, isinstance(request.prompt, str), ""
    if isinstance(request.prompt, tuple):
        message, is_inside = _message(prompt, [each.content for each in request.prompt])
    if prompt.is_same:
        field: PrefixField = "tokens"
    elif (names := _tool_names(prepared)) and not is_inside and _is_near(prompt, names):
        field, message = "tools", None
    else:
        ids = prepared.token_ids[parting.place :]
        field = _field(prompt, ids, parting.cached, is_inside)
        if message == 0 and not is_inside:  # the template's own beginning
            message = None
    if isinstance(request.prompt, tuple) and message is not None:
        role = request.prompt[message].role
    found = dataclasses.replace(found, message=message, role=role, field=field)
    if request.shares_salt:
        return found
    return dataclasses.replace(
        found,
        before=_text(prompt.before[-AROUND:]),
        sent=_text(prompt.sent[:AROUND]),
        cached=_text(prompt.cached[:AROUND]),
    )


def _message(prompt: _Prompt, contents: Sequence[str]) -> tuple[int | None, bool]:
    """The message in which a place is, or which follows it; and whether it is in its content."""
    end, at = 0, len(prompt.before)
    for place, content in enumerate(contents):
        for text in dict.fromkeys((content.strip(), split_thoughts(content)[1].strip())):
            if not (spelled := text.encode()):
                continue
            # Short contents are also parts of what templates write; most are followed by its token.
            before_token = re.compile(re.escape(spelled) + rb"\s*\0").search(prompt.plain, end)
            start = before_token.start() if before_token else prompt.plain.find(spelled, end)
            if start >= 0:
                end = start + len(spelled)
                end += len(prompt.plain[end:]) - len(prompt.plain[end:].lstrip())
                if at <= end:
                    return place, at >= start
                break
    return None, False


def _tool_names(prepared: Prepared) -> list[bytes]:
    functions = [tool.get("function", tool) for tool in prepared.request.tools]
    return [json.dumps(each.get("name", ""))[1:-1].encode() for each in functions]


def _is_near(prompt: _Prompt, names: Sequence[bytes]) -> bool:
    near = prompt.before[-_NEAR:] + prompt.sent[:_NEAR] + prompt.cached[:_NEAR]
    return any(name in near for name in names)


def _field(
    prompt: _Prompt, sent_ids: Sequence[int], cached_ids: Sequence[int], is_inside: bool
) -> PrefixField:
    """What differs between a prompt and an earlier text, from a place on."""
    before, sent, cached = prompt.before, prompt.sent, prompt.cached
    if _dates_at(before, sent) and _dates_at(before, cached):
        return "date"
    if sent[:1].isspace() or cached[:1].isspace():
        rests = sent.lstrip()[:_SAME], cached.lstrip()[:_SAME]
        if common(*rests) >= min(4, *map(len, rests)):
            return "space"
    mark, opened = THOUGHTS.encode(), before[-len(THOUGHTS) :]
    if (mark in opened + sent[:_SAME]) != (mark in opened + cached[:_SAME]):
        return "thoughts"
    if _holds(cached_ids, sent_ids[:RUN]):
        return "left out"
    if _holds(sent_ids, cached_ids[:RUN]):
        return "inserted"
    return "content" if is_inside else "template"


def _holds(ids: Sequence[int], run: Sequence[int]) -> bool:
    """Whether a run of tokens comes later in a text."""
    places = range(RUN, len(ids) - RUN + 1)
    return len(run) == RUN and any(ids[at : at + RUN] == run for at in places)


def _dates_at(before: bytes, after: bytes) -> bool:
    """Whether a date or a time runs over a place, or begins there."""
    near = before[-AROUND:]
    dates = _DATE.finditer(near + after[:AROUND])
    return any(each.start() <= len(near) < each.end() for each in dates)


def _text(spelled: bytes) -> str:
    """Bytes as text; parts of characters at the ends are left out."""
    return spelled.decode(errors="ignore")
