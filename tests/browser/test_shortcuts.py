"""The panel with the keys, opened as a visitor opens it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.visit import Visit

Open = Callable[..., Visit]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_button_and_a_key_open_the_panel(visit: Open, width: int) -> None:
    window = visit(width, 844)
    panel = window.at("#shortcuts")
    assert not panel.is_visible()
    window.at("#shortcuts_open").click()
    panel.wait_for(state="visible")
    text = panel.inner_text()
    for key in ("Ctrl", "Enter", "Esc", "?"):
        assert key in text
    assert window.overflow() == 0
    window.page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    focused = window.page.evaluate("document.activeElement.id")
    assert focused == "shortcuts_open", "the focus is where it was"

    window.page.keyboard.press("?")
    panel.wait_for(state="visible")
    panel.get_by_role("button", name="Close").click()
    panel.wait_for(state="hidden")

    # In a text field it is a character like any other.
    window.write("")
    window.at("#prompt textarea").press("?")
    window.has_value("#prompt textarea", "?")
    assert not panel.is_visible()
