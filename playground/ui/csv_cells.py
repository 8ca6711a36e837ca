"""CSV for spreadsheets, in which no text becomes a formula.

Knows which cells spreadsheets treat as formulas, and how to write and read tables safely. Must not
know what the cells mean.
"""

import csv
import io
from collections.abc import Iterable, Sequence

from playground.ui.markup import clean

# Also as full-width characters, which some spreadsheets treat as the plain ones.
_BEGIN_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
_MARK = "'"


def guarded(text: str) -> str:
    """A text that no spreadsheet runs: an apostrophe precedes what would be a formula."""
    return _MARK + text if _needs_mark(text) else text


def unguarded(text: str) -> str:
    """The text that `guarded` was given."""
    inner = text[1:]
    return inner if text.startswith(_MARK) and _needs_mark(inner) else text


def csv_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The whole file. Numbers stay numbers, None is an empty cell, any other value is guarded.

    Write it with the encoding `utf-8-sig`: without the mark, Excel does not detect UTF-8.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(headings)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    return guarded(clean(value))


def _needs_mark(text: str) -> bool:
    # An apostrophe is escaped too, or reading could not tell it from an escape.
    return text.startswith((_MARK, *_BEGIN_FORMULAS)) or text.lstrip().startswith(_BEGIN_FORMULAS)
