"""Tests of how the tests for `make check` are found."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies

from tests import quick
from tests.oracle import load_oracle
from tests.playground import served


def adds_up() -> int:
    return sum(len(quick.__doc__ or "") for _ in range(2))


def calls_a_process() -> None:
    subprocess.run(["true"], check=True)


def imports_an_engine() -> None:
    from xla_backend import Backend

    Backend()


def does_it_inside() -> list[None]:
    return [calls_a_process() for _ in range(2)]


def asks_another_module() -> None:
    served.start([], served.ROOT, {}, 0)


@functools.cache
def asks_the_oracle() -> Any:
    return load_oracle("")


@given(strategies.integers())
def tries_many_inputs(value: int) -> None:
    assert value + 1 > value


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (adds_up, True),
        (calls_a_process, False),
        (imports_an_engine, False),
        (does_it_inside, False),
        (asks_another_module, False),
        (asks_the_oracle, False),
        (tries_many_inputs, False),
    ],
)
def test_what_starts_something_or_tries_much_is_not_quick(
    function: Callable[..., Any], expected: bool
) -> None:
    assert quick.is_quick(function) is expected
    assert quick.is_quick(adds_up, function) is expected, "a test and its fixtures"
