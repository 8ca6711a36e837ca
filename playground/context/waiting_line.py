"""The page's queue: Gradio's, with a limited length and in the order of arrival.

Knows Gradio's queue and its events, and the places of requests from `/v1`, which wait in the same
queue. Refusals reach every kind of caller: page, `gradio_client`, curl and agents all get the
sentence as the answer to their request. Must not know what a request is about. Gradio keeps a copy
of the page for every program that calls, and a record of its events for a dashboard; here all
programs share one copy, and there is no record.

`gradio.queueing` is not public: only this module uses it, and its test says which method or
attribute another version of Gradio has changed.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import gradio as gr
from gradio.queueing import Queue
from gradio.server_messages import EstimationMessage, ProcessCompletedMessage, ProcessStartsMessage
from gradio.state_holder import SessionState
from gradio.utils import LRUCache

from playground.context.limits import Limits
from playground.ui.quantities import count
from xla_backend import BackendError, InvalidRequest

if TYPE_CHECKING:
    from gradio.block_function import BlockFunction
    from gradio.queueing import Event
    from gradio.server_messages import EventMessage

_REFUSAL = "refuse"
_CLOSED_PAGES = 2
"""Factor by which pages' events may exceed the limit. A page checks for room before it sends an
event, so only forged requests reach this bound."""
ALONE = 1
"""`concurrency_limit` of events that must run alone."""
_waited_s: ContextVar[float] = ContextVar("waited_s", default=0.0)
_MAX_CALLERS = 5000
"""Bound on callers whose answers are kept; Gradio would keep unread answers forever."""
_NEVER_OVER = "stream_stays_open"
"""The id of an event that the page never sent: Gradio closes a stream when no event is left."""
IDLE_S = 5.0
"""Seconds without an event after which a page's stream is closed anyway: a browser has only six
connections to a server, for all its pages together."""
_UNREAD_S = 0.5
"""Seconds in which a page may not yet have noticed that its stream was closed."""
_ENDING_S = 0.1
"""Seconds in which streams may end; a stopped stream sends an error instead."""


class Ticket:
    """The place in the queue of a request that is not a Gradio event.

    Attributes:
        address: of its client.
        limit: as an event's `concurrency_limit`.
        enqueue_time: its arrival, as `time.monotonic()`.
    """

    def __init__(self, line: WaitingLine, address: str, limit: int) -> None:
        self.address = address
        self.limit = limit
        self.enqueue_time = time.monotonic()
        self._line = line
        self._turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def wait(self) -> float:
        """Waits until it may use the engine; returns the seconds that it waited."""
        return await self._turn

    def leave(self) -> None:
        """Leaves the queue or the engine; may be called twice."""
        self._turn.cancel()
        self._line.leave(self)

    @property
    def is_at_engine(self) -> bool:
        """Whether it may use the engine."""
        return self._turn.done()

    def call_up(self) -> None:
        """Lets it use the engine."""
        self._turn.set_result(time.monotonic() - self.enqueue_time)


class WaitingLine(Queue):
    """Requests that wait for the engine. Install with `of`.

    The `concurrency_limit` of an event is the number of events that may use the engine at once,
    including itself. The order is that of arrival, so those after an event that must run alone wait
    for its end.
    """

    @classmethod
    def of(
        cls, app: gr.Blocks, engine_queue: str, limits: Limits, behind_proxy: bool
    ) -> WaitingLine:
        """Installs this queue in the app; call it inside `with app`, before `launch()`.

        Args:
            app: the page that is being built.
            engine_queue: the `concurrency_id` of the events that wait for the engine.
            limits: how many may wait.
            behind_proxy: whether to trust X-Forwarded-For, which any client can forge unless a
                proxy sets it.
        """
        gr.api(
            _refuse,
            api_name=_REFUSAL,
            api_visibility="private",
            concurrency_id=_REFUSAL,
            concurrency_limit=None,
        )
        # Otherwise Gradio would answer /run/... at once, beside the current run.
        app.queue(api_open=False)
        line = cls(
            live_updates=True,
            concurrency_count=app.max_threads,
            update_intervals=1,
            max_size=None,
            blocks=app,
        )
        line._engine_queue = engine_queue
        line._was_full = 0.0
        line._limits = limits
        line._behind_proxy = behind_proxy
        line.pending_event_ids_session = LRUCache(_MAX_CALLERS)
        line._loop = None  # the server's, which does not exist yet
        line._closing = LRUCache(_MAX_CALLERS)
        line._closed_at = LRUCache(_MAX_CALLERS)
        line._places = []
        line._state_of_programs = None
        line.ANALYTICS_MAX_EVENTS = 0
        app._queue = line
        return line

    _engine_queue: str
    _was_full: float  # when the first in the queue last had to wait, as `time.monotonic()`
    _limits: Limits
    _behind_proxy: bool
    _loop: asyncio.AbstractEventLoop | None
    _closing: LRUCache[
        str, asyncio.TimerHandle
    ]  # the timer that closes each page's stream, or has closed it
    # When it was closed, by the loop's clock: on a busy machine later than the timer was due.
    _closed_at: LRUCache[str, float]
    # A program's event has no page: Gradio would build a page's state for each, which took nine
    # tenths of this process's time.
    _state_of_programs: SessionState | None
    _places: list[Ticket]  # waiting and at the engine, in the order of arrival

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting())

    @property
    def running(self) -> int:
        """Number of requests that were handed to the engine."""
        return len(self._at_engine())

    def order(self) -> tuple[str, ...]:
        """Unique ids of all requests, those at the engine first."""
        requests = (*self._at_engine(), *self._waiting())
        return tuple(str(id(each)) if isinstance(each, Ticket) else each._id for each in requests)

    def before(self, session: str, at_engine: bool = False) -> int | None:
        """The number of requests ahead of this page's.

        Args:
            session: the page's.
            at_engine: also look for a request that is at the engine.

        Returns:
            None if the page has no such request.
        """
        ahead = self._at_engine()
        whose: set[object] = set()  # a refused press of a button leaves an event, too
        for place, each in enumerate([*ahead, *self._waiting()]):
            is_it = not isinstance(each, Ticket) and each.session_hash == session
            if is_it and (at_engine or place >= len(ahead)):
                return len(whose - {session})
            whose.add(each if isinstance(each, Ticket) else each.session_hash)
        return None

    def check_room(self) -> None:
        """Checks for room, before a page sends an event.

        Raises:
            NoRoom: too many wait.
        """
        self._limits.check_room(self.waiting)

    def enter(self, request: Any, count: int, limit: int) -> list[Ticket]:
        """Takes places for a program's request, on the server's loop.

        Args:
            request: the HTTP request.
            count: number of runs.
            limit: as an event's `concurrency_limit`.

        Raises:
            NoRoom: too many wait.
        """
        address = self.address(request)
        more = count - 1
        self._limits.check_room(self.waiting + more, self._own(address) + more)
        self._places += (places := [Ticket(self, address, limit) for _ in range(count)])
        self._call_up()
        return places

    def leave(self, place: Ticket) -> None:
        if place in self._places:
            self._places.remove(place)
            self._call_up()

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Accepts an event, or answers with the reason if there is no room.

        After this a page opens a stream for its answers if it knows of no open one. Gradio closes
        the stream with the last event, and a page that has not noticed that yet would never get the
        answer to the event that it sends now. So the stream stays open while it is used, and an
        event that comes just after its end is accepted a little later.
        """
        function = self.blocks.fns.get(body.fn_index)
        if function is not None:
            try:
                self._admit(function, len(body.data), request)
            except BackendError as refusal:
                body.fn_index = self._refusal_index()
                body.data = [str(refusal)]
        if function is None or function.api_visibility != "private":
            return await super().push(body, request, username)
        session = body.session_hash
        closed_s = asyncio.get_running_loop().time() - self._closed_at.get(session, -math.inf)
        if closed_s < _UNREAD_S:
            await asyncio.sleep(_UNREAD_S - closed_s)
        self.pending_event_ids_session.setdefault(session, set()).add(_NEVER_OVER)
        self._close_when_idle(session)
        return await super().push(body, request, username)

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        """The next event to run: the first in the engine's queue as soon as there is room."""
        waiting = self.event_queue_per_concurrency_id.get(self._engine_queue)
        if not (waiting and waiting.queue):
            return super().get_events()
        if self._next() is waiting.queue[0]:
            asyncio.get_running_loop().call_soon(self._call_up)  # once it is at the engine
            return [waiting.queue.pop(0)], False, self._engine_queue
        self._was_full = time.monotonic()
        # Gradio counts only its own events: no event of this queue may be the next.
        limit, waiting.concurrency_limit = waiting.concurrency_limit, 0
        try:
            return super().get_events()
        finally:
            waiting.concurrency_limit = limit

    async def clean_events(
        self, *, session_hash: str | None = None, event_id: str | None = None
    ) -> None:
        """Drops the events of a page that was left; others may then be the first."""
        await super().clean_events(session_hash=session_hash, event_id=event_id)
        self._call_up()

    async def remove_from_queue(self, event_id: str) -> None:
        """Drops a cancelled event; likewise."""
        await super().remove_from_queue(event_id)
        self._call_up()

    def send_message(self, event: Event, event_message: EventMessage) -> None:
        """Reports progress to callers, but not to pages.

        The page polls the queue itself, and each message costs its browser as much as a chunk of
        text.
        """
        is_page = event.fn.api_visibility == "private"
        if not (is_page and isinstance(event_message, EstimationMessage | ProcessStartsMessage)):
            super().send_message(event, event_message)

    async def process_events(
        self, events: list[Event], batch: bool, begin_time: float, fn: BlockFunction
    ) -> None:
        """Runs events, then drops what Gradio keeps of them."""
        _waited_s.set(max(0.0, self._was_full - events[0].enqueue_time))
        for event in filter(_is_from_program, events):
            if self._state_of_programs is None:
                self._state_of_programs = SessionState(self.blocks)
            self.blocks.app.state_holder.session_data[event._id] = self._state_of_programs
        try:
            await super().process_events(events, batch, begin_time, fn)
        finally:
            for event in events:
                self._forget(event)
            self._call_up()

    def close(self) -> None:
        """Ends the pages' streams first: a server waits for its open connections."""
        if self._loop:
            for session in list(self._closing):
                self._loop.call_soon_threadsafe(self._close_stream, session)
            time.sleep(_ENDING_S)
        super().close()

    @staticmethod
    def waited_s() -> float:
        """Seconds that the current event has waited for others."""
        return _waited_s.get()

    def _close_when_idle(self, session: str) -> None:
        if closing := self._closing.get(session):
            closing.cancel()
        self._loop = asyncio.get_running_loop()
        self._closing[session] = self._loop.call_later(IDLE_S, self._close_stream, session)

    def _close_stream(self, session: str) -> None:
        messages = self.pending_messages_per_session.get(session)
        if self.pending_event_ids_session.get(session, set()) - {_NEVER_OVER}:
            self._close_when_idle(session)
        elif messages is not None:
            over = ProcessCompletedMessage(event_id=_NEVER_OVER, output={}, success=True)
            messages.put_nowait(over)
            self._closed_at[session] = asyncio.get_running_loop().time()

    def _at_engine(self) -> list[Event | Ticket]:
        """In the order of arrival."""
        taken = [event for events in self.active_jobs if events for event in events]
        ours = [event for event in taken if event.concurrency_id == self._engine_queue]
        return _by_arrival([*ours, *(place for place in self._places if place.is_at_engine)])

    def _waiting(self) -> list[Event | Ticket]:
        """In the order of arrival."""
        waiting = [place for place in self._places if not place.is_at_engine]
        return _by_arrival([*self._events(), *waiting])

    def _events(self) -> list[Event]:
        line = self.event_queue_per_concurrency_id.get(self._engine_queue)
        return list(line.queue) if line else []

    def _next(self) -> Event | Ticket | None:
        """The first waiting request, if the engine has room for it."""
        if not (waiting := self._waiting()):
            return None
        limits = [_limit(each) for each in (*self._at_engine(), waiting[0])]
        return waiting[0] if len(limits) <= min(limits) else None

    def _call_up(self) -> None:
        """Lets places use the engine when it has room; Gradio polls for events by itself."""
        while isinstance(first := self._next(), Ticket):
            first.call_up()

    def _own(self, address: str) -> int:
        """How many requests of a program wait, without those of pages."""
        return sum(
            each.address == address
            if isinstance(each, Ticket)
            else each.fn.api_visibility != "private" and self.address(each.request) == address
            for each in self._waiting()
        )

    def _admit(self, function: BlockFunction, values: int, request: Any) -> None:
        is_page = function.api_visibility == "private"
        if not is_page and values != len(function.inputs):
            raise InvalidRequest(
                f"{function.api_name} takes {count(len(function.inputs), 'value')}, and {values} "
                "came. /gradio_api/info names them."
            )
        if function.concurrency_id != self._engine_queue:
            return
        waiting = self.waiting
        if is_page:
            if waiting >= _CLOSED_PAGES * self._limits.waiting:
                self._limits.check_room(waiting)
            return
        self._limits.check_room(waiting, self._own(self.address(request)))

    def address(self, request: Any) -> str:
        """A request's client address, as far as it can be trusted."""
        forwarded = request.headers.get("x-forwarded-for", "") if self._behind_proxy else ""
        first = forwarded.partition(",")[0].strip()
        return first or (request.client.host if request.client else "")

    def _refusal_index(self) -> int:
        return next(i for i, fn in self.blocks.fns.items() if fn.api_name == _REFUSAL)

    def _forget(self, event: Event) -> None:
        if _is_from_program(event):
            self.blocks.app.state_holder.session_data.pop(event._id, None)
            self.blocks.app.state_holder.time_last_used.pop(event._id, None)


def _is_from_program(event: Event) -> bool:
    return event.session_hash == event._id


def _by_arrival(requests: list[Event | Ticket]) -> list[Event | Ticket]:
    return sorted(requests, key=lambda each: each.enqueue_time)


def _limit(request: Event | Ticket) -> int:
    # Every event in the engine's queue has a number here.
    return (
        request.limit if isinstance(request, Ticket) else cast("int", request.fn.concurrency_limit)
    )


def is_waited_for(app: Any, event: str) -> bool:
    """Whether a program's request with this id has an answer or will have one.

    An answer can be read once. Reading it again would wait forever, because Gradio keeps the empty
    message queue.
    """
    return bool(app.get_blocks()._queue.pending_event_ids_session.get(event))


def _refuse(sentence: str) -> None:
    raise gr.Error(sentence, print_exception=False)
