"""`JsonFile`: a kind of file that the page writes and takes back.

Knows how one says what it is, and what a file is told that is none. Must not know what is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_backend import InvalidRequest

_VERSION = 1


@dataclass(frozen=True)
class JsonFile:
    """A kind of file.

    Attributes:
        format: what it is called in the file.
        holds: what is in it: "runs".
        button: which writes it.
        max_bytes: the most that one has.
    """

    format: str
    holds: str
    button: str
    max_bytes: int

    def written(self, values: dict[str, Any]) -> str:
        """The file with these values."""
        content = {"format": self.format, "version": _VERSION, **values}
        return json.dumps(content, indent=1, ensure_ascii=False)

    def uploaded(self, path: str) -> bytes:
        """What was uploaded, which then goes.

        One byte more than is allowed tells that it is larger.
        """
        file = Path(path)
        with file.open("rb") as opened:
            data = opened.read(self.max_bytes + 1)
        file.unlink(missing_ok=True)
        return data

    def read(self, data: bytes) -> dict[str, Any]:
        """The values of a file.

        Raises:
            InvalidRequest: it is none of this kind.
        """
        if len(data) > self.max_bytes:
            raise InvalidRequest(
                f"The file is larger than {self.max_bytes // 2**20} MB, which no export of this "
                "page is. Nothing was changed."
            )
        other = f"Choose one that “{self.button}” has written; nothing was changed."
        try:
            content = json.loads(data.decode("utf-8-sig"))
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
