"""`PageQueue`: Gradio's queue, whose events wait for nothing: the engine has the only queue.

Knows how long a page's stream of answers stays open, and what Gradio keeps for each program that
calls. `gradio.queueing` is not public: only this module uses it.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.queueing import Event, Queue
from gradio.server_messages import ProcessCompletedMessage
from gradio.state_holder import SessionState
from gradio.utils import LRUCache

from playground.context.address import address_of
from playground.ui.quantities import count
from xla_backend.interface.request_queue import SOURCE, Source

_MAX_CALLERS = 5000  # whose answers are kept; Gradio would keep unread answers forever
_MAX_EVENTS = 2000  # under way; each waits on the event loop, without a thread
_NEVER_OVER = "stream_stays_open"  # an event that was never sent: without any, a stream is closed
IDLE_S = 5.0
"""Seconds without an event after which a page's stream is closed anyway: a browser has only six
connections to a server, for all its pages together."""
_UNREAD_S = 0.5  # in which a page may not yet have noticed that its stream was closed
_ENDING_S = 0.1  # in which streams may end; a stopped one sends an error instead


class PageQueue(Queue):
    """Install with `of`."""

    @classmethod
    def of(cls, app: gr.Blocks, behind_proxy: bool) -> None:
        """Installs it in an app that is being built; see `address_of` for `behind_proxy`."""
        # Otherwise Gradio would answer /run/... beside the queue.
        app.queue(api_open=False, default_concurrency_limit=None)
        queue = cls(True, 0, 1, None, app, default_concurrency_limit=None)
        queue._behind_proxy = behind_proxy
        queue.pending_event_ids_session = LRUCache(_MAX_CALLERS)
        queue._closing = LRUCache(_MAX_CALLERS)
        queue._closed_at = LRUCache(_MAX_CALLERS)
        queue.of_programs = {}
        queue.ANALYTICS_MAX_EVENTS = 0
        app._queue = queue

    _behind_proxy: bool
    of_programs: dict[str, asyncio.Task[None] | None]  # of programs, by event
    _closing: LRUCache[str, asyncio.TimerHandle]  # closes each page's stream, or has closed it
    # By the loop's clock: on a busy machine later than the timer was due.
    _closed_at: LRUCache[str, float]
    _loop: asyncio.AbstractEventLoop | None = None
    # Gradio would build a page's state for each program, which took nine tenths of this process.
    _state_of_programs: SessionState | None = None

    def start(self) -> None:
        self.max_thread_count = _MAX_EVENTS  # Gradio's bound on threads bounds its events, too
        super().start()

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Accepts an event.

        After this a page opens a stream for its answers if it knows of no open one. Gradio closes
        the stream with the last event, and a page that has not noticed that yet would never get the
        answer to the event that it sends now. So the stream stays open while it is used, and an
        event that comes just after its end is accepted a little later.
        """
        function, session = self.blocks.fns.get(body.fn_index), body.session_hash
        if function is not None and function.api_visibility == "private":
            self._loop = asyncio.get_running_loop()
            closed_s = self._loop.time() - self._closed_at.get(session, -math.inf)
            if closed_s < _UNREAD_S:
                await asyncio.sleep(_UNREAD_S - closed_s)
            self.pending_event_ids_session.setdefault(session, set()).add(_NEVER_OVER)
            self._close_when_idle(session)
        elif function is not None and len(body.data) != (takes := len(function.inputs)):
            sentence = f"{function.api_name} takes {count(takes, 'value')}, not {len(body.data)}."
            return False, f"{sentence} /gradio_api/info names them.", "error"
        return await super().push(body, request, username)

    async def process_events(
        self, events: list[Event], batch: bool, begin_time: float, fn: BlockFunction
    ) -> None:
        """Runs events, of a program with its source, then drops what Gradio keeps of it."""
        programs = [event for event in events if event.session_hash == event._id]
        holder = self.blocks.app.state_holder
        if fn.api_visibility == "public":
            SOURCE.set(_source(events[0].request, self._behind_proxy))
        for event in programs:
            self.of_programs[event._id] = asyncio.current_task()
            self._state_of_programs = self._state_of_programs or SessionState(self.blocks)
            holder.session_data[event._id] = self._state_of_programs
        try:
            await super().process_events(events, batch, begin_time, fn)
        finally:
            for event in programs:
                self.of_programs.pop(event._id, None)
                holder.session_data.pop(event._id, None)
                holder.time_last_used.pop(event._id, None)

    async def clean_events(
        self, *, session_hash: str | None = None, event_id: str | None = None
    ) -> None:
        """Drops the events of a caller who has left; a program's run ends with it."""
        await super().clean_events(session_hash=session_hash, event_id=event_id)
        if task := self.of_programs.get(session_hash or ""):
            task.cancel()

    def close(self) -> None:
        """Ends the pages' streams first: a server waits for its open connections."""
        if self._loop:
            for session in list(self._closing):
                self._loop.call_soon_threadsafe(self._close_stream, session)
            time.sleep(_ENDING_S)
        super().close()

    def _close_when_idle(self, session: str) -> None:
        if closing := self._closing.get(session):
            closing.cancel()
        self._closing[session] = asyncio.get_running_loop().call_later(
            IDLE_S, self._close_stream, session
        )

    def _close_stream(self, session: str) -> None:
        messages = self.pending_messages_per_session.get(session)
        if self.pending_event_ids_session.get(session, set()) - {_NEVER_OVER}:
            self._close_when_idle(session)
        elif messages is not None:
            over = ProcessCompletedMessage(event_id=_NEVER_OVER, output={}, success=True)
            messages.put_nowait(over)
            self._closed_at[session] = asyncio.get_running_loop().time()


def _source(request: Any, behind_proxy: bool) -> Source:
    if request.headers.get("x-gradio-user") == "mcp":  # sent by this server, whoever called
        return Source("MCP")
    return Source("Gradio", address=address_of(request, behind_proxy))
