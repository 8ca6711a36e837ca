"""Takes the README's pictures: `make screenshots`, or `python tests/browser/screenshots.py`.

Knows which moments are worth a picture. Serves the page itself, on the bundled model or, with
`--model`, on another one, and writes to `docs/images/`.
"""

import argparse
import base64
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
# Run as a script, Python finds this folder but not the checkout.
sys.path.insert(0, str(ROOT))

from playground.ui.theme import LIGHT  # noqa: E402
from tests.browser.visit import CHROMIUM_ARGUMENTS, Visit  # noqa: E402
from tests.conftest import BROWSERS  # noqa: E402
from tests.playground.served import serve  # noqa: E402

FOLDER = ROOT / "docs" / "images"
WIDE = (1520, 1010)
"""The result stands beside the request, both on one screen."""


def main() -> int:
    """Takes all pictures; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt2-stories", help="name or folder to show")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    flags = parser.parse_args()
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        print("No browser: install the Debian package chromium.", file=sys.stderr)
        return 1
    flags.folder.mkdir(parents=True, exist_ok=True)
    # A store of its own, or the first call would be restored from an earlier day's.
    with tempfile.TemporaryDirectory() as store, sync_playwright() as playwright:
        served = serve("--models", f"{flags.model},whisper-commands", "--store", store)
        try:
            browser = playwright.chromium.launch(
                executable_path=executable, args=CHROMIUM_ARGUMENTS
            )
            take_pictures(browser, f"{served.url}/?tab=playground", flags.folder)
        finally:
            served.end()
    return 0


def take_pictures(browser: Browser, url: str, folder: Path) -> None:
    """The first screen, a first call, a later one in the dark and on a phone, shapes in the making,
    ways compared."""
    wide = Visit(browser, url, *WIDE, color_scheme="light")
    _wait_until_idle(wide)
    _shoot(wide, folder / "playground.png")
    wide.at("#examples button", has_text="Four beams, another shape").click()
    wide.at("#prediction .outcome-miss").wait_for()
    wide.generate()
    wide.at("#report .outcome-miss").wait_for()
    _save(wide, folder / "first-call.png")
    wide.close()
    take_thumbnail(browser, url, folder)

    dark = Visit(browser, url, *WIDE, color_scheme="dark")
    dark.generate()
    _save(dark, folder / "playground-dark.png")
    dark.close()

    phone = Visit(browser, url, 390, 844, color_scheme="light", device_scale_factor=2)
    phone.generate()
    _save(phone, folder / "phone.png")
    phone.close()

    shapes = Visit(browser, url, 1280, 1010, color_scheme="light")
    shapes.open_mode("Shapes")
    for name, size in {"padded_lengths": "64", "beams": "4", "new_slots": "32"}.items():
        shapes.at(f"#{name} label", has_text=size).first.click()
    shapes.at("#make_ready").click()
    # Some are ready, one is being made, the others wait.
    shapes.page.wait_for_function(
        "document.querySelectorAll('#entries tbody tr:not(:has(.badge))').length >= 4"
    )
    _shoot(shapes, folder / "shapes.png")
    shapes.at("#cancel_making").click()
    shapes.close()

    take_functions(browser, url, folder)
    take_speech(browser, url, folder)
    take_tokens(browser, url, folder)

    compared = Visit(browser, url, 1280, 1150, color_scheme="light")
    _wait_until_idle(compared)
    compared.open_mode("Compare")
    compared.set_number("compare_calls", 20)
    compared.at("#compare").click()
    compared.at("#compare:disabled").wait_for()
    compared.at("#compare:enabled").wait_for(timeout=300_000)
    _shoot(compared, folder / "compare.png")
    compared.close()


def take_tokens(browser: Browser, url: str, folder: Path) -> None:
    """The most likely tokens in one place."""
    shown = Visit(browser, url, *WIDE, color_scheme="light")
    shown.generate()
    shown.at("#result_view label", has_text="Tokens").click()
    shown.at("#tokens button.token").nth(4).click()
    shown.at("#tokens .token-popover").wait_for()
    # The panel stays while its token has the focus.
    shown.page.screenshot(path=folder / "tokens.png")
    print(folder / "tokens.png")
    shown.close()


def take_thumbnail(browser: Browser, url: str, folder: Path) -> None:
    """The card that a link to the Space is shown as: what the page is, and a measured example."""
    shown = Visit(browser, url, 1280, 1800, color_scheme="light", device_scale_factor=2)
    shown.generate()
    shown.at("#prediction .outcome-hit").wait_for()
    _wait_until_idle(shown)
    top = shown.at("#report .verdict").bounding_box()
    bottom = shown.at("#report .versus").bounding_box()
    height = bottom["y"] + bottom["height"] - top["y"] + 8
    part = {"x": top["x"], "y": top["y"] - 4, "width": top["width"], "height": height + 4}
    picture = base64.b64encode(shown.page.screenshot(clip=part)).decode()
    shown.close()

    icon = base64.b64encode(
        (ROOT / "playground" / "ui" / "assets" / "favicon.svg").read_bytes()
    ).decode()
    card = browser.new_page(viewport={"width": 1200, "height": 630})
    card.set_content(
        f"""<style>
          body {{ margin: 0; padding: 56px 64px; box-sizing: border-box; height: 630px;
                 background: {LIGHT["page"]}; color: {LIGHT["ink"]}; font-family: "Noto Sans",
                 system-ui, sans-serif; display: flex; flex-direction: column; gap: 36px; }}
          header {{ display: flex; gap: 28px; align-items: center; }}
          h1 {{ font-size: 68px; line-height: 1; margin: 0 0 14px; }}
          p {{ font-size: 28px; margin: 0; color: {LIGHT["muted"]}; }}
          main {{ background: {LIGHT["surface"]}; border: 1px solid {LIGHT["line"]};
                 border-radius: 16px; flex: 1; display: grid; place-items: center; }}
          main img {{ max-width: 980px; max-height: 320px; }}
        </style>
        <header><img src="data:image/svg+xml;base64,{icon}" width="116" alt="">
        <div><h1>XLA Playground</h1>
        <p>What XLA compiles, and what it saves: TensorFlow text generation</p></div></header>
        <main><img src="data:image/png;base64,{picture}" alt=""></main>"""
    )
    card.wait_for_timeout(300)
    card.screenshot(path=folder / "thumbnail.png")
    card.close()
    print(folder / "thumbnail.png")


def take_functions(browser: Browser, url: str, folder: Path) -> None:
    """A padded batch that shares the shape of another one."""
    functions = Visit(browser, url, 1280, 1010, color_scheme="light")
    functions.open_mode("Functions")
    functions.at("#functions_pad input").check()
    for batch_size in (5, 7):
        _wait_until_idle(functions)
        functions.set_number("functions_batch_size", batch_size)
        functions.at("#functions_prediction", has_text=f"batch of {batch_size},").wait_for()
        functions.at("#functions_run").click()
        functions.at("#functions_report .verdict", has_text=f"batch of {batch_size},").wait_for()
    functions.at("#functions_shapes", has_text="5, 7").wait_for()
    _shoot(functions, folder / "functions.png")
    functions.close()


def take_speech(browser: Browser, url: str, folder: Path) -> None:
    """A recording of several windows, on the function that a first one has made."""
    speech = Visit(browser, url, 1280, 1010, color_scheme="light")
    speech.open_mode("Speech")
    for example in ("Command 1", "in a row"):
        speech.at("#speech_examples button", has_text=example).click()
        speech.page.wait_for_timeout(1500)
        _wait_until_idle(speech)
        speech.at("#transcribe").click()
        speech.at("#speech_report .busy").wait_for(state="attached")
        speech.at("#speech_report .busy").wait_for(state="detached")
    speech.at("#windows tbody tr").nth(3).wait_for()
    _shoot(speech, folder / "speech.png")
    speech.close()


def _wait_until_idle(visit: Visit) -> None:
    visit.at("#status .status-ready .status-detail:empty").wait_for(state="attached")


def _save(visit: Visit, path: Path) -> None:
    visit.at("#prediction .outcome-hit").wait_for()
    _wait_until_idle(visit)
    _shoot(visit, path)


def _shoot(visit: Visit, path: Path) -> None:
    visit.page.evaluate("document.activeElement.blur()")
    visit.page.mouse.move(0, 0)
    visit.page.wait_for_timeout(1000)  # a bar takes 0.9 s to its new width
    visit.page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
