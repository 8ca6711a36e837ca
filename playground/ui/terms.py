"""What the words of the first screen mean, in a panel that they open.

Knows words and HTML. The browser opens and closes the panel by itself: it is a popover.
"""

from __future__ import annotations

_TERMS = {
    "Shape": "How many prompt slots, beams and new tokens a compiled function has. XLA compiles "
    "for one shape only.",
    "Slots": "The places for tokens that a function has. A token is a word or a part of one.",
    "Padding": "Empty slots before or after a prompt, so that prompts of different lengths share "
    "a function. The model ignores them.",
    "Beams": "Texts that are searched side by side; the likeliest is shown. With 1 there is no "
    "search.",
    "New tokens": "The most tokens that the model may write.",
}


def panel() -> str:
    """The panel, to be built once on the page."""
    rows = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in _TERMS.items())
    return f'<div id="terms" popover><dl>{rows}</dl></div>'


def opener(words: str, classes: str = "") -> str:
    """A button of these words (HTML) that opens the panel."""
    return (
        f'<button type="button" class="term {classes}" popovertarget="terms" '
        f'title="What these words mean">{words}</button>'
    )
