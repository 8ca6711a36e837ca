"""A batch, prompt by prompt, and what is shown and written of it. The engine has no model."""

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
from playground.tabs.batch.runs import Batch, checked
from tests.playground.carrying_out import steps
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
PROMPTS = "=first\n\n<b>bad</b>\nthird"


@pytest.fixture(scope="module")
def built_page() -> PageContext:
    return create_app(FakeBackend(), models=[MODEL, AWAY]).context


@pytest.fixture
def page(built_page: PageContext) -> PageContext:
    """One whose engine ends at the second prompt."""
    engine = FakeBackend([" one", " two"])
    engine.errors["<b>bad</b>"] = EngineStopped("The engine <ended>.")
    return replace(built_page, backend=engine)


def a_batch(page: PageContext, text: str = PROMPTS) -> Batch:
    return checked(page, MODEL, text, GenerationOptions())


def run(batch: Batch, page: PageContext) -> None:
    steps(batch, page.backend)


def test_prompts_go_one_after_the_other_and_an_error_is_its_own_row_s(page: PageContext) -> None:
    batch = a_batch(page)
    assert "0 of 3 done" in batch_report.report(batch)
    run(batch, page)
    assert batch.is_over
    assert [member.run.text for member in batch.members] == [" one two", "", " one two"]
    assert batch.members[1].problem == "The engine <ended>."
    assert batch.outcomes == {CacheOutcome.MISS: 1, CacheOutcome.HIT: 1}
    assert [member.run.cache_salt for member in batch.members] == ["", "", ""], "padded shapes"
    assert "All 3 prompts done" in batch_report.report(batch)


def test_stop_keeps_what_is_done(page: PageContext) -> None:
    batch = a_batch(page)
    first = batch.members[0]
    asyncio.run(first.send(page.backend))
    batch.stop()
    run(batch, page)
    assert [member.is_done for member in batch.members] == [True, False, False]
    assert "Stopped after 1 of 3" in batch_report.report(batch)
    assert len(json.loads(batch.to_json())["results"]) == 1


def test_mistakes_are_found_beforehand_and_their_line_is_named(page: PageContext) -> None:
    text = f"{PROMPTS}\n{'long ' * 100}"
    with pytest.raises(InvalidRequest, match="Line 5: The model has room for 150 tokens"):
        a_batch(page, text)
    with pytest.raises(ModelUnavailable, match="'other'"):
        checked(page, "other", PROMPTS, GenerationOptions())
    assert len(checked(page, AWAY, text, GenerationOptions()).members) == 4


def test_the_files_hold_every_value_and_no_formula(page: PageContext) -> None:
    batch = a_batch(page)
    run(batch, page)
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
    batch, plain = a_batch(page, f'[{{"prompt": {json.dumps(text)}}}]'), a_batch(page, "plain")
    for each in (batch, plain):
        run(each, page)
    assert batch_report.report(batch).count("<") == batch_report.report(plain).count("<")
    assert batch_report.files(batch).count("<") == batch_report.files(plain).count("<")
