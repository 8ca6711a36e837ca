"""Text files of a model, in UTF-8 or with any encoding mark (byte order mark) at their beginning.

Knows the marks.
"""

from __future__ import annotations

import codecs
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

# The longer ones first: UTF-16's mark begins one of UTF-32's.
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SUFFIXES = (".jinja", ".json", ".txt")


def read_text(path: Path) -> str:
    """The text of a file without its mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it has another encoding.
    """
    data = path.read_bytes()
    return data.decode(_encoding(data) or "utf-8")


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


def _encoding(start: bytes) -> str | None:
    return next((name for mark, name in _ENCODINGS.items() if start.startswith(mark)), None)


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return _encoding(file.read(4)) is not None
