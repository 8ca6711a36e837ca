"""What the ways' report says, from made-up measurements."""

import random
import re
from dataclasses import replace

import pytest

from playground.tabs.compare.baselines_report import all_values, baselines_report, claim, how_fast
from playground.tabs.compare.difference import how_many_times
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS
from xla_backend import CacheOutcome
from xla_backend.baselines.comparison import (
    Baseline,
    BaselineComparison,
    BaselineProgress,
    BaselineResult,
)
from xla_backend.interface.timing import Spread, spread

EAGER = BaselineResult(
    baseline=Baseline.EAGER,
    import_s=6.0,
    load_s=1.0,
    first_s=3.1,
    trace_s=0.0,
    compile_s=0.0,
    cached_s=(2.7, 2.8, 2.9),
    wall_s=19.0,
    prompt_tokens=4,
    padded_length=4,
    tokens=(5, 6, 7),
    text=" there was a",
    cache=None,
)
GUIDE = replace(
    EAGER,
    baseline=Baseline.GUIDE,
    first_s=24.0,
    trace_s=17.0,
    compile_s=6.9,
    cached_s=(0.1, 0.1, 0.13),
)
ENGINE = replace(
    GUIDE,
    baseline=Baseline.ENGINE,
    first_s=3.9,
    trace_s=2.0,
    compile_s=1.8,
    cached_s=(0.09, 0.1, 0.11),
    cache=CacheOutcome.MISS,
)
FROM_DISK = replace(
    ENGINE,
    baseline=Baseline.ENGINE_FROM_DISK,
    first_s=1.1,
    trace_s=0.4,
    compile_s=0.6,
    cache=CacheOutcome.DISK,
)
ALL = (EAGER, GUIDE, ENGINE, FROM_DISK)


def compared(*results: BaselineResult, prompt: str = "Once") -> BaselineComparison:
    comparison = BaselineComparison("gpt2-stories", prompt, cached_calls=3)
    comparison.results = {result.baseline: result for result in results}
    comparison.is_over = True
    return comparison


def test_the_claim_says_what_was_measured_and_no_more() -> None:
    assert claim(compared(*ALL)) == (
        "First call 24.0 s → 3.90 s, from disk 1.10 s. Later calls: 28 times faster than eager, no "
        "difference within noise from the guide’s compiled function."
    )

    assert claim(None) == claim(compared(EAGER)) == claim(compared(GUIDE)) == ""
    assert claim(compared(EAGER, ENGINE)) == "Later calls: 28 times faster than eager."
    assert "from disk" not in claim(compared(GUIDE, ENGINE))
    under_way = compared(*ALL)
    under_way.is_over = False
    assert claim(under_way) == "First call 24.0 s → 3.90 s, from disk 1.10 s."

    [said] = re.findall(r'role="status">(.*?)</p>', baselines_report(compared(*ALL)))
    assert said.replace("\N{NO-BREAK SPACE}", " ") == claim(compared(*ALL))
    assert re.findall(r"\d(.)m?s\b", said) == ["\N{NO-BREAK SPACE}"] * 3


def around(median_s: float, half_s: float = 0.001, n: int = 9) -> Spread:
    return Spread(n, median_s, median_s - half_s, median_s + half_s)


@pytest.mark.parametrize(
    ("rival", "said"),
    [
        (around(2.8), "28 times faster than eager"),
        (around(0.15), "1.5 times faster than eager"),
        (around(0.104), "no difference within noise from eager"),
        (around(0.15, 0.05), "no difference within noise from eager"),
        (around(0.05), "2.0 times slower than eager"),
        (around(0.15, n=2), "no difference within noise from eager"),
        (around(0.25, n=1), "2.5 times faster than eager"),
    ],
)
def test_faster_and_slower_are_said_alike_and_only_beyond_the_noise(
    rival: Spread, said: str
) -> None:
    assert how_fast(rival, around(0.1), "eager") == said


