"""A batch, turn by turn, and what is shown and written of it. The engine has no model."""

import asyncio
import csv
import io
import json
from dataclasses import replace
from urllib.parse import unquote

import pytest

from playground import create_app
from playground.context.page_context import PageContext
from playground.tabs.batch import report as batch_report
from playground.tabs.batch.prompts import BatchPrompt
from playground.tabs.batch.runs import Batch, checked
from tests.playground.carrying_out import answers
from tests.playground.fake_backend import FakeBackend
from tests.playground.samples import INJECTIONS
from xla_backend import (
    CacheOutcome,
    EngineStopped,
    GenerationOptions,
    InvalidRequest,
    ModelUnavailable,
)

MODEL = "gpt2-stories"
AWAY = "/somewhere/else"
"""A model that is offered, and that the engine knows nothing of yet."""
PROMPTS = [BatchPrompt(1, "=first"), BatchPrompt(3, "<b>bad</b>"), BatchPrompt(4, "third")]


@pytest.fixture(scope="module")
def built_page() -> PageContext:
    return create_app(FakeBackend(), models=[MODEL, AWAY]).context


@pytest.fixture
def page(built_page: PageContext) -> PageContext:
    """One whose engine ends at the second prompt."""
    engine = FakeBackend([" one", " two"])
    engine.errors["<b>bad</b>"] = EngineStopped("The engine <ended>.")
    return replace(built_page, backend=engine)


def a_batch(page: PageContext) -> Batch:
    return checked(page, MODEL, PROMPTS, GenerationOptions(), False)


def turn(batch: Batch, page: PageContext) -> None:
    for _ in answers(batch.turn(page)):
        pass


def test_one_turn_is_one_prompt_and_an_error_is_its_own_row_s(page: PageContext) -> None:
    batch = a_batch(page)
    for done in range(4):
        assert [row.is_done for row in batch.rows] == [i < done for i in range(3)]
        assert batch.is_over is (done == 3)
        turn(batch, page)
    assert [row.text for row in batch.rows] == [" one two", "", " one two"]
    assert batch.rows[1].problem == "The engine <ended>."
    assert batch.outcomes == {CacheOutcome.MISS: 1, CacheOutcome.HIT: 1}


def test_stop_keeps_what_is_done_and_ends_what_is_written(page: PageContext) -> None:
    batch = a_batch(page)
    turn(batch, page)
    batch.stop()
    assert batch.is_over
    turn(batch, page)
    assert [row.is_done for row in batch.rows] == [True, False, False]
    assert "Stopped after 1 of 3" in batch_report.report(batch)
    assert len(json.loads(batch.to_json())["results"]) == 1

    batch = a_batch(page)
    page.backend.hold("text")
    page.backend.write(" one")

    async def stop_at_the_first_text() -> None:
        async for _ in batch.turn(page):
            if batch.rows[0].text:
                batch.stop()

    asyncio.run(stop_at_the_first_text())
    page.backend.release()
    assert batch.rows[0].text == " one"
    assert batch.is_over


def test_mistakes_are_found_beforehand_and_their_line_is_named(page: PageContext) -> None:
    prompts = [*PROMPTS, BatchPrompt(9, "long " * 100)]
    with pytest.raises(InvalidRequest, match="Line 9: The model has room for 150 tokens"):
        checked(page, MODEL, prompts, GenerationOptions(), False)
    with pytest.raises(ModelUnavailable, match="'other'"):
        checked(page, "other", PROMPTS, GenerationOptions(), False)
    batch = checked(page, AWAY, prompts, GenerationOptions(), False)
    assert len(batch.rows) == 4


def test_the_files_hold_every_value_and_no_formula(page: PageContext) -> None:
    batch = a_batch(page)
    for _ in PROMPTS:
        turn(batch, page)
    html = batch_report.files(batch)
    table, objects, traced = (
        unquote(part.partition('"')[0].partition(",")[2]) for part in html.split('href="')[1:]
    )
    rows = list(csv.DictReader(io.StringIO(table.removeprefix("\ufeff"), newline="")))
    assert [row["prompt"] for row in rows] == ["'=first", "<b>bad</b>", "third"]
    assert [row["cache"] for row in rows] == ["miss", "", "hit"]
    assert rows[1]["problem"] == "The engine <ended>."
    assert float(rows[0]["compile_s"]) == 2.0
    assert float(rows[2]["tokens_per_second"]) == pytest.approx(12.5)
    assert {event["tid"] for event in json.loads(traced)["traceEvents"]} == {0, 1, 2}, (
        "no failed one"
    )
    written = json.loads(objects)
    assert written["model"] == MODEL
    assert [each["line"] for each in written["results"]] == [1, 3, 4]
    assert written["results"][0]["timing"]["compile_s"] == 2.0
    assert written["results"][0]["prompt"] == "=first"


@pytest.mark.parametrize("text", INJECTIONS)
def test_prompts_never_become_markup(text: str, page: PageContext) -> None:
    batch = checked(page, MODEL, [BatchPrompt(1, text)], GenerationOptions(), False)
    turn(batch, page)
    plain = checked(page, MODEL, [BatchPrompt(1, "plain")], GenerationOptions(), False)
    turn(plain, page)
    assert batch_report.report(batch).count("<") == batch_report.report(plain).count("<")
    assert batch_report.files(batch).count("<") == batch_report.files(plain).count("<")
