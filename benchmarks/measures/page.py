"""The page in a browser: start, bytes of a visit, click to first text, end to final numbers.

Chromium runs on the same machine as the engine and caches nothing between visits. The page is
usable when Generate is enabled and shows a prediction. The click is for a compiled shape; TTFT of
the same request at `/v1` is subtracted, to get the page's part. The engine's end is that of the
request's last span in the app's trace; the numbers are final when the browser has painted them, by
the same clock.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from benchmarks.client import Client
from benchmarks.harness import MeasureFailed, Row
from benchmarks.servers import settle, this_app
from xla_backend.checkpoints.models import DEFAULT_MODEL, PACKAGED_MODEL

OPTIONS = {"rounds": 5}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update"]
PATIENCE_MS = 90_000
PROMPT = "Once upon a time there was a little fox"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]

# Timed in the browser, so the driver's time is not included.
_USABLE = """(press) => new Promise((resolve) => {
  const check = () => {
    const button = document.querySelector(press);
    const isThere = document.querySelector(
      ".walkthrough, #prediction .prediction-key, #chat_prediction .prediction");
    if (button && !button.disabled && isThere) resolve(performance.now() / 1000);
    else requestAnimationFrame(check);
  };
  check();
})"""
# The last text may stay until the new one begins: the first text is one that differs from it.
_CLICK = """() => new Promise((resolve) => {
  const read = () => document.querySelector("#story .story-new")?.textContent.trim() ?? "";
  const [before, start] = [read(), performance.now()];
  const seen = new MutationObserver(() => {
    const text = read();
    if (!text || text === before) return;
    seen.disconnect();
    resolve((performance.now() - start) / 1000);
  });
  seen.observe(document.getElementById("story"),
    {childList: true, subtree: true, characterData: true});
  document.getElementById("generate").click();
})"""
# The numbers are there once there is one more of them than at the fewest since the click. A task
# after the next frame's begins when that frame was painted.
_FINAL = """([button, final]) => new Promise((resolve) => {
  const count = () => document.querySelectorAll(final).length;
  let fewest = count();
  const seen = new MutationObserver(() => {
    fewest = Math.min(fewest, count());
    if (count() === fewest) return;
    seen.disconnect();
    const now = () => (performance.timeOrigin + performance.now()) / 1000;
    requestAnimationFrame(() => setTimeout(() => resolve(now())));
  });
  seen.observe(document.body, {childList: true, subtree: true});
  document.querySelector(button).click();
})"""
# Address, field, and what `_FINAL` is given.
_PLAYGROUND = ("playground", "#prompt", ["#generate", "#report .report:not(.busy)"])
_CHAT = ("chat", "#chat_text", ["#chat_send", "#chat .chat-line:not(.busy)"])


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each time and size."""
    for model in (DEFAULT_MODEL, PACKAGED_MODEL):
        started: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as store:
                for filled in ("empty", "filled"):
                    started[filled].append(_start(model, store))
        for filled, times in started.items():
            page_s, answered = zip(*times, strict=True)
            yield _row(f"{model}, store {filled}: start to page, s", page_s)
            yield _row(f"{model}, store {filled}: start to first answer, s", answered)
    with (
        tempfile.NamedTemporaryFile() as trace,
        this_app(f"--models={DEFAULT_MODEL},{PACKAGED_MODEL}", f"--trace-file={trace.name}") as url,
        sync_playwright() as playwright,
    ):
        settle(url)
        try:
            path = next(filter(None, map(shutil.which, BROWSERS)), None)
            browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        except PlaywrightError as error:
            raise MeasureFailed(
                "no browser: install Chromium (apt-get install chromium)"
            ) from error
        for place, address in (("Start", url), ("the Playground", f"{url}/?tab=playground")):
            visits = [_visit(browser, address) for _ in range(options.rounds + 1)][1:]
            requests, megabytes, usable = zip(*visits, strict=True)
            yield _row(f"requests of a visit of {place}", requests)
            yield _row(f"bytes of a visit of {place}, MB", megabytes)
            yield _row(f"visit of {place} to usable, s", usable)
        yield _row("click to first text, ms", _clicks(browser, url, options.rounds))
        client = Client(url, DEFAULT_MODEL)
        answers = [client.complete(PROMPT, max_tokens=96, temperature=0.0) for _ in range(7)][2:]
        yield _row("first token of the same at /v1, ms", [1000 * one.ttft_s for one in answers])
        for model, mode in (
            (DEFAULT_MODEL, _PLAYGROUND),
            (PACKAGED_MODEL, _PLAYGROUND),
            (PACKAGED_MODEL, _CHAT),
        ):
            ends = _ends(browser, f"{url}/?model={model}", mode, Path(trace.name), options.rounds)
            yield _row(f"{model}, {mode[0]}: engine's end to final numbers, ms", ends)


