"""The page: header, links to its places, their modes, and what they share.

Knows how modes are built and what `launch()` needs. Must not know which there are (`places.py`),
nor what is in one.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import gradio as gr
import htpy as h
from fastapi.exception_handlers import http_exception_handler
from gradio.blocks import Block, BlockContext
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from playground import places
from playground.api.endpoints import add_endpoints
from playground.api.openai_host import OpenAiHost
from playground.context.limits import Limits
from playground.context.page_context import PageContext
from playground.record.session import session_page
from playground.server.changes import changes_route
from playground.server.gate import Gate
from playground.server.health import health
from playground.server.known_hosts import KnownHosts
from playground.server.metrics import Metrics
from playground.server.page_queue import PageQueue
from playground.settings.panel import SettingsPanel
from playground.tabs.inside.texts_route import texts_route
from playground.tabs.requests.route import requests_routes
from playground.ui import header
from playground.ui.components import LATEST, QUIET, html, saved_file
from playground.ui.theme import ASSETS, css_variables, style_sheets, theme
from xla_backend import SharedBackend
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.inspection.inspector import Inspector
from xla_backend.openai_api.addresses import nothing_at
from xla_backend.openai_api.app import create_api
from xla_backend.openai_api.errors import error_response
from xla_backend.openai_api.outside import PATH, Outside

TITLE = "XLA Playground"
DELETE_FILES_S = (3600, 24 * 3600)
"""How often uploaded recordings are checked, and after how long they are deleted."""
MAX_FILE_SIZE = "200mb"
"""Enough for ten minutes of 48 kHz stereo with 24 bits, the longest recording."""
MAX_SESSIONS = 500
"""Open pages whose state the server keeps. Gradio copies the page's settings for each."""
_SCRIPTS = (
    "copy.js",
    "views.js",
    "kept.js",
    "page.js",
    "request.js",
    "chats.js",
    "requests.js",
)
# An update in Gradio's own form.
_SHOW_MODE = "() => ({__type__: 'update', selected: showPlace()})"


class Page(gr.Blocks):
    context: PageContext  # what its modes share


def create_app(
    backend: SharedBackend,
    models: Sequence[str] = (),
    admin: bool = False,
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    behind_proxy: bool = False,
    added: AddedModels | None = None,
    inspector: Inspector | None = None,
) -> Page:
    """Builds the page without serving it; `page.launch(**launch_options(page))` serves it.

    Args:
        backend: the engine.
        models: the names to offer, the first one selected; empty for all that the engine knows.
        admin: whether to build the modes that change the engine for everybody.
        limits: of each visitor.
        behind_proxy: whether X-Forwarded-For comes from a trusted proxy.
        added: the models that are added on the page; None if none can be added. Visitors can then
            name folders of this computer, so never on public pages.
        inspector: inspects compiled functions; None without a store.
    """
    with Page(
        title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=DELETE_FILES_S
    ) as app:
        PageQueue.of(app, behind_proxy)
        with gr.Column(elem_id="page"):
            with gr.Row(elem_id="top"):
                html(header.skip_link(), "skip", scale=0, min_width=0)
                html(h.h1[TITLE], scale=0, min_width=200)
                status = html("", "status")
                html(header.controls(), "help", scale=0, min_width=40)
            html(places.links(admin), "places")
            page = app.context = PageContext(
                backend=backend,
                status=status,
                status_is_new=gr.Button(visible="hidden", elem_id="status_is_new"),
                offered_is_new=gr.Button(visible="hidden", elem_id="offered_is_new"),
                in_sight={
                    address: gr.Button(visible="hidden", elem_id=f"{address}_is_new")
                    for address in places.modes(admin)
                },
                # Both keys are set: with random ones, a restart would lose every visitor's runs.
                # The secret is in the browser anyway, so it protects nothing.
                runs_of_visitor=gr.BrowserState(
                    [], storage_key="xla-playground-runs", secret="xla-playground"
                ),
                runs_are_new=gr.Button(visible="hidden", elem_id="runs_are_new"),
                runs_are_lost=gr.Button(visible="hidden", elem_id="runs_are_lost"),
                load=app.load,
                file=saved_file(),
                offered=tuple(models),
                admin=admin,
                limits=limits,
                added=added,
                inspector=inspector,
            )
            address_is_new = gr.Button(visible="hidden", elem_id="address_is_new")
            built: dict[str, Any] = {}
            items: dict[str, gr.Tab] = {}
            with gr.Row(elem_id="work") as work:
                with gr.Column(elem_id="settings", elem_classes="card"):
                    panel = SettingsPanel(page)
                # The style sheet hides its tab bar: the links above replace it.
                with gr.Tabs(elem_id="modes", overflow_behavior="wrap") as shown:
                    gr.on(
                        [app.load, address_is_new.click], None, None, shown, js=_SHOW_MODE, **LATEST
                    )
                    for address, mode in places.modes(admin).items():
                        with gr.Tab(mode.name, id=address, elem_id=f"{address}_mode") as item:
                            built[address] = mode(page)
                        items[address] = item
                        parts = _left_out(item) if len(built) > 1 else {}
                        shown_as = json.dumps([*parts.values()])
                        came_in_sight = f"() => cameInSight({json.dumps(address)}, {shown_as})"
                        item.select(None, None, [*parts], js=came_in_sight, **QUIET)
            work.children.reverse()  # Modes connect the settings, which stand after them.
        playground, model = built["playground"], page.settings.model
        playground.connect(panel)
        built["runs"].connect(playground.fields)
        playground.save_session(partial(session_page, page))
        items["chat"].select(built["chat"].prepare, model, model, **QUIET)
        if admin:
            built["models"].offer_added([*_pickers(work)])
        add_endpoints(page)

        def line_of(request: gr.Request) -> str:
            return page.engine_line(str(request.session_hash))

        def leave(request: gr.Request) -> None:
            page.runs.leave(str(request.session_hash))

        page.status_is_new.click(line_of, None, status, **LATEST)
        app.unload(leave)
    return app


