"""The page: header, tabs and what they share.

Knows which tabs there are and what `launch()` needs. A further tab is one file with one class and one
line in `TABS`. Must not know what is on a tab.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground.about_tab import AboutTab
from playground.api import add_endpoints
from playground.playground_tab import PlaygroundTab
from playground.runs import Runs
from playground.status_line import status_line
from playground.theme import css_variables, theme

if TYPE_CHECKING:
    from xla_backend import Backend, BackendProcess

TABS = (PlaygroundTab, AboutTab)
TITLE = "XLA Playground"
_ASSETS = Path(__file__).parent / "assets"
_INTRODUCTION = (
    "<p>Text generation with TensorFlow and XLA. The first call of a shape must be compiled and is "
    "slow; every later one is fast. This page shows both, and says beforehand which it will be.</p>"
)


@dataclass
class PageContext:
    """What the tabs share.

    Attributes:
        backend: the engine, or anything with its methods.
        status: the line that says what the engine is doing.
        timer: ticks while the page is open.
        runs_of_visitor: this visitor's runs, kept in the browser.
        load: the page's own load event.
        runs: the runs that are going on, of all visitors.
        engine_queue: the `concurrency_id` of every event that runs the engine: one at a time, or
            their timings would contaminate each other.
    """

    backend: Backend | BackendProcess
    status: gr.HTML
    timer: gr.Timer
    runs_of_visitor: gr.BrowserState
    load: Any
    runs: Runs = field(default_factory=Runs)
    engine_queue: str = "engine"


def create_app(backend: Backend | BackendProcess) -> gr.Blocks:
    """Builds the page without serving it; `launch(**launch_options())` serves it as designed."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as app:
        with gr.Row(elem_id="top"):
            gr.HTML(f"<h1>{TITLE}</h1>", apply_default_css=False, scale=0, min_width=200)
            status = gr.HTML(status_line(backend.status), elem_id="status", apply_default_css=False)
        gr.HTML(_INTRODUCTION, elem_id="introduction", apply_default_css=False)
        page = PageContext(
            backend=backend,
            status=status,
            timer=gr.Timer(1.0),
            # Both keys are given: random ones would forget every visitor at a restart. The browser
            # holds the secret anyway, so it hides nothing.
            runs_of_visitor=gr.BrowserState(
                [], storage_key="xla-playground-runs", secret="xla-playground"
            ),
            load=app.load,
        )
        with gr.Tabs():
            for tab in TABS:
                with gr.Tab(tab.name):
                    tab(page)
        add_endpoints(page)

        def leave(request: gr.Request) -> None:
            page.runs.end(str(request.session_hash))

        app.unload(leave)
    return app


def launch_options() -> dict[str, Any]:
    """What `create_app(...).launch()` needs to look and behave as designed."""
    script = (_ASSETS / "page.js").read_text(encoding="utf-8")
    return {
        "theme": theme(),
        "css": css_variables() + (_ASSETS / "page.css").read_text(encoding="utf-8"),
        "head": f"<script>{script}</script>",
        "footer_links": ["api", "settings"],
        "enable_monitoring": False,
        "ssr_mode": False,
        "pwa": False,
    }