def _row(what: str, values: Sequence[float]) -> Row:
    return {"what": what, "median": statistics.median(values), "most": max(values)}


def _start(model: str, store: str) -> tuple[float, float]:
    """Seconds from the start of the process to the page, and to the end of the first text."""
    start = time.perf_counter()
    with this_app("--models", model, store=store) as url:
        httpx2.get(url, timeout=60, trust_env=False).raise_for_status()
        page_s = time.perf_counter() - start
        client = Client(url, model)
        if model == PACKAGED_MODEL:
            answer = client.chat(QUESTION, max_tokens=128, temperature=0.0)
        else:
            answer = client.complete(PROMPT, max_tokens=96, temperature=0.0)
        return page_s, answer.last - start


def _opened(
    browser: Browser, url: str, button: str = "#start_generate, #generate"
) -> tuple[Page, list[float], float]:
    """A new visitor's page, the bytes of its requests so far, and seconds until it was usable."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    network, sizes = page.context.new_cdp_session(page), []
    network.send("Network.enable")
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url)
    return page, sizes, page.evaluate(_USABLE, button)


def _visit(browser: Browser, url: str) -> tuple[int, float, float]:
    """Requests, megabytes and seconds until the page is usable."""
    page, sizes, usable_s = _opened(browser, url)
    page.wait_for_timeout(1000)  # includes what loads later
    page.context.close()
    return len(sizes), sum(sizes) / 1e6, usable_s


def _clicks(browser: Browser, url: str, count: int) -> list[float]:
    """Milliseconds of clicks for a compiled shape."""
    page, _, _ = _opened(browser, f"{url}/?tab=playground")
    page.locator("#prompt textarea").fill(PROMPT)
    times = []
    for _ in range(2 + count):
        times.append(1000 * page.evaluate(_CLICK))
        page.locator("#report .busy").wait_for(state="detached")
        page.locator("#generate:enabled").wait_for()
        page.wait_for_timeout(300)  # the tables below are drawn
    page.context.close()
    return times[2:]


def _ends(
    browser: Browser, url: str, mode: tuple[str, str, list[str]], trace: Path, count: int
) -> list[float]:
    """Milliseconds from the engine's end to the final numbers on the screen."""
    address, field, parts = mode
    page, _, _ = _opened(browser, f"{url}&tab={address}", parts[0])
    times = []
    for place in range(2 + count):
        page.locator(f"{field} textarea").fill(f"{PROMPT} {place}")
        page.wait_for_timeout(1000)  # the visitor reads the prediction
        painted = page.evaluate(_FINAL, parts)
        page.locator(f"{parts[0]}:enabled").wait_for()
        times.append(1000 * (painted - _engine_ended(trace)))
    page.context.close()
    return times[2:]


def _engine_ended(trace: Path) -> float:
    """The end of the engine's latest request, in seconds since 1970."""
    events = [json.loads(line.rstrip(",\n")) for line in trace.open() if line.startswith("{")]
    latest = max(event["tid"] for event in events)
    ended = (
        e["ts"] + e["dur"] for e in events if (e["ph"], e["pid"], e["tid"]) == ("X", 2, latest)
    )
    return max(ended) / 1e6 + time.time() - time.perf_counter()
