"""The Functions tab's events, with an engine that only pretends."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest

from playground import create_app
from playground.functions_tab import FunctionsTab
from tests.playground.test_functions_panel import comparison
from xla_backend import EngineStatus, EngineStopped, FunctionComparison, FunctionRequest, ModelInfo


class PretendingEngine:
    """Answers comparisons with a prepared result or error."""

    status = EngineStatus("ready")

    def __init__(self) -> None:
        self.answer: FunctionComparison | Exception = comparison()
        self.asked: list[tuple[Any, ...]] = []

    def models(self) -> list[ModelInfo]:
        return []

    def entries(self) -> list[Any]:
        return []

    warming = kept_shapes = entries

    def compare_function(self, function: str, batch_size: int, *, pad: bool) -> FunctionComparison:
        self.asked.append((function, batch_size, pad))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def engine() -> PretendingEngine:
    return PretendingEngine()


@pytest.fixture
def tab(engine: PretendingEngine, monkeypatch: pytest.MonkeyPatch) -> FunctionsTab:
    """The tab of a page that was built as it always is."""
    built: list[FunctionsTab] = []
    whole = FunctionsTab.__init__

    def noted(self: FunctionsTab, page: Any) -> None:
        built.append(self)
        whole(self, page)

    monkeypatch.setattr(FunctionsTab, "__init__", noted)
    create_app(engine)  # type: ignore[arg-type]
    return built[0]


def test_a_comparison_is_asked_for_and_shown(tab: FunctionsTab, engine: PretendingEngine) -> None:
    begun = tab._begin("dense", 5.0, True)
    assert begun[tab.run]["interactive"] is False
    updates = tab._run(begun[tab.asked], None)
    assert engine.asked == [("dense", 5, True)]
    assert updates[tab.shown] is engine.answer
    assert "5.0× faster" in updates[tab.report]
    assert (updates[tab.run]["interactive"], updates[tab.notice]) == (True, "")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (EngineStopped("The engine stopped."), "The engine stopped."),
        (ValueError("x"), "went wrong"),
    ],
)
def test_an_error_keeps_the_result_that_is_shown(
    tab: FunctionsTab, engine: PretendingEngine, error: Exception, sentence: str
) -> None:
    before = comparison(xla_s=0.0001)
    engine.answer = error
    updates = tab._run(FunctionRequest("dense", 5), before)
    assert "10× faster" in updates[tab.report]
    assert updates[tab.shown] is before
    assert sentence in updates[tab.notice]
    assert updates[tab.run]["interactive"] is True


def test_a_mistake_is_told_and_nothing_runs(tab: FunctionsTab, engine: PretendingEngine) -> None:
    begun = tab._begin("dense", 1000, False)
    assert "batch_size must be a whole number from 1 to 256" in begun[tab.notice]
    before = comparison()
    assert tab._run(begun[tab.asked], before) == {tab.shown: before}
    assert engine.asked == []
    looked = tab._look("dense", 1000, False, None)
    assert "batch_size must be" in looked[tab.prediction]


def test_nothing_is_sent_again_that_has_not_changed(tab: FunctionsTab) -> None:
    first = tab._look("dense", 5, False, None)
    assert "MISS" in first[tab.prediction]
    assert set(tab._look("dense", 5, False, first[tab.sent])) == {tab.sent}
    assert "float32[6, 10]" in tab._look("dense", 6, False, first[tab.sent])[tab.prediction]


@pytest.mark.parametrize("admin", [False, True])
def test_only_who_may_change_the_engine_can_start_afresh(
    engine: PretendingEngine, admin: bool
) -> None:
    page = create_app(engine, admin=admin)  # type: ignore[arg-type]
    names = {fn.name for fn in page.fns.values()}
    buttons = {b.elem_id for b in page.blocks.values() if isinstance(b, gr.Button)}
    assert ("_start_afresh" in names, "functions_afresh" in buttons) == (admin, admin)
