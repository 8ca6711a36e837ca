"""The benchmark's own arithmetic, its table and drawings, and a real run on a tiny model.

The peers are not installed where tests run: the run has this engine and Transformers' eager
`model.generate`, which is enough to see calls in turn, equal tokens and merged results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import chart, peers, report, results, weights
from benchmarks.contenders import (
    CONTENDERS,
    CTRANSLATE2,
    EAGER_GENERATE,
    ENGINE,
    LIMIT,
    NARROW,
    ContenderFailed,
    Request,
    Running,
)
from benchmarks.machine import Bystanders
from benchmarks.measures import BARS, MEASURES, Bar, Call, Measure
from benchmarks.runner import Runner, _prompt
from tests.checkpoints import gpt2
from tests.waiting import wait_until
from xla_backend.baselines import overlay

MACHINE = {
    "processor": "A <fast> one",
    "cores": 2,
    "memory_gib": 4,
    "system": "Linux 6",
    "python": "3",
}


def entry(times: dict[str, tuple[list[float], list[float]]]) -> dict:
    """An entry in which contenders took these seconds for 2 and for 64 tokens, a value a round."""
    rows = [
        {
            "contender": who,
            "model": "124m",
            "setting": "",
            "new_tokens": new_tokens,
            "prompt_tokens": 16,
            "num_beams": 1,
            "x": None,
            "seconds": seconds,
            "tokens": [],
            "details": {},
        }
        for who, both in times.items()
        for new_tokens, seconds in zip((2, 64), both, strict=True)
    ]
    return {
        "calls": rows,
        "failures": {},
        "bystanders": 0.0,
        "tokens": [],
        "measured": "2026-01-01 00:00",
        "command": "python -m benchmarks.peers",
    }


def greedy(engine_s: float) -> dict:
    """Results in which the engine takes so many seconds a token, and the limit 10 ms."""
    ours = ([engine_s + 0.03] * 3, [63 * engine_s + 0.03] * 3)
    theirs = ([0.05] * 3, [0.67] * 3)
    kept = {"machine": MACHINE, "versions": {"numpy": "2"}, "entries": {}}
    kept["entries"]["greedy/124m"] = entry({ENGINE: ours, CTRANSLATE2: theirs, LIMIT: theirs})
    return kept


def test_a_token_and_the_first_token_come_out_of_two_calls() -> None:
    found = entry({ENGINE: ([0.32, 0.33], [0.94, 1.57])})
    assert results.sample(found, ENGINE, "token") == pytest.approx([0.01, 0.02])
    assert results.sample(found, ENGINE, "first token") == pytest.approx([0.31, 0.31])
    assert results.sample(found, ENGINE, "whole call") == [0.94, 1.57]
    with pytest.raises(KeyError):
        results.sample(found, CTRANSLATE2, "token")


def test_percentiles() -> None:
    assert results.percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert results.percentile([1.0], 0.95) == 1.0
    assert results.percentile([float(n) for n in range(100)], 0.95) == 95.0


def test_a_ratio_is_taken_within_each_round() -> None:
    # A machine that halves its speed for one round changes no ratio.
    found = entry({ENGINE: ([0, 0, 0], [0.5, 1.0, 0.5]), CTRANSLATE2: ([0, 0, 0], [1.0, 2.0, 1.0])})
    bar = Bar("greedy", "", CTRANSLATE2, ENGINE, 1.5, 3.0)
    assert results.ratio(found, bar) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("token_s", "verdict"), [(0.0102, "met, and the aim"), (0.012, "met"), (0.014, "MISSED")]
)
def test_a_bar_is_met_or_missed_in_words(token_s: float, verdict: str) -> None:
    lines = report.verdicts(greedy(token_s))
    measured = f"measured {token_s / 0.01:.2f}: {verdict}"
    assert f"greedy, a token, over the limit: bar 1.3, aim 1.05, {measured}" in lines
    # The bars whose rivals were not measured are not there.
    assert len(lines) == 2


def test_the_document_and_the_drawing_show_what_was_measured() -> None:
    kept = greedy(0.0123)
    document = report.document(kept)
    assert "| this engine | 30.0 | 12.3 | 805 |" in document
    assert f"| {LIMIT} |  | 10.0 |  |" in document
    assert "All float32 contenders wrote the same tokens." in document
    drawings = chart.drawings(kept)
    assert list(drawings) == ["benchmark-peers.svg"]
    texts = [element.text for element in ElementTree.fromstring(drawings["benchmark-peers.svg"])]
    assert {"this engine", "12.3", "limit: reading the weights, 10.0"} <= set(texts)


def test_the_limit_is_named_beside_the_titles_of_the_drawing() -> None:
    kept = greedy(0.0123)
    kept["entries"]["context/124m"] = kept["entries"]["greedy/124m"]
    drawing = ElementTree.fromstring(chart.drawings(kept)["benchmark-peers.svg"])
    texts = [element for element in drawing if element.tag.endswith("text")]
    titles = [x for x in texts if x.get("x") == "12" and x.get("class") is None]
    limits = [element for element in texts if element.text.startswith("limit")]
    assert [title.text for title in titles] == ["Greedy search", "After a prompt of 448 tokens"]
    assert len(limits) == 2
    ends = [float(title.get("x")) + 7 * len(title.text) for title in titles]
    for limit in limits:
        assert limit.get("text-anchor") is None, "it begins at x"
        assert float(limit.get("x")) >= max(ends)


def test_growth_is_drawn_and_its_straightness_told() -> None:
    kept = greedy(0.01)
    row = kept["entries"]["greedy/124m"]["calls"][0]
    rows = [
        {**row, "contender": contender, "x": x, "seconds": [seconds * x]}
        for contender, seconds in ((ENGINE, 0.01), (NARROW["bfloat16"], 0.012))
        for x in (16, 32, 64)
    ]
    kept["entries"]["growth-tokens/124m"] = {"calls": rows}
    document = report.document(kept)
    assert "| float32 | 16: 160, 32: 320, 64: 640 | 1.000 |" in document
    assert "| bfloat16 | 16: 192, 32: 384, 64: 768 | 1.000 |" in document
    drawing = ElementTree.fromstring(chart.drawings(kept)["benchmark-growth.svg"])
    ends = {text.text: float(text.get("y")) for text in drawing if text.tag.endswith("text")}
    assert ends["bfloat16"] + 12 <= ends["float32"], "the slower one is named above"


def test_what_the_page_adds_is_told_from_near_and_from_afar() -> None:
    near, far = (
        [{"first_text_s": text_s, "first_token_s": 0.01} for text_s in times]
        for times in ((0.05, 0.09, 0.06), (0.25, 0.22, 0.23))
    )
    kept = greedy(0.01)
    kept["entries"]["page/gpt2-stories"] = {"clicks": near}
    sentence = "what the page adds is 50.0 ms (from 40.0 to 80.0 ms)."
    assert sentence in report.document(kept)
    assert "to the server and back" not in report.document(kept), "measured before there was one"
    kept["entries"]["page/gpt2-stories"]["far_clicks"] = far
    document = report.document(kept)
    assert sentence in document
    assert "With 100 ms to the server and back the page adds 220 ms." in document
    assert any(
        "bar 80 ms, aim 30 ms, measured 50 ms: met" in line for line in report.verdicts(kept)
    )


def test_a_busy_machine_and_a_contender_that_failed_are_told() -> None:
    kept = greedy(0.01)
    kept["entries"]["greedy/124m"] |= {"bystanders": 0.4, "failures": {"keras-hub": "no such op"}}
    document = report.document(kept)
    assert "Other programs used 40% of the processor" in document
    assert "keras-hub could not take part: no such op" in document


def test_every_bar_has_a_measure_with_its_calls() -> None:
    for bar in BARS:
        (measure,) = (m for m in MEASURES if (m.name, m.model) == (bar.measure, bar.model))
        there = {name for call in measure.calls for name in (call.contender, call.setting)}
        assert {bar.of, bar.over} <= there, bar.sentence


def test_results_are_merged_and_never_mixed_between_machines(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "results.json"
    for measure in MEASURES[:2]:
        results.merge(file, measure, entry({}), MACHINE, {"numpy": "2"})
    assert list(results.read(file)["entries"]) == [f"{x.name}/{x.model}" for x in MEASURES[:2]]
    with pytest.raises(SystemExit, match="another machine"):
        results.merge(file, MEASURES[0], entry({}), MACHINE | {"cores": 64}, {})
    assert len(json.loads(file.read_text())["entries"]) == 2


def test_another_machines_file_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "benchmarks.json"
    results.merge(file, MEASURES[0], entry({}), MACHINE, {"numpy": "2"})
    before = file.read_text()
    monkeypatch.setattr(peers, "PEERS_PYTHON", Path(sys.executable))
    monkeypatch.setattr(Runner, "run", lambda *_: pytest.fail("it measured first"))
    monkeypatch.setattr(sys, "argv", ["peers", "--measures", "greedy", "--output", str(file)])
    with pytest.raises(SystemExit, match="another machine"):
        peers.main()
    assert file.read_text() == before


def test_the_weights_of_a_token_are_counted(tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "tiny", n_layer=1, n_embd=8, n_head=2, n_inner=16, vocab_size=400)
    matrices = 8 * 24 + 24 + 8 * 8 + 8 + 8 * 16 + 16 + 16 * 8 + 8
    norms = 3 * 2 * 8
    assert weights.bytes_of_a_token(folder) == 4 * (400 * 8 + matrices + norms)
    positions_and_mask = 128 * 8 + 128 * 128
    assert weights.total_bytes(folder) == 4 * (400 * 8 + matrices + norms + positions_and_mask)


def test_a_prompt_has_exactly_as_many_tokens_as_asked_for(small_gpt2: Path) -> None:
    from transformers import AutoTokenizer

    for tokens in (2, 16, 40):
        text, ids = _prompt(small_gpt2, tokens)
        assert len(ids) == tokens
        assert tuple(AutoTokenizer.from_pretrained(small_gpt2)(text).input_ids) == ids


def test_others_work_is_seen_and_ours_is_not() -> None:
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        seen, reported, began = Bystanders([]), Bystanders([other.pid]), time.monotonic()
        cores = os.cpu_count() or 1

        def apart_s() -> float:
            """On a machine on which others work too, both are larger by as much."""
            return (seen.share() - reported.share()) * cores * (time.monotonic() - began)

        wait_until(lambda: apart_s() > 0.5)  # however little of the machine it gets
    finally:
        other.kill()
        other.wait()


def test_contenders_are_called_in_turn_and_write_the_same_tokens(
    small_gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.runner.checkpoint", lambda model, work: small_gpt2)
    calls = tuple(
        Call(name, "tiny", new_tokens)
        for name in (LIMIT, ENGINE, EAGER_GENERATE)
        for new_tokens in (2, 8)
    )
    measure = Measure("greedy", "A tiny one", "tiny", calls, same_tokens=True)
    runner = Runner(tmp_path)
    try:
        found = runner.run(measure, calls, rounds=2)
        longer = runner.run(measure, calls, rounds=1, least_s=3.0)
        assert runner.memory("tiny") > weights.total_bytes(small_gpt2)
    finally:
        runner.clear()
    assert not found["failures"]
    assert found["tokens"] == []
    by_contender = {row["contender"]: row for row in found["calls"] if row["new_tokens"] == 8}
    assert by_contender[ENGINE]["tokens"] == by_contender[EAGER_GENERATE]["tokens"]
    assert len(by_contender[ENGINE]["tokens"]) == 8
    for row in found["calls"]:
        assert len(row["seconds"]) == 2
        assert all(seconds > 0 for seconds in row["seconds"])
    assert sum(sum(row["seconds"]) for row in longer["calls"]) > 1.0
    assert len({len(row["seconds"]) for row in longer["calls"]}) == 1
    assert {"tensorflow", "numpy"} <= set(runner.versions)
    # The rival's: the engine runs nothing of Transformers, and the project has a newer one.
    assert runner.versions["transformers"].startswith("4.57.")


def test_without_the_baseline_overlay_its_contender_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(overlay.FOLDER_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(ContenderFailed, match=f"Run: {overlay.COMMAND}"):
        Running(CONTENDERS[EAGER_GENERATE], tmp_path, tmp_path)


def test_a_contender_that_cannot_run_says_why(
    tmp_path: Path,
) -> None:
    running = Running(CONTENDERS[LIMIT], tmp_path / "nothing", tmp_path)
    try:
        with pytest.raises(ContenderFailed, match=r"reading the weights: FileNotFoundError"):
            running.wait_until_ready()
        with pytest.raises(ContenderFailed):
            running.generate(Request("", (), 1))
    finally:
        running.end()
