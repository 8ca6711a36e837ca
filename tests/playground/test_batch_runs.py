"""A batch, turn by turn, and what is shown and written of it. The engine is made up."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from playground import batch_panel
from playground.batch_prompts import BatchPrompt
from playground.batch_runs import Batch, checked
from playground.runs import Runs
from tests.playground import samples
from xla_backend import (
    CacheOutcome,
    EngineStatus,
    EngineStopped,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelUnavailable,
)

PROMPTS = [BatchPrompt(1, "=first"), BatchPrompt(3, "<b>bad</b>"), BatchPrompt(4, "third")]


@dataclass
class Stream:
    """Two pieces, then a result; stopped, it has what was there."""

    prompt: str
    result: GenerationResult | None = None
    is_stopped: bool = False

    def __iter__(self) -> Iterator[str]:
        if "bad" in self.prompt:
            raise EngineStopped("The engine <ended>.")
        yield " one"
        text = " one" if self.is_stopped else " one two"
        if not self.is_stopped:
            yield " two"
        self.result = (
            samples.miss(text=text) if "first" in self.prompt else samples.result(text=text)
        )

    def wait_begun(self) -> None:
        pass

    def stop(self) -> None:
        self.is_stopped = True


@dataclass
class Page:
    """What a batch needs of the page."""

    runs: Runs = field(default_factory=Runs)
    line: Any = field(default_factory=lambda: SimpleNamespace(waited_s=lambda: 0.0))
    unknown: bool = False

    @property
    def backend(self) -> Any:
        return SimpleNamespace(
            status=EngineStatus("ready"),
            stream=lambda model, prompt, options, exact_key: Stream(prompt),
            predict=self._predict,
        )

    def _predict(self, model: str, prompt: str, options: Any, *, exact_key: bool) -> None:
        if self.unknown:
            raise ModelUnavailable("not here")
        if prompt == "long":
            raise InvalidRequest("The prompt is 3 tokens too long.")

    def check_request(self, name: str, prompt: str = "", options: Any = None) -> None:
        if name == "other":
            raise ModelUnavailable("There is no model 'other' here.")


def a_batch(page: Page) -> Batch:
    return checked(page, "m", PROMPTS, GenerationOptions(), False)  # type: ignore[arg-type]


def turn(batch: Batch, page: Page) -> None:
    for _ in batch.turn(page):  # type: ignore[arg-type]
        pass


def test_one_turn_is_one_prompt_and_an_error_is_its_own_row_s() -> None:
    page = Page()
    batch = a_batch(page)
    for done in range(4):
        assert [row.is_done for row in batch.rows] == [i < done for i in range(3)]
        assert batch.is_over is (done == 3)
        turn(batch, page)
    assert [row.text for row in batch.rows] == [" one two", "", " one two"]
    assert batch.rows[1].problem == "The engine <ended>."
    assert batch.outcomes == {CacheOutcome.MISS: 1, CacheOutcome.HIT: 1}


def test_stop_keeps_what_is_done_and_ends_what_is_written() -> None:
    page = Page()
    batch = a_batch(page)
    turn(batch, page)
    batch.stop()
    assert batch.is_over
    turn(batch, page)
    assert [row.is_done for row in batch.rows] == [True, False, False]
    assert "Stopped after 1 of 3" in batch_panel.report(batch)
    assert len(json.loads(batch.to_json())["results"]) == 1

    batch = a_batch(page)
    steps = batch.turn(page)  # type: ignore[arg-type]
    next(steps)
    batch.stop()
    list(steps)
    assert batch.rows[0].text == " one"
    assert batch.is_over


def test_mistakes_are_found_beforehand_and_their_line_is_named() -> None:
    prompts = [*PROMPTS, BatchPrompt(9, "long")]
    with pytest.raises(InvalidRequest, match="Line 9: The prompt is 3 tokens too long"):
        checked(Page(), "m", prompts, GenerationOptions(), False)  # type: ignore[arg-type]
    with pytest.raises(ModelUnavailable, match="'other'"):
        checked(Page(), "other", PROMPTS, GenerationOptions(), False)  # type: ignore[arg-type]
    batch = checked(Page(unknown=True), "m", prompts, GenerationOptions(), False)  # type: ignore[arg-type]
    assert len(batch.rows) == 4


def test_the_files_hold_every_value_and_no_formula() -> None:
    page = Page()
    batch = a_batch(page)
    for _ in PROMPTS:
        turn(batch, page)
    html = batch_panel.files(batch)
    table, objects = (
        unquote(part.partition('"')[0].partition(",")[2]) for part in html.split('href="')[1:]
    )
    rows = list(csv.DictReader(io.StringIO(table.removeprefix("\ufeff"), newline="")))
    assert [row["prompt"] for row in rows] == ["'=first", "<b>bad</b>", "third"]
    assert [row["cache"] for row in rows] == ["miss", "", "hit"]
    assert rows[1]["problem"] == "The engine <ended>."
    assert float(rows[0]["compile_s"]) == 2.0
    assert float(rows[2]["tokens_per_second"]) == pytest.approx(30)
    written = json.loads(objects)
    assert written["model"] == "m"
    assert [each["line"] for each in written["results"]] == [1, 3, 4]
    assert written["results"][0]["timing"]["compile_s"] == 2.0
    assert written["results"][0]["prompt"] == "=first"


@pytest.mark.parametrize("text", samples.INJECTIONS)
def test_prompts_never_become_markup(text: str) -> None:
    page = Page()
    batch = checked(page, "m", [BatchPrompt(1, text)], GenerationOptions(), False)  # type: ignore[arg-type]
    turn(batch, page)
    plain = Batch("m", [BatchPrompt(1, "plain")], GenerationOptions(), False)
    turn(plain, page)
    assert batch_panel.report(batch).count("<") == batch_panel.report(plain).count("<")
    assert batch_panel.files(batch).count("<") == batch_panel.files(plain).count("<")
