"""The keys of the page, in a panel that a button and a key open.

Knows words and HTML. What the keys do is `assets/page.js`'s.
"""

from __future__ import annotations

_KEYS = (
    (("Ctrl", "Enter"), "run what the tab in sight is for; on a Mac, Cmd and Enter"),
    (("Esc",), "stop what is running"),
    (("Tab",), "go to the next control, with Shift to the one before"),
    (("←", "→"), "change a slider, or the tab when a tab has the focus"),
    (("?",), "open this panel, outside of text fields"),
)


def panel() -> str:
    """The button, and the panel that it opens."""
    rows = "".join(
        f"<dt>{' '.join(f'<kbd>{key}</kbd>' for key in keys)}</dt><dd>{what}</dd>"
        for keys, what in _KEYS
    )
    return (
        '<button type="button" id="shortcuts_open" aria-label="Keyboard shortcuts" '
        'aria-haspopup="dialog" title="Keyboard shortcuts">?</button>'
        '<dialog id="shortcuts" aria-labelledby="shortcuts_title"><form method="dialog">'
        f'<h2 id="shortcuts_title">Keyboard shortcuts</h2><dl>{rows}</dl>'
        '<button type="submit">Close</button></form></dialog>'
    )
