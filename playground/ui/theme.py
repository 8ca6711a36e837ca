"""The look of the page: the palette, the Gradio theme made from it, and the CSS variables.

Knows colours, type and spacing, in light and dark. Must not know contents. The palette lives here
and not in the style sheet so that a test can compute every contrast ratio.
"""

from pathlib import Path

import gradio as gr
from gradio.themes.utils import sizes

ASSETS = Path(__file__).parent / "assets"
"""Style sheets and scripts."""

# Phases that run once (trace, compile) are warm, those that run every time (prefill, decode) are
# cool, the others are grey, so that the bar can be read without its legend.
LIGHT = {
    "page": "#f5f6f9",
    "surface": "#ffffff",
    "sunken": "#eef0f5",
    "line": "#d8dce6",
    "line-strong": "#868e9f",
    "ink": "#151922",
    "muted": "#525b6b",
    "accent": "#2d4bc6",
    "accent-fill": "#2d4bc6",
    "accent-fill-hover": "#243da6",
    "accent-soft": "#e8ecfb",
    "on-accent": "#ffffff",
    "hit": "#12603a",
    "hit-soft": "#dcf3e5",
    "miss": "#8a3a00",
    "miss-soft": "#fdead6",
    "disk": "#0a5775",
    "disk-soft": "#daf0f9",
    "reused": "#5a38a6",
    "reused-soft": "#ece5fc",
    "danger": "#9c1f28",
    "danger-soft": "#fde8e9",
    "on-phase": "#ffffff",
    "phase-queue": "#868e9f",
    "phase-tokenize": "#667085",
    "phase-trace": "#b15c0d",
    "phase-compile": "#96350a",
    "phase-prefill": "#2f9d6b",
    "phase-decode": "#15724a",
    "phase-detokenize": "#4b5565",
    "likely-0": "#ffffff",
    "likely-1": "#d6eddf",
    "likely-2": "#bfe5cf",
    "likely-3": "#8fd3ae",
    "likely-4": "#62bd8b",
}
DARK = {
    "page": "#0d1016",
    "surface": "#161a23",
    "sunken": "#1f2530",
    "line": "#2e3543",
    "line-strong": "#6c7689",
    "ink": "#edf0f6",
    "muted": "#a5afc0",
    "accent": "#9db0ff",
    "accent-fill": "#4660dc",
    "accent-fill-hover": "#3d56cf",
    "accent-soft": "#1f284b",
    "on-accent": "#ffffff",
    "hit": "#84e3ad",
    "hit-soft": "#11321f",
    "miss": "#ffbd80",
    "miss-soft": "#3c230b",
    "disk": "#86d4f2",
    "disk-soft": "#0d303e",
    "reused": "#cbb8ff",
    "reused-soft": "#2b214a",
    "danger": "#ffa1a6",
    "danger-soft": "#40161b",
    "on-phase": "#11151c",
    "phase-queue": "#7c8799",
    "phase-tokenize": "#97a1b2",
    "phase-trace": "#f3a04d",
    "phase-compile": "#e06c28",
    "phase-prefill": "#6fd6a0",
    "phase-decode": "#34a871",
    "phase-detokenize": "#b3bccb",
    "likely-0": "#161a23",
    "likely-1": "#1c372c",
    "likely-2": "#154332",
    "likely-3": "#13573c",
    "likely-4": "#136b47",
}

_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


def css_variables() -> str:
    """The palette as CSS custom properties: light by default, dark under Gradio's `.dark` class."""

    def declarations(palette: dict[str, str]) -> str:
        return "".join(f"--{name}:{value};" for name, value in palette.items())

    return f":root{{{declarations(LIGHT)}}}\n.dark{{{declarations(DARK)}}}\n"


def style_sheets() -> str:
    """All style sheets: page.css is for all modes; a mode with its own styles has its own file."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ASSETS.glob("*.css")))


def theme() -> gr.themes.Base:
    """Gradio's own components in the palette, installed fonts only: there may be no network."""
    return gr.themes.Base(
        text_size=sizes.text_md,
        radius_size=sizes.radius_md,
        spacing_size=sizes.spacing_md,
        font=_SANS,
        font_mono=_MONO,
    ).set(**_theme_settings())


