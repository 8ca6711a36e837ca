"""What the Models tab says of models and of an addition."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playground.tabs.models import report
from playground.tabs.models.adding import AddingProgress
from playground.tabs.models.report import candidate_sheet, models_sheet, progress_line
from tests.playground.reader import words
from xla_backend import CacheKey, ModelInfo
from xla_backend.inspection.measurement import MachineLimits
from xla_backend.interface.results import KeyHistory, RowRun

HUB = ModelInfo(
    "someone/thing",
    "decoder-only",
    "hub",
    "",
    2048,
    model_type="qwen3",
    license="<b>mit",
    download_bytes=1_519_000_000,
)
HEADINGS = "Model Architecture Download License Context"


def test_the_list_says_what_each_takes_and_invents_no_times() -> None:
    bundled = ModelInfo("gpt2-stories", "decoder-only", "bundled", "", 256, model_type="gpt2")
    matrices = {"mlp.up": {"Q8_0": 3_000_000}, "attn.q+kv": {"Q4_0": 2_000_000, "Q5_0": 500_000}}
    bundled = replace(bundled, weights_bytes=5_500_000, rounded_bits=8, matrices=matrices)
    rows = (RowRun(16, 32, 0.1, 0.0310, 32, True), RowRun(16, 32, 0.1, 0.0, 1, True))
    past = {
        bundled.name: {
            CacheKey(256, 1, 0, is_pooled=True): KeyHistory(times=1, rows=rows),
            CacheKey(16, 1, 32): KeyHistory(times=3, run_s=0.0824),
            CacheKey(64, 4, 96): KeyHistory(times=2, run_s=0.5),
            CacheKey(32, 1, 32): KeyHistory(times=9),
        }
    }
    loaded = replace(HUB, on_disk=True, weights_bytes=1_600_000_000)
    limits = MachineLimits(read_bytes_s=11e9, flops_s=1e11)
    html = models_sheet([bundled, HUB, loaded], past, limits)
    assert "times as long" not in models_sheet([bundled, HUB, loaded], past)
    assert words(html) == (
        f"{HEADINGS} Weights Last run here "
        "gpt2-stories GPT-2 on this computer – 256 tokens 5.5 MB rounded to 8 bits "
        "a token takes 2.0 times as long as reading them Format by matrix mlp.up: Q8_0 3.0 MB "
        "attn.q + kv: Q4_0 2.0 MB, Q5_0 0.5 MB 82 ms "
        "16 + 32 slots "
        "someone/thing Qwen3 1.5 GB &lt;b&gt;mit 2,048 tokens – – "
        "someone/thing Qwen3 on this computer &lt;b&gt;mit 2,048 tokens 1.6 GB –"
    )

    assert words(candidate_sheet(replace(HUB, model_type="", context_length=None))) == (
        f"{HEADINGS} someone/thing in the file, which must be downloaded first 1.5 GB "
        "&lt;b&gt;mit –"
    )


@pytest.mark.parametrize(
    ("changes", "is_measured"),
    [
        ({}, True),
        ({"activations": "int8"}, False),
        ({"weights": "int8"}, False),
        ({"formats": "Q8_0"}, False),
        ({"name": "other"}, False),
    ],
)
def test_a_format_that_was_measured_has_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_measured: bool
) -> None:
    row = {"model": HUB.name, "program": "this engine, Q4_1", "divergence, mean": "3e-07"}
    saved = tmp_path / "proof.json"
    saved.write_text(json.dumps([row | {"same token": "99.98%", "greedy, equal": "40 of 40"}]))
    monkeypatch.setattr(report, "_PROOF", saved)
    model = replace(HUB, **{"weights_bytes": 1, "formats": "Q4_1, Q8_0", **changes})
    told = "Q4_1 beside PyTorch in float32: divergence 3e-07 nats, the same most likely token in "
    told += "99.98%, 40 of 40 greedy texts equal (docs/proof.md)"
    assert (told in words(models_sheet([model], {}))) is is_measured


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, ""),
        (
            AddingProgress("a/b", 30_000_000, 120_000_000),
            "Downloading from the Hugging Face Hub, once. a/b: 30 MB of 120 MB",
        ),
        (AddingProgress("a/b", state="added"), "Added: a/b is in the lists of models."),
        (AddingProgress("/x/b", state="added"), "Added: b is in the lists of models."),
        (AddingProgress("a/b", state="cancelled"), "Cancelled: a/b was not added."),
        (AddingProgress("a/b", state="failed", problem="It is <gated>."), "It is &lt;gated&gt;."),
    ],
)
def test_an_addition_says_how_far_it_is(progress: AddingProgress | None, text: str) -> None:
    assert words(progress_line(progress)) == text
