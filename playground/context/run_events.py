"""`RunEvents`: from the press of a button to a run's report, the same in every mode.

Knows when a run is checked, carried out and ended, what is shown meanwhile, and which buttons can
be pressed. A mode adds what its run is about and how it looks.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.runs import Ending, QueuedRun
from playground.ui.components import FOLLOWING, QUIET, Updates, notice, stop_by
from playground.ui.option_controls import labelled
from xla_backend import BackendError

AnyRun = TypeVar("AnyRun", bound=QueuedRun)


@dataclass(frozen=True, eq=False)
class RunEvents(Generic[AnyRun]):
    """How a mode's runs are started, shown and stopped.

    Attributes:
        page: what the modes share.
        notice: says why a request is refused, or what has failed.
        buttons: those that start a run and cannot be pressed meanwhile, with their label during the
            run; empty for their own.
        stop: the button that stops the run; None if a run cannot be stopped.
        shows: the components that `shown` updates. Few, as the browser looks each of them up at
            every update.
        shown: what they show of a run that waits, runs or has just ended.
        ends: all that `ended` updates besides.
        ended: what is shown at the end, from the run, its ending and the values of `state`.
        state: the inputs of `ended`.
        stopping: the label of `stop` until the run has ended.
    """

    page: PageContext
    notice: gr.HTML
    buttons: Mapping[gr.Button, str]
    stop: gr.Button | None
    shows: Sequence[gr.blocks.Block]
    shown: Callable[[AnyRun], Updates]
    ends: Sequence[gr.blocks.Block]
    ended: Callable[..., Updates]
    state: Sequence[gr.blocks.Block] = ()
    stopping: str = "Stopping"

    @property
    def outputs(self) -> list[gr.blocks.Block]:
        """What `begin` updates besides the caller's own."""
        return [*dict.fromkeys([self.notice, *self.shows, *self._pressed])]

    def connect(
        self,
        pressed: Any,
        make: Callable[..., tuple[AnyRun, Updates]],
        inputs: Any,
        outputs: Sequence[gr.blocks.Block] = (),
    ) -> Any:
        """Connects an event that starts a run; returns the last event, which follows its end.

        Args:
            pressed: the event, such as a button's click.
            make: gives the run, not started, and updates of `outputs`, from the inputs' values.
                Raises `BackendError` if it cannot be served.
            inputs: the components that have the request.
            outputs: the other components that `make` updates.
        """

        def begin(request: gr.Request, *values: Any) -> Updates:
            return self.begin(request, lambda: make(*values))

        return self.follow(pressed(begin, inputs, [*self.outputs, *outputs], **QUIET))

    def follow(self, entered: Any) -> Any:
        """Connects what follows an event that calls `begin`; returns the last event."""
        return entered.then(self.carry_out, None, [*self.shows], **FOLLOWING).then(
            self.end,
            [*self.state],
            [*dict.fromkeys([*self.outputs, *self.ends, self.page.status])],
            queue=False,
            **FOLLOWING,
        )

    def connect_stop(self) -> None:
        """Connects the stop button. Call it once, after all else."""
        if self.stop is not None:
            stop_by(self.stop, self.page.stop, self.notice, meanwhile=self.stopping)

    def begin(self, request: gr.Request, make: Callable[[], tuple[AnyRun, Updates]]) -> Updates:
        """Checks a request at once, so that mistakes are reported without queueing; enters it."""
        try:
            run, updates = make()
            self.page.runs.begin(str(request.session_hash), run, self)
        except BackendError as error:
            return {self.notice: notice(labelled(str(error)))}
        updates = {self.notice: "", **self.shown(run), **updates}
        for button, label in self.buttons.items():
            updates[button] = gr.update(interactive=False)
            if label:
                updates[button]["value"] = label
        if self.stop:
            updates[self.stop] = gr.update(value=self.stop.value, interactive=True)
        return updates

    @property
    def _pressed(self) -> list[gr.Button]:
        return [*self.buttons, *([self.stop] if self.stop else [])]

    async def carry_out(self, request: gr.Request) -> AsyncIterator[Updates]:
        """Carries the visitor's run out and shows what has changed."""
        session = str(request.session_hash)
        run = cast("AnyRun | None", self.page.runs.take(session, self))
        if run is not None:  # otherwise the request was refused
            last: Updates = {}
            with self.page.runs.carrying_out(session):
                async for _ in run.steps(self.page.backend):
                    shown = self.shown(run)
                    if new := {
                        part: html for part, html in shown.items() if html != last.get(part)
                    }:
                        yield new
                    last |= shown
                yield self.shown(run)  # the result at once: the next event comes a little later
                return
        yield {self.shows[0]: gr.skip()}  # A generator that yields nothing would empty its outputs.

    def end(self, request: gr.Request, *state: Any) -> Updates:
        """Shows how the run ended."""
        found = self.page.runs.ended(str(request.session_hash), self)
        if found is None:  # It never started.
            return {self.notice: gr.skip()}
        run, ending = cast("tuple[AnyRun, Ending]", found)
        at_rest: Updates = {}
        for button, label in self.buttons.items():
            at_rest[button] = gr.update(interactive=True)
            if label:
                at_rest[button]["value"] = button.value
        if self.stop:
            at_rest[self.stop] = gr.update(value=self.stop.value, interactive=False)
        return {
            **at_rest,
            self.notice: notice(labelled(ending.problem)),
            self.page.status: self.page.engine_line(),
            **self.ended(run, ending, *state),
        }
