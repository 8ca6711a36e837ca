"""What measures, the Compare tab and the walkthrough, as far as it is visitors' clicks.

What is measured with a real engine is `test_journeys`'s.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from playground.tabs.compare import runs as compare_runs
from playground.walkthrough import runs as walkthrough_runs
from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend
from tests.waiting import wait_until
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import Baseline, BaselineComparison, BaselineProgress

Open = Callable[..., Visit]


class Held(BaselineComparison):
    """A comparison that begins, and then waits until it is stopped."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[BaselineProgress]:
        yield BaselineProgress(Baseline.EAGER, "importing", 0.0, 0)
        self._stopped.wait()
        self.is_over = True

    def stop(self) -> None:
        self._stopped.set()


def test_ways_stay_in_sight_and_are_stopped(window: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_runs, "BaselineComparison", Held)
    monkeypatch.setattr(overlay, "is_installed", lambda: False)

    def install() -> Iterator[overlay.InstallProgress]:
        yield overlay.InstallProgress("downloading", 6_000_000, 4.0)
        raise overlay.BaselineMissing("It could not be installed.")

    monkeypatch.setattr(overlay, "install", install)
    window.open_mode("Compare")
    window.says("#compare_estimate", "Takes", "judging by the size of the model")
    offer = window.at("#compare_install")
    expect(offer).to_contain_text("18 MB to download")
    places = (
        "[...document.querySelectorAll('#ways figure')].map((figure) => "
        "Math.round(figure.getBoundingClientRect().top + scrollY))"
    )
    before = window.page.evaluate(places)
    # Then at 1280x800 and 150 %: the button lies far below what it brings.
    for size in ((1280, 900), (853, 533)):
        window.resize(*size)
        window.at("#compare:enabled").click()
        window.says("#ways", "importing TensorFlow")
        expect(window.at("#ways .claim")).to_be_in_viewport(ratio=1)
        expect(window.at("#ways .baseline").first).to_be_in_viewport(ratio=1)
        if size == (1280, 900):
            assert window.page.evaluate(places) == before
        window.at("#compare_cancel").dispatch_event("click")
        window.says("#ways .claim", "Cancelled")
        window.says("#compare_notice", "It could not be installed.")
    assert window.overflow() == 0


def test_others_wait_and_a_mistake_is_told(
    visit: Open, window: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_runs, "BaselineComparison", Held)
    monkeypatch.setattr(overlay, "is_installed", lambda: True)
    other = visit()
    window.resize(390, 844)
    window.open_mode("Compare")
    window.at("#compare").click()
    window.says("#ways", "importing TensorFlow")
    # Other visitors' requests wait, and one's own are refused at once.
    window.open_mode("Playground")
    window.at("#generate").click()
    window.says("#notice", "Your last run has not ended yet")
    other.at("#generate").click()
    other.says("#report .badge", "QUEUED")
    other.says("#report", "Queued: 1 request ahead", "Runs now: Comparing")
    other.says("#status", "Comparing")
    clock = other.at("#report [data-spent]")
    expect(clock).not_to_have_text(clock.inner_text())
    window.open_mode("Compare")
    window.at("#compare_cancel:enabled").click()
    window.says("#ways .claim", "Cancelled")
    window.at("#compare:enabled").wait_for()
    assert window.overflow() == 0
    other.says("#report", "Decode tokens/s")

    window.at("#compare_prompt textarea").fill(" ")
    window.at("#compare").click()
    window.says("#compare_notice", "prompt is empty")
    window.says("#ways .claim", "Cancelled")
    window.at("#compare_prompt textarea").fill("Once")


def test_a_walkthrough_is_stopped_and_a_visitor_who_leaves_ends_it(
    visit: Open, site: ApiPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    class Held(FakeBackend):
        """The engine of a walkthrough, which never comes up."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__()
            started.append(self)
            self.ended = threading.Event()

        def wait_ready(self, timeout_s: float | None = None) -> bool:
            return self.ended.wait()

        def close(self, within_s: float = 0.0) -> None:
            super().close()
            self.ended.set()

    monkeypatch.setattr(walkthrough_runs, "BackendProcess", Held)
    window = visit(390, 844, address=site.url)
    for _ in range(2):
        starting = window.at("#walkthrough", has_text="processes are starting")
        show = window.at("#walkthrough_show")
        show.click()
        starting.wait_for()
        expect(show).to_be_disabled()
        expect(window.at("#story")).to_be_hidden()  # it stands in place of the result
        assert window.overflow() == 0
        window.page.keyboard.press("Escape")
        expect(show).to_be_enabled()
        expect(window.at("#story")).to_be_visible()  # nothing was measured: the result is back

    show.click()
    starting.wait_for()
    wait_until(lambda: len(started) == 6)
    window.close()
    wait_until(lambda: all(engine.ended.is_set() for engine in started))
