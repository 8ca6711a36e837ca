"""`PageQueue`: Gradio's queue, whose events wait for nothing: the engine has the only queue.

Knows what Gradio keeps for each program that calls; `PageStreams` keeps pages' streams open.
`gradio.queueing` is not public: only this module uses it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.queueing import Event, Queue
from gradio.state_holder import SessionState

from playground.context.address import source_of
from playground.server.page_streams import PageStreams
from playground.ui.quantities import count
from xla_backend.interface.request_queue import SOURCE


class PageQueue(Queue):
    """Install with `of`."""

    @classmethod
    def of(cls, app: gr.Blocks, behind_proxy: bool) -> None:
        """Installs it in an app that is being built; see `source_of` for `behind_proxy`."""
        # Otherwise Gradio would answer /run/... beside the queue.
        app.queue(api_open=False, default_concurrency_limit=None)
        queue = cls(True, 0, 1, None, app, default_concurrency_limit=None)
        queue._behind_proxy = behind_proxy
        queue._streams = PageStreams(queue.pending_messages_per_session)
        queue.pending_event_ids_session = queue._streams.events
        queue.of_programs = {}
        queue.ANALYTICS_MAX_EVENTS = 0
        app._queue = queue

    _behind_proxy: bool
    _streams: PageStreams
    of_programs: dict[str, asyncio.Task[None] | None]  # of programs, by event
    # Gradio would build a page's state for each program, which took nine tenths of this process.
    _state_of_programs: SessionState | None = None

    def start(self) -> None:
        # Gradio's bound on threads bounds its events, too, which wait on the loop without one.
        self.max_thread_count = 2000
        super().start()

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        function = self.blocks.fns.get(body.fn_index)
        if function is not None and function.api_visibility == "private":
            await self._streams.use(body.session_hash)
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
            SOURCE.set(source_of(events[0].request, self._behind_proxy))
        for event in programs:
            self.of_programs[event._id] = asyncio.current_task()
            self._state_of_programs = self._state_of_programs or SessionState(self.blocks)
            holder.session_data[event._id] = self._state_of_programs
        try:
            await super().process_events(events, batch, begin_time, fn)
        finally:
            for event in programs:
                for stored in (self.of_programs, holder.session_data, holder.time_last_used):
                    stored.pop(event._id, None)

    async def clean_events(
        self, *, session_hash: str | None = None, event_id: str | None = None
    ) -> None:
        """Drops the events of a caller who has left; a program's run ends with it."""
        await super().clean_events(session_hash=session_hash, event_id=event_id)
        if task := self.of_programs.get(session_hash or ""):
            task.cancel()

    def close(self) -> None:
        """Ends the pages' streams first."""
        self._streams.close()
        super().close()
