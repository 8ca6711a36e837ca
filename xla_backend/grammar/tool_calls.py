"""Calls of tools in a model's text: which texts there may be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from xla_backend.answers import channels
from xla_backend.answers.tool_format import ToolFormat
from xla_backend.grammar import json_text, step_by_step
from xla_backend.grammar.schemas import documents
from xla_backend.grammar.schemas.documents import DocumentRules

_MESSAGE = f"{json_text.other_than(*channels.MARKS.values())}*"
"""Matches the text of a message in a channel."""


def _in_channels(text: str) -> str:
    return json_text.literal(channels.written(text))


FINAL = _in_channels("<|channel|>final<|message|>")
"""Matches what stands before the text of an answer in channels."""


def messages(*names: str) -> str:
    """Matches any number of messages in these channels, up to where the next one begins."""
    begin, middle = _in_channels("<|channel|>"), _in_channels("<|message|>")
    end = _in_channels(f"<|end|><|start|>{channels.ROLE}")
    return f"(?:{begin}(?:{'|'.join(map(json_text.literal, names))}){middle}{_MESSAGE}{end})*"


def without_notes(schema: Any) -> Any:
    """A schema without titles and descriptions, which are most of many schemas."""
    if isinstance(schema, list):
        return [without_notes(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value if key in ("const", "enum") else without_notes(value)
        for key, value in schema.items()
        if not (key in ("description", "title") and isinstance(value, str))
    }


def arguments(schema: Any, is_strict: bool) -> DocumentRules:
    """The rules of a function's arguments; see `documents.read`.

    Objects are closed, as functions take no arguments that they do not name. Of a tool that is not
    `strict`, keywords that cannot be read are left out.
    """
    return documents.read(json.dumps(schema), is_closed=True, is_lenient=not is_strict)


def regex(requested: Mapping[str, Any], answer: str | None) -> str:
    """Matches the texts of a grammar of `grammars.of_tools`, whose JSON `asked` is.

    Args:
        answer: matches the other answers, where these have a form.
    """
    form = ToolFormat(*requested["format"])
    opening, middle, closing = _parts(form)
    names: dict[str, list[str]] = {}
    for name, schema in requested["tools"].items():
        written = arguments(schema, name in requested["strict"]).regex(documents.ANY_LEVELS)
        names.setdefault(written, []).append(json_text.literal(name))
    ways = [f"(?:{'|'.join(each)}){middle}{written}" for written, each in names.items()]
    calls = f"{opening}(?:{'|'.join(ways)}){closing}"
    if requested["several"]:
        calls = f"(?:{calls}\\n?)+"
    if form.in_channels:
        final = f"|{FINAL}(?:{answer or _MESSAGE})" if requested["is_free"] else ""
        return f"{_before_calls(answer)}(?:{calls}{final})"
    if not requested["is_free"]:
        return calls
    if answer is not None:
        return f"(?:{answer}|{calls})"
    if form.marker:
        return f"{text_without(form.marker)}(?:{calls})?"
    return f"(?:{_not_beginning_with(form.opening)}|{calls})"


def rules(requested: Mapping[str, Any], arguments: Mapping[str, str], answer: str | None) -> str:
    """The same texts as rules of `step_by_step`, whose longest match of a part always counts.

    Args:
        arguments: what those of each tool are, in the notation of these rules.
        answer: the other answers, likewise; they must not begin as a call.
    """
    form = ToolFormat(*requested["format"])
    opening, middle, closing = _parts(form)
    free = before = ""
    if form.in_channels:
        before = _before_calls(answer)
        if answer:
            answer = f"{step_by_step.matching(before + FINAL)} ({answer})"
        elif requested["is_free"]:
            free = step_by_step.matching(before + FINAL + _MESSAGE)
    elif requested["is_free"] and answer is None:
        before = text_without(form.marker) if form.marker else ""
        free = step_by_step.matching(before or _not_beginning_with(form.opening))
    named = {name: step_by_step.matching(json_text.literal(name) + middle) for name in arguments}
    call = " | ".join(f"{named[name]} ({each})" for name, each in arguments.items())
    end = step_by_step.matching(closing + (r"\n?" if requested["several"] else ""))
    written = f"{step_by_step.matching(before + opening)} call"
    if requested["several"]:
        written += f" ({step_by_step.matching(opening)} call)*"
    either = " | ".join(filter(None, [answer if requested["is_free"] else "", free, written]))
    return f"start: {either}\ncall: ({call}) {end}\n"


def _parts(form: ToolFormat) -> tuple[str, ...]:
    """Match what stands around the parts of a call."""
    parts = map(channels.written, form[:3]) if form.in_channels else form[:3]
    return tuple(_written(part, bool(form.marker)) for part in parts)


def _before_calls(answer: str | None) -> str:
    """Matches thoughts and, unless answers have a form, what is said before a call."""
    return messages("analysis", *([] if answer else ["commentary"]))


def _written(part: str, is_marked: bool) -> str:
    """A part of a call; where a marker tells that it is one, white space may be left out."""
    pieces = re.split(r"(\s+)", part) if is_marked else [part]
    return "".join(
        f"[ \\n\\t]{{0,{len(piece)}}}" if piece.isspace() else json_text.literal(piece)
        for piece in pieces
    )


def text_without(marker: str) -> str:
    """Texts without the marker, whose first character occurs in it only once."""
    first, last = marker[0], marker[-1]
    nested, other = "", json_text.other_than(first, last)
    for each in reversed(marker[1:-1]):
        letter = json_text.literal(each)
        nested = f"(?:{letter}{nested})?"
        other = f"(?:{json_text.other_than(first, each)}|{letter}{other})"
    starts = f"{json_text.literal(first)}(?:{nested}{json_text.literal(first)})*"
    return f"(?:{json_text.other_than(first)}|{starts}{other})*(?:{starts}{nested})?"


def _not_beginning_with(opening: str) -> str:
    rest = ""
    for each in reversed(opening):
        goes_on = f"|{json_text.literal(each)}{rest}" if rest else ""
        rest = f"(?:{json_text.other_than(each)}{json_text.other_than()}*{goes_on})?"
    return rest
