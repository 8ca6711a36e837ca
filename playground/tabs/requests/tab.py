"""The Requests mode: every request of the server, waiting, running or ended, whoever sent it.

Knows the components. Must not know what a watcher sees: the page's script shows the stream of
`route.py` while the mode is visible.
"""

import gradio as gr

from playground.context.page_context import PageContext
from playground.tabs.requests.report import frame
from playground.ui import components as ui
from xla_backend.interface.request_record import NEWEST


class RequestsTab:
    name = "Requests"

    def __init__(self, page: PageContext) -> None:
        others = (
            "those of others without their text."
            if page.admin
            else "here only those of this window and of programs at your address."
        )
        with gr.Column(elem_classes="card"):
            ui.heading(
                "Requests",
                f"What the server has, and the newest {NEWEST} that it had, whoever sent them; "
                f"{others} A bar has its exact turns once its request has ended.",
            )
            ui.html(frame(), "requests")
            session = gr.Textbox(visible=False)
        page.in_sight["requests"].click(_session, None, session, **ui.LATEST)
        session.change(None, session, None, js="watchRequests", **ui.QUIET)


def _session(request: gr.Request) -> str:
    return str(request.session_hash)
