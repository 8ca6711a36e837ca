"""The waiting line: Gradio's queue with an end to it, in the order in which requests came.

Knows Gradio's queue and its events, and refuses in a way that reaches every kind of caller: page,
`gradio_client`, curl and agents all get the sentence as the answer to their request. Must not know
what a request is about. Gradio keeps every event, with all that was sent with it, and a record of
it for a dashboard, for as long as the program runs; here they go when the event is over.

`gradio.queueing` is not public: this is the one module that touches it, and its test says so when
another version of Gradio has moved something.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.queueing import Queue
from gradio.server_messages import EstimationMessage, ProcessStartsMessage
from gradio.utils import LRUCache

from playground.limits import Limits
from playground.quantities import count
from xla_backend import BackendError, InvalidRequest

if TYPE_CHECKING:
    from gradio.block_function import BlockFunction
    from gradio.queueing import Event
    from gradio.server_messages import EventMessage

_REFUSAL = "refuse"
_CLOSED_PAGES = 2
"""Times as many as may wait, that pages may have waiting: they ask for room before they come, so
only what was made by hand meets this bound."""
ALONE = 1
"""`concurrency_limit` of events that nothing else may run beside."""
_waited_s: ContextVar[float] = ContextVar("waited_s", default=0.0)
_MOST_KEPT = 5000
"""Events that are over, whose answers may still be read."""


class WaitingLine(Queue):
    """Requests that wait for the engine. Install with `of`.

    The `concurrency_limit` of an event that uses the engine says how many of them, it included, may
    be carried out at once. The order is that of arrival, so one that must be alone keeps those
    behind it waiting until it is over.
    """

    @classmethod
    def of(
        cls, app: gr.Blocks, engine_queue: str, limits: Limits, behind_proxy: bool
    ) -> WaitingLine:
        """Gives the app this line; call it inside `with app`, before `launch()`.

        Args:
            app: the page that is being built.
            engine_queue: the `concurrency_id` of the events that wait for the engine.
            limits: how many may wait.
            behind_proxy: whether X-Forwarded-For says who asks. Without a proxy that sets it,
                anybody could write anything there.
        """
        gr.api(
            _refuse,
            api_name=_REFUSAL,
            api_visibility="private",
            concurrency_id=_REFUSAL,
            concurrency_limit=None,
        )
        # Gradio would else answer /run/... at once, beside what has its turn.
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
        line.event_ids_to_events = LRUCache(_MOST_KEPT)
        line.pending_event_ids_session = LRUCache(_MOST_KEPT)
        app._queue = line
        return line

    _engine_queue: str
    _was_full: float  # when the first in the line last had to wait, as `time.monotonic()` reads
    _limits: Limits
    _behind_proxy: bool

    @property
    def waiting(self) -> int:
        """Requests that wait for the engine now, without those that it works on."""
        return len(self._events())

    @property
    def running(self) -> int:
        """Requests that the engine has now, at work or next."""
        return len(self._at_engine())

    def order(self) -> tuple[str, ...]:
        """The events that are at the engine or wait for it, each by a name that only it has."""
        return tuple(event._id for event in (*self._at_engine(), *self._events()))

    def before(self, session: str, at_engine: bool = False) -> int | None:
        """How many requests came before this page's.

        Args:
            session: the page's.
            at_engine: also of the requests that the engine has already.

        Returns:
            None where no request of the page waits (nor, if asked for, is at the engine).
        """
        ahead = self._at_engine()
        for place, event in enumerate([*ahead, *self._events()]):
            if event.session_hash == session and (at_engine or place >= len(ahead)):
                return place
        return None

    def check_room(self) -> None:
        """To be asked before a page's event is sent off.

        Raises:
            NoRoom: too many wait.
        """
        self._limits.check_room(self.waiting)

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Takes an event in; one for which there is no room is answered with the reason."""
        function = self.blocks.fns.get(body.fn_index)
        if function is not None:
            try:
                self._admit(function, len(body.data), request)
            except BackendError as refusal:
                body.fn_index = self._refusal_index()
                body.data = [str(refusal)]
        return await super().push(body, request, username)

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        """What is carried out next: the first of the engine's line as soon as there is room."""
        waiting = self.event_queue_per_concurrency_id.get(self._engine_queue)
        if waiting and waiting.queue:
            limits = [e.fn.concurrency_limit for e in (*self._at_engine(), waiting.queue[0])]
            if len(limits) <= min(limits):
                return [waiting.queue.pop(0)], False, self._engine_queue
            self._was_full = time.monotonic()
        return super().get_events()

    def send_message(self, event: Event, event_message: EventMessage) -> None:
        """Tells a caller how it goes, unless it is the page.

        The page asks by itself what waits and where, and each message costs its browser as much as
        a piece of text does.
        """
        is_page = event.fn.api_visibility == "private"
        if not (is_page and isinstance(event_message, EstimationMessage | ProcessStartsMessage)):
            super().send_message(event, event_message)

    async def process_events(self, events: list[Event], batch: bool, begin_time: float) -> None:
        """Carries events out, then forgets them."""
        _waited_s.set(max(0.0, self._was_full - events[0].enqueue_time))
        try:
            await super().process_events(events, batch, begin_time)
        finally:
            for event in events:
                self._forget(event)

    async def remove_from_queue(self, event_id: str) -> None:
        """Takes one out that was cancelled."""
        await super().remove_from_queue(event_id)
        self.event_analytics.pop(event_id, None)

    async def clean_events(
        self, *, session_hash: str | None = None, event_id: str | None = None
    ) -> None:
        """Takes out what waits of a visitor who has left."""
        left = [
            event
            for event in self.event_ids_to_events.values()
            if event.session_hash == session_hash or event._id == event_id
        ]
        await super().clean_events(session_hash=session_hash, event_id=event_id)
        for event in left:
            if event._id not in self.event_ids_to_events:
                self.event_analytics.pop(event._id, None)

    def compute_analytics_summary(self, event_analytics: Any) -> dict[str, Any]:
        """Nothing: there is no dashboard, and Gradio's count goes through all events so far."""
        del event_analytics
        return self.cached_event_analytics_summary

    @staticmethod
    def waited_s() -> float:
        """Seconds that the event which is being carried out here has waited for others."""
        return _waited_s.get()

    # ---- inside

    def _at_engine(self) -> list[Event]:
        """In the order of their arrival."""
        taken = [event for events in self.active_jobs if events for event in events]
        ours = [event for event in taken if event.concurrency_id == self._engine_queue]
        return sorted(ours, key=lambda event: event.enqueue_time)

    def _events(self) -> list[Event]:
        line = self.event_queue_per_concurrency_id.get(self._engine_queue)
        return list(line.queue) if line else []

    def _admit(self, function: BlockFunction, values: int, request: Any) -> None:
        is_page = function.api_visibility == "private"
        if not is_page and values != len(function.inputs):
            raise InvalidRequest(
                f"{function.api_name} takes {count(len(function.inputs), 'value')}, and {values} "
                "came. /gradio_api/info names them."
            )
        if function.concurrency_id != self._engine_queue:
            return
        events = self._events()
        if is_page:
            if len(events) >= _CLOSED_PAGES * self._limits.waiting:
                self._limits.check_room(len(events))
            return
        visitor = self._address(request)
        own = [event for event in events if event.fn.api_visibility != "private"]
        same = sum(self._address(event.request) == visitor for event in own)
        self._limits.check_room(len(events), same)

    def _address(self, request: Any) -> str:
        forwarded = request.headers.get("x-forwarded-for", "") if self._behind_proxy else ""
        first = forwarded.partition(",")[0].strip()
        return first or (request.client.host if request.client else "")

    def _refusal_index(self) -> int:
        return next(i for i, fn in self.blocks.fns.items() if fn.api_name == _REFUSAL)

    def _forget(self, event: Event) -> None:
        # The event itself stays for a while: who has not read its answer yet is told by it.
        event.data = event.request = None
        if event.session_hash == event._id:  # A program's: Gradio kept a copy of the page for it.
            self.blocks.app.state_holder.session_data.pop(event._id, None)
            self.blocks.app.state_holder.time_last_used.pop(event._id, None)
        self.event_analytics.pop(event._id, None)
        self.blocks.app.iterators_to_reset.discard(event._id)
        self.blocks.app.iterators.pop(event._id, None)


def is_waited_for(app: Any, event: str) -> bool:
    """Whether there is an answer, or will be, to a program's request of this number.

    An answer is read once. Gradio keeps the place where it lay, and who reads it again would wait
    for ever.
    """
    return bool(app.get_blocks()._queue.pending_event_ids_session.get(event))


def _refuse(sentence: str) -> None:
    raise gr.Error(sentence, print_exception=False)
