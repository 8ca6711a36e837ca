"""Tests of `background`: work that waits for idle moments, and ends when told to."""

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import wait_until
from xla_backend.compilation.function_cache import FunctionCache
from xla_backend.engine import background, function_maker
from xla_backend.engine.background import Background
from xla_backend.engine.function_maker import FunctionMaker
from xla_backend.engine.loop import Loop
from xla_backend.interface.buckets import CacheKey, pool_key
from xla_backend.prediction.history import History

ROOT = Path(__file__).resolve().parents[3]
Wait = Callable[[], None]


@pytest.fixture(autouse=True)
def short_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "IDLE_S", 0.1)


@pytest.fixture
def work() -> Iterator[Background]:
    made = Background()
    yield made
    made.stop(10)


def settle(work: Background, timeout_s: float = 10) -> None:
    wait_until(lambda: not work.pending(), timeout_s)


class Steps:
    """A job that notes when its steps begin; a step can be held up."""

    def __init__(self, count: int = 2) -> None:
        self.began: list[float] = []
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.thread: threading.Thread | None = None
        self._count = count

    def __call__(self, wait_until_idle: Wait) -> None:
        self.thread = threading.current_thread()
        for _ in range(self._count):
            wait_until_idle()
            self.began.append(time.monotonic())
            self.inside.set()
            self.go_on.wait(10)


def test_jobs_run_one_after_the_other_in_order(work: Background) -> None:
    order: list[str] = []

    def job(name: str) -> Callable[[Wait], None]:
        def run(wait_until_idle: Wait) -> None:
            for step in (1, 2):
                wait_until_idle()
                order.append(f"{name}{step}")

        return run

    for name in "abc":
        work.add(name, job(name))
    assert work.pending() == ["a", "b", "c"]
    settle(work)
    assert order == ["a1", "a2", "b1", "b2", "c1", "c2"]


@pytest.mark.parametrize("is_patient_first", [False, True])
def test_a_job_whose_patience_ends_runs_beside_requests_and_before_those_that_wait(
    work: Background, is_patient_first: bool
) -> None:
    patient, urgent = Steps(), Steps()
    with work.request():
        if is_patient_first:
            work.add("urgent", urgent)
            wait_until(lambda: urgent.thread, 10)
        work.add("patient", patient)
        added = time.monotonic()
        work.add("urgent", urgent, patience_s=0.3)
        work.add("urgent", urgent)  # changes nothing
        assert urgent.inside.wait(10)
        assert urgent.began[0] >= added + 0.3
        wait_until(lambda: work.pending() == ["patient"], 10)
        assert len(urgent.began) == 2
        assert patient.began == []
    settle(work)
    assert len(patient.began) == 2


def test_what_verifies_drafts_is_made_beside_requests_once_it_was_missed_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(function_maker, "DRAFTS_PATIENCE", 5)
    made, loop = threading.Event(), Loop()

    def trace(key: CacheKey, rows: int) -> None:
        made.set()
        raise background.JobStopped

    engine: Any = SimpleNamespace(info=SimpleNamespace(name="fake"), functions=None)
    engine.functions = SimpleNamespace(trace=trace)
    maker = FunctionMaker(FunctionCache(), History(None, ""), loop)
    with loop.background.request():
        for drafts in (0, 3):
            for _ in range(6 if drafts == 0 else 4):
                maker.later(engine, pool_key(512, drafts))
        assert not made.wait(0.3)
        maker.later(engine, pool_key(512, 3))
        assert made.wait(10)
    loop.close()
    loop.background.stop(10)


def test_jobs_with_and_without_patience_can_be_cancelled(work: Background) -> None:
    patient, urgent = Steps(), Steps()
    with work.request():
        work.add("patient", patient)
        work.add("urgent", urgent, patience_s=0.3)
        work.cancel()
        settle(work)
        time.sleep(0.4)
    assert patient.began == urgent.began == []
    work.add("urgent", urgent)
    settle(work)
    assert len(urgent.began) == 2


def test_without_a_job_there_is_no_thread_and_a_dropped_queue_goes_away() -> None:
    threads = threading.active_count()
    made = Background()
    with made.request():
        pass
    made.cancel()
    made.stop()
    assert threading.active_count() == threads

    made = weakref.ref(Background())
    gc.collect()
    assert made() is None


def test_no_step_begins_while_a_request_runs_or_soon_after(work: Background) -> None:
    job = Steps(count=3)
    with work.request():
        work.add("job", job)
        time.sleep(0.3)
        with work.request():  # two at once
            pass
        time.sleep(0.15)
        assert job.began == []
        ended = time.monotonic()
    job.go_on.clear()
    assert job.inside.wait(10)
    assert job.began[0] >= ended + 0.1

    # Between steps it gives way again, however short the request was.
    requests = []
    for _ in range(6):
        started = time.monotonic()
        with work.request():
            time.sleep(0.1)
            ended = time.monotonic()
        requests.append((started, ended))
        job.go_on.set()
        time.sleep(0.05)
    settle(work)
    assert len(job.began) == 3
    for began in job.began[1:]:
        # A step that had just been allowed when the request came, begins.
        assert not [r for r in requests if r[0] + 0.08 < began < r[1] + 0.1]


