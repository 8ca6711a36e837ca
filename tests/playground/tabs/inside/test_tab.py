"""The Inside tab, as a visitor uses it, over an inspector that was told what it sees."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
import pytest

from playground import create_app
from playground.page import Page
from playground.tabs.inside import report
from playground.tabs.inside.functions import NO_STORE, key_of
from tests.playground.api_page import api_page
from tests.playground.fake_backend import FakeBackend
from tests.playground.samples import INJECTIONS, KEY
from tests.playground.visitor import Visitor
from xla_backend import CacheKey, EngineStopped, InvalidRequest
from xla_backend.inspection.inspection import FunctionInside, Inspection, KernelInside
from xla_backend.inspection.inspector import Inspector
from xla_backend.inspection.measurement import MachineLimits, Measurement, WayOfALayer
from xla_backend.inspection.passes import Pass

WORD = "16x1x32"


def kernel(
    name: str, layer: int | None, part: str, flops: int, moved: int, opcode: str = "fusion"
) -> KernelInside:
    line = "model/families/blocks.py:145 _project_one"
    return KernelInside(name, opcode, layer, part, line, (), 2, 1, flops, 0, moved)


def function(*kernels: KernelInside) -> FunctionInside:
    flops, moved = sum(one.flops for one in kernels), sum(one.bytes for one in kernels)
    return FunctionInside(
        *(120, 170, 80, flops, 7, moved, moved, 12, 34_000, 5_000_000, 600, 7_000, 1.5, 2.5),
        kernels=kernels,
    )


INSIDE = function(
    kernel("gather", None, "embedding", 0, 1_000),
    kernel("dot.1", 0, "attention", 2_000_000, 4_000_000),
    kernel("<i>dot.2</i>", 1, "feed-forward", 4_000_000, 8_000_000),
    kernel("dot.3", None, "head", 1_000_000, 2_000_000, opcode="matmul_Q4_K"),
)
MEASURED = Measurement(
    token_s=0.001,
    profiled_token_s=0.0012,
    kernel_s={"dot.1": 0.0003, "<i>dot.2</i>": 0.0005, "dot.3": 0.0001},
    prefill_s=0.01,
    limits=MachineLimits(read_bytes_s=20e9, flops_s=200e9),
    load=1.5,
    took_s=8.0,
    ways={
        "eager": WayOfALayer(90, 90, 9_000_000, 0.02),
        "xla": WayOfALayer(1, 4, 8_000_000, 0.001),
    },
)


DIFF = "@@ -1 +1 @@\n %a = f32[]\n-%old\n+%new\n+%<i>new"
PASSES = [
    Pass("fusing", "dce", added=0, removed=1_200, diff="-%a", left_out=1_199),
    Pass("fusing", "fusion", added=2, removed=1, diff=DIFF, left_out=0),
]


class FakeInspector:
    """Stands for an `Inspector`: sees what it was told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._measured: Measurement | None = None
        self._passes: list[Pass] = []

    def keys(self, identity: str) -> list[CacheKey]:
        return [KEY]

    def inspect(self, model: str, identity: str, key: CacheKey) -> Inspection:
        if self.error:
            raise self.error
        return Inspection(model, key, INSIDE, INSIDE, 0.4)

    def measured(self, identity: str, key: CacheKey) -> Measurement | None:
        return self._measured

    def measure(self, model: str, identity: str, key: CacheKey) -> Measurement:
        self._measured = MEASURED
        return MEASURED

    def texts(self, model: str, identity: str, key: CacheKey) -> list[Path]:
        return []

    def assembly(self, kernel: str) -> str:
        return f"of {kernel}: vpdpbusd"

    def made_passes(self, identity: str, key: CacheKey) -> list[Pass]:
        return self._passes

    def passes(self, model: str, identity: str, key: CacheKey) -> list[Pass]:
        self._passes = PASSES
        return PASSES


INSPECTOR = FakeInspector()


@functools.cache
def page(admin: bool) -> Page:
    return create_app(FakeBackend(), inspector=cast(Inspector, INSPECTOR), admin=admin)


@pytest.fixture
def inspector() -> FakeInspector:
    vars(INSPECTOR).update(vars(FakeInspector()))
    return INSPECTOR


@pytest.fixture
def visitor(inspector: FakeInspector) -> Visitor:
    visitor = Visitor(page(admin=True))
    visitor.put("inside_model", "gpt2-stories")
    return visitor


def test_looking_shows_kernels_by_layer_and_files(visitor: Visitor) -> None:
    assert visitor.shown("inside_function", "choices")[-1] == [(str(KEY), WORD)]
    assert visitor.reads("inside_function") == WORD

    visitor.press("inside_look")
    shown = visitor.reads("inside_report")
    for said in ("Traced operations", "Layer 0", "Layer 1", "Head and token choice", "14.0 MB"):
        assert said in shown
    assert "blocks.py:145" in shown
    assert "<i>dot" not in shown
    assert "inside_measured" not in shown, "nothing was measured"
    assert visitor.reads("inside_notice") == ""

    visitor.press("inside_texts")
    links = visitor.reads("inside_files")
    assert "decode.stablehlo.mlir" in links
    assert "key=16x1x32" in links


