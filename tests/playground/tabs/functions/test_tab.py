"""The Functions tab, as a visitor uses it."""

import functools
import html
from pathlib import Path

import pytest

from playground import create_app
from playground.page import Page
from tests.playground.fake_backend import FakeBackend
from tests.playground.visitor import Visitor
from xla_backend import EngineStopped

ENGINE = FakeBackend()


@functools.cache
def page(admin: bool) -> Page:
    return create_app(ENGINE, admin=admin)


@pytest.fixture
def engine() -> FakeBackend:
    vars(ENGINE).update(vars(FakeBackend()))
    return ENGINE


@pytest.fixture
def visitor(engine: FakeBackend) -> Visitor:
    return Visitor(page(admin=False))


def test_a_comparison_is_asked_for_and_shown(visitor: Visitor, engine: FakeBackend) -> None:
    visitor.put("functions_pad", True)
    visitor.press("functions_run")
    [kept] = engine.stored_keys()
    assert (kept.function, kept.rows, kept.batch_sizes) == ("dense", 8, (5,))
    assert "5.0× faster" in visitor.reads("functions_report")
    assert visitor.shown("functions_run", "interactive") == [False, True]
    assert visitor.reads("functions_notice") == ""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (EngineStopped("The engine stopped."), "The engine stopped."),
        (ValueError("x"), "unexpected error"),
    ],
)
def test_an_error_keeps_the_result_that_is_shown(
    visitor: Visitor, engine: FakeBackend, error: Exception, sentence: str
) -> None:
    visitor.press("functions_run")
    before = visitor.reads("functions_report")
    engine.errors["dense"] = error
    visitor.press("functions_run")
    assert visitor.reads("functions_report") == before
    assert "5.0× faster" in before
    assert sentence in visitor.reads("functions_notice")
    assert visitor.shown("functions_run", "interactive")[-1] is True


def test_a_mistake_is_told_and_nothing_runs(visitor: Visitor, engine: FakeBackend) -> None:
    visitor.put("functions_batch_size", 1000)
    assert "batch_size must be" in visitor.reads("functions_prediction")
    visitor.press("functions_run")
    sentence = "batch_size must be a whole number from 1 to 256"
    assert sentence in visitor.reads("functions_notice")
    assert visitor.shown("functions_report") == []
    assert engine.stored_keys() == []


def test_unchanged_parts_are_not_sent_again(visitor: Visitor) -> None:
    for batch_size in (5, 5, 6):
        visitor.put("functions_batch_size", batch_size)
    first, second = visitor.shown("functions_prediction")
    assert "MISS" in first
    assert "float32[5, 10]" in first
    assert "float32[6, 10]" in second
    for part in ("functions_code", "functions_shapes"):
        assert len(visitor.shown(part)) == 2


def test_the_doctor_takes_files_of_its_folder_alone(engine: FakeBackend, tmp_path: Path) -> None:
    visitor = Visitor(page(admin=True))
    visitor.put("doctor_function", "file")
    uploaded = tmp_path / "calls.py"
    uploaded.write_text("calls = []")
    for path in (uploaded, Path("none.py")):
        visitor.put("doctor_file", str(path))
        visitor.press("doctor_run")
        assert "in the folder in which the page was started" in visitor.reads("doctor_notice")
    assert "Trying" not in visitor.reads("doctor_run")


def test_the_doctor_shows_the_second_call_with_what_differs(engine: FakeBackend) -> None:
    visitor = Visitor(page(admin=False))

    def calls() -> list[str]:
        return html.unescape(visitor.reads("doctor_code").removesuffix("\n</pre>")).splitlines()[
            -2:
        ]

    visitor.put("doctor_changes", ["x in float64", "With a mask"])
    assert calls() == [
        "weighted(x=tf.ones([5, 10], tf.float32), factor=2.0, mask=None)",
        "weighted(x=tf.ones([5, 10], tf.float64), factor=2.0, mask=tf.ones([10], tf.bool))",
    ]
    visitor.put("doctor_any_rows", True)
    assert "factor=tf.ones([], tf.float32)" in calls()[0], "a signature takes tensors alone"
    visitor.put("doctor_any_rows", False)
    visitor.put("doctor_function", "generate")
    visitor.put("doctor_changes", ["16 prompt slots"])
    assert "attention_mask=tf.ones([1, 16], tf.int32)" in calls()[1]
