"""Mends of Gradio's scripts: two spare every visitor's computer work, one keeps runs heard.

Knows three places in the scripts of 6.17.3. Whether later versions still are like this is not
known: they cannot be used here (see requirements.txt). Must not touch anything else; where a place
is not found nothing is changed there. Browser tests tell whether the page does without.

*The bar of tabs* copies the tabs that were never opened into its list whenever that list has
changed, and takes its own copying for a change: measured, some 600 rounds a second, a third of a
core for as long as the page is open. With the mend only a tab that is another is copied.

*The stream of messages* is ended by the server when nothing of the page is waiting. An event that
is sent before the page has read so takes the stream for open, and is never heard of. With the mend
the page opens another one while it waits for something.

*The tree of components* is searched from its root for each value that an event reads and each
message that one of its outputs gets, through objects that note every look at them. With the mend
the way to a component is kept, and taken again if the component is still there; else, as before,
everything is searched. Measured: the first text after a click comes 5 to 10 ms sooner, of 80.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import gradio
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

_SCRIPTS = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
_KEPT_S = 3600


@dataclass(frozen=True)
class Mend:
    """Which place, in files of which name, becomes what."""

    files: str
    place: str
    mended: str


MENDS = (
    Mend(
        files="Walkthrough*.js",
        place="J(l,e(l)[s]=t[s])",
        mended="e(l)[s]!==t[s]&&J(l,e(l)[s]=t[s])",
    ),
    Mend(
        files="index-*.js",
        place='if(l.msg==="close_stream"){En(r,o.abort_controller);return}',
        mended='if(l.msg==="close_stream"){En(r,o.abort_controller);t.size&&o.open_stream();return}',
    ),
    Mend(
        files="index-*.js",
        place="function _(t,s){if(t.id===s)return t;if(t.children)for(const i of t.children)"
        "{const e=_(i,s);if(e)return e}return null}",
        # The way is a list of places among children. It leads to the component or to none: each
        # number exists once in the tree.
        mended="const _ways=new Map;"
        "function _(t,s){"
        "let n=t;"
        "for(const k of _ways.get(s)??[])if(!(n=n.children?.[k]))break;"
        "if(n&&n.id===s)return n;"
        "const way=[];"
        "const find=i=>{"
        "if(i.id===s)return i;"
        "const own=i.children??[];"
        "for(let k=0;k<own.length;k++){way.push(k);const e=find(own[k]);if(e)return e;way.pop()}"
        "return null};"
        "const found=find(t);"
        "if(found)_ways.set(s,way);"
        "return found}",
    ),
)


def mended_scripts() -> list[Route]:
    """The mended scripts at their own addresses, to stand before Gradio's."""
    return [
        _route(path.name, script.replace(mend.place, mend.mended))
        for mend in MENDS
        for path in sorted(_SCRIPTS.glob(mend.files))
        if (script := path.read_text(encoding="utf-8")).count(mend.place) == 1
    ]


def _route(name: str, script: str) -> Route:
    # Gradio has its scripts kept for long; this one may be another after the next start.
    headers = {"Cache-Control": f"max-age={_KEPT_S}"}

    def answer(request: Request) -> Response:
        del request
        return Response(script, media_type="text/javascript", headers=headers)

    return Route(f"/assets/{name}", answer)
