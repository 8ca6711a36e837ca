"""Which tests are quick: those that start no other process, no engine and no browser, and do not
try thousands of inputs.

Knows how to read that from a test's code, its fixtures and the helpers that they call, so that no
list has to be kept. Must not know any test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

STARTERS = {
    *("Backend", "BackendProcess", "jit", "main", "ray", "tensorflow"),  # an engine, or its command
    *("BaselineComparison", "ChildProcess", "install"),  # a baseline, or pip for it
    *("load_oracle", "load_oracle_tokenizer", "formulas"),  # the oracle, which is busy then
    *("subprocess", "sync_playwright", "NotebookClient"),
}
"""Names that the code of a test uses when it starts something that takes seconds."""


def is_quick(*functions: Callable[..., Any]) -> bool:
    """Whether these functions, and the helpers that they call in `tests`, start nothing, and
    Hypothesis calls none of them.

    Args:
        functions: a test and its fixtures.
    """
    if any(hasattr(function, "hypothesis") for function in functions):
        return False
    waiting: list[Any] = [inspect.unwrap(function) for function in functions]
    seen: set[Any] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        names = set(_names(function.__code__))
        values = [function.__globals__.get(name) for name in names]
        modules = [value for value in values if inspect.ismodule(value)]
        values += [vars(module).get(name) for module in modules for name in names]
        names |= {module.__name__ for module in modules}  # tensorflow as tf
        if names & STARTERS:
            return False
        waiting += [helper for value in values for helper in _helpers(value)]
    return True


def _names(code: CodeType) -> Iterator[str]:
    """What a function's code calls, reads or imports, that of functions inside it too."""
    for name in code.co_names:
        yield from name.split(".")  # of an import inside the function
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _helpers(value: Any) -> list[FunctionType]:
    """The functions of a helper, or of a class of helpers; none of what is not of the tests."""
    if not str(getattr(value, "__module__", "")).startswith("tests."):
        return []
    held = vars(value).values() if inspect.isclass(value) else [value]
    return [one for each in held if inspect.isfunction(one := inspect.unwrap(each))]
