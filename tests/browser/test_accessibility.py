"""axe-core (github.com/dequelabs/axe-core) on every tab: nothing serious, nothing critical."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

import pytest

from playground.page import TABS
from tests.browser.visit import Visit

Open = Callable[..., Visit]

# The package brings axe-core 4.11.0; what it adds to it is not needed.
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
_FINDINGS = """() => axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
  violations.filter(({impact}) => ["serious", "critical"].includes(impact)).flatMap(
    ({id, nodes}) => nodes.map(({html}) => `${id}: ${html.slice(0, 200)}`)))"""


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_tab_has_a_serious_finding(visit: Open, width: int, height: int, scheme: str) -> None:
    window = visit(width, height, color_scheme=scheme)
    window.set_number("max_new_tokens", 8)
    window.generate()
    window.at("#result_view label", has_text="Tokens").click()
    window.at("#tokens button.token").nth(2).click()
    window.page.evaluate(AXE)
    findings = {"Tokens": window.page.evaluate(_FINDINGS)}
    for tab in TABS[1:]:
        window.open_tab(tab.name)
        window.page.wait_for_timeout(300)  # Gradio builds a tab when it is first opened.
        findings[tab.name] = window.page.evaluate(_FINDINGS)
    window.open_tab(TABS[0].name)
    window.at("#shortcuts_open").click()
    findings["Keys"] = window.page.evaluate(_FINDINGS)
    assert {tab: found for tab, found in findings.items() if found} == {}
