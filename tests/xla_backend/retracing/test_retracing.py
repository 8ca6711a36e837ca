"""Which calls make TensorFlow trace and XLA compile again: TensorFlow's count and XLA's files."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from xla_backend import InvalidRequest
from xla_backend.compilation import xla_folder
from xla_backend.retracing.doctor import diagnose
from xla_backend.retracing.question import GENERATE, WEIGHTED, Argument, Attempt, Findings, Trial
from xla_backend.retracing.trying import find

ROOT = Path(__file__).resolve().parents[3]
X, FACTOR, MASK = Argument("x", "float32", (5, 10)), Argument("factor", value=2.0), Argument("mask")
CALL = (X, FACTOR, MASK)
MORE_ROWS = Argument("x", "float32", (6, 10))
A_TENSOR = Argument("factor", "float32")
GIVEN = Argument("mask", "bool", (10,))
ANY_ROWS = ((X, A_TENSOR, GIVEN), (MORE_ROWS, A_TENSOR, GIVEN))
A_FILE = """
import tensorflow as tf
@tf.function
def function(x, how='up', n=1):
    return {'y': x * n if how == 'up' else x}
calls = [{'x': tf.ones([2]), 'how': 'up'}, {'x': tf.zeros([2]), 'how': 'down', 'n': 1}]
"""
QUESTIONS = {
    "differences": Trial(
        WEIGHTED, CALL, (Argument("x", "float64", (6, 10)), Argument("factor", value=3.0), GIVEN)
    ),
    "without XLA": Trial(WEIGHTED, CALL, (X, A_TENSOR, MASK), jit_compile=False),
    "any rows": Trial(WEIGHTED, *ANY_ROWS, any_rows=True),
    "too wide": Trial(WEIGHTED, CALL, (X, FACTOR, Argument("mask", "bool", (7,)))),
}
FINDS_ALL = """
import pickle, sys
from pathlib import Path
from xla_backend.retracing.trying import find
questions = pickle.load(sys.stdin.buffer)
findings = {name: find(each, Path(sys.argv[1]), None) for name, each in questions.items()}
pickle.dump(findings, sys.stdout.buffer)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Findings]:
    """The answers to all questions, from one process: each imports TensorFlow for seconds."""
    folder = tmp_path_factory.mktemp("retracing")
    (folder / "mine.py").write_text(A_FILE)
    done = subprocess.run(
        [sys.executable, "-c", FINDS_ALL, str(folder)],
        cwd=ROOT,
        env=os.environ
        | {
            "TF_XLA_FLAGS": xla_folder.other_xla_flags(),
            "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text=true",
        },
        input=pickle.dumps(QUESTIONS | {"a file": Trial("", file=folder / "mine.py")}),
        stdout=subprocess.PIPE,
        check=True,
    )
    return pickle.loads(done.stdout)


def made(attempt: Attempt) -> tuple[bool, bool]:
    assert attempt.problem == ""
    return attempt.traced, attempt.compiled


def changes(findings: Findings) -> dict[str, tuple[tuple[str, ...], tuple[bool, bool]]]:
    return {each.name: (each.kinds, made(each.alone)) for each in findings.changes}


def test_the_same_call_runs_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It gives way to all others, to whom it would have to wait minutes where they are busy.
    (tmp_path / "sitecustomize.py").write_text("import os; os.nice = lambda increment: 0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    findings = diagnose(Trial(WEIGHTED, CALL, CALL))
    assert (made(findings.first), made(findings.second)) == ((True, True), (False, False))
    assert findings.changes == ()


def test_each_difference_is_tried_alone(found: dict[str, Findings]) -> None:
    findings, again = found["differences"], (True, True)
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


def test_what_traces_and_what_compiles_is_told_apart(found: dict[str, Findings]) -> None:
    assert changes(found["without XLA"]) == {"factor": (("type",), (True, False))}

    assert made(found["any rows"].second) == (False, True)
    assert changes(found["any rows"]) == {"x": (("shape",), (False, True))}
    with pytest.raises(InvalidRequest, match=r"factor is 2.*pass it as a tensor"):
        Trial(WEIGHTED, CALL, CALL, any_rows=True)

    assert changes(found["a file"]) == {"how": (("value",), (True, True))}, "n is what it was"


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
        find(Trial("", file=file), tmp_path, pytest.fail)


def test_what_cannot_be_called_says_why(found: dict[str, Findings]) -> None:
    problem = found["too wide"].second.problem
    assert "must be equal" in problem or "ncompatible" in problem
    with pytest.raises(InvalidRequest, match="from 1 to 64"):
        Trial(WEIGHTED, CALL, (Argument("x", "float32", (0, 10)), FACTOR, MASK))


@pytest.mark.release
def test_transformers_generate_as_the_guide_calls_it() -> None:
    def call(slots: int, max_new_tokens: int, num_beams: int) -> tuple[Argument, ...]:
        return (
            Argument("input_ids", "int32", (1, slots)),
            Argument("attention_mask", "int32", (1, slots)),
            Argument("max_new_tokens", value=max_new_tokens),
            Argument("num_beams", value=num_beams),
        )

    findings = diagnose(Trial(GENERATE, call(8, 2, 1), call(16, 3, 1)))
    again = (True, True)
    assert changes(findings) == {
        "input_ids": (("shape",), again),
        "attention_mask": (("shape",), again),
        "max_new_tokens": (("value",), again),
    }
