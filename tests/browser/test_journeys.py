"""Each promise of the page once, kept by `app.py` with a real engine.

What the page does with clicks, stops and mistakes is tested with the fake engine, beside this file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from playground.tabs.speech.examples import speech_examples
from tests import checkpoints
from tests.browser.chat_window import ChatWindow
from tests.browser.perfetto import opened as perfetto_with
from tests.browser.visit import Visit
from tests.playground.served import ROOT, Served, children, serve
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECRETS = {"HF_TOKEN": "hf_neverShownAnywhere1", "AWS_SECRET_ACCESS_KEY": "neverShownAnywhere2"}
SECOND = {"s": 1.0, "ms": 1e-3}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A story model, one that answers and one that hears, and a store of their own."""
    talker = checkpoints.instruct(tmp_path_factory.mktemp("models") / "talker")
    store = tmp_path_factory.mktemp("store")
    models = f"gpt2-stories,{talker},whisper-commands"
    served = serve("--models", models, "--store", str(store), "--admin", **SECRETS)
    yield served
    served.end()


@pytest.fixture(scope="module")
def staying(app: Served, browser: Browser) -> Iterator[Visit]:
    """A visitor who stays for all of these journeys."""
    visitor = Visit(browser, f"{app.url}/?tab=playground", 1280, 900)
    yield visitor
    visitor.close()


@pytest.fixture
def window(staying: Visit) -> Iterator[Visit]:
    """The same, on the Playground tab; nothing may be wrong in its console afterwards."""
    staying.resize(1280, 900)
    staying.open_mode("Playground")
    yield staying
    complaints, staying.complaints[:] = [*staying.complaints], []
    assert complaints == []


def seconds(text: str) -> float:
    """A time as the page writes it; what is below what it writes is none."""
    number, unit = text.split()[-2:]
    return 0.0 if text.startswith("<") else float(number) * SECOND[unit]


def phases(window: Visit) -> dict[str, float]:
    """Where the time of the run on the page went, as its bar is heard: "Trace 1.00 s, ..."."""
    heard = str(window.at("#report .phases .bar").get_attribute("aria-label"))
    found = re.findall(r"(\w[\w ,]*?) (<? ?[\d.]+ (?:s|ms))(?:, |$)", heard)
    return {name: seconds(time) for name, time in found}


def end_to_end_s(window: Visit) -> float:
    """What the run took altogether; where others came first, the page tells it in two."""
    figures = window.at("#report .figures > div").all_inner_texts()
    told = dict(figure.split("\n", 1) for figure in figures)
    return sum(seconds(told[name]) for name in ("End to end", "Work", "Waited") if name in told)


def test_only_a_first_call_compiles_and_times_add_up(window: Visit, browser: Browser) -> None:
    # The engine has made what it makes by itself, for which nobody shall wait.
    window.at("#status .status-ready .status-detail:empty").wait_for(state="attached")
    window.open_more()
    window.at("#hold input").check()
    window.set_number("num_beams", 2)
    window.at("#prediction .outcome-miss").wait_for()
    window.generate()
    window.says("#report .badge", "MISS")
    window.says("#report", "went into tracing and compiling")
    missed = phases(window)
    written = window.text("#story .story-new")
    window.at("#prediction .outcome-hit").wait_for()
    window.generate()
    window.says("#report .badge", "HIT")
    window.says(
        "#report",
        re.compile("× faster to the first token than the first call of this shape, compiled 20"),
    )
    hit = phases(window)
    assert hit["Trace"] == hit["Compile"] == 0.0
    assert sum(hit.values()) < missed["Trace"] + missed["Compile"]
    assert sum(hit.values()) == pytest.approx(end_to_end_s(window), rel=0.05, abs=0.008)
    assert window.text("#story .story-new") == written, "the same seed gives the same text"

    with window.page.expect_download() as download:
        window.at("#report a", has_text="Save as a trace").click()
    with perfetto_with(browser, Path(download.value.path())) as seconds_of:
        traced = seconds_of("Engine")
        for name in ("Prefill", "Decode"):
            assert traced[name.lower()] == pytest.approx(hit[name], rel=0.06, abs=0.001)
        assert seconds_of("Page")["request"] > traced["request"]

    window.at("#hold input").uncheck()
    window.set_number("num_beams", 1)
    window.open_mode("Your runs")
    expect(window.at("#history tbody tr")).to_have_count(2)
    window.open_mode("Shapes")
    window.says("#entries", "compile")


