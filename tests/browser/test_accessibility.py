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
# In dark, only colours are others. Gradio's dark page is the light one with a class more.
_FINDINGS = """async () => {
  const found = [];
  const look = async (scheme, options) => {
    const {violations} = await axe.run(document, {resultTypes: ["violations"], ...options});
    for (const {id, impact, nodes} of violations) {
      if (!["serious", "critical"].includes(impact)) continue;
      for (const {html} of nodes) found.push(`${scheme}: ${id}: ${html.slice(0, 200)}`);
    }
  };
  await look("light", {});
  if (innerWidth > 1000) {  // Colours are the same on a phone.
    document.body.classList.add("dark");
    await look("dark", {runOnly: ["color-contrast"]});
    document.body.classList.remove("dark");
  }
  return found;
}"""


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_no_tab_has_a_serious_finding(visit: Open, width: int, height: int) -> None:
    window = visit(width, height, color_scheme="light")
    window.set_number("max_new_tokens", 8)
    window.generate()
    window.at("#result_view label", has_text="Tokens").click()
    window.at("#tokens button.token").nth(2).click()
    window.page.add_style_tag(content="* { transition: none !important; }")
    window.page.evaluate(AXE)
    assert window.page.title() == "XLA Playground"
    findings = {"Tokens": window.page.evaluate(_FINDINGS)}
    for tab in list(TABS.values())[1:]:
        window.open_tab(tab.name)
        window.page.wait_for_timeout(300)  # Gradio builds a tab when it is first opened.
        findings[tab.name] = window.page.evaluate(_FINDINGS)
    window.open_tab("Playground")
    window.go()
    window.settle()
    window.page.evaluate(AXE)
    window.at("#shortcuts_open").click()
    findings["Keys"] = window.page.evaluate(_FINDINGS)
    assert {tab: found for tab, found in findings.items() if found} == {}
