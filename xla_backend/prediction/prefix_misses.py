"""Why a row reused no more of its prompt: where it parts from an earlier text, and what differs.

Knows tokens, messages and texts. Must not know the cache: `rows.prefix` finds the `Parting`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from xla_backend.interface.prompt import THOUGHTS, split_thoughts
from xla_backend.interface.requests import Prepared
from xla_backend.interface.results import PrefixCause, PrefixField, PrefixMiss, RowRun
from xla_backend.prediction.prediction import reading_s
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
    rows: Sequence[RowRun],
) -> PrefixMiss | None:
    """What became of a prefix; None if the prompt only goes on in another way than earlier ones.

    Args:
        parting: of the request's row.
        prepared: the request.
        reused: tokens of its prompt that were reused.
        tokenizer: of its model.
        rows: earlier rows of its model, which show how long reading takes.
    """
    ids = prepared.token_ids
    again = _again(ids[parting.place :], parting.cached) + parting.end - reused
    if parting.cause == "differs" and again <= 0:
        return None
    read = len(ids) - reused
    found = PrefixMiss(
        cause=parting.cause,
        place=reused if parting.cause != "differs" else parting.place,
        tokens=max(0, again),
        seconds=reading_s(rows, len(ids), read, read - again) if again > 0 else None,
        at=parting.at,
        by_others=parting.by_others,
        model=parting.model,
    )
    return found if parting.cause != "differs" else _with_place(found, parting, prepared, tokenizer)


def _again(sent: Sequence[int], cached: Sequence[int]) -> int:
    """How many tokens of a text are in the other, too, in runs of at least `RUN`."""
    runs = {tuple(cached[at : at + RUN]) for at in range(len(cached) - RUN + 1)}
    count, counted_to = 0, 0
    for at in range(len(sent) - RUN + 1):
        if tuple(sent[at : at + RUN]) in runs:
            count += at + RUN - max(at, counted_to)
            counted_to = at + RUN
    return count


class _Bytes(NamedTuple):
    """A prompt as bytes; in `plain`, tokens without text, such as the ends of turns, are zeros."""

    text: bytes
    plain: bytes
    at: int


def _with_place(
    found: PrefixMiss, parting: Parting, prepared: Prepared, tokenizer: Tokenizer
) -> PrefixMiss:
    """The miss with the place in the prompt's messages, and what differs there."""
    ids, place, request = prepared.token_ids, parting.place, prepared.request
    cached = b"".join(map(tokenizer.token_bytes, parting.cached))
    spelled = [tokenizer.token_bytes(id) for id in ids]
    has_text = frozenset(tokenizer.visible(frozenset(ids)))
    plain = [b if id in has_text else bytes(len(b)) for id, b in zip(ids, spelled, strict=True)]
    start = sum(map(len, spelled[:place]))
    sent = b"".join(spelled)
    same = common(sent[start : start + _SAME], cached[:_SAME])
    prompt, after = _Bytes(sent, b"".join(plain), start + same), cached[same:]
    message, is_inside = None, isinstance(request.prompt, str)
    if isinstance(request.prompt, tuple):
        contents = [each.content for each in request.prompt]
        message, is_inside = _message(prompt, contents)
    field: PrefixField
    if same == min(_SAME, len(cached), len(sent) - start):
        field = "tokens"
    elif (names := _tool_names(prepared)) and not is_inside and _is_near(prompt, after, names):
        field, message = "tools", None
    else:
        field = _field(prompt, after, ids[place:], parting.cached, is_inside)
        if message == 0 and not is_inside:  # the template's own beginning
            message = None
    role = "" if message is None else request.prompt[message].role  # type: ignore[index,union-attr]
    if request.shares_salt:
        return dataclasses.replace(found, message=message, role=role, field=field)
    return dataclasses.replace(
        found,
        message=message,
        role=role,
        field=field,
        before=_text(sent[max(0, prompt.at - AROUND) : prompt.at]),
        sent=_text(sent[prompt.at : prompt.at + AROUND]),
        cached=_text(after[:AROUND]),
    )


def _message(prompt: _Bytes, contents: Sequence[str]) -> tuple[int | None, bool]:
    """The message in which a place is, or which follows it; and whether it is in its content."""
    end = 0
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
                if prompt.at <= end:
                    return place, prompt.at >= start
                break
    return None, False


def _tool_names(prepared: Prepared) -> list[bytes]:
    functions = [tool.get("function", tool) for tool in prepared.request.tools]
    return [json.dumps(each.get("name", ""))[1:-1].encode() for each in functions]


def _is_near(prompt: _Bytes, cached: bytes, names: Sequence[bytes]) -> bool:
    near = prompt.text[max(0, prompt.at - _NEAR) : prompt.at + _NEAR] + cached[:_NEAR]
    return any(name in near for name in names)


def _field(
    prompt: _Bytes, cached: bytes, sent_ids: Sequence[int], cached_ids: Sequence[int], inside: bool
) -> PrefixField:
    """What differs between a prompt and an earlier text, from a place on."""
    before, sent = prompt.text[: prompt.at], prompt.text[prompt.at :]
    if _dates_at(before, sent) and _dates_at(before, cached):
        return "date"
    if sent[:1].isspace() or cached[:1].isspace():
        rests = sent.lstrip()[:_SAME], cached.lstrip()[:_SAME]
        if common(*rests) >= min(4, *map(len, rests)):
            return "space"
    mark, begun = THOUGHTS.encode(), before[-len(THOUGHTS) :]
    if (mark in begun + sent[:_SAME]) != (mark in begun + cached[:_SAME]):
        return "thoughts"
    if _holds(cached_ids, sent_ids[:RUN]):
        return "left out"
    if _holds(sent_ids, cached_ids[:RUN]):
        return "inserted"
    return "content" if inside else "template"


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
