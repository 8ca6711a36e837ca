"""The API mode: `/v1` with snippets that run as they stand.

Knows the components and which addresses there are. Must not know how a snippet is written.
"""

import gradio as gr
import htpy as h

from playground.context.page_context import PageContext
from playground.settings.examples import examples_for
from playground.tabs.code.request_code import SHORTEST, CodeRequest, curl_code, openai_code
from playground.tabs.code.view_code import address
from playground.ui import components as ui
from playground.ui.markup import copied_code, rendered
from playground.ui.tables import sheet

_PATHS = {
    "chat/completions": "Chats, streamed or whole, with tools and structured answers",
    "completions": "Texts to continue",
    "responses": "Chats by OpenAI’s newer clients",
    "messages": "Chats by Anthropic’s clients",
    "decide": "Questions about a text, and how likely each answer is",
    "audio/transcriptions": "Recordings to transcribe",
    "models": "The list of models",
}
"""Below `/v1`, and what each is for."""


class ApiTab:
    name = "API"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Column(elem_classes="card"):
            ui.heading(
                "OpenAI’s API at /v1",
                "Any client of OpenAI’s protocol works with this address. The key is the page’s "
                "password, if it has one. The model is the one that is chosen in Try.",
            )
            self.snippets = ui.html("", "api_snippets")
            ui.html(_addresses())
        page.in_sight["api"].click(self._write, page.settings.model, self.snippets, **ui.LATEST)

    def _write(self, model: str, request: gr.Request) -> str:
        info = self._page.info(model)
        if info is None:
            return ""
        example = examples_for(info)[0]
        prompt = self._page.prompt(model, example.prompt)
        options = self._page.limits.within(example.options)
        code = CodeRequest(info, prompt, options, SHORTEST, address(request))
        return _snippets(code)


@rendered
def _snippets(code: CodeRequest) -> h.Node:
    return [
        h.section(".snippet")[h.h3[title], copied_code(write(code))]
        for title, write in (("curl", curl_code), ("Python", openai_code))
    ]


@rendered
def _addresses() -> h.Node:
    rows = [(h.code[f"/v1/{path}"], what) for path, what in _PATHS.items()]
    more = h.p(".caption")[
        "Every address with its fields: ",
        h.a(href="v1/docs", target="_blank")["/v1/docs"],
        " and ",
        h.a(href="v1/openapi.json", target="_blank")["/v1/openapi.json"],
        ". The engine’s state: ",
        h.a(href="health", target="_blank")["/health"],
        ". Gradio’s endpoints: “Use via API” at the foot of this page.",
    ]
    return sheet(("Address", "For"), rows), more