def test_what_a_killed_engine_had_compiled_is_restored(window: Visit, app: Served) -> None:
    window.choose_model("talker")  # of which nothing is made ready at a start
    window.at("#system").wait_for()
    window.at("#prediction .outcome-miss").wait_for()
    window.generate()
    window.says("#report .badge", "MISS")
    [engine] = children(app.process.pid)
    os.kill(engine, signal.SIGKILL)
    window.says("#status", "restarted after it stopped")
    window.at("#prediction .outcome-disk").wait_for()
    window.generate()
    window.says("#report .badge", "DISK")
    assert phases(window)["Restore code"] > 0
    window.choose_model("gpt2-stories")


def test_one_click_shows_what_xla_does(window: Visit, app: Served) -> None:
    window.set_number("max_new_tokens", 24)
    window.at("#walkthrough_show").click()
    window.at("#walkthrough .walkthrough:not(.busy)").wait_for()
    times = {}
    outcomes = {"first": "MISS", "again": "HIT", "smaller": "REUSED", "new_process": "DISK"}
    for name, outcome in outcomes.items():
        call = window.at(f"#walkthrough .call-{name}")
        expect(call.locator(".badge")).to_have_text(outcome)
        times[name] = call.locator(".walkthrough-time").inner_text().partition("\n")[0]
    said = re.fullmatch(
        r"([\d,.]+) times faster once it is compiled: (.+), then (.+)\.",
        window.text("#walkthrough .walkthrough-said"),
    )
    assert said is not None and said.groups()[1:] == (times["first"], times["again"])
    ratio = seconds(times["first"]) / seconds(times["again"])
    assert float(said[1].replace(",", "")) == pytest.approx(ratio, rel=0.06)
    wait_until(lambda: len(children(app.process.pid)) == 1)  # its processes are gone
    window.at("#walkthrough_close").click()
    expect(window.at("#report")).to_be_visible()


def test_the_second_turn_of_a_chat_reuses_the_first(app: Served, browser: Browser) -> None:
    window = ChatWindow(browser, f"{app.url}/?tab=chat&max_new_tokens=12", 390, 844)
    window.ask("Where is the kite?")
    window.ask("Who has it?")
    assert window.overflow() == 0
    reused = [int(line.partition("reused ")[2].split()[0]) for line in window.lines()]
    assert reused[0] == 0 < reused[1]
    assert window.complaints == []
    window.close()


def test_a_recording_is_written_down_on_a_phone(window: Visit) -> None:
    window.resize(390, 844)
    window.open_mode("Speech")
    window.at("#speech_examples button", has_text="Command 2").click()
    window.at("#recording [aria-label='Clear']").wait_for()
    for outcome in ("MISS", "HIT"):
        window.at(f"#speech_prediction .outcome-{outcome.lower()}").wait_for()
        window.at("#transcribe:enabled").click()
        window.says("#speech_report .badge", outcome)
        window.says("#heard .truth", "words right", speech_examples()[2].words)
    window.says("#speech_report", "faster to the first token than the first window")
    assert window.overflow() == 0


def test_a_batch_compiles_once_for_each_shape(window: Visit) -> None:
    window.open_mode("Batch")
    window.at("#batch_prompts textarea").fill("The owl\nOne day\n" + "the fox " * 20)
    window.set_number("max_new_tokens", 5)
    window.set_number("num_beams", 3)
    window.at("#batch_run").click()
    window.says("#batch_report", "All 3 prompts done")
    outcomes = window.at('#batch_report td[data-label="Outcome"]')
    expect(outcomes).to_have_text(["MISS", "HIT", "MISS"])


def test_numbers_of_beams_are_compared(window: Visit) -> None:
    window.set_number("max_new_tokens", 4)
    window.at(".column-add").click()
    window.at(".column-choice").nth(1).wait_for()
    window.set_number("num_beams", 2)
    window.at(".column-order").click()
    window.at("#generate").click()
    window.says("#compared", re.compile("was .* faster|Equally fast"), "Num beams")
    window.at('[aria-label="Remove B"]').click()
    expect(window.at(".column-choice")).to_have_count(0)


