"""Recorded runs as one file: what it holds, and that it fetches nothing."""

import html
import json
import re
from pathlib import Path

import pytest

from playground.context.runs import Shown
from playground.record.document import RecordedRun, document, timeline
from playground.record.space import write_space
from playground.tabs.generate.report import report
from playground.ui.wording import CHATTING
from tests.playground.reader import is_text
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend import CacheOutcome, Token
from xla_backend.interface.prompt import question
from xla_backend.interface.timing import Span

SPANS = (
    Span("queue", 100.0, 0.5),
    Span("trace", 100.5, 1.0),
    Span("prefill", 101.5, 0.25, 1),
    Span("decode", 101.75, 0.25, 4),
)
TOKENS = tuple(Token(i, text, -0.5) for i, text in enumerate((" there", " was", " a")))


def test_the_timeline_is_the_engines_own_and_never_runs_ahead_of_the_text() -> None:
    run = result(spans=SPANS, tokens=TOKENS)
    assert timeline(run) == {
        "spans": [
            ["Queue", 500.0, 0],
            ["Trace", 1500.0, 0],
            ["Prefill", 1750.0, 1],
            ["Decode", 2000.0, 3],  # the fourth token was cut with a stop string
        ],
        "tokens": [" there", " was", " a"],
    }
    restored = timeline(result(spans=SPANS, cache=CacheOutcome.DISK))
    assert restored["spans"][1][0] == "Restore graph"
    assert timeline(result())["spans"] == []


def test_every_run_stands_in_it_with_its_own_report() -> None:
    first, second = (
        Shown("Once upon a time", run, ended_s=1.7e9 + at)
        for at, run in enumerate((miss(spans=SPANS), result(spans=SPANS)))
    )
    page = document([RecordedRun(first), RecordedRun(second)], "For the <board>")
    assert report(first) in page and report(second) in page
    assert "For the &lt;board&gt;" in page
    assert page.count("2023-11-14 22:13:20 UTC") == 1 and "2 runs, recorded on 2023-11-14" in page
    spans = [json.loads(html.unescape(each)) for each in re.findall('timeline="([^"]*)"', page)]
    assert spans == [timeline(first.result), timeline(second.result)]


def test_nothing_is_fetched() -> None:
    page = document([RecordedRun(Shown("Once", result(spans=SPANS)))])
    assert not re.findall(r'(?:src|href)="(?!data:|#|\?)[^"]*"', page)
    assert "@import" not in page and not re.findall(r"url\((?!data:)", page)


@pytest.mark.parametrize("text", INJECTIONS)
def test_what_was_written_stays_text(text: str) -> None:
    run = result(text=text, tokens=(Token(1, text, -0.1),), model=text)
    page = document([RecordedRun(Shown(question(text), run), CHATTING)], text)
    body, scripts = re.subn("<script>.*?</script>", "", page, flags=re.DOTALL)
    assert scripts == 1 and is_text(body)


def test_a_static_space_has_the_page_and_its_front_matter(tmp_path: Path) -> None:
    write_space(tmp_path / "space", "<p>", 'Runs: "first"')
    assert (tmp_path / "space" / "index.html").read_text() == "<p>"
    front = (tmp_path / "space" / "README.md").read_text()
    assert 'title: "Runs: \\"first\\""\n' in front and "\nsdk: static\n" in front
