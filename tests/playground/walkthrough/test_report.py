"""What the panel says of a walkthrough, whatever the engine has reported."""

import re
from collections.abc import Iterable

import pytest

from playground.walkthrough.report import walkthrough_report
from playground.walkthrough.runs import Step, Walkthrough, requests_for
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend import CacheKey, CacheOutcome, GenerationOptions, GenerationResult, Timing
from xla_backend.checkpoints.models import Registry

OPTIONS = GenerationOptions(max_new_tokens=32)
DISK = Timing(trace_s=0.05, compile_s=0.15, decode_s=0.1, total_s=0.3)
AS_EXPECTED = {
    Step.FIRST: [miss()],
    Step.AGAIN: [result()] * 3,
    Step.SMALLER: [
        result(
            cache=CacheOutcome.REUSED,
            options=OPTIONS.replace(max_new_tokens=16),
            requested_key=CacheKey(16, 1, 16),
        )
    ],
    Step.NEW_PROCESS: [result(cache=CacheOutcome.DISK, timing=DISK)],
}


def walkthrough(results: dict[Step, list[GenerationResult]], prompt: str = "Once") -> Walkthrough:
    first, smaller = requests_for(OPTIONS)
    run = Walkthrough("gpt2-stories", prompt, first, smaller, smaller is OPTIONS, Registry())
    run.has_started = True
    run.results = results
    return run


def said(results: dict[Step, list[GenerationResult]]) -> str:
    return words(walkthrough_report(walkthrough(results), is_busy=False))


def took(seconds: Iterable[float]) -> list[GenerationResult]:
    """Cached calls of these totals."""
    return [result(timing=Timing(decode_s=each, total_s=each)) for each in seconds]


def test_each_step_has_its_outcome_its_time_and_what_happened() -> None:
    text = said(AS_EXPECTED)
    for part in (
        "First call MISS 3.20 s Traced and compiled: 3.00 s. Paid once per shape.",
        "The same again HIT 102 ms median of 3 The function was in memory. The call only ran.",
        "Fewer tokens REUSED 102 ms Only 16 new tokens: the function compiled for 32 handled it.",
        "In a new process DISK 300 ms Restored from disk: 200 ms. Nothing was compiled.",
        "Restore graph 50 ms Restore code 150 ms Decode 100 ms",
    ):
        assert part in text
    assert "expected" not in text


@pytest.mark.parametrize("again_s", [0.00252, 0.01449, 0.0155, 0.2, 1.0])
def test_the_headline_divides_the_numbers_at_the_bars(again_s: float) -> None:
    text = said(AS_EXPECTED | {Step.AGAIN: took([again_s, 9.0, again_s / 2])})
    shown = re.search(r"HIT ([\d.]+) (m?s) median of 3", text)
    divided = 3.2 / (float(shown[1]) * {"ms": 0.001, "s": 1.0}[shown[2]])
    headline = re.search(r"([\d,.]+) times faster once it is compiled: 3.20 s, then (.+?)\. ", text)
    assert float(headline[1].replace(",", "")) == pytest.approx(divided, rel=0.02, abs=0.51)
    assert f"HIT {headline[2]} median" in text


@pytest.mark.parametrize(
    ("step", "call", "sentence"),
    [
        (
            Step.NEW_PROCESS,
            miss(),
            "In a new process MISS 3.20 s DISK was expected; the engine reported MISS. Traced and",
        ),
        (
            Step.SMALLER,
            miss(),
            "Fewer tokens MISS 3.20 s REUSED was expected; the engine reported MISS. Traced and",
        ),
        (
            Step.AGAIN,
            miss(),
            "The same again MISS 3.20 s HIT was expected; the engine reported MISS. Traced and",
        ),
        (
            Step.FIRST,
            result(cache=CacheOutcome.DISK, timing=DISK),
            "First call DISK 300 ms MISS was expected; the engine reported DISK. Restored from",
        ),
    ],
)
def test_what_the_engine_said_is_shown(step: Step, call: GenerationResult, sentence: str) -> None:
    text = said(AS_EXPECTED | {step: [call]})
    assert sentence in text
    assert ("times faster" in text) == (step not in (Step.FIRST, Step.AGAIN))


def test_what_is_measured_stands_while_the_rest_is_awaited() -> None:
    run = walkthrough({Step.FIRST: [miss()]})
    run.current = Step.AGAIN
    text = words(walkthrough_report(run, is_busy=True))
    assert "Step 2 of 4: The same again" in text
    assert "MISS 3.20 s" in text
    assert "The same again NOW" in text
    assert "Fewer tokens WAITS" in text
    assert "faster" not in text
    run.current = None
    text = words(walkthrough_report(run, is_busy=False, remark="Stopped."))
    assert "Stopped." in text
    assert "MISS 3.20 s" in text
    assert "WAITS" not in text


@pytest.mark.parametrize("text", INJECTIONS)
def test_prompts_are_escaped(text: str) -> None:
    html = walkthrough_report(walkthrough(AS_EXPECTED, prompt=text), is_busy=False)
    assert is_text(html)