def test_a_shape_that_was_made_ready_is_a_hit(window: Visit) -> None:
    window.open_mode("Shapes")
    window.at("#beams label", has_text="1").first.click()
    window.at("#beams label", has_text="5").click()
    window.at("#padded_lengths label", has_text="32").click()
    window.at("#make_ready").click()
    window.says("#shapes_notice", "1 shape to compile")
    made = re.compile(r"gpt2-stories\s*(16|32)\s*5")
    row = window.at("#entries tbody tr:not(:has(.badge))", has_text=made)
    expect(row).to_have_count(1)
    window.open_mode("Playground")
    window.set_number("num_beams", 5)
    window.set_number("max_new_tokens", 96)  # of the new slots that the Shapes tab begins with
    window.at("#prediction .outcome-hit").wait_for()
    window.generate()
    window.says("#report .badge", "HIT")


def test_a_function_is_compared_and_the_doctor_says_what_traced(window: Visit) -> None:
    window.open_mode("Functions")
    for cache in ("MISS", "HIT"):
        window.at(f"#functions_prediction .outcome-{cache.lower()}").wait_for()
        window.at("#functions_run:enabled").click()
        window.says("#way_xla .way-cache", cache)
    window.says("#functions_report", re.compile("(faster|slower|No faster) than eager"))
    window.says("#functions_report", "Same output in all three ways")

    window.at("#doctor_changes label", has_text="Factor 3.0").click()
    window.says("#doctor_code", "factor=3.0")
    window.at("#doctor_run").click()
    window.says(".doctor-verdict", "traced and compiled again")
    window.says("#doctor_report tbody tr", "factor", "2.0", "3.0", "constant of the graph")


def test_a_compiled_function_is_looked_into_and_taken_home(window: Visit, app: Served) -> None:
    window.open_mode("Inside")
    window.at("#inside_look").click()
    window.at("#inside_decode").wait_for()
    layer = window.at("#inside_graph .inside-box").nth(1)
    expect(layer.locator("summary").first).to_contain_text("Layers 0 to 5")
    layer.locator("summary").first.click()
    part = layer.locator("details").nth(1)
    part.locator("summary").click()
    line = part.locator("small").filter(has_text=re.compile(r"model/\S+\.py:\d+ \w+")).first
    expect(line).to_be_visible()
    window.at("#inside_texts").click()
    link = window.at("#inside_files a").filter(has_text="decode.hlo.txt")
    address = f"{app.url}/{link.get_attribute('href')}"
    assert httpx.get(address, timeout=60).text.startswith("HloModule")
    other = address.replace("file=decode.hlo.txt", "file=../machine.json")
    assert httpx.get(other).status_code == 404


def test_a_link_runs_and_the_shown_code_writes_the_same_text(window: Visit, app: Served) -> None:
    window.go(f"{app.url}/?prompt=The+old+owl&max_new_tokens=8&temperature=0&run=true")
    window.says("#report", "Decode tokens/s")
    text = window.at("#story .story-new").text_content()
    window.show_code("openai")
    window.says("#request_code", "client.completions.create(")
    code = window.text("#request_code pre")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(text) in done.stdout


def test_the_panel_about_the_api_shows_commands_that_run(window: Visit) -> None:
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    with window.page.expect_response("**/monitoring/summary") as summary:
        window.at("button.show-api").click()
    assert summary.value.ok
    expect(window.at(".api-docs").get_by_text("pip install gradio_client")).to_be_visible()
    assert not [url for url in asked if "/mcp/" in url]
    window.at(".api-docs .snippet").get_by_text("cURL", exact=True).click()
    commands = window.at(".api-docs code", has_text="curl -X POST")
    commands.first.wait_for()
    shell = {
        name: command
        for command in commands.all_inner_texts()
        for name in re.findall(r"call/v2/(\w+)", command)
    }
    assert set(shell) >= {"generate", "predict", "transcribe"}
    for name in ("generate", "predict"):
        # `read` at the end of a pipe needs zsh, or this of bash.
        command = ["bash", "-O", "lastpipe", "-c", shell[name].strip()]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "event: complete" in run.stdout, (command, run.stdout, run.stderr)
        assert re.search('"cache": ?"(hit|miss|disk|reused)"', run.stdout)
    window.at(".api-docs .backdrop").click(position={"x": 5, "y": 5})
    expect(window.at(".api-docs")).to_have_count(0)


def test_no_secret_of_the_environment_is_told_or_logged(app: Served) -> None:
    paths = ("", "config", "gradio_api/info", "gradio_api/openapi.json", "health", "none")
    told = "".join(httpx.get(f"{app.url}/{path}").text for path in paths)
    told += "\n".join(app.output)
    assert not [name for name, secret in SECRETS.items() if secret in told]
