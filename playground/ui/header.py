"""The header besides title and status: switches, and panels of the keys and of terms.

Knows words and HTML. `assets/page.js` and `assets/views.js` implement keys and switches; the panel
of terms is a popover, which the browser opens and closes by itself.
"""

import htpy as h
from markupsafe import Markup

from playground.ui.markup import rendered

_KEYS = (
    (("Ctrl", "Enter"), "start the action in sight; on a Mac, Cmd and Enter"),
    (("Esc",), "stop what is running"),
    (("Tab",), "go to the next control, with Shift to the one before"),
    (("←", "→"), "change a slider"),
    (("?",), "open this panel, outside of text fields"),
)
_TERMS = {
    "Shape": "How many prompt slots, beams and new tokens a compiled function has. XLA compiles "
    "for one shape only.",
    "Slots": "The places for tokens that a function has. A token is a word or a part of one.",
    "Padding": "Empty slots before or after a prompt, so that prompts of different lengths share "
    "a function. The model ignores them.",
    "Beams": "Candidates searched in parallel; the most likely is shown. 1 means no search.",
    "New tokens": "The most tokens that the model may write.",
}
"""The meaning of the terms on the first screen."""
_DARK = Markup("<circle cx='10' cy='10' r='7'/><path class='filled' d='M10 3a7 7 0 0 1 0 14z'/>")
_PRESENT = Markup("<path d='M2.5 4h15v9.5h-15zM10 13.5V17M6.5 17h7'/>")


@rendered
def controls() -> h.Node:
    """All of it. The style sheet hides the presenter's switch on a phone, where it has no use."""
    terms = [(h.dt[term], h.dd[meaning]) for term, meaning in _TERMS.items()]
    return (
        h.button("#settings_switch", type="button", aria_controls="settings")["Settings"],
        _switch("dark_switch", "Light or dark", _DARK),
        _switch("present_switch", "Presenter view", _PRESENT),
        _keys(),
        h.div("#terms", popover=True)[h.dl[terms]],
    )


@rendered
def skip_link() -> h.Node:
    """The first stop of the Tab key: past the header, to the visible mode."""
    return h.a(href="#modes")["Skip to the content"]


def explained(words: str, classes: str = "") -> h.Element:
    """A button with this text that opens the panel of terms."""
    return h.button(
        class_=["term", classes],
        type="button",
        popovertarget="terms",
        title="What these words mean",
    )[words]


def _switch(elem_id: str, name: str, drawing: Markup) -> h.Element:
    return h.button(f"#{elem_id}.view-switch", type="button", aria_label=name, title=name)[
        h.svg(viewBox="0 0 20 20", aria_hidden="true")[drawing]
    ]


def _keys() -> h.Node:
    """The button and the panel that it opens."""
    name = "Keyboard shortcuts"
    rows = [
        (h.dt(translate="no")[[(h.kbd[key], " ") for key in keys]], h.dd[what])
        for keys, what in _KEYS
    ]
    return (
        h.button(
            "#shortcuts_open", type="button", aria_label=name, aria_haspopup="dialog", title=name
        )["?"],
        h.dialog("#shortcuts", aria_labelledby="shortcuts_title")[
            h.form(method="dialog")[
                h.h2("#shortcuts_title")[name], h.dl[rows], h.button(type="submit")["Close"]
            ]
        ],
    )
