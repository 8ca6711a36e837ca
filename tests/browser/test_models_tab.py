"""The Models tab: looking a model up, adding it with progress, cancelling, and the next start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import checkpoints
from tests.browser.visit import Visit
from tests.hub import Hub, hub_with
from tests.playground.served import Served, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAME = "someone/small-gpt2"


@dataclass
class Own:
    """A page of one's own beside a Hub with one model, which is on no list."""

    hub: type[Hub]
    root: Path
    served: Served

    def start(self, *flags: str) -> Served:
        """Starts another one with the same store and cache."""
        return serve(
            *flags,
            "--store",
            str(self.root / "store"),
            HF_ENDPOINT=self.hub.url,
            HF_HOME=str(self.root / "hf"),
        )


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    root = tmp_path_factory.mktemp("own")
    # So large that several of the pieces arrive in which the Hub's client writes.
    on_hub = checkpoints.gpt2(root / "hub", n_embd=512, n_layer=5, n_head=4)
    with hub_with(on_hub) as hub:
        hub.repository, hub.card = NAME, {"license": "mit"}
        site = Own(hub, root, served=None)  # type: ignore[arg-type]
        site.served = site.start()
        try:
            yield site
        finally:
            site.served.end()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[[Served], Visit]]:
    visits: list[Visit] = []

    def open_tab(served: Served) -> Visit:
        visits.append(Visit(browser, served.url, 1280, 900))
        if visits[-1].page.get_by_role("tab", name="Models").count():
            visits[-1].open_tab("Models")
        return visits[-1]

    yield open_tab
    complaints = [complaint for each in visits for complaint in each.complaints]
    for each in visits:
        each.close()
    assert complaints == []


def look_up(window: Visit, name: str) -> None:
    window.at("#add_name input, #add_name textarea").fill(name)
    window.at("#look_up").click()


def cells(window: Visit, selector: str) -> list[str]:
    return [text.strip() for text in window.at(f"{selector} td").all_inner_texts()]


def test_a_model_is_looked_up_before_it_is_downloaded_and_can_be_cancelled(
    own: Own, visit: Callable[[Served], Visit]
) -> None:
    window = visit(own.served)
    assert not window.at("#add_model").is_enabled()
    look_up(window, NAME)
    window.at("#add_found table").wait_for()
    assert cells(window, "#add_found")[:2] == [NAME, "GPT-2"]
    assert cells(window, "#add_found")[3:] == ["mit", "128 tokens"]
    assert own.hub.requested == ["config.json"]
    own.hub.bytes_per_s = 4_000_000
    window.at("#add_model").click()
    window.at("#adding", has_text="Downloading").wait_for()
    window.at("#cancel_adding:enabled").click()
    window.at("#adding", has_text="was not added").wait_for()
    assert NAME not in window.text("#models_sheet")
    own.hub.bytes_per_s = 0


def test_what_was_added_can_be_chosen_at_once_and_after_the_next_start(
    own: Own, visit: Callable[[Served], Visit]
) -> None:
    window = visit(own.served)
    look_up(window, NAME)
    window.at("#add_model:enabled").click()
    window.at("#adding", has_text="is in the lists of models").wait_for()
    window.at("#models_sheet", has_text=NAME).wait_for()
    window.open_tab("Playground")
    window.choose_model("small-gpt2")
    window.at("#model", has_text="On this computer").wait_for()
    window.write("Once")
    window.generate()
    assert window.text("#report .badge") == "MISS"

    again = own.start()
    try:
        later = visit(again)
        later.at("#models_sheet", has_text=NAME).wait_for()
        later.open_tab("Playground")
        later.choose_model("small-gpt2")
        later.at("#model", has_text="On this computer").wait_for()
        later.write("Once")
        later.generate()
        assert later.text("#report .badge") == "DISK"
    finally:
        again.end()
    kept = json.loads((own.root / "store" / "added_models.json").read_text())
    assert [(value["name"], value["license"]) for value in kept] == [(NAME, "mit")]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("nobody/nothing", "it does not exist"), ("/no/such/folder", "there is no folder")],
)
def test_what_cannot_be_added_says_why(
    own: Own, visit: Callable[[Served], Visit], name: str, sentence: str
) -> None:
    window = visit(own.served)
    look_up(window, name)
    window.at("#add_found [role=alert]", has_text=sentence).wait_for()
    assert not window.at("#add_model").is_enabled()


def test_strangers_are_offered_nothing_that_was_added(
    own: Own, visit: Callable[[Served], Visit]
) -> None:
    served = own.start("--no-admin")
    try:
        window = visit(served)
        assert window.at("#add_name, #models_sheet").count() == 0
        window.at("#model input").click()
        assert NAME not in " ".join(window.at("#model li").all_inner_texts())
    finally:
        served.end()
