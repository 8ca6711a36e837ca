"""Which calls make TensorFlow trace and XLA compile again: TensorFlow's count and XLA's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from xla_backend import InvalidRequest
from xla_backend.retracing.doctor import diagnose
from xla_backend.retracing.question import (
    GENERATE,
    WEIGHTED,
    Argument,
    Attempt,
    Findings,
    Question,
)

X, FACTOR, MASK = Argument("x", "float32", (5, 10)), Argument("factor", value=2.0), Argument("mask")
CALL = (X, FACTOR, MASK)
MORE_ROWS = Argument("x", "float32", (6, 10))
A_TENSOR = Argument("factor", "float32")
GIVEN = Argument("mask", "bool", (10,))


def made(attempt: Attempt) -> tuple[bool, bool]:
    assert attempt.problem == ""
    return attempt.traced, attempt.compiled


def changes(findings: Findings) -> dict[str, tuple[tuple[str, ...], tuple[bool, bool]]]:
    return {each.name: (each.kinds, made(each.alone)) for each in findings.changes}


def test_the_same_call_runs_what_is_there() -> None:
    findings = diagnose(Question(WEIGHTED, CALL, CALL))
    assert (made(findings.first), made(findings.second)) == ((True, True), (False, False))
    assert findings.changes == ()


def test_each_difference_is_tried_alone() -> None:
    second = (Argument("x", "float64", (6, 10)), Argument("factor", value=3.0), GIVEN)
    findings = diagnose(Question(WEIGHTED, CALL, second))
    again = (True, True)
    assert made(findings.second) == again
    assert changes(findings) == {
        "x": (("shape", "dtype"), again),
        "factor": (("value",), again),
        "mask": (("none",), again),
    }
    assert [(each.was, each.now) for each in findings.changes] == [
        ("float32[5, 10]", "float64[6, 10]"),
        ("2.0", "3.0"),
        ("None", "bool[10]"),
    ]


def test_without_jit_compile_nothing_is_compiled() -> None:
    second = (X, A_TENSOR, MASK)
    findings = diagnose(Question(WEIGHTED, CALL, second, jit_compile=False))
    assert changes(findings) == {"factor": (("type",), (True, False))}


def test_declared_for_any_number_of_rows_it_is_traced_once_but_compiled_for_each() -> None:
    question = Question(WEIGHTED, (X, A_TENSOR, GIVEN), (MORE_ROWS, A_TENSOR, GIVEN), any_rows=True)
    findings = diagnose(question)
    assert made(findings.second) == (False, True)
    assert changes(findings) == {"x": (("shape",), (False, True))}
    with pytest.raises(InvalidRequest, match=r"factor is 2.*pass it as a tensor"):
        Question(WEIGHTED, CALL, CALL, any_rows=True)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import tensorflow as tf\n"
        "@tf.function\n"
        "def function(x, how='up', n=1):\n"
        "    return {'y': x * n if how == 'up' else x}\n"
        "calls = [{'x': tf.ones([2]), 'how': 'up'}, {'x': tf.zeros([2]), 'how': 'down', 'n': 1}]\n"
    )
    findings = diagnose(Question("", file=file))
    assert changes(findings) == {"how": (("value",), (True, True))}, "n is what it was"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 +", "cannot be run: SyntaxError"),
        ("calls = 3", "must define `function` and `calls`"),
        ("function = len\ncalls = [{}, {}]", "must define"),
        ("def function(x): return x\ncalls = [{'x': 1}, {'y': 1}]", "got an unexpected|missing"),
    ],
)
def test_a_file_that_defines_something_else(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        diagnose(Question("", file=file))


def test_what_cannot_be_called_says_why() -> None:
    wide = Argument("mask", "bool", (7,))
    findings = diagnose(Question(WEIGHTED, CALL, (X, FACTOR, wide)))
    assert "must be equal" in findings.second.problem or "ncompatible" in findings.second.problem
    with pytest.raises(InvalidRequest, match="from 1 to 64"):
        Question(WEIGHTED, CALL, (Argument("x", "float32", (0, 10)), FACTOR, MASK))


def test_transformers_generate_as_the_guide_calls_it() -> None:
    def call(slots: int, max_new_tokens: int, num_beams: int) -> tuple[Argument, ...]:
        return (
            Argument("input_ids", "int32", (1, slots)),
            Argument("attention_mask", "int32", (1, slots)),
            Argument("max_new_tokens", value=max_new_tokens),
            Argument("num_beams", value=num_beams),
        )

    findings = diagnose(Question(GENERATE, call(8, 2, 1), call(16, 3, 1)))
    again = (True, True)
    assert changes(findings) == {
        "input_ids": (("shape",), again),
        "attention_mask": (("shape",), again),
        "max_new_tokens": (("value",), again),
    }
