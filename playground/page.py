"""The page: header, tabs and what they share.

Knows which tabs there are and what `launch()` needs. A further tab is one file with one class and
one line in `TABS`. Must not know what is on a tab.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware.gzip import GZipMiddleware

from playground import languages, shortcuts
from playground.about_tab import AboutTab
from playground.api import add_endpoints
from playground.batch_tab import BatchTab
from playground.compare_tab import CompareTab
from playground.families import TEXT_FAMILIES
from playground.functions_tab import FunctionsTab
from playground.gate import Gate
from playground.health import health_route
from playground.limits import Limits
from playground.markup import quoted
from playground.openapi import WholeDescription
from playground.playground_tab import PlaygroundTab
from playground.pulse import pulse_route
from playground.runs import QueuedRun, Run, Runs
from playground.script_mends import mended_scripts
from playground.shapes_tab import ShapesTab
from playground.speech_tab import SpeechTab
from playground.statistics_tab import StatisticsTab
from playground.status_line import status_line
from playground.theme import css_variables, theme
from playground.waiting_line import ALONE, WaitingLine
from xla_backend import GenerationOptions, ModelInfo, ModelUnavailable
from xla_backend.batch import MOST_AT_ONCE
from xla_backend.models import folder_info

if TYPE_CHECKING:
    from xla_backend import Backend, BackendProcess

TABS = (
    PlaygroundTab,
    SpeechTab,
    FunctionsTab,
    BatchTab,
    ShapesTab,
    CompareTab,
    StatisticsTab,
    AboutTab,
)
ADMIN_TABS = (ShapesTab,)
"""Tabs that change the engine for everybody."""
TITLE = "XLA Playground"
FILES_KEPT_S = (3600, 24 * 3600)
"""How often recordings that visitors sent are looked through, and how old they may grow."""
MAX_FILE_SIZE = "200mb"
"""Ten minutes, the most that is transcribed at once, fit in as 48 kHz stereo of 24 bits."""
SESSIONS_KEPT = 500
"""Open pages whose state the server holds. Gradio keeps a copy of the page's settings for each."""
ENGINE_QUEUE = "engine"
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
        offered: names of the only models that visitors may use, in order; empty for all.
        status: the line that says what the engine is doing.
        status_is_new: a hidden button that the page's script presses when the status is another.
        engine_is_new: likewise when the engine holds, or makes ready, other functions.
        watched: what else tabs look at when the engine is new; see `pulse`.
        line: the requests that wait for the engine.
        runs_of_visitor: this visitor's runs, kept in the browser.
        load: the page's own load event.
        runs: the runs that are going on, of all visitors.
        beside_others: how an event enters the line that runs the engine for a text: the engine
            decides what it does at once, and says so.
        alone: how one does that nothing else may run beside, or timings would contaminate each
            other.
        times_forgotten: how often compiled functions were forgotten on this page.
        admin: whether visitors may change the engine for everybody.
        limits: what each visitor may ask for.
    """

    backend: Backend | BackendProcess
    status: gr.HTML
    status_is_new: gr.Button
    engine_is_new: gr.Button
    line: WaitingLine
    runs_of_visitor: gr.BrowserState
    load: Any
    offered: tuple[str, ...] = ()
    runs: Runs = field(default_factory=Runs)
    watched: list[Callable[[], Hashable]] = field(default_factory=list)
    times_forgotten: int = 0
    admin: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def beside_others(self) -> dict[str, Any]:
        return {"concurrency_id": ENGINE_QUEUE, "concurrency_limit": MOST_AT_ONCE}

    @property
    def alone(self) -> dict[str, Any]:
        return {"concurrency_id": ENGINE_QUEUE, "concurrency_limit": ALONE}

    def engine_line(self, session: str = "") -> str:
        """What the engine is doing right now, for `status`, and how long this visitor's line is."""
        run = self.runs.of(session)
        waits = isinstance(run, Run) and run.waits_at_engine
        before = self.line.before(session, at_engine=waits) or 0
        return status_line(self.backend.status, len(self.backend.warming()), before)

    def begin(self, session: str, run: QueuedRun) -> int:
        """Enters a visitor's run; returns how many others are before it.

        Raises:
            InvalidRequest: this visitor's last run has not ended.
            NoRoom: too many wait.
        """
        self.line.check_room()
        # A run that was pressed a moment ago may not have reached the line yet.
        in_line = self.line.waiting + self.line.running
        ahead = max(self.runs.begin(session, run), in_line)
        run.waited_for = ahead > 0
        return ahead

    def models(self) -> list[ModelInfo]:
        """The models for text that visitors may choose from."""
        return [model for model in self._all_models() if model.family in TEXT_FAMILIES]

    def speech_models(self) -> list[ModelInfo]:
        """The models for speech that visitors may choose from."""
        return [model for model in self._all_models() if model.family == "speech"]

    def _all_models(self) -> list[ModelInfo]:
        known = {model.name: model for model in self.backend.models()}
        if not self.offered:
            return list(known.values())
        return [known.get(name) or folder_info(name) for name in self.offered]

    def check_request(
        self, model: str, prompt: object = "", options: GenerationOptions | None = None
    ) -> None:
        """Refuses what is not given here, whatever the engine itself would take.

        Raises:
            ModelUnavailable: the model is not offered here.
            InvalidRequest: the prompt is too long, or too much is asked for.
        """
        self.check_model(model)
        self.limits.check_prompt(prompt)
        if options is not None:
            self.limits.check_new_tokens(options.max_new_tokens)

    def check_model(self, name: str) -> None:
        """Refuses models that are not offered.

        Raises:
            ModelUnavailable: the model is not offered here.
        """
        if self.offered and name not in self.offered:
            raise ModelUnavailable(
                f"There is no model {quoted(name)} here. The models are: {', '.join(self.offered)}."
            )


