"""Text files of a model, in UTF-8 or with a mark of their encoding (byte order mark) in front."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SUFFIXES = (".jinja", ".json", ".txt")


def read_text(path: Path) -> str:
    """The text of a file without its mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it has another encoding.
    """
    data = path.read_bytes()
    return data.decode(json.detect_encoding(data))


@contextlib.contextmanager
def without_marks(folder: Path) -> Iterator[Path]:
    """A folder for libraries that know no marks: itself, or a temporary one if a file has one, in
    which large files are links.

    Raises:
        OSError: it cannot be read.
        ValueError: a text has another encoding than its mark says.
    """
    texts = {path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file()}
    if not any(map(_has_mark, texts)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="xla-backend-") as name:
        for path in folder.iterdir():
            copy = Path(name, path.name)
            if path in texts:
                copy.write_bytes(read_text(path).encode())
            else:
                copy.symlink_to(path.resolve())
        yield Path(name)


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return json.detect_encoding(file.read(4)) != "utf-8"
