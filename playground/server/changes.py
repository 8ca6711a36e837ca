"""`/changes`: whether there is anything new to show, so that an open page need not request it all.

Knows what the page shows of the engine and of the queue, as marks: the page's script asks once a
second, and sends Gradio's events only for a new mark, and of the modes only for the visible one.
Without that, an idle page kept half a core of its visitor's computer busy with five useless events
a second.
"""

import time

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from playground.context.page_context import PageContext
from playground.context.status_line import AT_REST


def changes_route(page: PageContext) -> Route:
    """The route, for the app that serves the page."""

    def answer(request: Request) -> JSONResponse:
        del request
        return JSONResponse(changes(page), headers={"Cache-Control": "no-store"})

    return Route("/changes", answer)


def changes(page: PageContext) -> dict[str, str]:
    """Three marks, each of which changes with its state.

    `status`: what the engine is doing, for how many seconds, and which requests wait. `offered`:
    the models that were added. `engine`: its functions in memory and in the making.
    """
    backend = page.backend
    status = backend.status
    prefetching = tuple(backend.prefetching())
    occupation = page.runs.occupation(status)
    since = occupation.since if occupation else status.since
    is_at_rest = status.state in AT_REST and occupation is None
    clock = 0 if is_at_rest else int(time.perf_counter() - since)
    return {
        "status": _mark(status, bool(occupation), clock, len(prefetching), backend.queue.version),
        "offered": _mark(*(page.added.read() if page.added else ())),
        "engine": _mark(
            status.state == "starting",
            prefetching,
            tuple(backend.cached_functions()),
            tuple(backend.stored_keys()),
            page.times_cleared,
            *(watched() for watched in page.watched),
        ),
    }


def _mark(*values: object) -> str:
    # Python salts the hashes of texts in each process: nothing can be read from them.
    return format(hash(values) & (2**64 - 1), "x")
