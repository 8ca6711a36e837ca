"""Gradio's panel about the API, as this page serves it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.visit import Visit


def test_it_opens_without_a_mistake_and_promises_no_tools(visit: Callable[..., Visit]) -> None:
    # That the console shows no error, `visit` looks at.
    page = visit().page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response("**/monitoring/summary") as summary:
        page.locator("button.show-api").click()
    assert summary.value.ok
    # What it shows first where there are no tools.
    expect(page.locator(".api-docs").get_by_text("pip install gradio_client")).to_be_visible()
    assert not [url for url in asked if "/mcp/" in url]
