"""How the page looks: on small screens and large ones, in light and dark, to all who read it."""

from collections.abc import Callable
from importlib import resources

from playwright.sync_api import expect

from playground.places import modes
from tests.browser.visit import Visit

Open = Callable[..., Visit]
GROUND = "getComputedStyle(document.querySelector('.card')).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 26, 35)"

# The package brings axe-core 4.11.0; what it adds to it is not needed.
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
_FINDINGS = """async () => {
  const {violations} = await axe.run(document, {resultTypes: ["violations"]});
  return violations
    .filter(({impact}) => ["serious", "critical"].includes(impact))
    .flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html.slice(0, 200)}`));
}"""


def test_no_mode_has_a_serious_finding_of_axe_and_each_fits_a_phone(window: Visit) -> None:
    """axe-core (github.com/dequelabs/axe-core): nothing serious, nothing critical."""
    window.generate()
    window.at("#result_view label", has_text="Tokens").click()
    window.at("#tokens button.token").nth(2).click()
    window.page.add_style_tag(content="* { transition: none !important; }")
    window.page.evaluate(AXE)
    assert window.page.title() == "XLA Playground"
    findings = {"Tokens": window.page.evaluate(_FINDINGS)}
    names = [mode.name for mode in modes(admin=True).values()]
    for name in names:
        window.open_mode(name)
        findings[name] = window.page.evaluate(_FINDINGS)
    window.at("#shortcuts_open").click()
    findings["Keys"] = window.page.evaluate(_FINDINGS)
    window.page.keyboard.press("Escape")
    window.resize(390, 844)
    lines = """[...document.querySelectorAll("#places nav")].filter((nav) => nav.offsetParent)
      .map((nav) => new Set([...nav.children].map((link) => link.offsetTop)).size)"""
    # The page itself hides what a card has no room for.
    beyond = """[...document.querySelectorAll(".card :is(pre, button:has(+ pre))")]
      .filter((part) => {
      const card = part.closest(".card").getBoundingClientRect();
      return part.checkVisibility() && part.getBoundingClientRect().right > card.right;
    }).map((part) => part.textContent)"""
    for name in names:
        window.open_mode(name)
        if name == "API":
            window.at("#api_snippets pre").first.wait_for()
        assert window.overflow() == 0, name
        assert window.page.evaluate(beyond) == [], name
        assert set(window.page.evaluate(lines)) == {1}, "places and modes stand in a line each"
    findings["On a phone"] = window.page.evaluate(_FINDINGS)
    window.resize(640, 450)  # 1280x900 with text at 200 %
    window.page.evaluate("document.body.classList.add('dark')")
    for name in names:
        window.open_mode(name)
        findings[f"{name}, large and dark"] = window.page.evaluate(_FINDINGS)
        assert window.overflow() == 0, name
    window.page.evaluate("document.body.classList.remove('dark')")
    assert {name: found for name, found in findings.items() if found} == {}


def test_on_a_small_screen_text_badge_and_buttons_are_in_sight(visit: Open) -> None:
    window = visit(390, 844, has_touch=True, reduced_motion="no-preference")
    window.at("#prediction .term").tap()
    window.says("#terms", "Shape", "Slots", "Padding", "Beams")
    window.page.keyboard.press("Escape")
    expect(window.at("#terms")).to_be_hidden()
    for size in ((390, 844), (853, 533)):  # a phone; 1280x800 at 150 %
        window.resize(*size)
        is_phone = size == (390, 844)  # there the prediction is in the bar
        lowest = "#prediction" if is_phone else ".within-reach"
        window.page.evaluate("scrollTo(0, 0)")
        window.generate()
        window.page.wait_for_function(
            """(lowest) => {
              const place = (part) => document.querySelector(part)?.getBoundingClientRect() ?? {};
              const [top, bar] = [place("#top").bottom, place(lowest).top];
              return ["#story .story", "#report .badge"].every(
                (part) => place(part).top >= top && place(part).bottom <= bar);
            }""",
            arg=lowest,
        )
        window.at("#meanings").scroll_into_view_if_needed()
        for part in ("#generate", "#stop", "#walkthrough_show", *(["#prediction"] * is_phone)):
            expect(window.at(part)).to_be_in_viewport(ratio=1)
        assert window.overflow() == 0
        # The bar covers nothing that could not be scrolled above it.
        window.page.wait_for_function(
            """(lowest) => {
              scrollTo(0, document.documentElement.scrollHeight);
              const place = (part) => document.querySelector(part).getBoundingClientRect();
              return place("#meanings").bottom <= place(lowest).top;
            }""",
            arg=lowest,
        )


def test_the_presenter_view_needs_no_scrolling(visit: Open) -> None:
    window = visit(1920, 1080)
    size = "parseFloat(getComputedStyle(document.querySelector('#report .figures dd')).fontSize)"
    height = "document.documentElement.scrollHeight"
    window.generate()
    assert window.page.evaluate("document.querySelector('#page').clientWidth") > 0.9 * 1920
    ordinary = window.page.evaluate(size)
    window.at("#present_switch").click()
    window.page.wait_for_url("**present=1*")
    assert window.page.evaluate(size) > 1.5 * ordinary
    assert window.page.evaluate(height) == 1080
    window.go()
    window.settle()
    window.generate()
    assert window.page.evaluate(height) == 1080
    for part in ("#generate", "#prediction", "#temperature", "#report .phases"):
        expect(window.at(part)).to_be_in_viewport(ratio=1)
    window.at("#present_switch").click()
    window.page.wait_for_url(lambda url: "present" not in url)
    expect(window.at("#meanings")).to_be_visible()


def test_what_clearing_does_comes_into_sight(visit: Open) -> None:
    window = visit(1280, 720)
    window.open_mode("Shapes")
    window.at("#clear_shapes").click()
    expect(window.at("#clear_sentence")).to_contain_text("affects everybody")
    expect(window.at("#clear_now")).to_be_in_viewport()


def test_light_or_dark_is_the_system_s_or_chosen_and_remembered(window: Visit) -> None:
    window.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    chosen = "document.getElementById('dark_switch').click()"
    for ground in (DARK, LIGHT, DARK):  # as the system has it; as was chosen; and chosen back
        window.go(window.page.url.split("?")[0])
        window.settle()
        assert window.page.evaluate(GROUND) == ground
        window.page.evaluate(chosen)
        assert window.page.evaluate(GROUND) == ({LIGHT, DARK} - {ground}).pop()
    dot = "getComputedStyle(document.querySelector('.status-dot')).animationName"
    assert window.page.evaluate(dot) == "none"


def test_the_keys_are_told(window: Visit) -> None:
    panel = window.at("#shortcuts")
    for width in (1280, 390):
        window.resize(width, 844)
        expect(panel).to_be_hidden()
        window.at("#shortcuts_open").click()
        window.says("#shortcuts", "Ctrl", "Enter", "Esc", "?")
        assert window.overflow() == 0
        window.page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(window.at("#shortcuts_open")).to_be_focused()  # where it was
        window.page.keyboard.press("?")
        panel.get_by_role("button", name="Close").click()
        expect(panel).to_be_hidden()
    # In a text field it is a character like any other.
    window.write("")
    window.at("#prompt textarea").press("?")
    window.has_value("#prompt textarea", "?")
    expect(panel).to_be_hidden()
