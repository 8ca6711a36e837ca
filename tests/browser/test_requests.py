"""The Requests mode: what a program sends appears while it runs, and can be watched and stopped."""

import json
import re
import threading
from collections.abc import Callable

import httpx
from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeBackend
from tests.waiting import wait_until


def test_a_program_s_request_is_watched_paused_traced_and_stopped(
    window: Visit, site: ApiPage, engine: FakeBackend
) -> None:
    window.open_mode("Requests")
    engine.hold("prefill", "text")
    body = {"model": "talker", "stream": True, "max_tokens": 16}
    messages = [{"role": "user", "content": "Tell me <b>all</b>"}]
    sending = threading.Thread(
        target=httpx.post,
        args=(f"{site.api}/chat/completions",),
        kwargs={"json": {**body, "messages": messages}, "timeout": 600},
    )
    sending.start()
    engine.reached("prefill")
    row = window.at("#requests tbody tr").first
    expect(row).to_contain_text(re.compile(r"/v1/chat/completions.*talker.*Tell me <b>all</b>"))
    expect(row).to_contain_text("reading")
    bar = window.at("#requests .lane-track").first
    expect(bar).to_have_attribute("aria-label", re.compile("reading$"))
    expect(bar).to_have_css("background-image", re.compile("gradient"))
    bar.focus()
    bar.press("ArrowLeft")
    window.says("#requests .doing", "s ago, request")

    pause = window.at("#requests .pause")
    pause.click()
    expect(pause).to_have_text("Go on")
    engine.release("prefill")
    engine.write(" There")
    wait_until(lambda: engine.streams[-1].record.state == "writing")
    expect(row).to_contain_text("reading")
    pause.click()
    expect(row).to_contain_text(re.compile("There.*writing"))

    window.open_mode("API")
    wait_until(lambda: not engine.requests._watchers)  # noqa: SLF001 (nobody looks)
    window.open_mode("Requests")
    row.locator("[data-stop]").click()
    expect(row).to_contain_text("stopped")
    expect(row.locator(".badge")).to_have_text(re.compile("HIT|MISS"))
    sending.join()
    with window.page.expect_download() as download:
        window.at("#requests .trace").click()
    events = json.loads(download.value.path().read_text())["traceEvents"]
    assert {"queue", "prefill", "request"} <= {event["name"] for event in events}


def test_others_requests_have_no_text_and_a_page_that_comes_back_is_right(
    visit: Callable[..., Visit], site: ApiPage, engine: FakeBackend
) -> None:
    own = visit(address=f"{site.url}/?tab=playground")
    own.write("Once upon a time")
    own.generate()
    own.wait_for_result()
    own.open_mode("Requests")
    expect(own.at("#requests tbody tr").first).to_contain_text("Once upon a time")
    other = visit(width=390, address=f"{site.url}/?tab=requests")
    first = other.at("#requests tbody tr").first
    expect(first).to_contain_text(re.compile("page.*gpt2-stories"))
    expect(first).not_to_contain_text("Once upon a time")

    other.page.context.set_offline(True)
    engine.stream("t5-stories", "Another").read_all()
    other.page.context.set_offline(False)
    expect(first).to_contain_text("t5-stories")
    other.complaints[:] = [each for each in other.complaints if "ERR_INTERNET" not in each]
