"""Contrast of every pair of colours that carries words, in light and dark (WCAG AA)."""

import pytest

from playground.ui.theme import DARK, LIGHT, css_variables, style_sheets

TEXT = 4.5
GRAPHICS = 3.0
OUTCOMES = ("hit", "miss", "disk", "reused", "danger")
ON_TEXT = [
    *((name, ground) for name in ("ink", "muted") for ground in ("page", "surface", "sunken")),
    *((name, ground) for name in ("accent",) for ground in ("page", "surface")),
    *((name, f"{name}-soft") for name in OUTCOMES),
    ("ink", "accent-soft"),
    *(("ink", f"likely-{shade}") for shade in range(5)),
    ("on-accent", "accent-fill"),
    ("on-accent", "accent-fill-hover"),
    *(("on-phase", f"phase-{name}") for name in ("trace", "compile", "decode")),
]
ON_GRAPHICS = [
    *((name, "surface") for name in LIGHT if name.startswith("phase-")),
    ("line-strong", "surface"),
    ("accent", "surface"),
    ("accent-fill", "surface"),
]


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("colour", "ground", "least"),
    [*((*pair, TEXT) for pair in ON_TEXT), *((*pair, GRAPHICS) for pair in ON_GRAPHICS)],
)
def test_contrast(palette: dict[str, str], colour: str, ground: str, least: float) -> None:
    assert contrast(palette[colour], palette[ground]) >= least


def test_both_palettes_have_the_same_names() -> None:
    assert set(LIGHT) == set(DARK)
    assert css_variables().count("--accent:") == 2


def test_parts_of_sliders_are_named_below_an_id() -> None:
    """Gradio loads a slider's style sheet when the first one is shown, after the page's own."""
    parts = [line for line in style_sheets().splitlines() if "::-webkit-slider" in line]
    assert parts
    assert all(line.startswith("#page ") for line in parts)
