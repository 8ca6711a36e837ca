"""Two calls of one function, and the findings about the second; the page's process imports it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xla_backend.interface.errors import InvalidRequest

WEIGHTED, GENERATE = "weighted", "generate"
MAX_SIZE = 64
"""Largest dimension of a tensor, and largest Python number of `GENERATE`: larger ones only take
time."""

Kind = Literal["shape", "dtype", "value", "none", "type"]
"""What changed in an argument; "type": a tensor became a Python number, or the reverse."""


@dataclass(frozen=True)
class Argument:
    """An argument of a call: a tensor, a Python value or None."""

    name: str  # its parameter
    dtype: str = ""  # of a tensor; empty for a Python value
    shape: tuple[int, ...] = ()  # of a tensor
    value: float | str | None = None  # a Python value; as text in findings only

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" if self.dtype else f"{self.value}"

    def changes(self, now: Argument) -> tuple[Kind, ...]:
        """What another call changes in this argument."""
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
class Trial:
    """A function and two calls of it.

    Attributes:
        function: `WEIGHTED`; `GENERATE` for Transformers' `model.generate` as the guide calls it;
            empty for a file.
        first, second: the arguments of both calls, in the same order; empty for a file.
        jit_compile: whether XLA compiles what is traced.
        any_rows: whether the signature allows any number of rows; only for `WEIGHTED`.
        file: a Python file that defines `function` and `calls`, two dicts of its arguments.

    Raises:
        InvalidRequest: these calls cannot be tried.
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
                        f"A signature for any number of rows can only have tensors, and "
                        f"{each.name} is {each} in the first call: pass it as a tensor."
                    )


@dataclass(frozen=True)
class Attempt:
    """One of a fresh function's first two calls.

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
    """One argument that differs, and the effect of this change alone.

    Attributes:
        name: of the argument. was, now: as text. kinds: what changed.
        alone: the second call with only this change.
    """

    name: str
    was: str
    now: str
    kinds: tuple[Kind, ...]
    alone: Attempt


@dataclass(frozen=True)
class Findings:
    """The findings.

    Attributes:
        changes: each argument that differs.
    """

    first: Attempt
    second: Attempt
    changes: tuple[Change, ...]
