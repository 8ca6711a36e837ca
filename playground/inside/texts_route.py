"""The files of the Inside tab: a compiled function in XLA's own words.

Knows addresses and headers. Must not know what is in the files, nor make any: the tab does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from playground.inside.functions import NO_STORE, key_of, word_of
from playground.ui.markup import escape
from xla_backend import BackendError, CacheKey, InvalidRequest
from xla_backend.inspection.inspector import TEXTS

if TYPE_CHECKING:
    from playground.context.page_context import PageContext

PATH = "/inside/text"


def texts_route(page: PageContext) -> Route:
    """Serves the files that were made."""

    def answer(request: Request) -> Response:
        asked = request.query_params
        name = asked.get("file", "")
        try:
            model, key = asked.get("model", ""), key_of(asked.get("key", ""))
            page.check_model(model)
            if page.inspector is None:
                raise InvalidRequest(NO_STORE)
            files = page.inspector.made_texts(page.backend.identity(model), key)
        except BackendError as error:
            return PlainTextResponse(str(error), 404)
        found = [file for file in files if file.name == name and name in TEXTS]
        if not found:
            return PlainTextResponse("There is no such file: have it made on the Inside tab.", 404)
        return FileResponse(found[0], media_type="text/plain; charset=utf-8", filename=name)

    return Route(PATH, answer)


def links(model: str, key: CacheKey) -> str:
    """The files to download, as HTML."""
    said = ""
    for name in TEXTS:
        query = escape(urlencode({"model": model, "key": word_of(key), "file": name}))
        said += f'<li><a href="{PATH.lstrip("/")}?{query}" download="{name}">{name}</a></li>'
    return f'<ul class="inside-files" translate="no">{said}</ul>'