def _inside(block: BlockContext) -> Iterator[Block]:
    for each in block.children:
        yield each
        if isinstance(each, BlockContext):
            yield from _inside(each)


def _left_out(item: gr.Tab) -> dict[Block, bool | str]:
    """Hides a mode's components until it is opened; returns them with their own visibility.

    Gradio fetches the scripts of every component that is not invisible, in unopened tabs too: 0.4
    MB and 50 requests of a first visit.
    """
    shown_as: dict[Block, bool | str] = {
        block: block.visible for block in _inside(item) if block.visible
    }
    for block in shown_as:
        block.visible = False
    return shown_as


def _pickers(block: BlockContext) -> Iterator[gr.Dropdown]:
    """The lists of models."""
    for each in _inside(block):
        if isinstance(each, gr.Dropdown) and str(each.elem_id).endswith("model"):
            yield each


@asynccontextmanager
async def _before_everything(
    cors: Sequence[str], hosts: Sequence[str], root_path: str, app: Starlette
) -> AsyncIterator[None]:
    """Adds what comes before Gradio's own CORS middleware, which permits any origin."""
    assert app.middleware_stack is not None  # it has called this
    known = KnownHosts(Outside(app.middleware_stack, cors), hosts, cors)

    async def below_root(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == root_path or path.startswith(f"{root_path}/"):  # left there by a proxy
            path = path.removeprefix(root_path) or "/"
        await known({**scope, "path": path, "root_path": ""}, receive, send)

    app.middleware_stack = below_root
    yield


def launch_options(
    page: Page,
    password: str = "",
    behind_proxy: bool = False,
    cors: Sequence[str] = (),
    metrics: Metrics | None = None,
    hosts: Sequence[str] = (),
    root_path: str = "",
) -> dict[str, Any]:
    """The arguments of `page.launch()`.

    Args:
        page: from `create_app`.
        password: for visitors; empty for none.
        behind_proxy: as for `create_app`.
        cors: origins of other web pages that may use the API at /v1, "*" for all.
        metrics: served at /metrics; None for no such address.
        hosts: names of this server beside local ones, see `KnownHosts`.
        root_path: where a proxy offers the page, as /llm.
    """
    context = page.context
    host = OpenAiHost(context, partial(health, context.backend), behind_proxy)
    api = create_api(host)

    async def not_found(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if path.startswith("/gradio_api") or error.detail != "Not Found":
            return await http_exception_handler(request, error)
        return error_response(404, nothing_at(path, api))

    scripts = [(ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    # Gradio sets the title by a script, which sometimes fails.
    scripts.insert(0, places.script(context.admin))
    head = f"<title>{TITLE}</title>" + "".join(f"<script>{script}</script>" for script in scripts)
    return {
        "theme": theme(),
        "css": css_variables() + places.style() + style_sheets(),
        "head": head,
        "root_path": root_path,
        "favicon_path": ASSETS / "favicon.svg",
        "footer_links": ["api"],  # not Gradio's settings, which the header has
        "max_file_size": MAX_FILE_SIZE,
        "state_session_capacity": MAX_SESSIONS,
        "app_kwargs": {
            "middleware": [
                (Gate, (), {"password": password, "behind_proxy": behind_proxy}),
                # Gradio compresses its scripts, but not the page itself, half a megabyte.
                (GZipMiddleware, (), {"compresslevel": 6}),
            ],
            "exception_handlers": {404: not_found},
            "lifespan": partial(_before_everything, cors, hosts, root_path),
            "routes": [
                changes_route(context),
                texts_route(context),
                *requests_routes(context, behind_proxy),
                Mount(PATH, api),
                *([metrics.route(context.backend, host.models)] if metrics else []),
            ],
        },
        "enable_monitoring": False,
        "run_history": False,  # Gradio's own history would store every prompt a second time
        "ssr_mode": False,
        "pwa": False,
        "_frontend": False,  # else the start fails if the page takes three seconds
    }
