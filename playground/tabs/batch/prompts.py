"""Prompts in a text: one a line, in the column `prompt` of a CSV file, or under that key in JSON.

Knows these formats and their error messages. Must not know models or components.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from playground.context.draft import filled_in
from playground.ui.csv_cells import unguarded
from playground.ui.markup import clean, quoted
from xla_backend import InvalidRequest

MAX_PROMPTS = 50
MAX_BYTES = 2**20
MAX_HEADING = 10_000  # characters; csv refuses to look at more than 131,072 in a cell
COLUMN = "prompt"
_SEPARATOR = re.compile(r"sep=(.)(?=[\r\n]|$)", re.IGNORECASE)
"""The line by which Excel is told what stands between cells."""


@dataclass(frozen=True)
class BatchPrompt:
    """A prompt, and the line of the text where it begins, from 1."""

    line: int
    prompt: str


def prompts_in(text: str) -> tuple[list[BatchPrompt], list[int]]:
    """The prompts of a text, in order, and the lines of a table that have none; empty lines between
    prompts that stand one a line mean nothing.

    It is CSV when its first line has a column `prompt`, with commas, semicolons or tabs (a line
    `sep=;` may come before it); JSON when its first line begins an object, or a list of them. There
    `{{name}}` in a prompt stands for what its row has in the column, or under the key, `name`.

    Raises:
        InvalidRequest: there is none, there are too many, or a row lacks a `{{name}}`.
    """
    text = clean(text.removeprefix("\ufeff"))
    delimiter = _delimiter(text)
    without: list[int] = []
    if delimiter:
        prompts, without = _of_table(text, delimiter)
    elif _is_json(text):
        prompts, without = _of_json(text)
    else:
        prompts = _of_lines(text)
    if not prompts:
        raise InvalidRequest("There are no prompts yet. Write one on each line.")
    if len(prompts) > MAX_PROMPTS:
        raise InvalidRequest(
            f"There are {len(prompts)} prompts, and at most {MAX_PROMPTS} run at once. Leave out "
            f"those from line {prompts[MAX_PROMPTS].line} on."
        )
    return prompts, without


def text_of_file(name: str, content: bytes) -> str:
    """The text of an uploaded file.

    Raises:
        InvalidRequest: it is too large, no text, or a CSV file without a column `prompt`.
    """
    if len(content) > MAX_BYTES:
        raise InvalidRequest("The file is larger than 1 MB. It should hold 50 prompts at most.")
    try:
        text = content.decode(_encoding(content))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidRequest(
            f"Line {line} of the file is not UTF-8 text. Save it as UTF-8 and try again."
        ) from None
    if PurePath(name).suffix.lower() == ".csv" and not _delimiter(text):
        raise InvalidRequest(
            f'Line 1 of the CSV file names no column "{COLUMN}". Give the column with the prompts '
            "that name."
        )
    return text


def _encoding(content: bytes) -> str:
    """UTF-8, or UTF-16 as spreadsheets save text, with or without the mark at its beginning."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" not in content:
        return "utf-8-sig"
    return "utf-16-be" if content[::2].count(0) > content[1::2].count(0) else "utf-16-le"


def _delimiter(text: str) -> str:
    """The separator of a CSV text; empty if the text is not CSV."""
    head = text.lstrip("\r\n")[:MAX_HEADING]
    if named := _SEPARATOR.match(head):
        head = head[named.end() :].lstrip("\r\n")
    head = re.split(r"[\r\n]", head, maxsplit=1)[0]
    for delimiter in (named[1],) if named else (",", ";", "\t", "|"):
        if COLUMN in _names(next(csv.reader([head], delimiter=delimiter), [])):
            return delimiter
    return ""


def _names(row: list[str]) -> list[str]:
    return [name.strip().lower() for name in row]


def _of_lines(text: str) -> list[BatchPrompt]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [BatchPrompt(i, line.strip()) for i, line in enumerate(lines, 1) if line.strip()]


def _is_json(text: str) -> bool:
    """Whether it is a list of objects, or begins with a line that is one."""
    text = text.strip()
    if re.match(r"\[\s*\{\s*\"", text):
        return True
    try:
        return isinstance(json.loads(text.split("\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        return False


def _of_json(text: str) -> tuple[list[BatchPrompt], list[int]]:
    """The prompts of JSON lines, or of a list of objects, whose places then stand for lines."""
    prompts: list[BatchPrompt] = []
    without: list[int] = []
    is_list = text.lstrip().startswith("[")
    line = 1
    try:
        for line, value in enumerate(json.loads(text) if is_list else text.split("\n"), 1):
            if not is_list and not value.strip():
                continue
            row = value if is_list else json.loads(value)
            if found := row[COLUMN].strip():
                prompts.append(BatchPrompt(line, _filled_in(found, row, line)))
            else:
                without.append(line)
    except InvalidRequest:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidRequest(
            f'Line {line} is not a JSON object with a text under "{COLUMN}". Write one per line: '
            f'{{"{COLUMN}": "Once upon a time"}}.'
        ) from None
    return prompts, without


def _of_table(text: str, delimiter: str) -> tuple[list[BatchPrompt], list[int]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    prompts: list[BatchPrompt] = []
    without: list[int] = []
    column, names = None, [""]
    line = 1
    try:
        for row in reader:
            if column is not None:
                if prompt := _cell(row, column):
                    cells = {name: _cell(row, place) for place, name in enumerate(names)}
                    prompts.append(BatchPrompt(line, _filled_in(prompt, cells, line)))
                else:
                    without.append(line)
            elif any(cell.strip() for cell in row):
                names = _names(row)
                if line == 1 and _SEPARATOR.fullmatch(delimiter.join(row)):
                    line = reader.line_num + 1
                    continue
                if COLUMN not in names:  # an unclosed quote
                    raise csv.Error
                column = names.index(COLUMN)
            line = reader.line_num + 1
    except csv.Error:
        raise InvalidRequest(
            f"Line {line} cannot be read as CSV. Put text that has quotes or commas between quotes "
            'and write each quote in it twice: "She said ""yes"", and left".'
        ) from None
    return prompts, without


def _filled_in(prompt: str, row: Mapping[str, Any], line: int) -> str:
    """A prompt with the variables of its row; those of a row that has nothing else are text."""
    variables = {name.strip().lower(): value for name, value in row.items()}
    if len(variables) < 2:
        return prompt

    def value(name: str) -> str:
        if name.lower() == COLUMN or variables.get(name.lower()) is None:
            raise InvalidRequest(
                f"Line {line} has no {quoted(name)} for {{{{{name}}}}} in its prompt. It has "
                f"{', '.join(quoted(each) for each in variables if each != COLUMN)}."
            )
        return str(variables[name.lower()])

    return filled_in(prompt, value)


def _cell(row: list[str], column: int) -> str:
    return unguarded(row[column]).strip() if column < len(row) else ""
