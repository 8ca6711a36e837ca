"""The buttons in the header that change how the page is looked at: dark or light, and for a room.

Knows HTML. What the buttons do is `assets/views.js`'s.
"""

from __future__ import annotations

_DARK = "<circle cx='10' cy='10' r='7'/><path class='filled' d='M10 3a7 7 0 0 1 0 14z'/>"
_PRESENT = "<path d='M2.5 4h15v9.5h-15zM10 13.5V17M6.5 17h7'/>"


def switches() -> str:
    """Both buttons; the second has no use on a phone, and the style sheet leaves it out there."""
    return _switch("dark_switch", "Light or dark", _DARK) + _switch(
        "present_switch", "Presenter view", _PRESENT
    )


def _switch(elem_id: str, name: str, drawing: str) -> str:
    return (
        f'<button type="button" id="{elem_id}" class="view-switch" aria-label="{name}" '
        f'title="{name}"><svg viewBox="0 0 20 20" aria-hidden="true">{drawing}</svg></button>'
    )
