"""Tests of making keys ready before anybody asks: `Backend.warm`, the warm-up after a start, and
`python -m xla_backend warm`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.waiting import wait_until
from tests.xla_backend.engine.new_process import LONG, SHORT
from xla_backend import Backend, BucketRules, CacheKey, CacheOutcome, GenerationOptions
from xla_backend.__main__ import main
from xla_backend.compilation.store import Store
from xla_backend.compilation.traced_function import TracedFunction
from xla_backend.engine import background
from xla_backend.model.functions import MAX_WARM_UP_LENGTH, FunctionBuilder

ROOT = Path(__file__).resolve().parents[3]
RULES = BucketRules((8, 16), (4, 8))
HIT, MISS, DISK = CacheOutcome.HIT, CacheOutcome.MISS, CacheOutcome.DISK
KEYS = [CacheKey(8, 1, 4), CacheKey(16, 1, 4)]
SMALL = GenerationOptions(max_new_tokens=4)
TINY = {"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoints.gpt2(tmp_path_factory.mktemp("models") / "tiny", seed=81, **TINY))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests: a process compiles, and so stores, each function once only."""
    return tmp_path_factory.mktemp("kept") / "store"


# --- Backend --------------------------------------------------------------------------------------


def test_warm_makes_keys_ready_and_tells_of_each(model: str, kept: Path) -> None:
    reported: list[tuple[CacheKey, CacheOutcome]] = []
    took: list[float] = []

    def tell(key: CacheKey, outcome: CacheOutcome, seconds: float) -> None:
        assert key in {entry.key for entry in backend.cached_functions()}, (
            "it is ready when it is told"
        )
        reported.append((key, outcome))
        took.append(seconds)

    backend = Backend(rules=RULES, store=kept)
    backend.warm(model, KEYS, tell)
    backend.warm(model, KEYS[:1], tell)
    assert reported == [(KEYS[0], MISS), (KEYS[1], MISS), (KEYS[0], HIT)]
    assert 0 <= took[2] < min(took[:2]), "what is ready is not made again"
    result = backend.generate(model, SHORT, SMALL)
    assert (result.cache, result.key) == (HIT, KEYS[0])
    assert backend.status.state == "ready"
    backend.close()

    reported.clear()
    backend = Backend(rules=RULES, store=kept)
    backend.warm(model, KEYS[::-1], tell)
    assert reported == [(KEYS[1], DISK), (KEYS[0], DISK)]
    backend.close()


