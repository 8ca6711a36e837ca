"""The page's places and their modes: one table for addresses, links and tests.

Knows the modes and their order. Must not know what is in them. A new mode is one folder in `tabs/`
and one line here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import htpy as h

from playground.context import draft
from playground.history.panel import HistoryPanel
from playground.tabs.api.tab import ApiTab
from playground.tabs.batch.tab import BatchTab
from playground.tabs.chat.tab import ChatTab
from playground.tabs.compare.tab import CompareTab
from playground.tabs.functions.tab import FunctionsTab
from playground.tabs.generate.tab import PlaygroundTab
from playground.tabs.inside.tab import InsideTab
from playground.tabs.models.tab import ModelsTab
from playground.tabs.requests.tab import RequestsTab
from playground.tabs.shapes.tab import ShapesTab
from playground.tabs.speech.tab import SpeechTab
from playground.ui.markup import rendered


@dataclass(frozen=True)
class Place:
    """Modes that belong together.

    Attributes:
        modes: by their names in addresses; the first is shown if an address has the place's name.
    """

    name: str
    modes: Mapping[str, Any]


PLACES = {
    "try": Place(
        "Try",
        {
            "playground": PlaygroundTab,
            "chat": ChatTab,
            "speech": SpeechTab,
        },
    ),
    "measure": Place(
        "Batch & compare",
        {
            "batch": BatchTab,
            "compare": CompareTab,
            "runs": HistoryPanel,
        },
    ),
    "compiler": Place(
        "Compiler", {"shapes": ShapesTab, "inside": InsideTab, "functions": FunctionsTab}
    ),
    "models": Place("Models & API", {"models": ModelsTab, "api": ApiTab, "requests": RequestsTab}),
}
"""The places by their names in addresses; the first is the default."""
ADMIN_MODES = (ModelsTab,)
"""Those that change the engine for everybody."""
_MOVED = {
    **dict.fromkeys(("about", "start", draft.SIDES), "playground"),
    "statistics": "runs",
}
"""Names in addresses of earlier versions."""


def places(admin: bool) -> dict[str, Place]:
    """The page's places. Modes that are not built have no events that could be called."""
    return {
        address: Place(
            place.name,
            {name: mode for name, mode in place.modes.items() if admin or mode not in ADMIN_MODES},
        )
        for address, place in PLACES.items()
    }


def modes(admin: bool) -> dict[str, Any]:
    """All modes of the page by their names in addresses, in order."""
    return {name: mode for place in places(admin).values() for name, mode in place.modes.items()}


def addresses(admin: bool) -> dict[str, str]:
    """The mode that each name in an address leads to."""
    of_places = {address: next(iter(place.modes)) for address, place in places(admin).items()}
    return of_places | {name: name for name in modes(admin)} | _MOVED


@rendered
def links(admin: bool) -> h.Node:
    """Links to the places, and to the modes of the visible one, which the style sheet shows."""
    found = places(admin)
    return (
        h.nav("#place_links", aria_label="Places")[
            [
                _link(next(iter(place.modes)), place.name, address)
                for address, place in found.items()
            ]
        ],
        [
            h.nav(".mode-links", data_place=address, aria_label=place.name)[
                [_link(name, mode.name) for name, mode in place.modes.items()]
            ]
            for address, place in found.items()
            if len(place.modes) > 1
        ],
    )


def _link(mode: str, name: str, place: str = "") -> h.Element:
    return h.a(href=f"?tab={mode}", data_place=place or None)[name]


def script(admin: bool) -> str:
    """The table for the page's script: the mode of each name in an address, the place of each mode,
    and the names that make an address a link to a request."""
    place_of = {name: at for at, place in places(admin).items() for name in place.modes}
    return (
        f"const MODES = new Map(Object.entries({json.dumps(addresses(admin))}));"
        f"const PLACES = {json.dumps(place_of)};"
        f"const SETTINGS = {json.dumps(draft.SETTINGS)};"
    )


def style() -> str:
    """Shows the links to a place's modes if the place is visible."""
    return "".join(
        f'html[data-place="{at}"] #places .mode-links[data-place="{at}"]{{display:flex}}\n'
        for at in PLACES
    )
