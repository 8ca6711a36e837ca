"""`JsonFile`: a kind of file that the page exports and imports.

Knows its header, and the errors for other files. Must not know its contents.
"""

import json
from dataclasses import dataclass
from typing import Any

from xla_backend import InvalidRequest

_VERSION = 1


@dataclass(frozen=True)
class JsonFile:
    """A kind of file."""

    format: str  # its name in the file
    holds: str  # its contents: "runs"
    button: str  # the button that writes it
    max_bytes: int  # bound on its size

    def written(self, values: dict[str, Any]) -> str:
        """The file with these values."""
        content = {"format": self.format, "version": _VERSION, **values}
        return json.dumps(content, indent=1, ensure_ascii=False)

    def read(self, text: str) -> dict[str, Any]:
        """The values of a file.

        Raises:
            InvalidRequest: it is another kind of file.
        """
        if len(text.encode("utf-8", "surrogatepass")) > self.max_bytes:
            raise InvalidRequest(
                f"The file is larger than {self.max_bytes // 2**20} MB, which no export of this "
                "page is. Nothing was changed."
            )
        other = f"Choose one that “{self.button}” has written; nothing was changed."
        try:
            content = json.loads(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"The file is not JSON. {other}") from error
        if not isinstance(content, dict) or content.get("format") != self.format:
            raise InvalidRequest(f"The file holds no {self.holds} of this page. {other}")
        if content.get("version") != _VERSION:
            raise InvalidRequest(
                f"The file is of another version of this page, not of version {_VERSION}. Nothing "
                "was changed."
            )
        return content
