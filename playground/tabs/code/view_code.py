"""The card below the result: this request as a link and as code.

Knows the components and when they change. Must not know how code is written or links are made.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.context.runs import page_mode
from playground.tabs.code.request_code import FORMS, SHORTEST, TAKES_TOOLS, CodeRequest
from playground.ui.components import QUIET, heading, html, link_controls
from playground.ui.markup import copied_code
from xla_backend import BackendError
from xla_backend.interface.tools import Tools


class ViewCode:
    """Builds the card's content where it is created, and updates it with the request."""

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Row(elem_classes="card-head"):
            heading(
                "This request as code or as a link",
                "Code that you can run, and a link that opens this page with these settings.",
            )
            self.link_runs, self.copy_link = link_controls(min_width=120)
        self.notice = html("", "copy_notice")
        with gr.Accordion(
            "View code", open=False, elem_id="view_code", elem_classes="more-options"
        ):
            models = page.models()
            takes_messages = bool(models) and models[0].is_instruct
            self.form = gr.Radio(
                list(FORMS),
                value="openai" if takes_messages else next(iter(FORMS)),
                label="Code for",
                show_label=False,
                container=False,
                elem_id="code_form",
            )
            self.code = html("", "request_code")

    def connect(
        self,
        request: RequestFields,
        columns: gr.Textbox,
        tools_of: Callable[[Mapping[Any, Any]], Tools | None],
    ) -> None:
        """Connects the card to the fields of the request, its columns and its tools."""
        self._request, self._tools_of = request, tools_of
        self.copy_link.click(
            None,
            [*request.settings.values(), self.link_runs, columns],
            self.notice,
            js="(...values) => copyLink('playground', SETTINGS, values, ...values.slice(-2))",
            **QUIET,
        )
        # A change by the visitor makes the link stale; one by the page does not.
        inputs = [component.input for component in (*request.settings.values(), self.link_runs)]
        gr.on(inputs, None, None, self.notice, js="() => ''", **QUIET)

    def written(self, values: dict[Any, Any], request: gr.Request) -> Any:
        """The code for what the fields and `form` say now."""
        write = FORMS[values[self.form]]
        try:
            filled = self._request.request(values)
        except BackendError:  # The visitor is still typing a number.
            return gr.skip()
        info = self._page.info(filled.model)
        if info is None:
            return gr.skip()
        try:
            predicted = self._page.backend.predict(
                filled.model, filled.prompt, filled.options, mode=page_mode(filled.options)
            )
            key = predicted.requested_key
            padded_length = key.padded_length
        except BackendError:  # Too long, empty, or the tokenizer is not downloaded yet.
            padded_length = SHORTEST
        try:
            tools = self._tools_of(values)
        except BackendError:
            return gr.skip()
        code = CodeRequest(
            info,
            filled.prompt,
            filled.options,
            padded_length,
            address(request),
            tools.listed if tools else (),
        )
        text = write(code)
        if tools and values[self.form] not in TAKES_TOOLS:
            text = f"# Without the tools, which the code for openai and curl has.\n{text}"
        return str(copied_code(text))


def address(request: gr.Request) -> str:
    """The page's address as the visitor's browser sees it, behind any proxies.

    The browser itself sends this request and names its origin.
    """
    page = str(request.headers.get("referer") or request.headers.get("origin") or "")
    return page.partition("?")[0].partition("#")[0] or f"http://{request.headers.get('host')}/"
