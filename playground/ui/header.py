"""What the header has besides title and status: switches, and panels of the keys and the words.

Knows words and HTML. What keys and switches do is `assets/page.js`'s and `assets/views.js`'s; the
panel of the words is a popover, which the browser opens and closes by itself.
"""

from __future__ import annotations

_KEYS = (
    (("Ctrl", "Enter"), "run what the tab in sight is for; on a Mac, Cmd and Enter"),
    (("Esc",), "stop what is running"),
    (("Tab",), "go to the next control, with Shift to the one before"),
    (("←", "→"), "change a slider, or the tab when a tab has the focus"),
    (("?",), "open this panel, outside of text fields"),
)
_TERMS = {
    "Shape": "How many prompt slots, beams and new tokens a compiled function has. XLA compiles "
    "for one shape only.",
    "Slots": "The places for tokens that a function has. A token is a word or a part of one.",
    "Padding": "Empty slots before or after a prompt, so that prompts of different lengths share "
    "a function. The model ignores them.",
    "Beams": "Texts that are searched side by side; the most likely is shown. With 1 there is no "
    "search.",
    "New tokens": "The most tokens that the model may write.",
}
"""What the words of the first screen mean."""
_DARK = "<circle cx='10' cy='10' r='7'/><path class='filled' d='M10 3a7 7 0 0 1 0 14z'/>"
_PRESENT = "<path d='M2.5 4h15v9.5h-15zM10 13.5V17M6.5 17h7'/>"


def controls() -> str:
    """All of it. The presenter's switch has no use on a phone, where the style sheet hides it."""
    return (
        _switch("dark_switch", "Light or dark", _DARK)
        + _switch("present_switch", "Presenter view", _PRESENT)
        + _keys()
        + _words()
    )


def explained(words: str, classes: str = "") -> str:
    """These words (HTML) as a button that opens the panel which says what they mean."""
    return (
        f'<button type="button" class="term {classes}" popovertarget="terms" '
        f'title="What these words mean">{words}</button>'
    )


def _switch(elem_id: str, name: str, drawing: str) -> str:
    return (
        f'<button type="button" id="{elem_id}" class="view-switch" aria-label="{name}" '
        f'title="{name}"><svg viewBox="0 0 20 20" aria-hidden="true">{drawing}</svg></button>'
    )


def _keys() -> str:
    """The button, and the panel that it opens."""
    rows = "".join(
        f"<dt translate='no'>{' '.join(f'<kbd>{key}</kbd>' for key in keys)}</dt><dd>{what}</dd>"
        for keys, what in _KEYS
    )
    return (
        '<button type="button" id="shortcuts_open" aria-label="Keyboard shortcuts" '
        'aria-haspopup="dialog" title="Keyboard shortcuts">?</button>'
        '<dialog id="shortcuts" aria-labelledby="shortcuts_title"><form method="dialog">'
        f'<h2 id="shortcuts_title">Keyboard shortcuts</h2><dl>{rows}</dl>'
        '<button type="submit">Close</button></form></dialog>'
    )


def _words() -> str:
    rows = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in _TERMS.items())
    return f'<div id="terms" popover><dl>{rows}</dl></div>'
