"""The queue: in order, bounded, true about positions, and exclusive where that is asked."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from xla_backend import NoRoom
from xla_backend.interface.request_queue import (
    RESERVATION,
    SOURCE,
    Entry,
    QueueLimits,
    RequestQueue,
    Source,
)
from xla_backend.interface.results import Progress


class Counter:
    """Requests of a test, and in which order they were admitted."""

    def __init__(self, limits: QueueLimits = QueueLimits(), at_once: int = 2) -> None:  # noqa: B008
        self.queue = RequestQueue(limits, at_once)
        self.admitted: list[str] = []

    def enter(
        self,
        name: str,
        excludes: str = "",
        left_s: float | None = None,
        within: Entry | None = None,
        visitor: str = "",
    ) -> Entry:
        def enter() -> Entry:
            RESERVATION.set(within)
            SOURCE.set(Source(address=visitor))
            admit: Callable[[], None] = lambda: self.admitted.append(name)  # noqa: E731
            entry = Entry(self.queue, admit, excludes, lambda: left_s)
            self.queue.enter(entry)
            return entry

        return copy_context().run(enter)

    @property
    def counts(self) -> tuple[int, int]:
        return self.queue.running, self.queue.waiting


QUEUED = Progress("queued", 0.0)


def test_requests_are_admitted_in_their_order_as_far_as_there_is_room() -> None:
    counter = Counter()
    a, b, c, d = map(counter.enter, "abcd")
    assert (counter.admitted, counter.counts) == (["a", "b"], (2, 2))
    assert [len(each.before()) for each in (a, b, c, d)] == [0, 1, 2, 3]
    assert c.leave(), "it was withdrawn"
    assert not b.leave(), "it had been admitted"
    assert not b.leave(), "it is not there any more"
    assert (counter.admitted, counter.counts) == (["a", "b", "d"], (2, 0))


def test_an_exclusive_run_waits_for_all_before_it_and_all_after_it_wait_for_it() -> None:
    counter = Counter()
    a = counter.enter("a", left_s=2.0)
    alone = counter.enter("alone", "Measuring", left_s=30.0)
    after = counter.enter("after")
    assert counter.admitted == ["a"], "there is room for another one, but not beside it"
    assert alone.placed(QUEUED) == Progress("queued", 0.0, 1, "", 2.0)
    assert after.placed(QUEUED) == Progress("queued", 0.0, 2, "Measuring", 32.0)
    a.leave()
    assert counter.admitted == ["a", "alone"]
    own = counter.enter("own", within=alone)
    assert counter.admitted == ["a", "alone", "own"]
    own.leave()
    alone.leave()
    assert counter.admitted == ["a", "alone", "own", "after"]
    late = counter.enter("late", within=alone)
    assert late.placed(Progress("writing", 1.0)) == Progress("writing", 1.0)
    assert counter.enter("unknown").placed(QUEUED).wait_s is None, "nobody knows those before it"


def test_nothing_is_admitted_while_it_is_held_and_what_is_put_back_keeps_its_place() -> None:
    counter = Counter(at_once=3)
    a, b, run = counter.enter("a"), counter.enter("b"), counter.enter("run", "Measuring")
    counter.queue.hold()
    b.put_back()
    a.put_back()
    assert a.leave(), "it waited"
    counter.queue.release()
    assert counter.admitted == ["a", "b", "b"]
    b.leave()
    within = counter.enter("within", within=run)
    assert counter.admitted[3:] == ["run", "within"]
    counter.queue.hold()
    within.put_back()
    counter.enter("next", within=run)
    assert counter.counts == (1, 2)
    counter.queue.release()
    assert counter.admitted[5:] == ["within", "next"]
    run.put_back()
    run.put_back()
    assert counter.counts == (2, 1)


def test_those_beyond_a_limit_are_refused_and_change_nothing() -> None:
    counter = Counter(QueueLimits(waiting=3, waiting_each=2), at_once=1)
    for number in range(3):
        counter.enter(f"mine {number}", visitor="me")
    version = counter.queue.version
    with pytest.raises(NoRoom, match="2 requests of yours wait already; at most 2 may"):
        counter.enter("one more", visitor="me")
    counter.enter("another's", visitor="other")
    with pytest.raises(NoRoom, match="The server is busy: 3 requests wait already"):
        counter.enter("nobody's")
    assert (counter.counts, counter.queue.version) == ((1, 3), version + 1)


def test_requests_of_many_threads_run_once_in_order_and_never_beside_an_exclusive_one() -> None:
    dice = random.Random(3)
    queue, running, order = RequestQueue(at_once=3), set[int](), list[int]()
    lock, problems = threading.Lock(), list[str]()

    def request(number: int, is_alone: bool) -> None:
        admitted = threading.Event()

        def admit() -> None:
            with lock:
                if (is_alone and running) or (running & alone) or len(running) >= 3:
                    problems.append(f"{number} beside {running}")
                running.add(number)
                order.append(number)
            admitted.set()

        entry = Entry(queue, admit, "Measuring" if is_alone else "")
        queue.enter(entry)
        assert admitted.wait(60)
        with lock:
            running.discard(number)
        entry.leave()

    alone = {number for number in range(300) if dice.random() < 0.1}
    with ThreadPoolExecutor(16) as threads:
        for done in [threads.submit(request, number, number in alone) for number in range(300)]:
            done.result()
    assert problems == []
    assert sorted(order) == list(range(300))
    assert (queue.running, queue.waiting) == (0, 0)
