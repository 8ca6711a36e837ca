"""Prompts in a text: one a line, or in the column `prompt` of a CSV file.

Knows both formats and their sentences. Must not know models, components or who asks.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import PurePath

from playground.csv_cells import unguarded
from playground.markup import clean
from xla_backend import InvalidRequest

MOST_PROMPTS = 50
MOST_BYTES = 2**20
MOST_HEADING = 10_000  # characters; csv refuses to look at more than 131,072 in a cell
COLUMN = "prompt"


@dataclass(frozen=True)
class BatchPrompt:
    """A prompt, and the line of the text where it begins, from 1."""

    line: int
    prompt: str


def prompts_in(text: str) -> list[BatchPrompt]:
    """The prompts of a text, in their order; empty lines count for nothing.

    It is CSV when its first line has a column `prompt`, with commas or semicolons.

    Raises:
        InvalidRequest: there is none, there are too many, or a row of the CSV has none.
    """
    text = clean(text.removeprefix("\ufeff"))
    delimiter = _delimiter(text)
    prompts = _of_table(text, delimiter) if delimiter else _of_lines(text)
    if not prompts:
        raise InvalidRequest("There are no prompts yet. Write one on each line.")
    if len(prompts) > MOST_PROMPTS:
        raise InvalidRequest(
            f"There are {len(prompts)} prompts, and at most {MOST_PROMPTS} run at once. Leave out "
            f"those from line {prompts[MOST_PROMPTS].line} on."
        )
    return prompts


def text_of_file(name: str, content: bytes) -> str:
    """What an uploaded file says.

    Raises:
        InvalidRequest: it is too large, no text, or a CSV file without a column `prompt`.
    """
    if len(content) > MOST_BYTES:
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
    """Between the columns of a CSV text; empty for text that is none."""
    head = re.split(r"[\r\n]", text.lstrip("\r\n")[:MOST_HEADING], maxsplit=1)[0]
    for delimiter in (",", ";", "\t"):
        if COLUMN in _names(next(csv.reader([head], delimiter=delimiter), [])):
            return delimiter
    return ""


def _names(row: list[str]) -> list[str]:
    return [name.strip().lower() for name in row]


def _of_lines(text: str) -> list[BatchPrompt]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [BatchPrompt(i, line.strip()) for i, line in enumerate(lines, 1) if line.strip()]


def _of_table(text: str, delimiter: str) -> list[BatchPrompt]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    prompts: list[BatchPrompt] = []
    column = None
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if column is None:
                    names = _names(row)
                    if COLUMN not in names:  # a quote that nothing closes
                        raise csv.Error
                    column = names.index(COLUMN)
                else:
                    prompts.append(BatchPrompt(line, _cell(row, column, line)))
            line = reader.line_num + 1
    except csv.Error:
        raise InvalidRequest(
            f"Line {line} cannot be read as CSV. Put text that has quotes or commas between quotes "
            'and write each quote in it twice: "She said ""yes"", and left".'
        ) from None
    return prompts


def _cell(row: list[str], column: int, line: int) -> str:
    prompt = unguarded(row[column]).strip() if column < len(row) else ""
    if not prompt:
        raise InvalidRequest(f'Line {line} has nothing in the column "{COLUMN}".')
    return prompt