def test_ways_that_are_the_same_are_seldom_told_apart() -> None:
    """With as much noise as a busy machine has."""
    noise = random.Random(7)
    pairs = [
        [spread([0.02 * noise.lognormvariate(0, 0.4) for _ in range(9)]) for _ in range(2)]
        for _ in range(1000)
    ]
    claims = sum(how_many_times(one, other) is not None for one, other in pairs if one and other)
    assert 0 < claims < 100


def test_bars_are_on_one_scale_and_made_of_phases() -> None:
    html = baselines_report(compared(*ALL))
    [first, later] = re.findall(r"<figure>.*?</figure>", html)
    widths = [float(width) for width in re.findall(r'phase-\w+" style="width:([\d.]+)%', first)]
    assert sum(widths) == pytest.approx(100 * (3.1 + 24.0 + 3.9 + 1.1) / 24.0, abs=0.1)
    assert later.count("baseline-track") == 3, (
        "where the code came from makes no difference any more"
    )
    assert "3 calls, all within 2.70 s to 2.90 s" in words(later)
    assert "2.80 s" in words(later)
    lines = re.findall(r"<s style=\"inset-inline-start:([\d.]+)%;width:([\d.]+)%", later)
    assert [float(part) for part in lines[0]] == pytest.approx(
        [100 * 2.7 / 2.9, 100 * 0.2 / 2.9], abs=0.01
    )


def test_equal_texts_are_shown_once_and_others_with_the_place() -> None:
    said = words(baselines_report(compared(*ALL)))
    assert "Identical output: 4 methods, the same 3 tokens." in said
    assert said.count("there was a") == 1

    other = replace(ENGINE, tokens=(5, 6, 8), text=" there was an owl")
    html = baselines_report(compared(EAGER, GUIDE, other))
    assert "The texts differ from new token 3 on." in words(html)
    assert "Transformers, eager, Transformers, as in the guide there was a" in words(html)
    assert '<span class="story-prompt"> there was a</span>n owl' in html

    other = replace(ENGINE, tokens=(5, 6, 7, 8), text=" there was a fox")
    assert "from new token 4 on" in words(baselines_report(compared(EAGER, other)))


def test_lanes_under_way_waiting_and_failed_are_told_apart() -> None:
    comparison = compared(EAGER)
    comparison.failures = {Baseline.ENGINE: "It ended with exit status 1."}
    progress = BaselineProgress(Baseline.GUIDE, "tracing", baseline_s=12.4, calls=0)
    html = baselines_report(comparison, progress, "Way 2 of 4")
    said = words(html)
    assert "tracing · 12 s" in said
    assert "It ended with exit status 1." in said
    assert said.count("waits") == 1, "from disk"
    assert html.count('class="baseline now"') == 1
    progress = BaselineProgress(Baseline.GUIDE, "cached", baseline_s=24.0, calls=1)
    assert "round 2 of 3" in words(baselines_report(comparison, progress))


def test_the_report_holds_all_values_and_nothing_moves() -> None:
    said = words(all_values(compared(*ALL).results))
    for number in ("6.00 s", "24.0 s", "trace 17.0 s · compile 6.90 s", "90 ms, 100 ms, 110 ms"):
        assert number in said
    assert "as they are measured" in words(all_values())

    progress = BaselineProgress(Baseline.EAGER, "importing", 0.0, 0)
    for html in (
        baselines_report(remark="Press"),
        baselines_report(compared(), progress),
        baselines_report(compared(*ALL)),
    ):
        assert len(re.findall(r'<div class="baseline[ "]', html)) == 7


@pytest.mark.parametrize("text", INJECTIONS)
def test_texts_and_failures_are_escaped(text: str) -> None:
    comparison = compared(replace(EAGER, text=text), replace(GUIDE, text=text + "x", tokens=(1,)))
    comparison.failures = {Baseline.ENGINE: text}
    html = baselines_report(comparison)
    assert is_text(html)
