"""Requests that arrive while others run: how they are sent and ended, and what is said of them."""

import json
import threading
from dataclasses import replace

import pytest

from playground import create_app
from playground.context.limits import Limits
from playground.context.page_context import PageContext
from playground.tabs.batch import report as batch_report
from playground.tabs.batch.runs import Arrivals, Batch, checked, most_arrivals
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


def arrivals(
    page: PageContext,
    visitors: int,
    apart_ms: int | None,
    text: str = PROMPTS,
    new_tokens: int = 10,
) -> Batch:
    apart_s = None if apart_ms is None else apart_ms / 1000
    options = GenerationOptions(max_new_tokens=new_tokens)
    return checked(page, MODEL, text, options, arrivals=Arrivals(visitors, apart_s))


def run(page: PageContext, visitors: int, apart_ms: int | None) -> Batch:
    begun = arrivals(page, visitors, apart_ms)
    steps(begun, page.backend)
    return begun


def test_visitors_come_together_or_one_at_a_time_with_salts(built_page: PageContext) -> None:
    engine = Engine(together=4)
    ended = run(replace(built_page, backend=engine), 4, 0)
    assert engine.inside_at_most == 4
    assert len(set(engine.salts)) == 4
    assert all(engine.salts)
    assert [visitor.typed for visitor in ended.members] == ["One day", "A fox"] * 2
    assert ended.is_over

    engine = Engine()
    ended = run(replace(built_page, backend=engine), 4, None)
    assert engine.inside_at_most == 1
    assert len(set(engine.salts)) == 4
    assert "All 4 have their text." in batch_report.report(ended)


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
    assert figures.arriving_s == 1.0
    assert figures.elapsed_s == pytest.approx(5.2)  # 10.0 to 11.0 + 0.2 + 4.0
    assert figures.tokens_per_second == pytest.approx(9 / 5.2)
    assert figures.once_s == 0


def test_both_runs_stand_beside_each_other(built_page: PageContext) -> None:
    together = run(replace(built_page, backend=Engine(together=2)), 2, 0)
    alone = run(replace(built_page, backend=Engine()), 2, None)
    longer = arrivals(built_page, 2, 0, new_tokens=11)
    again = arrivals(built_page, 2, 100)
    for batch, compared in ((again, (again, alone)), (longer, (longer,))):
        batch.compare([together, alone])
        assert batch.compared == compared
    alone.compare([together])
    html = batch_report.report(alone)
    assert html.count("<figcaption>0 ms apart<") == html.count("<figcaption>One at a time<") == 1
    # Of two seconds each one's queue is an eighth, its second request a second later.
    assert html.count('class="phase-queue" style="left:0.00%;width:12.50%"') == 2
    assert html.count('class="phase-queue" style="left:50.00%;width:12.50%"') == 2
    assert "1.0× as long" in html


def test_a_stop_or_a_visitor_who_leaves_ends_the_crowd(built_page: PageContext) -> None:
    engine = FakeBackend()
    engine.hold("text")
    engine.write(" a")
    begun = arrivals(built_page, 2, 1000)
    begun.apart_s, begun.update_s = 3600.0, 0.01

    def stop(step: object) -> None:
        if begun.members[0].run.text:
            assert "1 of 2 have arrived, 0 have their text." in batch_report.report(begun)
            begun.stop()

    steps(begun, engine, stop)
    assert begun.is_over
    assert len(engine.streams) == 1
    assert begun.summary() is None
    assert "Stopped: 0 of 2 have their whole text." in batch_report.report(begun)

    engine = FakeBackend()
    engine.hold("text")
    page = replace(built_page, backend=engine)
    begun = arrivals(page, 2, 0)
    page.runs.begin("session", begun)
    steps(begun, engine, lambda step: page.runs.leave("session"))
    assert begun.is_over


def test_an_error_is_one_sentence_and_short_texts_have_dashes(built_page: PageContext) -> None:
    engine = Engine()
    engine.errors["A fox"] = EngineStopped("The engine <ended>.")
    ended = run(replace(built_page, backend=engine), 2, None)
    html = batch_report.report(ended)
    assert "1 of 2 failed: The engine &lt;ended&gt;." in html
    assert "TTFT median" not in html

    class OneToken(Engine):
        def __init__(self) -> None:
            super().__init__()
            self.words = (" a",)

    html = batch_report.report(run(replace(built_page, backend=OneToken()), 2, None))
    dashes = html.count("<div>–</div>")
    assert dashes == 2 + 2  # TPOT, median and largest; tokens/s of each


def test_texts_are_escaped(built_page: PageContext) -> None:
    for text in INJECTIONS:
        begun = arrivals(built_page, 1, 0, text=f'[{{"prompt": {json.dumps(text)}}}]')
        begun.members[0].run.text = text
        html = batch_report.report(begun)
        assert is_text(html)


def test_limits_hold(built_page: PageContext) -> None:
    page = replace(built_page, limits=Limits(waiting_each=3, new_tokens=20))
    assert most_arrivals(page) == 3
    assert most_arrivals(built_page) == 16
    assert len(arrivals(page, 3, 0, new_tokens=20).members) == 3
    for visitors, new_tokens, apart in ((4, 20, 0), (3, 21, 0), (3, 20, -1), (0, 20, 0)):
        with pytest.raises(InvalidRequest):
            arrivals(page, visitors, apart, new_tokens=new_tokens)
    with pytest.raises(InvalidRequest, match="has no pool"):
        checked(page, "t5-stories", PROMPTS, GenerationOptions(10), arrivals=Arrivals(2, 0.0))
