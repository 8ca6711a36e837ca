"""Mapped parts of files, by what the kernel says of this process's memory."""

import mmap
import re
from pathlib import Path

import numpy as np

from xla_backend.checkpoints.formats import mapped


def _resident(path: Path) -> int:
    """Kilobytes of a file's mapping that are in memory."""
    entries = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return sum(int(re.search(r"Rss:\s+(\d+)", entry)[1]) for entry in entries)


def test_the_pages_of_a_part_are_freed_with_its_last_view(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 8192)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    parts = [mapped.part(data, start, 2**20).view("<u4") for start in (0, 2**20)]
    expected = [int(part.sum(dtype=np.int64)) for part in parts]
    assert _resident(path) == 2048
    view = parts[0][1:]
    parts[0] = parts[1]
    assert _resident(path) == 2048
    del view
    assert _resident(path) <= 1024  # 0 if the kernel had mapped all of it as one page
    assert int(parts[1].sum(dtype=np.int64)) == expected[1]
