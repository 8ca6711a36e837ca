"""The stream of the Requests mode, its trace, and stopping one's own requests.

Knows who may see what, and when a watcher is told. Must not know how a request looks. Nothing is
computed while nobody watches.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple, Self

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from playground.context.address import address_of
from playground.context.page_context import PageContext
from playground.tabs.requests.report import count_of, row
from xla_backend import SharedBackend
from xla_backend.interface.request_record import RequestRecord
from xla_backend.process import trace
from xla_backend.process.trace import TracedRequest

PATH = "/requests"
BETWEEN_S = 0.5
"""Seconds between two messages of a stream."""
BEAT_S = 10.0
"""Seconds without news after which an empty message shows that the stream is open."""
_UNBUFFERED = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Viewer(NamedTuple):
    """Who watches.

    Attributes:
        session: of the page.
        address: of programs on the same machine; empty if it is unknown.
        admin: whether the page trusts everybody who reaches it.
    """

    session: str
    address: str
    admin: bool

    @classmethod
    def of(cls, request: Request, admin: bool, behind_proxy: bool) -> Self:
        # Behind a proxy that is not known as one, all have its address.
        is_unknown = not behind_proxy and {"x-forwarded-for", "forwarded"} & {*request.headers}
        address = "" if is_unknown else address_of(request, behind_proxy)
        return cls(request.query_params.get("session", ""), address, admin)

    def owns(self, record: RequestRecord) -> bool:
        """Whether it is the viewer's own, who may then read and stop it.

        An address is no proof of a person, so requests of programs are anyone's own only where all
        are trusted.
        """
        source = record.entry.source
        if source.session:
            return source.session == self.session
        return self.admin and source.address == self.address != ""

    def sees(self, record: RequestRecord) -> bool:
        """Whether its row is shown."""
        return self.admin or self.owns(record) or record.entry.source.address == self.address != ""


def requests_routes(page: PageContext, behind_proxy: bool) -> list[Route]:
    """The routes, for the app that serves the page; `behind_proxy` as for `address_of`."""
    records = page.backend.requests

    def viewer(request: Request) -> Viewer:
        return Viewer.of(request, page.admin, behind_proxy)

    def events(request: Request) -> Response:
        messages = updates(page.backend, viewer(request))
        return StreamingResponse(messages, headers=_UNBUFFERED, media_type="text/event-stream")

    def traced(request: Request) -> Response:
        seen = filter(viewer(request).sees, reversed(records.newest()))
        document = trace.document(map(TracedRequest.recorded, seen))
        name = {"content-disposition": 'attachment; filename="requests.json"'}
        return Response(document, headers=name, media_type="application/json")

    def stop(request: Request) -> Response:
        number, own = request.query_params.get("number"), viewer(request).owns
        for record in records.newest():
            if str(record.number) == number and own(record):
                record.stop()
                return Response(status_code=204)
        return PlainTextResponse("There is no such request of yours.", 404)

    return [
        Route(f"{PATH}/events", events),
        Route(f"{PATH}/trace", traced),
        Route(f"{PATH}/stop", stop, methods=["POST"]),
    ]


async def updates(backend: SharedBackend, viewer: Viewer) -> AsyncIterator[str]:
    """Server-sent events: first all rows, then what has changed."""
    records, shown = backend.requests, _Shown(backend, viewer)
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not changed.is_set():
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

    with records.watched(wake):
        while not records.is_closed:
            is_beat = not changed.is_set()  # and at the beginning
            changed.clear()
            news = shown.news()
            if news["rows"] or news["texts"] or news["gone"] or is_beat:
                yield f"data: {json.dumps(news, separators=(',', ':'))}\n\n"
            await asyncio.sleep(BETWEEN_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), BEAT_S)


class _Version(NamedTuple):
    """What of a request was sent: a row is the same while its first two are."""

    states: int
    place: int | None
    new_tokens: int | None
    characters: int


class _Shown:
    """What one watcher has."""

    def __init__(self, backend: SharedBackend, viewer: Viewer) -> None:
        self._queue, self._records = backend.queue, backend.requests
        self._viewer = viewer
        self._sent: dict[int, _Version] | None = None

    def news(self) -> dict[str, object]:
        """What has changed since the last call; in the first one, all.

        Returns:
            `now`: the clock of all times, in seconds; `all`: whether it replaces all before;
            `rows`: number, HTML, and spans (phase, start, seconds or None while it lasts) of each
            new or changed request; `texts`: number, new tokens and text of those that only go on
            writing; `gone`: numbers of those that are no longer kept.
        """
        places = {entry: place for place, entry in enumerate(self._queue.order())}
        before, self._sent, rows, texts = self._sent, {}, [], []
        for record in filter(self._viewer.sees, self._records.newest()):
            place = places.get(record.entry) if record.state == "queued" else None
            text = record.text if self._viewer.owns(record) else ""
            now = _Version(len(record.states), place, record.new_tokens, len(text))
            was, self._sent[record.number] = (before or {}).get(record.number), now
            if was is None or was[:2] != now[:2]:
                html = row(record, place, self._viewer.owns(record))
                rows.append((record.number, html, _spans(record)))
            elif was != now:  # ten times cheaper, here and in the browser
                texts.append((record.number, count_of(record.new_tokens), text))
        return {
            "now": round(time.perf_counter(), 3),
            "all": before is None,
            "rows": rows,
            "texts": texts,
            "gone": [number for number in before or () if number not in self._sent],
        }


def _spans(record: RequestRecord) -> list[tuple[str, float, float | None]]:
    *done, last = record.spans()
    last_s = None if record.ended is None else round(last.duration_s, 3)
    return [
        *((each.name, round(each.started, 3), round(each.duration_s, 3)) for each in done),
        (last.name, round(last.started, 3), last_s),
    ]
