"""`StopStrings`: where a text that comes in chunks ends, and which part is final.

Knows strings. Must not know tokens, requests or models.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Ends a text before or after the first stop string in it.

    The result does not depend on the chunks. Of overlapping strings, the one that ends first
    counts; of those that end together, the longest.

    Attributes:
        found: the string that ended the text; empty before.
    """

    def __init__(self, strings: Sequence[str], shows: bool = False) -> None:
        """Starts with an empty text.

        Args:
            strings: each ends the text.
            shows: whether the text includes the string that ended it.
        """
        self._strings = strings
        self._shows = shows
        self._held = ""
        self.found = ""

    def push(self, chunk: str) -> str:
        """Takes the next characters; returns those that are final now.

        The end of the text is held back where a stop string could begin.
        """
        if self.found:
            return ""
        text, self._held = self._held + chunk, ""
        # The held text is the longest possible beginning of a string: none begins before it.
        found = [
            (place + len(string), place)
            for string in self._strings
            if (place := text.find(string)) >= 0
        ]
        if found:
            end, place = min(found)
            self.found = text[place:end]
            return text[: end if self._shows else place]
        held = max((overlap(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """Ends the text; returns what was held back."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, string: str) -> int:
    """How many of the text's last characters are a beginning, but not all, of a string."""
    sizes = range(min(len(text), len(string) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(string[:size])), 0)