class Page(gr.Blocks):
    """The page.

    Attributes:
        context: what its tabs share.
    """

    context: PageContext


def create_app(
    backend: Backend | BackendProcess,
    models: Sequence[str] = (),
    admin: bool = False,
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    behind_proxy: bool = False,
) -> Page:
    """Builds the page without serving it; `page.launch(**launch_options(page))` serves it.

    Args:
        backend: the engine, or anything with its methods.
        models: the names to offer, the first one chosen; empty for all that the engine knows.
        admin: also builds what changes the engine for everybody who uses the page.
        limits: what each visitor may ask for.
        behind_proxy: whether a proxy that can be trusted says in X-Forwarded-For who asks.
    """
    with Page(
        title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=FILES_KEPT_S
    ) as app:
        line = WaitingLine.of(app, ENGINE_QUEUE, limits, behind_proxy)
        with gr.Column(elem_id="page"):
            with gr.Row(elem_id="top"):
                gr.HTML(f"<h1>{TITLE}</h1>", apply_default_css=False, scale=0, min_width=200)
                status = gr.HTML(
                    status_line(backend.status), elem_id="status", apply_default_css=False
                )
                gr.HTML(
                    languages.switch() + shortcuts.panel(),
                    elem_id="help",
                    apply_default_css=False,
                    scale=0,
                    min_width=40,
                )
            gr.HTML(_INTRODUCTION, elem_id="introduction", apply_default_css=False)
            page = app.context = PageContext(
                backend=backend,
                status=status,
                status_is_new=gr.Button(visible="hidden", elem_id="status_is_new"),
                engine_is_new=gr.Button(visible="hidden", elem_id="engine_is_new"),
                line=line,
                # Both keys are given: random ones would forget every visitor at a restart.
                # The browser holds the secret anyway, so it hides nothing.
                runs_of_visitor=gr.BrowserState(
                    [], storage_key="xla-playground-runs", secret="xla-playground"
                ),
                load=app.load,
                offered=tuple(models),
                admin=admin,
                limits=limits,
            )
            with gr.Tabs():
                for tab in tabs(admin):
                    with gr.Tab(tab.name):
                        tab(page)
        add_endpoints(page)

        def leave(request: gr.Request) -> None:
            page.runs.leave(str(request.session_hash))

        app.unload(leave)
    return app


def tabs(admin: bool) -> list[Any]:
    """The tabs of the page. What is not built has no events that could be called either."""
    return [tab for tab in TABS if admin or tab not in ADMIN_TABS]


def launch_options(page: Page, password: str = "", behind_proxy: bool = False) -> dict[str, Any]:
    """What `page.launch()` needs to look and behave as designed.

    Args:
        page: from `create_app`.
        password: what visitors must know; empty for none.
        behind_proxy: as for `create_app`.
    """
    context = page.context
    script = (_ASSETS / "page.js").read_text(encoding="utf-8")
    # page.css is what all tabs share; a tab with styles of its own has a file of its own.
    sheets = [path.read_text(encoding="utf-8") for path in sorted(_ASSETS.glob("*.css"))]
    # Gradio titles its page by a script, and now and then it is left without one.
    head = f"<title>{TITLE}</title><script>{languages.script()}</script><script>{script}</script>"
    return {
        "theme": theme(),
        "css": css_variables() + "\n".join(sheets),
        "head": head,
        "i18n": languages.tables(),
        "favicon_path": _ASSETS / "favicon.svg",
        "footer_links": ["api", "settings"],
        "max_file_size": MAX_FILE_SIZE,
        "state_session_capacity": SESSIONS_KEPT,
        "app_kwargs": {
            "middleware": [
                (Gate, (), {"password": password, "behind_proxy": behind_proxy}),
                # Gradio compresses its scripts, but not the page itself: half a megabyte.
                (GZipMiddleware, (), {"compresslevel": 6}),
                (WholeDescription, (), {}),
            ],
            "routes": [
                health_route(context.backend, context.line),
                pulse_route(context),
                *mended_scripts(),
            ],
        },
        "enable_monitoring": False,
        "ssr_mode": False,
        "pwa": False,
    }
