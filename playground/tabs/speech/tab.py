"""The Speech tab: one recording in, its transcript out, and what it cost.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how speech is recognised.
"""

import contextlib
from typing import Any

import gradio as gr
import htpy as h

from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.tabs.speech import report
from playground.tabs.speech.examples import speech_examples
from playground.tabs.speech.runs import SpeechRun
from playground.ui import components as ui
from playground.ui.markup import nothing
from playground.ui.option_controls import labelled
from playground.ui.prediction_line import (
    awaited_prediction_line,
    no_prediction_line,
    window_prediction_line,
)
from xla_backend import (
    BackendError,
    GenerationOptions,
    InvalidRequest,
    ModelUnavailable,
)
from xla_backend.checkpoints.models import DEFAULT_SPEECH_MODEL
from xla_backend.interface.options import WINDOW_TOKENS

_DECODER_PROMPT = 4
"""Most positions that the tokens at the start of every transcript take."""
_NOTHING_TO_HEAR = (
    "There is no recording yet: choose a file, record something or press an example first."
)


class SpeechTab:
    name = "Speech"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        settings = page.settings
        if settings.speech_model is None or settings.language is None:
            sentence = "This page offers no speech model. Its server can be started with one: "
            command = h.code[f"--models {DEFAULT_SPEECH_MODEL}"]
            ui.html(h.div(".card")[nothing([sentence, command, "."])])
            return
        self.model, self.language = settings.speech_model, settings.language
        self.num_beams = settings.controls.num_beams
        with gr.Row(elem_classes="columns speech-columns"):
            with gr.Column(elem_classes="card area-request speech-request"):
                self._build_request()
            with gr.Column(elem_classes="card area-result"):
                self._build_result()
        self._build_windows()
        self._connect_request()
        self._connect_run()

    def _build_request(self) -> None:
        self.recording = gr.Audio(
            sources=["upload", "microphone"],
            type="filepath",
            label="Recording",
            buttons=[],
            elem_id="recording",
        )
        examples = speech_examples()
        self.examples = ui.name_buttons(
            [example.name for example in examples], "Examples", "speech_examples"
        )
        with gr.Row(elem_classes="actions"):
            self.transcribe = gr.Button("Transcribe", variant="primary", elem_id="transcribe")
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop_speech")
        self.prediction = ui.html(
            awaited_prediction_line("Looking up the model"), "speech_prediction"
        )
        self.notice = ui.html("", "speech_notice")

    def _build_result(self) -> None:
        self.transcript = ui.html(report.empty_transcript(), "heard")
        self.report = ui.html(report.empty_speech_report(), "speech_report")
        self.shown = gr.State(None)

    def _build_windows(self) -> None:
        with gr.Column(elem_classes="card"):
            ui.heading(
                "Windows",
                "A recording that is longer than the model's window is cut into windows,"
                " where it is quietest.",
            )
            self.windows = ui.html(report.window_table([]), "windows")

    def _connect_request(self) -> None:
        own: list[ui.Field] = [self.model, self.recording, self.language]
        ui.await_prediction(self.prediction, self.model)
        ui.empty_on_change(self.notice, [part.change for part in (*own, self.num_beams)])
        self.examples.click(
            lambda index: speech_examples()[index].sound,
            self.examples,
            self.recording,
            js=ui.PRESSED,
            **ui.QUIET,
        )
        gr.on(
            [self._page.in_sight["speech"].click, self.model.change],
            self._follow,
            [self.model, self.num_beams],
            [self.prediction, self.language],
            **ui.LATEST,
        )

    def _connect_run(self) -> None:
        events = RunEvents[SpeechRun](
            self._page,
            self.notice,
            {self.transcribe: "Transcribing"},
            self.stop,
            shows=[self.transcript, self.report, self.windows],
            shown=self._run_shown,
            ends=[self.shown, self.prediction],
            ended=self._run_ended,
            state=[self.shown, self.model, self.num_beams],
        )
        request: list[ui.Field] = [self.model, self.recording, self.num_beams, self.language]
        events.connect(self.transcribe.click, self._run_of, request)
        events.connect_stop()

    def _follow(self, name: str, num_beams: Any) -> ui.Updates:
        """All that follows a change, in one answer: those of two models chosen one after the other
        would else come in any order."""
        models = {model.name: model for model in self._page.speech_models()}
        updates: ui.Updates = {self.prediction: self._predict(name, num_beams)}
        if name in models:
            updates[self.language] = gr.update(visible=models[name].is_multilingual)
        return updates

    def _options(self, model: str, num_beams: Any) -> GenerationOptions:
        """The options: as many tokens as are useful and allowed in one window.

        Raises:
            InvalidRequest: the number of beams is empty or out of range.
        """
        most = min(WINDOW_TOKENS, self._page.limits.new_tokens)
        info = next((each for each in self._page.speech_models() if each.name == model), None)
        if info is not None and info.context_length is not None:
            most = min(most, info.context_length - _DECODER_PROMPT)
        return GenerationOptions.from_dict({"num_beams": num_beams, "max_new_tokens": most})

    def _predict(self, model: str, num_beams: Any) -> str:
        try:
            self._page.check_model(model)
            options = self._options(model, num_beams)
            return window_prediction_line(self._backend.predict_speech(model, options))
        except BackendError as error:
            return no_prediction_line(str(error))

    def _run_of(
        self, model: str, recording: str | None, num_beams: Any, language: str | None
    ) -> tuple[SpeechRun, ui.Updates]:
        options = self._options(model, num_beams)
        self._page.check_request(model, options=options)
        if not recording:
            raise InvalidRequest(_NOTHING_TO_HEAR)
        spoken = self._spoken(model, language)
        run = SpeechRun(model, recording, options, spoken, self._page.limits.audio_s)
        self._set_prediction(run)
        return run, {}

    def _spoken(self, model: str, language: str | None) -> str | None:
        """The language for the model; models with one language have no such field."""
        knows_many = any(m.is_multilingual for m in self._page.speech_models() if m.name == model)
        return (language or None) if knows_many else None

    def _set_prediction(self, run: SpeechRun) -> None:
        with contextlib.suppress(ModelUnavailable):  # the run itself will fetch the model
            run.prediction = self._backend.predict_speech(run.model, run.options)

    def _run_shown(self, run: SpeechRun) -> ui.Updates:
        """The windows as they come, then their cost."""
        if (done := run.transcribed()) is not None:
            return self._at_rest(done)
        text = " ".join(window.text for window in run.windows if window.text)
        updates: ui.Updates = {
            self.transcript: report.transcript(text, writing=True),
            self.windows: report.window_table(run.windows),
        }
        if not run.windows:
            if run.ahead and run.taken_at is not None:
                self._set_prediction(run)
            ahead = run.ahead if run.taken_at is None else 0
            updates[self.report] = report.waiting_speech_report(
                run.prediction, ahead, run.clicked_s
            )
        return updates

    def _run_ended(
        self, run: SpeechRun, ending: Ending, before: report.Transcribed | None, *request: Any
    ) -> ui.Updates:
        """The transcript with what it cost. After an error the last result stays."""
        done = run.transcribed()
        return {
            **self._at_rest(done or before),
            self.shown: done or before,
            self.notice: ui.notice("" if done else labelled(ending.why_empty)),
            self.prediction: self._predict(*request),
        }

    def _at_rest(self, done: report.Transcribed | None) -> ui.Updates:
        """A result, or the tab before the first one."""
        return {
            self.transcript: report.finished_transcript(done)
            if done
            else report.empty_transcript(),
            self.report: report.speech_report(done) if done else report.empty_speech_report(),
            self.windows: report.window_table(done.result.windows if done else []),
        }
