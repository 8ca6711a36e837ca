"""`PageContext`: what the modes share: the engine, its queue, the current runs, the limits.

Knows which models this page offers and how an event enters the queue. Must not know any mode, nor
how anything looks.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from playground.context.limits import Limits
from playground.context.runs import VisitorRun, VisitorRuns
from playground.context.settings import SettingFields
from playground.context.status_line import (
    phase_of,
    queued,
    status_line,
    stopping_note,
    waits_for_others,
)
from playground.ui.components import notice
from playground.ui.markup import quoted
from playground.ui.wording import TEXT_FAMILIES, model_name
from xla_backend import (
    GenerationOptions,
    Message,
    ModelInfo,
    ModelUnavailable,
    Prompt,
    SharedBackend,
)
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.models import folder_info
from xla_backend.inspection.inspector import Inspector


@dataclass
class PageContext:
    """What the modes share.

    Attributes:
        backend: the engine.
        offered: names of the models that visitors may use, in order; empty for all.
        status: the line that says what the engine is doing.
        status_is_new: a hidden button that the page's script presses when the status has changed.
        offered_is_new: likewise, when the list of added models has changed.
        in_sight: for each mode, by its address, a hidden button that the page's script presses when
            the mode becomes visible, and when the engine's functions change while it is visible.
        watched: other values whose change refreshes modes; see `server.changes`.
        runs_of_visitor: this visitor's runs, kept in the browser.
        runs_are_new, runs_are_lost: hidden buttons that the page's script presses when another
            window has changed them, and when the browser has no room for them.
        load: the page's own load event.
        file: a hidden value that the browser saves as a file, see `ui.components.saved_file`.
        runs: the current runs of all visitors.
        times_cleared: how often compiled functions were cleared on this page.
        admin: whether visitors may change the engine for everybody.
        limits: of each visitor.
        added: the file of models that are added on this page; None if none can be added.
        inspector: inspects compiled functions; None without a store.
        settings: the components of what is set for all texts.
    """

    backend: SharedBackend
    status: gr.HTML
    status_is_new: gr.Button
    offered_is_new: gr.Button
    in_sight: Mapping[str, gr.Button]
    runs_of_visitor: gr.BrowserState
    runs_are_new: gr.Button
    runs_are_lost: gr.Button
    load: Any
    file: gr.Textbox
    offered: tuple[str, ...] = ()
    runs: VisitorRuns = field(default_factory=VisitorRuns)
    watched: list[Callable[[], Hashable]] = field(default_factory=list)
    times_cleared: int = 0
    admin: bool = False
    limits: Limits = field(default_factory=Limits)
    added: AddedModels | None = None
    inspector: Inspector | None = None
    settings: SettingFields = field(init=False)

    def engine_line(self, session: str = "") -> str:
        """The engine's current activity, for `status`, and this visitor's place in the queue."""
        run = self.runs.of(session)
        progress = None if run is None else run.request_progress
        status, in_background = self.backend.status, self.backend.prefetching()
        occupation, phase = self.runs.occupation(status), None
        if run is not None and progress is not None and waits_for_others(progress):
            phase = queued(run, progress, status, occupation)
        elif isinstance(run, VisitorRun) and progress is not None:
            info = next((each for each in self._all_models() if each.name == run.model), None)
            size = info.stored_bytes if info else None
            phase = phase_of(run, status, size, in_background)
        return status_line(status, len(in_background), occupation, phase)

    def stop(self, request: gr.Request) -> Any:
        """Stops a visitor's run; returns the update of the notice beside the button."""
        session = str(request.session_hash)
        run = self.runs.of(session)
        ends_at_once = run is not None and run.taken_at is None
        if not self.runs.stop(session) or ends_at_once:
            return gr.skip()
        # Other runs have their own processes, which are terminated.
        note = stopping_note(self.backend.status) if isinstance(run, VisitorRun) else ""
        return notice(note, "calm") if note else gr.skip()

    def info(self, name: str) -> ModelInfo | None:
        """The text model of that name; None if it is not offered."""
        return next((model for model in self.models() if model.name == name), None)

    def prompt(
        self,
        model: str,
        text: str,
        system: str = "",
        is_raw: bool = False,
        earlier: Sequence[Message] = (),
        answer_start: str = "",
    ) -> Prompt:
        """A visitor's prompt: messages for an instruct model, unless it is raw.

        Args:
            model: for which.
            text: the text to continue, or the user's last message, which can be empty after others.
            system: the system prompt; empty for the chat template's.
            is_raw: whether the text is continued without the chat template.
            earlier: messages before the text.
            answer_start: the beginning of the answer, if it has one.
        """
        info = self.info(model)
        if info is None or not info.is_instruct or is_raw:
            return text
        return (
            *([Message("system", system.strip())] if system.strip() else []),
            *earlier,
            *([Message("user", text)] if text.strip() or not earlier else []),
            *([Message("assistant", answer_start)] if answer_start else []),
        )

    def models(self) -> list[ModelInfo]:
        """The offered text models."""
        return [model for model in self._all_models() if model.family in TEXT_FAMILIES]

    def models_that_continue_first(self) -> list[ModelInfo]:
        """The same with instruct models last, for modes whose examples are beginnings of
        stories."""
        return sorted(self.models(), key=lambda model: model.is_instruct)

    def speech_models(self) -> list[ModelInfo]:
        return [model for model in self._all_models() if model.family == "speech"]

    def models_in(self, picker: str) -> list[ModelInfo]:
        """The models that one of the page's lists offers.

        Args:
            picker: the list's element id.
        """
        if picker == "speech_model":
            return self.speech_models()
        if picker == "inside_model":
            return [*self.models(), *self.speech_models()]
        return self.models()

    def _all_models(self) -> list[ModelInfo]:
        known = {model.name: model for model in self.backend.models()}
        if not self.offered:
            return list(known.values())
        return [known.get(name) or folder_info(name) for name in self.offered]

    def check_request(
        self, model: str, prompt: object = "", options: GenerationOptions | None = None
    ) -> None:
        """Refuses requests beyond what this page offers.

        Raises:
            ModelUnavailable: the model is not offered here.
            InvalidRequest: the prompt is too long, or a limit is exceeded.
        """
        self.check_model(model)
        self.limits.check_prompt(prompt)
        if options is not None:
            self.limits.check_new_tokens(options.max_new_tokens)

    def check_model(self, name: str) -> None:
        """Refuses models that are not offered.

        Raises:
            ModelUnavailable: the model is not offered here.
        """
        if self.offered and name not in self.offered:
            raise ModelUnavailable(
                f"There is no model {quoted(name)} here. The models are: "
                f"{', '.join(map(model_name, self.offered))}."
            )
