"""Requests that arrive while others run: how they are sent and ended, and what is said of them."""

import json
import threading
from dataclasses import replace

import pytest

from playground import create_app
from playground.context.limits import Limits
from playground.context.page_context import PageContext
from playground.tabs.batch import report as batch_report
from playground.tabs.batch.runs import Batch, checked, most_visitors
from playground.tabs.batch.summary import summary
from tests.playground.carrying_out import steps
from tests.playground.fake_backend import FakeBackend, FakeTextStream
from tests.playground.reader import is_text
from tests.playground.samples import INJECTIONS, result
from xla_backend import EngineStopped, GenerationOptions, GenerationResult, InvalidRequest, Timing
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.interface.timing import Span

MODEL = "gpt2-stories"
PROMPTS = "One day\nA fox"


class Engine(FakeBackend):
    """Gives results with spans, a second each, and counts who is inside at once.

    Attributes:
        salts: of the requests, in the order of their arrival.
        together: how many must be inside before one of them ends.
        inside_at_most: how many were.
    """

    def __init__(self, together: int = 1) -> None:
        super().__init__([" a", " b"])
        self.salts: list[str] = []
        self.inside_at_most = 0
        self._inside = 0
        self._lock = threading.Lock()
        self._all_inside = threading.Barrier(together)

    def submit(self, request: TextRequest | Prepared) -> FakeTextStream:
        assert isinstance(request, TextRequest)
        with self._lock:
            number = len(self.salts)
            self.salts.append(request.cache_salt)
        return self._entered(Spanned(self, request, float(number)))

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            self.inside_at_most = max(self.inside_at_most, self._inside)
        self._all_inside.wait(60)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1


class Spanned(FakeTextStream):
    """A stream whose result has spans."""

    def __init__(self, engine: Engine, request: TextRequest, started: float) -> None:
        self._engine, self._starts = engine, started
        super().__init__(engine, request.model, request, None)

    def _run(self) -> GenerationResult | None:
        self._engine.enter()
        result = super()._run()
        self._engine.leave()
        return result and replace(
            result,
            spans=(
                Span("queue", self._starts, 0.25),
                Span("prefill", self._starts + 0.25, 0.25, 1),
                Span("decode", self._starts + 0.5, 0.5, 1),
            ),
        )


@pytest.fixture(scope="module")
def built_page() -> PageContext:
    return create_app(FakeBackend(), models=[MODEL, "t5-stories"]).context


def batch(page: PageContext, visitors: int, text: str = PROMPTS, new_tokens: int = 10) -> Batch:
    begun = checked(
        page, MODEL, text, GenerationOptions(max_new_tokens=new_tokens), visitors=visitors
    )
    begun.apart_s = 0.0
    return begun


def run(page: PageContext, visitors: int) -> Batch:
    begun = batch(page, visitors)
    steps(begun, page.backend)
    return begun


def test_visitors_come_together_with_salts(built_page: PageContext) -> None:
    engine = Engine(together=4)
    ended = run(replace(built_page, backend=engine), 4)
    assert engine.inside_at_most == 4
    assert len(set(engine.salts)) == 4
    assert all(engine.salts)
    assert [visitor.typed for visitor in ended.members] == ["One day", "A fox"] * 2
    assert ended.is_over
    report = batch_report.report(ended)
    assert "All 4 prompts done." in report
    assert "TTFT median / largest" in report


def test_the_summary_is_made_of_the_engine_s_spans() -> None:
    def of(started: float, ttft_s: float, decode_s: float, rows: int) -> GenerationResult:
        return result(
            timing=Timing(prefill_s=ttft_s, decode_s=decode_s, total_s=ttft_s + decode_s),
            since_first_token_s=decode_s,
            batch_size=rows,
            spans=(
                Span("prefill", started, ttft_s, 1),
                Span("decode", started + ttft_s, decode_s, 2),
            ),
        )

    figures = summary([of(10.0, 0.1, 1.0, 1), of(10.5, 0.3, 2.0, 3), of(11.0, 0.2, 4.0, 2)])
    assert (figures.requests, figures.tokens, figures.rows) == (3, 9, 3)
    assert figures.ttft_s == pytest.approx((0.2, 0.3))
    assert figures.tpot_s == pytest.approx((1.0, 2.0))
    assert figures.elapsed_s == pytest.approx(5.2)  # 10.0 to 11.0 + 0.2 + 4.0
    assert figures.tokens_per_second == pytest.approx(9 / 5.2)
    assert figures.once_s == 0


def test_a_stop_or_a_visitor_who_leaves_ends_the_crowd(built_page: PageContext) -> None:
    engine = FakeBackend()
    engine.hold("text")
    engine.write(" a")
    begun = batch(built_page, 2)
    begun.apart_s, begun.update_s = 3600.0, 0.01

    def stop(step: object) -> None:
        if begun.members[0].run.text and not begun.stopped:
            assert "0 of 2 done" in batch_report.report(begun)
            begun.stop()

    steps(begun, engine, stop)
    assert begun.is_over
    assert len(engine.streams) == 1
    assert begun.summary() is None
    assert "Stopped after " in batch_report.report(begun)

    engine = FakeBackend()
    engine.hold("text")
    page = replace(built_page, backend=engine)
    begun = batch(page, 2)
    page.runs.begin("session", begun)
    steps(begun, engine, lambda step: page.runs.leave("session"))
    assert begun.is_over


def test_an_error_is_one_sentence_and_short_texts_have_dashes(built_page: PageContext) -> None:
    engine = Engine()
    engine.errors["A fox"] = EngineStopped("The engine <ended>.")
    ended = run(replace(built_page, backend=engine), 2)
    html = batch_report.report(ended)
    assert "The engine &lt;ended&gt;." in html
    assert "TTFT median" not in html

    class OneToken(Engine):
        def __init__(self) -> None:
            super().__init__()
            self.words = (" a",)

    html = batch_report.report(run(replace(built_page, backend=OneToken()), 2))
    assert "<dt>TPOT median / largest</dt><dd>–</dd>" in html


def test_texts_are_escaped(built_page: PageContext) -> None:
    for text in INJECTIONS:
        begun = batch(built_page, 1, text=f'[{{"prompt": {json.dumps(text)}}}]')
        begun.members[0].run.text = text
        html = batch_report.report(begun)
        assert is_text(html)


def test_limits_hold(built_page: PageContext) -> None:
    page = replace(built_page, limits=Limits(waiting_each=3, new_tokens=20))
    assert most_visitors(page) == 3
    assert most_visitors(built_page) == 16
    assert len(batch(page, 3, new_tokens=20).members) == 3
    for visitors, new_tokens in ((4, 20), (3, 21), (-1, 20)):
        with pytest.raises(InvalidRequest):
            batch(page, visitors, new_tokens=new_tokens)
    with pytest.raises(InvalidRequest, match="has no pool"):
        checked(page, "t5-stories", PROMPTS, GenerationOptions(10), visitors=2)
