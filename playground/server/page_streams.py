"""`PageStreams`: how long the stream of answers to a page stays open.

Knows what Gradio's queue keeps for each page: ids of events under way, and messages to be sent.
Gradio closes a stream with its last event, and a page that has not noticed that yet would never get
the answer to the event that it sends then. So a stream stays open while it is used.
"""

import asyncio
import math
import time
from collections.abc import MutableMapping
from typing import Any

from gradio.server_messages import ProcessCompletedMessage
from gradio.utils import LRUCache

IDLE_S = 5.0
"""Seconds without an event after which a page's stream is closed anyway: a browser has only six
connections to a server, for all its pages together."""
_MAX_CALLERS = 5000  # whose answers are kept; Gradio would keep unread answers forever
_UNREAD_S = 0.5  # in which a page may not yet have noticed that its stream was closed
_ENDING_S = 0.1  # in which streams may end; a stopped one sends an error instead
_NEVER_OVER = "stream_stays_open"  # an event that was never sent: without any, a stream is closed


class PageStreams:
    """The streams of all pages, each by its session.

    Attributes:
        events: the ids of each session's events under way, for Gradio's queue.
    """

    def __init__(self, messages: MutableMapping[str, Any]) -> None:
        """`messages` are the queues of each session's messages."""
        self.events: LRUCache[str, set[str]] = LRUCache(_MAX_CALLERS)
        self._messages = messages
        # Timers that close streams, or have closed them; and when, by the loop's clock: on a busy
        # machine later than the timer was due.
        self._closing: LRUCache[str, asyncio.TimerHandle] = LRUCache(_MAX_CALLERS)
        self._closed_at: LRUCache[str, float] = LRUCache(_MAX_CALLERS)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def use(self, session: str) -> None:
        """Keeps the stream of a page open that sends an event, after which the page opens one if it
        knows of none. Returns a little later if it was closed just now."""
        self._loop = asyncio.get_running_loop()
        closed_s = self._loop.time() - self._closed_at.get(session, -math.inf)
        if closed_s < _UNREAD_S:
            await asyncio.sleep(_UNREAD_S - closed_s)
        self.events.setdefault(session, set()).add(_NEVER_OVER)
        self._close_when_idle(session)

    def close(self) -> None:
        """Ends all streams: a server waits for its open connections."""
        if self._loop:
            for session in list(self._closing):
                self._loop.call_soon_threadsafe(self._close_stream, session)
            time.sleep(_ENDING_S)

    def _close_when_idle(self, session: str) -> None:
        if closing := self._closing.get(session):
            closing.cancel()
        self._closing[session] = asyncio.get_running_loop().call_later(
            IDLE_S, self._close_stream, session
        )

    def _close_stream(self, session: str) -> None:
        messages = self._messages.get(session)
        if self.events.get(session, set()) - {_NEVER_OVER}:
            self._close_when_idle(session)
        elif messages is not None:
            over = ProcessCompletedMessage(event_id=_NEVER_OVER, output={}, success=True)
            messages.put_nowait(over)
            self._closed_at[session] = asyncio.get_running_loop().time()
