"""Prompts in a text: one a line, or in the column `prompt` of a CSV file.

Knows both formats and their error messages. Must not know models or components.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import PurePath

from playground.ui.csv_cells import unguarded
from playground.ui.markup import clean
from xla_backend import InvalidRequest

MAX_PROMPTS = 50
MAX_BYTES = 2**20
MAX_HEADING = 10_000  # characters; csv refuses to look at more than 131,072 in a cell
COLUMN = "prompt"


@dataclass(frozen=True)
class BatchPrompt:
    """A prompt, and the line of the text where it begins, from 1."""

    line: int
    prompt: str


def prompts_in(text: str) -> tuple[list[BatchPrompt], list[int]]:
    """The prompts of a text, in order, and the lines of a table that have none; empty lines between
    prompts that stand one a line mean nothing.

    It is CSV when its first line has a column `prompt`, with commas or semicolons.

    Raises:
        InvalidRequest: there is none, or there are too many.
    """
    text = clean(text.removeprefix("\ufeff"))
    delimiter = _delimiter(text)
    prompts, without = _of_table(text, delimiter) if delimiter else (_of_lines(text), [])
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
        text = content.decode("utf-8-sig")
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


def _delimiter(text: str) -> str:
    """The separator of a CSV text; empty if the text is not CSV."""
    head = re.split(r"[\r\n]", text.lstrip("\r\n")[:MAX_HEADING], maxsplit=1)[0]
    for delimiter in (",", ";", "\t"):
        if COLUMN in _names(next(csv.reader([head], delimiter=delimiter), [])):
            return delimiter
    return ""


def _names(row: list[str]) -> list[str]:
    return [name.strip().lower() for name in row]


def _of_lines(text: str) -> list[BatchPrompt]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [BatchPrompt(i, line.strip()) for i, line in enumerate(lines, 1) if line.strip()]


def _of_table(text: str, delimiter: str) -> tuple[list[BatchPrompt], list[int]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    prompts: list[BatchPrompt] = []
    without: list[int] = []
    column = None
    line = 1
    try:
        for row in reader:
            if column is not None:
                if prompt := _cell(row, column):
                    prompts.append(BatchPrompt(line, prompt))
                else:
                    without.append(line)
            elif any(cell.strip() for cell in row):
                names = _names(row)
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


def _cell(row: list[str], column: int) -> str:
    return unguarded(row[column]).strip() if column < len(row) else ""
