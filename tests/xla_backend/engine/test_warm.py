"""Making keys ready before anybody asks, for real: what has run by then, and
`python -m xla_backend warm`. `test_outcomes` has the rest, over models without XLA.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from xla_backend import Backend, BucketRules, CacheKey, GenerationOptions
from xla_backend.__main__ import main
from xla_backend.compilation.store import Store
from xla_backend.compilation.traced_function import TracedFunction
from xla_backend.interface.buckets import CHUNK_SIZES
from xla_backend.model.functions import MAX_WARM_UP_LENGTH

ROOT = Path(__file__).resolve().parents[3]
SMALL = GenerationOptions(max_new_tokens=4)
TINY = {"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64}
SHORT, LONG = "The owl", "Once upon a time there was"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoints.gpt2(tmp_path_factory.mktemp("models") / "tiny", seed=81, **TINY))


def test_what_is_made_ready_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(checkpoints.gpt2(tmp_path / "tiny", seed=83, **TINY | {"n_positions": 512}))
    ran: list[tuple[str, int]] = []
    call = TracedFunction.__call__

    def noted(self: TracedFunction, *arguments: Any) -> Any:
        for function in ("prefill", "decode", "read"):
            if f"_{function}_" in self.name:
                ran.append((function, int(arguments[0])))
        return call(self, *arguments)

    def since_then() -> list[tuple[str, int]]:
        found = sorted(ran)
        ran.clear()
        return found

    monkeypatch.setattr(TracedFunction, "__call__", noted)
    backend = Backend(rules=BucketRules((8, 16), (4, 8)), store="off")
    backend.warm(model, [CacheKey(8, 1, 4)])
    compiled = [("decode", 0), ("prefill", 0)]
    assert since_then() == sorted([*compiled, ("decode", 1), ("prefill", 1)])
    for prompt, before in (
        (LONG, [*compiled, ("prefill", 1)]),  # beside what decode needs; no step of text
        ("word " * (MAX_WARM_UP_LENGTH // 2), compiled),  # would keep both cores from decode
    ):
        backend.generate(model, prompt, SMALL.replace(exact_key=True))
        begins = len(ran) - 1 - ran[::-1].index(("prefill", 1))
        assert sorted(ran[:begins]) == before
        assert {name for name, _ in ran[begins + 1 :]} == {"decode"}
        ran.clear()
    pool = backend.pool_key(model)
    assert pool is not None
    backend.warm(model, [pool])
    chunks = len(CHUNK_SIZES)
    assert since_then() == [
        ("decode", 0),
        ("decode", 1),
        *[("read", 0)] * chunks,
        *[("read", 1)] * chunks,
    ]
    backend.warm(model, [pool], rows=4)
    assert since_then() == [("decode", 0), ("decode", 1), *[("read", 1)] * chunks]
    backend.close()


# --- the command line -----------------------------------------------------------------------------


def run(*arguments: str) -> int:
    """The command line in this process; like a program that ends, it gives nothing back."""
    stdout = os.dup(1)
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def test_every_combination_has_its_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = str(checkpoints.gpt2(tmp_path / "tiny", seed=82, **TINY))
    where = ("--model", model, "--store", str(tmp_path))
    assert run("warm", *where, "--padded-lengths", "16,10", "--max-new-tokens", "5") == 0
    out, err = capfd.readouterr()
    assert err == ""
    [line] = out.splitlines()
    assert line.startswith("MISS · padded 16 · beams 1 · new 16 · ")
    assert float(line.split()[-2]) > 0

    sizes = ("--max-new-tokens", "5", "--pool-rows", "1,4")
    assert run("warm", *where, "--json", *sizes) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(value["cache"], value["rows"]) for value in found] == [
        ("disk", 1),
        ("miss", 1),
        ("miss", 4),
    ]
    assert set(found[0]) == {"model", "key", "rows", "cache", "total_s"}
    assert found[0]["key"] == {"padded_length": 16, "num_beams": 1, "max_new_tokens": 16}
    assert found[2]["key"] == {
        **dict.fromkeys(("padded_length", "max_new_tokens"), 64),
        "num_beams": 1,
        "is_pooled": True,
    }
    assert run("warm", *where, *sizes) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.rpartition(" · ")[0] for line in lines] == [
        "DISK · padded 16 · beams 1 · new 16",
        "DISK · all lengths to 64",
        "DISK · all lengths to 64 for 4 rows",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--padded-lengths", "16,x"], "needs whole numbers with commas"),
        (["--padded-lengths", "16,,64"], "needs whole numbers with commas"),
        (["--padded-lengths", "16,0"], "padded_lengths must be from 1 to 64 for "),
        (["--num-beams", "1,9"], "num_beams must be from 1 to 8, not 9."),
        (["--max-new-tokens", "0"], "max_new_tokens must be from 1 to 8192, not 0."),
        (["--model", "no-such-model"], "there is no model 'no-such-model'."),
        (["--pool-rows", "1,3"], "pool_rows can be 1, 4, 8, 16, not 3."),
        (["--model", "whisper-commands", "--pool-rows", "4"], "whisper-commands has no pool"),
        (["--model", "whisper-commands", "--padded-lengths", "16"], "windows of one length"),
        (["--store", "off"], "There is no store to fill."),
        (["--store", "/proc/none"], "There is no store to fill."),
        (["--padded-lengths", "16,65"], "padded_lengths must be from 1 to 64 for "),
    ],
)
def test_what_cannot_be_is_told(
    arguments: list[str],
    sentence: str,
    model: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run("warm", "--model", model, "--store", str(tmp_path), *arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert sentence in err.splitlines()[-1]
    assert Store(tmp_path).names() == [], "nothing was compiled before it was told"


def test_no_store_and_the_exact_key(
    model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_BACKEND_STORE", str(tmp_path / "store"))
    arguments = ["generate", "--model", model, "--store", "off", "--json", "--max-new-tokens", "3"]
    for flags, outcomes in (([], ["miss", "reused"]), (["--exact-key"], ["miss", "miss"])):
        assert run(*arguments, *flags, "owl " * 20, SHORT) == 0
        found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [value["cache"] for value in found] == outcomes
    assert not (tmp_path / "store").exists()