def test_a_request_does_not_wait_for_a_step(work: Background) -> None:
    job = Steps()
    job.go_on.clear()
    work.add("job", job)
    assert job.inside.wait(10)
    start = time.monotonic()
    with work.request():
        assert time.monotonic() - start < 5, "the step lasts twice as long"
    job.go_on.set()
    settle(work)


def test_a_job_that_waits_or_runs_is_not_added_again(work: Background) -> None:
    first, other = Steps(), Steps()
    first.go_on.clear()
    work.add("first", first)
    assert first.inside.wait(10)
    for _ in range(3):
        work.add("first", Steps())
        work.add("other", other)
    assert work.pending() == ["first", "other"]
    first.go_on.set()
    settle(work)
    assert (len(first.began), len(other.began)) == (2, 2)
    work.add("first", first)  # once it has ended, it can be done again
    settle(work)
    assert len(first.began) == 4


def test_cancel_ends_what_waits_or_runs_before_its_next_step(work: Background) -> None:
    first, other, later = Steps(), Steps(), Steps()
    first.go_on.clear()
    work.add("first", first)
    work.add("other", other)
    assert first.inside.wait(10)
    work.cancel()
    assert work.pending() == ["first"], "what runs cannot be interrupted"
    first.go_on.set()
    settle(work)
    assert (len(first.began), len(other.began)) == (1, 0)
    work.add("later", later)
    settle(work)
    assert len(later.began) == 2, "what comes afterwards is not cancelled"

    job = Steps()
    with work.request():
        work.add("job", job)
        wait_until(lambda: job.thread)
        work.cancel()
        settle(work)
    assert job.began == []


def test_while_paused_only_jobs_with_a_deadline_run(work: Background) -> None:
    changes: list[str] = []  # by name of the thread
    work._on_change = lambda: changes.append(threading.current_thread().name)
    here = threading.current_thread().name
    with work.request():
        waiting, due = Steps(), Steps()
        work.add("waiting", waiting)
        work.add("due", due, patience_s=0.2)
        work.pause()
        told = changes.count(here)
        for _ in range(3):  # as each round of a busy engine does
            work.add("waiting", waiting)
            work.pause()
        assert changes.count(here) == told, "nothing has changed"
        wait_until(lambda: len(due.began) == 2)
    settle(work)
    assert waiting.began == []
    work.resume()
    work.add("waiting", waiting)
    wait_until(lambda: len(waiting.began) == 2)


def test_stop_waits_for_the_step_under_way_and_nothing_runs_afterwards(work: Background) -> None:
    first, other = Steps(), Steps()
    first.go_on.clear()
    work.add("first", first)
    work.add("other", other)
    assert first.inside.wait(10)
    threading.Timer(0.2, first.go_on.set).start()
    start = time.monotonic()
    work.stop()
    assert time.monotonic() - start >= 0.15
    assert not first.thread.is_alive()
    work.add("more", other)
    assert work.pending() == []
    assert (len(first.began), len(other.began)) == (1, 0)


def test_a_job_that_fails_is_logged(work: Background, caplog: pytest.LogCaptureFixture) -> None:
    def fail(wait_until_idle: Wait) -> None:
        raise ZeroDivisionError

    caplog.set_level(logging.ERROR, logger="xla_backend.engine.background")
    job = Steps()
    work.add("bad", fail)
    work.add("good", job)
    settle(work)
    assert len(job.began) == 2
    assert "(bad)" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_every_change_is_told() -> None:
    seen: list[list[object]] = []
    made = Background(lambda: seen.append(made.pending()))
    job = Steps()
    job.go_on.clear()
    made.add("one", job)
    made.add("two", Steps())
    assert job.inside.wait(10)
    job.go_on.set()
    settle(made)
    made.stop(10)
    assert ["one", "two"] in seen
    assert ["two"] in seen
    assert seen[-1] == []


def test_a_process_ends_in_peace_in_the_middle_of_a_job() -> None:
    script = (
        "import time\n"
        "from xla_backend.engine.background import Background\n"
        "def job(wait):\n"
        "    while True:\n"
        "        wait(); print('step', flush=True); time.sleep(0.3); print('done', flush=True)\n"
        "b = Background(); b.add('endless', job); time.sleep(0.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.split()
    assert words[0] == "step"
    assert words.count("step") == words.count("done"), "the step under way is finished"
