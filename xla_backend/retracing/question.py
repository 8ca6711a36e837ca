"""Two calls of one function, and what was found about the second.

Knows how arguments differ, and the functions that can be asked about. Must not import TensorFlow:
the page's process imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xla_backend.interface.errors import InvalidRequest

WEIGHTED, GENERATE = "weighted", "generate"
MAX_SIZE = 64
"""Largest dimension of a tensor, which only takes time, and largest Python number of `GENERATE`."""

Kind = Literal["shape", "dtype", "value", "none", "type"]
"""What changed of an argument; "type" is a tensor that became a Python number, or the reverse."""


@dataclass(frozen=True)
class Argument:
    """An argument of a call: a tensor, a Python value or None.

    Attributes:
        name: its parameter.
        dtype: of a tensor; empty for a Python value.
        shape: of a tensor.
        value: a Python value, which is text only where nothing is called with it anew.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: float | str | None = None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" if self.dtype else f"{self.value}"

    def changes(self, now: Argument) -> tuple[Kind, ...]:
        """What another call changes; nothing where it changes nothing."""
        if self.dtype and now.dtype:
            changed: dict[Kind, bool] = {
                "shape": self.shape != now.shape,
                "dtype": self.dtype != now.dtype,
            }
            return tuple(kind for kind, is_so in changed.items() if is_so)
        if self == now:
            return ()
        if any(not each.dtype and each.value is None for each in (self, now)):
            return ("none",)
        return ("type",) if self.dtype or now.dtype else ("value",)


@dataclass(frozen=True)
class Question:
    """Which function, and how it is called twice.

    Attributes:
        function: `WEIGHTED`; `GENERATE` for Transformers' `model.generate` as the guide calls it;
            empty for a file.
        first, second: the arguments of both calls, in the same order; empty for a file.
        jit_compile: whether XLA compiles what is traced.
        any_rows: whether the function is declared for any number of rows; only for `WEIGHTED`.
        file: a Python file that defines `function` and `calls`, two dicts of its arguments.

    Raises:
        InvalidRequest: the two cannot be tried.
    """

    function: str
    first: tuple[Argument, ...] = ()
    second: tuple[Argument, ...] = ()
    jit_compile: bool = True
    any_rows: bool = False
    file: Path | None = None

    def __post_init__(self) -> None:
        sizes = [size for each in (*self.first, *self.second) for size in each.shape]
        if not all(1 <= size <= MAX_SIZE for size in sizes):
            raise InvalidRequest(f"Sizes must be whole numbers from 1 to {MAX_SIZE}.")
        if self.any_rows:
            for each in self.first:
                if not each.dtype:
                    raise InvalidRequest(
                        f"A signature for any number of rows names tensors only, and {each.name} is"
                        f" {each} in the first call: pass it as a tensor."
                    )


@dataclass(frozen=True)
class Attempt:
    """One call of a fresh function's first two.

    Attributes:
        traced, compiled: whether TensorFlow traced, and XLA compiled, for it.
        seconds: the whole call.
        problem: why it failed; empty if it did not.
    """

    traced: bool
    compiled: bool
    seconds: float
    problem: str = ""


@dataclass(frozen=True)
class Change:
    """One argument that differs, and what changing it alone did.

    Attributes:
        name: the argument. was, now: as text. kinds: what of it.
        alone: the second call with this change alone.
    """

    name: str
    was: str
    now: str
    kinds: tuple[Kind, ...]
    alone: Attempt


@dataclass(frozen=True)
class Findings:
    """What was found.

    Attributes:
        first, second: the calls as asked.
        changes: each argument that differs.
    """

    first: Attempt
    second: Attempt
    changes: tuple[Change, ...]