def test_measuring_adds_times_roofline_and_ways(visitor: Visitor) -> None:
    visitor.press("inside_measure")
    shown = visitor.reads("inside_report")
    assert "Where the time of a token goes" in shown
    assert "100 µs" in shown, "what the kernels leave of the token"
    assert "1.4×" in shown, "14 MB at 20 GB/s are 0.7 ms"
    assert "Memory is the limit: read from main memory" in shown
    assert 'id="inside_ways"' in shown


def test_equal_layers_are_one_and_what_wastes_time_comes_first() -> None:
    inside = function(
        *(kernel(f"dot.{layer}", layer, "attention", 1_000, 4_000_000) for layer in range(3)),
        *(kernel(f"norm.{layer}", layer, "norm", 1_000, 4_000) for layer in range(3)),
        kernel("head", None, "head", 1_000, 8_000_000),
    )
    assert [(numbers, len(of_first)) for numbers, of_first in inside.layers] == [(range(3), 2)]
    took = {"dot.0": 2e-4, "dot.1": 2e-4, "norm.0": 1e-3, "norm.2": 1e-3, "head": 3e-4}
    measured = replace(MEASURED, kernel_s=took)
    assert measured.wasted_s(inside.kernels) == pytest.approx(2 * (1e-3 - 4_000 / 20e9))
    shown = report.report(Inspection("model", KEY, inside, inside, 0.4), measured)
    assert "Layers 0 to 2" in shown
    assert "3 × 2 kernels" in shown
    assert re.findall(r'signature" translate="no">(\w+)', shown)[:6:2] == ["norm", "dot", "head"]


def test_a_kernel_of_our_own_leads_to_its_machine_code(visitor: Visitor) -> None:
    visitor.press("inside_look")
    shown = visitor.reads("inside_report")
    address = re.search(r'href="(inside/text\?file=[^"]*)"[^>]*>dot.3<', shown)
    assert address is not None
    with api_page(inspector=cast(Inspector, INSPECTOR)) as page:
        answer = httpx.get(f"{page.url}/{address[1]}")
    assert (answer.status_code, answer.text) == (200, "of matmul_Q4_K: vpdpbusd")


def test_the_report_is_saved_as_a_file_that_needs_no_other(visitor: Visitor) -> None:
    visitor.press("inside_measure")
    visitor.press("inside_save")
    made = json.loads(visitor.reads("saved_file"))
    assert made["name"] == "inside-gpt2-stories-16x1x32.html"
    assert made["text"].startswith("<!doctype html>")
    assert "Roofline" in made["text"]
    assert "&lt;i&gt;dot.2" in made["text"]
    assert not re.search(r"<script|<i>dot|(src|href)=|@import|url\(", made["text"])

    visitor.press("inside_passes")
    shown = visitor.reads("inside_changes")
    visitor.press("inside_save")
    for text in shown, json.loads(visitor.reads("saved_file"))["text"]:
        assert "2 passes · +2 −1,201" in text, "a pipeline has the sum of its passes"
        assert "<del>-%old</del><ins>+%new\n+%&lt;i&gt;new</ins>" in text
        assert "1,199 more lines left out" in text


@pytest.mark.parametrize("button", ["inside_measure", "inside_texts", "inside_passes"])
def test_strangers_load_no_second_copy_of_a_model(inspector: FakeInspector, button: str) -> None:
    visitor = Visitor(page(admin=False))
    visitor.put("inside_model", "gpt2-stories")
    assert not visitor.shown(button, "visible")
    visitor.press(button)
    assert "only allowed on private pages" in visitor.reads("inside_notice")


@pytest.mark.parametrize("error", [InvalidRequest("Not there."), EngineStopped("Killed.")])
def test_an_error_keeps_all(visitor: Visitor, inspector: FakeInspector, error: Exception) -> None:
    visitor.press("inside_look")
    before, inspector.error = visitor.reads("inside_report"), error
    visitor.press("inside_look")
    assert str(error) in visitor.reads("inside_notice")
    assert visitor.reads("inside_report") == before


def test_without_a_store_it_says_so() -> None:
    visitor = Visitor(create_app(FakeBackend()))
    assert NO_STORE in visitor.reads("inside_report")
    visitor.put("inside_function", WORD)
    visitor.press("inside_look")
    assert NO_STORE in visitor.reads("inside_notice")

    asked = {"model": "gpt2-stories", "key": WORD, "file": "decode.hlo.txt"}
    with api_page() as page:
        answer = httpx.get(f"{page.url}/inside/text", params=asked)
        assert (answer.status_code, answer.text) == (404, NO_STORE)


@pytest.mark.parametrize("word", ["", "16x1", "16x1x-3", "axbxc", "1x1x99999999", *INJECTIONS])
def test_other_words_name_no_function(word: str) -> None:
    with pytest.raises(InvalidRequest, match="Choose a function"):
        key_of(word)
