"""How much memory a process holds and may hold, by the kernel's accounts.

Knows `/proc` and control groups, versions 1 and 2. Must not know what is held, nor which process is
ended for it. Where the system has no such accounts the answer is None, and nothing is bounded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from xla_backend.compilation.startup import OFF_WORDS

DEFAULT_LIMIT = "60%"
"""Memory of the engine's process. The rest is for the page and the system's file cache."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1024**power for power, unit in enumerate("KMGT", start=1)}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(?:(%)|([KMGT]?I?)B?)", re.IGNORECASE)
_ROOT = Path("/")


def resident(pid: int | None = None) -> int | None:
    """Bytes that a process holds in memory (its resident set); None where that is unknown.

    Args:
        pid: which process; None for this one.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return None


def peak(pid: int | None = None) -> int | None:
    """The most bytes that a process, by default this one, ever held; None where unknown."""
    return _entry(Path(f"/proc/{pid or 'self'}/status"), "VmHWM:")


def give_back() -> None:
    """Returns freed memory to the system, where it is glibc's; takes some 50 ms."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def mapped_share(root: Path = _ROOT) -> float:
    """Memory mappings of this process over those that Linux allows (`vm.max_map_count`).

    Compiled code takes some 100 a function, and LLVM ends the process where none is left. 0 where
    the system does not tell. With 60,000 it takes some 30 ms.
    """
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        most = int((root / "proc/sys/vm/max_map_count").read_text())
        return (root / "proc/self/maps").read_bytes().count(b"\n") / most
    return 0.0


def total(root: Path = _ROOT) -> int | None:
    """Bytes that this process and its children may use: the machine's, or less in a container.

    Args:
        root: where `/proc` and `/sys` are found.
    """
    amounts = [*_limits(root), _entry(root / "proc/meminfo", "MemTotal:")]
    return min((amount for amount in amounts if amount is not None), default=None)


DEFAULT_PREFIX_STORE = "2GB"
DEFAULT_KV_MEMORY = "1GB"
"""Some 20,000 tokens of a model with 135 million weights."""


def limit_from(text: str, of: int | None) -> int | None:
    """Parses a limit; the result is in bytes.

    Args:
        text: an amount ("3GB", "1500 MiB", bytes without a unit), a share ("60%") of the total, or
            "off".
        of: the total in bytes; None where it is unknown, and then shares give no limit.

    Raises:
        ValueError: it cannot be parsed; the message says what can.
    """
    text = text.strip()
    if text.lower() in OFF_WORDS:
        return None
    found = _AMOUNT.fullmatch(text)
    if found is None or not float(found[1]):
        raise ValueError(
            f"{text!r} is not an amount of memory: write 3GB, 1500MiB, 60% (of the machine's or "
            "the container's) or off."
        )
    if found[2]:
        return None if of is None else int(of * min(float(found[1]), 100.0) / 100)
    return int(float(found[1]) * _UNITS[(found[3] or "").upper()])


def _limits(root: Path) -> Iterator[int | None]:
    """Of the groups of this process and their parents, as far as they are visible, in bytes."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controllers == "":  # version 2
                place, file = root / "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                place, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            else:
                continue
            # A container sees its own group at the top; the path exists only outside.
            inner = Path(path.lstrip("/"))
            for folder in (place / inner, *(place / parent for parent in inner.parents), place):
                yield _number(folder / file)


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", for version 1's word for it, and without the file."""
    with contextlib.suppress(OSError, ValueError):
        number = int(path.read_text())
        return number if number < 2**60 else None
    return None


def _entry(path: Path, name: str) -> int | None:
    """Bytes, from the line of this name in a file with a line for each; None without one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.split()[0] == name:
                return int(line.split()[1]) * 1024
    return None