def test_what_is_made_ready_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(checkpoints.gpt2(tmp_path / "tiny", seed=83, **TINY | {"n_positions": 512}))
    ran: list[tuple[str, int]] = []
    call = TracedFunction.__call__

    def noted(self: TracedFunction, *arguments: Any) -> Any:
        for function in ("prefill", "decode"):
            if f"_{function}_" in self.name:
                ran.append((function, int(arguments[0])))
        return call(self, *arguments)

    monkeypatch.setattr(TracedFunction, "__call__", noted)
    backend = Backend(rules=RULES, store="off")
    backend.warm(model, KEYS[:1])
    compiled = [("prefill", 0), ("decode", 0)]
    assert sorted(ran) == sorted([*compiled, ("prefill", 1), ("decode", 1)])
    ran.clear()
    backend.generate(model, LONG, SMALL, exact_key=True)
    own = [("prefill", 1), ("decode", 1), ("decode", 4)]
    # A short prompt runs beside what decode needs, but no step of text keeps a request waiting.
    assert sorted(ran[:-3]) == sorted([*compiled, ("prefill", 1)])
    assert ran[-3:] == own
    ran.clear()
    backend.prefetch(model, [CacheKey(16, 2, 4)])
    wait_until(lambda: not backend.prefetching())
    assert sorted(ran) == [("decode", 0), ("decode", 1)], "the prompt's size has run before"
    ran.clear()
    longer = backend.generate(model, "word " * (MAX_WARM_UP_LENGTH // 2), SMALL, exact_key=True).key
    assert longer.padded_length > MAX_WARM_UP_LENGTH
    assert sorted(ran[:-3]) == sorted(compiled), "its own run would keep both cores from decode"
    assert ran[-3:] == own
    ran.clear()
    backend.warm(model, [CacheKey(5 * MAX_WARM_UP_LENGTH, 1, 4)])
    assert sorted(ran) == sorted([*compiled, ("prefill", 1), ("decode", 1)])
    backend.close()


def test_the_key_that_a_request_asks_for(model: str) -> None:
    backend = Backend(rules=RULES, store="off")
    assert backend.key_for(model, 3, SMALL) == KEYS[0]
    assert backend.key_for(model, 9, SMALL.replace(num_beams=2)) == CacheKey(16, 2, 4)
    assert backend.key_for(model, 60, SMALL).padded_length == 64


def test_after_a_start_the_default_key_comes_first_then_the_most_used_ones(
    model: str, tmp_path: Path
) -> None:
    first = Backend(rules=RULES, store=tmp_path)
    for requests, prompt in ((1, SHORT), (2, LONG)):
        for _ in range(requests):
            first.generate(model, prompt, SMALL, exact_key=True)
    first.close()

    second = Backend(rules=RULES, store=tmp_path)
    second.load(model)
    with second._access.background.request():  # nothing begins meanwhile
        second.warm_up(model)
        default = CacheKey(8, 1, 32)
        assert second.prefetching() == [(model, key) for key in (default, KEYS[1], KEYS[0])]
        second.prefetch(model, [KEYS[0], CacheKey(16, 1, 8)])
        assert second.prefetching()[-1] == (model, CacheKey(16, 1, 8)), "each once"
        assert len(second.prefetching()) == 4
        second.cancel_prefetch()
        wait_until(lambda: not second.prefetching())
    assert second.cached_functions() == []
    second.warm_up("not loaded")
    assert second.prefetching() == []
    second.close()


def test_a_visitor_s_request_goes_before(
    model: str, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend(rules=RULES, store=kept)
    backend.load(model)
    monkeypatch.setattr(background, "IDLE_S", 600.0)
    with backend._access.background.request():
        backend.prefetch(model, KEYS)
    other = backend.generate(model, SHORT, SMALL.replace(num_beams=2))
    assert [entry.key for entry in backend.cached_functions()] == [other.key]
    assert len(backend.prefetching()) == 2
    monkeypatch.setattr(background, "IDLE_S", 0.05)
    backend.generate(model, SHORT, SMALL.replace(num_beams=2))  # its end wakes the background
    wait_until(lambda: not backend.prefetching())
    assert [entry.key for entry in backend.cached_functions()] == [other.key, *KEYS]
    assert backend.generate(model, SHORT, SMALL).cache is HIT
    past = backend.past()[model][KEYS[0]]
    assert past.disk_s or past.miss_s  # as the tests before it have filled the store or not
    backend.close()


def test_warming_that_fails_leaves_the_engine_ready(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(
        builder: FunctionBuilder, key: CacheKey, on_step: Callable[[str], None], size: int
    ) -> None:
        on_step("trace")
        raise MemoryError("no room for the compiler")

    backend = Backend(rules=RULES, store="off")
    monkeypatch.setattr(FunctionBuilder, "build", fail)
    with pytest.raises(MemoryError):
        backend.warm(model, KEYS)
    assert backend.status.state == "ready"
    backend.close()


def test_close_waits_for_no_work_that_has_not_begun(model: str) -> None:
    backend = Backend(rules=RULES, store="off")
    backend.load(model)
    with backend._access.background.request():
        backend.prefetch(model, [CacheKey(16, 1, 4 * n) for n in range(1, 9)])
        start = time.monotonic()
        backend.close()
        assert time.monotonic() - start < 5
    assert backend.cached_functions() == []


# --- the command line -----------------------------------------------------------------------------


def run(*arguments: str) -> int:
    """The command line in this process; like a program that ends, it gives nothing back."""
    stdout = os.dup(1)
    try:
        return main(arguments)
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def warm(*arguments: str) -> int:
    return run("warm", *arguments)


def test_every_combination_has_its_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = str(checkpoints.gpt2(tmp_path / "tiny", seed=82, **TINY))
    sizes = ["--padded-lengths", "16,10,32", "--num-beams", "1", "--max-new-tokens", "5"]
    assert warm("--model", model, "--store", str(tmp_path), *sizes) == 0
    out, err = capfd.readouterr()
    assert err == "", "nobody watches: no progress bar"
    lines = out.splitlines()
    assert [line.rpartition(" · ")[0] for line in lines] == [
        "MISS · padded 16 · beams 1 · new 16",
        "MISS · padded 32 · beams 1 · new 16",
    ]
    assert all(float(line.split()[-2]) > 0 and line.endswith(" s") for line in lines)

    assert warm("--model", model, "--store", str(tmp_path), "--json", *sizes[:2], *sizes[4:]) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [set(value) for value in found] == [
        {"model", "key", "batch_size", "cache", "total_s"}
    ] * 2
    assert [value["cache"] for value in found] == ["disk", "disk"]
    assert found[1]["key"] == {"padded_length": 32, "num_beams": 1, "max_new_tokens": 16}
    assert found[0]["model"] == model

    assert warm("--model", model, "--store", str(tmp_path), *sizes[4:], "--batch-sizes", "1,2") == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.rpartition(" · ")[0] for line in lines] == [
        "DISK · padded 16 · beams 1 · new 16",
        "MISS · padded 16 · beams 1 · new 16 for 2 requests",
    ]

    sizes = ["--max-new-tokens", "3"]
    generate = ["generate", "--model", model, "--store", str(tmp_path), "--json", *sizes]
    assert run(*generate, SHORT, LONG) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [value["cache"] for value in found] == ["disk", "hit"]


def test_someone_who_watches_sees_a_progress_bar(model: str, tmp_path: Path) -> None:
    """In a process and a terminal of its own: also what `XLA_BACKEND_STORE` is for."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-m", "xla_backend", "warm", "--model", model]
    done = subprocess.run(
        [*command, "--padded-lengths", "16,64", "--max-new-tokens", "16"],
        cwd=ROOT,
        env={**os.environ, "XLA_BACKEND_STORE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        timeout=120,
    )
    os.close(theirs)
    seen = ""
    with contextlib.suppress(OSError):  # that is how a terminal's output ends
        while True:
            seen += os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "0/2" in seen
    assert "2/2" in seen
    assert [line[:4] for line in done.stdout.splitlines()] == ["MISS", "MISS"]
    assert len(Store(tmp_path).names()) == 2 + 2 + 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--padded-lengths", "16,x"], "padded_lengths must be whole numbers with commas"),
        (["--padded-lengths", "16,,64"], "padded_lengths must be whole numbers with commas"),
        (["--padded-lengths", ""], "padded_lengths must be whole numbers with commas"),
        (["--padded-lengths", "1.5"], "padded_lengths must be whole numbers with commas"),
        (["--padded-lengths", "16,0"], "padded_lengths must be at least 1, not 0."),
        (["--num-beams", "1;4"], "num_beams must be whole numbers with commas between them, like"),
        (["--num-beams", "1,9"], "num_beams must be from 1 to 8, not 9."),
        (["--max-new-tokens", "0"], "max_new_tokens must be from 1 to 1024, not 0."),
        (["--model", "no-such-model"], "there is no model 'no-such-model'."),
        (["--batch-sizes", "1,3"], "batch_sizes can be 1, 2, 4 and 8, not 3."),
        (["--model", "whisper-commands", "--batch-sizes", "2"], "Recordings run one at a time"),
        (["--store", "off"], "There is no store to fill."),
        (["--store", "/proc/none"], "There is no store to fill."),
        (["--padded-lengths", "16,65"], "padded_lengths must be at most 64 for "),
        (
            ["--padded-lengths", "64", "--max-new-tokens", "32"],
            "No request can ask for padded 64 · beams 1 · new 32: the context of ",
        ),
        (["--max-new-tokens", "64"], "No request can ask for padded 16 · beams 1 · new 64"),
    ],
)
def test_what_cannot_be_is_told(
    arguments: list[str],
    sentence: str,
    model: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert warm("--model", model, "--store", str(tmp_path), *arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert f"error: {sentence}" in err.splitlines()[-1]
    assert Store(tmp_path).names() == [], "nothing was compiled before it was told"


def test_a_speech_model_has_one_length(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = str(checkpoints.whisper(tmp_path / "whisper"))
    where = ["--model", model, "--store", str(tmp_path / "store")]
    assert warm(*where, "--padded-lengths", "16") == 2
    assert "hears windows of one length" in capfd.readouterr().err


def test_no_store_and_the_exact_key(
    model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_BACKEND_STORE", str(tmp_path / "store"))
    longer = "owl " * 20
    arguments = ["generate", "--model", model, "--no-store", "--json", "--max-new-tokens", "3"]
    for flags, outcomes in (([], ["miss", "reused"]), (["--exact-key"], ["miss", "miss"])):
        assert run(*arguments, *flags, longer, SHORT) == 0
        found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [value["cache"] for value in found] == outcomes
    assert not (tmp_path / "store").exists()
    with pytest.raises(SystemExit):
        run(*arguments, "--store", "folder", SHORT)
    assert "not allowed with" in capfd.readouterr().err
