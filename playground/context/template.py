"""Variables in a prompt: `{{name}}` is replaced by a text from a field or a row.

Knows how they are written. Must not know where values come from.
"""

import re
from collections.abc import Callable

VARIABLE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


def filled_in(text: str, value: Callable[[str], str | None]) -> str:
    """A text with its variables replaced; values are not searched for variables.

    Args:
        text: with or without variables.
        value: takes a variable's name; a variable for which it returns None stays as it is.
    """

    def replacement(found: re.Match[str]) -> str:
        given = value(found[1])
        return found[0] if given is None else given

    return VARIABLE.sub(replacement, text)
