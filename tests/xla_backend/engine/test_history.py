"""Tests of `history`: counts and seconds that outlive processes and damage."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from xla_backend.compilation.store import Store
from xla_backend.interface.buckets import CacheKey, pool_key
from xla_backend.interface.results import CacheOutcome, FirstCall, KeyHistory, RowRun
from xla_backend.prediction import history
from xla_backend.prediction.history import History

ROOT = Path(__file__).resolve().parents[3]
SMALL, LARGE = CacheKey(16, 1, 32), CacheKey(64, 4, 32)
POOLED, LOOKUP = pool_key(64), pool_key(64, 3)
ROW = RowRun(150, 160, 0.5, 1.5, 40, True)


def first_call(outcome: CacheOutcome, seconds: float) -> FirstCall:
    return FirstCall(
        outcome, trace_s=seconds / 2, compile_s=seconds / 4, run_s=seconds / 4, made_at=1.7e9
    )


def filled(store: Store | None) -> History:
    past = History(store, "auto")
    past.record_request("gpt2", LARGE)
    past.record_first_call("gpt2", LARGE, first_call(CacheOutcome.MISS, 6.0))
    past.record_run("gpt2", LARGE, 0.5)
    past.record_first_call("gpt2", LARGE, first_call(CacheOutcome.DISK, 1.0))
    past.record_request("gpt2", LARGE)
    past.record_run("gpt2", SMALL, 0.1)
    past.record_run("t5", POOLED, 0.2)
    past.record_run("t5", LOOKUP, 0.3)
    past.record_row("t5", POOLED, ROW)
    past.record_request("t5", SMALL)
    return past


EXPECTED = {
    "gpt2": {
        LARGE: KeyHistory(
            times=2, miss_s=6.0, disk_s=1.0, run_s=0.5, compiled=first_call(CacheOutcome.MISS, 6.0)
        ),
        SMALL: KeyHistory(run_s=0.1),
    },
    "t5": {
        SMALL: KeyHistory(times=1),
        POOLED: KeyHistory(run_s=0.2, rows=(ROW,)),
        LOOKUP: KeyHistory(run_s=0.3),
    },
}


def test_the_history_tells_the_latest_of_what_was_recorded() -> None:
    past = filled(None)
    assert past.past() == EXPECTED
    past.past()["gpt2"].clear()
    assert past.past() == EXPECTED, "a copy was given away"
    past.save()  # nowhere

    past = filled(None)
    past.record_run("gpt2", LARGE, 0.4)
    past.record_first_call("gpt2", LARGE, first_call(CacheOutcome.MISS, 5.0))
    assert past.past()["gpt2"][LARGE] == KeyHistory(
        times=2, miss_s=5.0, disk_s=1.0, run_s=0.4, compiled=first_call(CacheOutcome.MISS, 5.0)
    )


def test_most_used_first_and_only_what_was_asked_for() -> None:
    past = History(None, "auto")
    keys = [CacheKey(16, 1, 16), CacheKey(32, 1, 16), CacheKey(64, 1, 16)]
    for key, times in zip(keys, (1, 3, 1), strict=True):
        for _ in range(times):
            past.record_request("gpt2", key)
    past.record_run("gpt2", CacheKey(128, 1, 16), 0.1)
    assert past.most_used("gpt2") == [keys[1], keys[0], keys[2]]
    assert past.most_used("unknown") == []


def test_another_process_counts_on(tmp_path: Path) -> None:
    filled(Store(tmp_path)).save()
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from xla_backend.interface.buckets import CacheKey\n"
        "from xla_backend.prediction.history import History\n"
        "from xla_backend.compilation.store import Store\n"
        "past = History(Store(Path(sys.argv[1])), 'auto')\n"
        "past.record_request('t5', CacheKey(16, 1, 32))\n"
        "past.save()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    past = History(Store(tmp_path), "auto").past()
    assert past == {**EXPECTED, "t5": {**EXPECTED["t5"], SMALL: KeyHistory(times=2)}}


def test_when_the_history_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(Store(tmp_path))
    assert History(Store(tmp_path), "auto").past() == {}, "not at every call"
    monkeypatch.setattr(history, "SAVE_EVERY_S", 0.0)
    filled(Store(tmp_path))
    assert History(Store(tmp_path), "auto").past() == EXPECTED

    filled(Store(tmp_path)).save()
    assert History(Store(tmp_path), "int8").past() == {}


NO_ROWS = [5, [5], [[1]], [[9, 0, 1, 1, 1, True]], [[9, 1, -1, 1, 1, True]], [[9, 1, 1, 1, "x", 1]]]
GOOD = {"times": 1, "miss_s": 2.0, "disk_s": None, "run_s": 0.5}


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        "text",
        {"gpt2": None},
        {"gpt2": [1, 2]},
        {"gpt2": {"16 1 32 0": GOOD, "16 1 32 0 0 0": GOOD, "a b c 0 0": GOOD, "": GOOD}},
        {"gpt2": {"16 1 32 0 0": None, "32 1 32 0 0": 5, "64 1 32 0 0": []}},
        {"gpt2": {"16 1 32 0 0": {"times": 1}, "32 1 32 0 0": {**GOOD, "times": "many"}}},
        {
            "gpt2": {
                "16 1 32 0 0": {**GOOD, "miss_s": "long"},
                "32 1 32 0 0": {**GOOD, "run_s": [1]},
            }
        },
        {"gpt2": {"0 1 32 0 0": GOOD, "16 -1 32 0 0": GOOD, "16 1 0 0 0": GOOD}},
        {"gpt2": {"16 1 32 0 0": {**GOOD, "run_s": float("nan")}}},
        {"gpt2": {"16 1 32 0 0": {**GOOD, "miss_s": float("inf")}}},
        {"gpt2": {"16 1 32 0 0": {**GOOD, "times": float("inf")}}},
        {"gpt2": {"16 1 32 0 0": {**GOOD, "compiled": 5}, "32 1 32 0 0": {**GOOD, "compiled": {}}}},
        {"gpt2": {f"16 1 32 1 {n}": {**GOOD, "rows": rows} for n, rows in enumerate(NO_ROWS)}},
    ],
)
def test_records_that_make_no_sense_are_left_out(tmp_path: Path, values: Any) -> None:
    store = Store(tmp_path)
    store.write_history("auto", values)
    assert all(keys == {} for keys in History(store, "auto").past().values())
    if isinstance(values, dict):
        store.write_history("auto", {**values, "t5": {"16 1 32 0 0": GOOD}})
        past = History(store, "auto")
        assert past.past()["t5"] == {CacheKey(16, 1, 32): KeyHistory(1, 2.0, None, 0.5)}
        past.record_request("gpt2", SMALL)
        past.save()
        assert json.loads((store.folder / "history-auto.json").read_text())["gpt2"]
