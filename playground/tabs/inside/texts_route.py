"""The files of the Inside tab: a compiled function in XLA's own words, kernels as assembly.

Knows addresses and headers. Must not know what is in the files, nor make any: the tab does.
"""

from urllib.parse import urlencode

import htpy as h
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from playground.context.page_context import PageContext
from playground.tabs.inside.functions import NO_STORE, key_of, word_of
from playground.ui.markup import rendered
from xla_backend import BackendError, CacheKey, InvalidRequest
from xla_backend.inspection.inspector import TEXTS

PATH = "/inside/text"
ASSEMBLY = ".s"
"""Ending of a kernel's file."""


def texts_route(page: PageContext) -> Route:
    """Serves the files that were made."""

    def answer(request: Request) -> Response:
        query = request.query_params
        name = query.get("file", "")
        try:
            if page.inspector is None:
                raise InvalidRequest(NO_STORE)
            if name.endswith(ASSEMBLY):
                kernel = name.removesuffix(ASSEMBLY)
                return PlainTextResponse(page.inspector.assembly(kernel))
            model, key = query.get("model", ""), key_of(query.get("key", ""))
            page.check_model(model)
            files = page.inspector.made_texts(page.backend.identity(model), key)
        except BackendError as error:
            return PlainTextResponse(str(error), 404)
        found = [file for file in files if file.name == name and name in TEXTS]
        if not found:
            return PlainTextResponse("There is no such file: have it made under Inside.", 404)
        return FileResponse(found[0], media_type="text/plain; charset=utf-8", filename=name)

    return Route(PATH, answer)


def assembly_address(kernel: str) -> str:
    """Where the machine code of a kernel of our own is shown."""
    return f"{PATH.lstrip('/')}?{urlencode({'file': kernel + ASSEMBLY})}"


@rendered
def links(model: str, key: CacheKey) -> h.Node:
    """The files to download."""
    address = f"{PATH.lstrip('/')}?{urlencode({'model': model, 'key': word_of(key)})}"
    return h.ul(".inside-files", translate="no")[
        (h.li[h.a(href=f"{address}&file={name}", download=name)[name]] for name in TEXTS)
    ]