def _theme_settings() -> dict[str, str]:
    both = {
        "body_background_fill": "var(--page)",
        "body_text_color": "var(--ink)",
        "body_text_color_subdued": "var(--muted)",
        "background_fill_primary": "var(--surface)",
        "background_fill_secondary": "var(--sunken)",
        "border_color_primary": "var(--line)",
        "border_color_accent": "var(--accent)",
        "border_color_accent_subdued": "var(--line-strong)",
        "color_accent_soft": "var(--accent-soft)",
        "link_text_color": "var(--accent)",
        "link_text_color_active": "var(--accent)",
        "link_text_color_hover": "var(--accent)",
        "link_text_color_visited": "var(--accent)",
        "code_background_fill": "var(--sunken)",
        "block_background_fill": "transparent",
        "block_border_width": "0px",
        "block_info_text_color": "var(--muted)",
        "block_label_background_fill": "transparent",
        "block_label_border_width": "0px",
        "block_label_text_color": "var(--ink)",
        "block_title_text_color": "var(--ink)",
        "block_title_background_fill": "transparent",
        "block_title_border_width": "0px",
        "block_shadow": "none",
        "panel_background_fill": "transparent",
        "panel_border_width": "0px",
        "accordion_text_color": "var(--ink)",
        "input_background_fill": "var(--surface)",
        "input_background_fill_focus": "var(--surface)",
        "input_border_color": "var(--line-strong)",
        "input_border_color_focus": "var(--accent)",
        "input_border_width": "1px",
        "input_placeholder_color": "var(--muted)",
        "input_shadow": "none",
        "input_shadow_focus": "none",
        "checkbox_background_color": "var(--surface)",
        "checkbox_background_color_selected": "var(--accent-fill)",
        "checkbox_border_color": "var(--line-strong)",
        "checkbox_border_color_selected": "var(--accent-fill)",
        "checkbox_label_background_fill": "var(--surface)",
        "checkbox_label_background_fill_hover": "var(--sunken)",
        "checkbox_label_background_fill_selected": "var(--accent-soft)",
        "checkbox_label_border_color": "var(--line)",
        "checkbox_label_text_color": "var(--ink)",
        "checkbox_label_text_color_selected": "var(--ink)",
        "checkbox_label_shadow": "none",
        "slider_color": "var(--accent-fill)",
        "loader_color": "var(--accent)",
        "error_background_fill": "var(--danger-soft)",
        "error_border_color": "var(--danger)",
        "error_text_color": "var(--danger)",
        "error_icon_color": "var(--danger)",
        "button_primary_background_fill": "var(--accent-fill)",
        "button_primary_background_fill_hover": "var(--accent-fill-hover)",
        "button_primary_border_color": "var(--accent-fill)",
        "button_primary_border_color_hover": "var(--accent-fill-hover)",
        "button_primary_text_color": "var(--on-accent)",
        "button_primary_text_color_hover": "var(--on-accent)",
        "button_primary_shadow": "none",
        "button_primary_shadow_hover": "none",
        "button_secondary_background_fill": "var(--surface)",
        "button_secondary_background_fill_hover": "var(--sunken)",
        "button_secondary_border_color": "var(--line-strong)",
        "button_secondary_border_color_hover": "var(--muted)",
        "button_secondary_text_color": "var(--ink)",
        "button_secondary_text_color_hover": "var(--ink)",
        "button_secondary_shadow": "none",
        "button_secondary_shadow_hover": "none",
        "button_border_width": "1px",
    }
    light_only = {
        "color_accent": "var(--accent)",
        "block_label_text_size": "*text_md",
        "block_label_text_weight": "600",
        "block_title_text_size": "*text_md",
        "block_title_text_weight": "600",
        "block_info_text_size": "14px",
        "block_padding": "0px",
        "block_radius": "10px",
        "input_radius": "8px",
        "input_padding": "10px 12px",
        "button_large_radius": "8px",
        "button_small_radius": "8px",
        "button_large_text_weight": "600",
        "layout_gap": "20px",
        "form_gap_width": "0px",
    }
    # The variables change with the `.dark` class themselves, so both modes name the same ones.
    return {**both, **{f"{name}_dark": value for name, value in both.items()}, **light_only}
