"""A mend of Gradio's tabs, whose script never comes to rest.

Knows one line of one of Gradio's scripts. In 6.17.3 the bar of tabs copies the tabs that were never
opened into its list whenever that list has changed, and takes its own copying for a change:
measured, some 600 rounds a second, which kept a third of a core of every visitor's computer busy,
for as long as the page was open. Whether later versions still do is not known: they cannot be used
here (see requirements.txt). With the mend only a tab that is another is copied. Must not touch
anything else; where the line is not found nothing is changed, and a browser test tells whether the
page rests without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import gradio
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

_SCRIPTS = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
_COPIES = "J(l,e(l)[s]=t[s])"
_COPIES_WHAT_IS_NEW = "e(l)[s]!==t[s]&&J(l,e(l)[s]=t[s])"
_KEPT_S = 3600


def tabs_route() -> list[Route]:
    """The mended script at its own address, before Gradio's; none if there is nothing to mend."""
    for path in _SCRIPTS.glob("Walkthrough*.js"):
        script = path.read_text(encoding="utf-8")
        if script.count(_COPIES) == 1:
            return [_route(path.name, script.replace(_COPIES, _COPIES_WHAT_IS_NEW))]
    return []


def _route(name: str, script: str) -> Route:
    # Gradio has its scripts kept for long; this one may be another after the next start.
    headers = {"Cache-Control": f"max-age={_KEPT_S}"}

    def answer(request: Request) -> Response:
        del request
        return Response(script, media_type="text/javascript", headers=headers)

    return Route(f"/assets/{name}", answer)
