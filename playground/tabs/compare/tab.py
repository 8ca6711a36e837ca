"""The Compare tab: one prompt, several methods, one after the other, and what each one took.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how anything is measured.
"""

import contextlib
from typing import Any, Final

import gradio as gr
import htpy as h

from playground.context.measuring import registry_of
from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.settings.examples import EXAMPLES
from playground.tabs.compare.baselines_report import all_values, baselines_report
from playground.tabs.compare.durations import Durations, ModelSize, at_most
from playground.tabs.compare.runs import BaselinesRun, baselines_run
from playground.ui import components as ui
from playground.ui.markup import remarks
from playground.ui.option_controls import slider_end
from playground.ui.quantities import about, elapsed
from playground.ui.report_parts import queued
from xla_backend import BackendError, GenerationOptions, ModelUnavailable
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import CACHED_CALLS, MAX_CACHED_CALLS, Baseline

# Gradio adds an invisible component to the page when it is first shown, but only at the first such
# update; a hidden one is there from the start.
_HIDDEN: Final = "hidden"
_DOWNLOAD = f"{round(overlay.DOWNLOAD_BYTES / 1e6)} MB to download, about {overlay.ABOUT_S} s"
_FIRST_WAYS = "Press Compare: Transformers and this engine, measured live on this machine."


class CompareTab:
    name = "Compare"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._durations = Durations()
        self._sizes: dict[str, ModelSize] = {}
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_choice()
            with gr.Column(elem_classes="card"):
                self.ways = ui.html(baselines_report(remark=_FIRST_WAYS), "ways")
                # Separate from the ways, because each of their updates would fold it up again.
                self.values = ui.html(all_values(), "values")
        self._connect()

    def _build_choice(self) -> None:
        models = self._page.models_that_continue_first()
        ui.heading(
            "Compare",
            [
                "One prompt, several methods, one after the other, several times each. Models and "
                "options beside each other: ",
                h.a(href="?tab=playground")["+\N{NO-BREAK SPACE}compare"],
                " in the Playground.",
            ],
        )
        self.model = ui.model_dropdown(models, "compare_model")
        self.prompt = gr.Textbox(
            value=EXAMPLES[0].prompt, label="Prompt", lines=2, max_lines=6, elem_id="compare_prompt"
        )
        most = self._page.limits.new_tokens
        self.max_new_tokens = ui.slider(
            1, slider_end(most), min(32, most), "New tokens", "compare_new_tokens"
        )
        self.num_beams = ui.slider(1, 8, 1, "Beams", "compare_num_beams")
        info = "How often each method repeats the request, in turn with the others."
        self.cached_calls = ui.slider(
            CACHED_CALLS, MAX_CACHED_CALLS, CACHED_CALLS, "Later calls", "compare_calls", info
        )
        self.install = gr.Checkbox(
            label="First install what Transformers needs",
            value=True,
            info=f"Its last version with TensorFlow models: {_DOWNLOAD}, once.",
            visible=_HIDDEN,
            elem_id="compare_install",
        )
        self.estimate = ui.html("", "compare_estimate")
        with gr.Row(elem_classes="actions"):
            self.compare = gr.Button("Compare", variant="primary", elem_id="compare")
            self.cancel = gr.Button("Cancel", interactive=False, elem_id="compare_cancel")
        self.notice = ui.html("", "compare_notice")

    def _connect(self) -> None:
        estimated: list[ui.Field] = [self.model, self.max_new_tokens, self.num_beams]
        estimated.append(self.cached_calls)
        choice = [*estimated, self.prompt, self.install]
        ui.empty_on_change(self.notice, [component.change for component in choice])
        shown = [self.estimate, self.install]
        gr.on(
            [self._page.in_sight["compare"].click, *(part.change for part in estimated)],
            self._estimate,
            estimated,
            shown,
            **ui.LATEST,
        )
        events = RunEvents[BaselinesRun](
            self._page,
            self.notice,
            {self.compare: "Comparing"},
            self.cancel,
            shows=[self.ways, self.notice],
            shown=self._run_shown,
            ends=[self.values, *shown],
            ended=self._run_ended,
            state=estimated,
            stopping="Cancelling",
        )
        events.connect(self.compare.click, self._run_of, choice)
        events.connect_stop()

    def _estimate(
        self, model: str, max_new_tokens: Any, num_beams: Any, calls: Any
    ) -> tuple[str, Any]:
        """How long it will take, and whether the overlay can be installed first."""
        install = gr.update(visible=_HIDDEN if overlay.is_installed() else True)
        try:
            options = GenerationOptions(num_beams=num_beams, max_new_tokens=max_new_tokens)
            seconds = self._durations.expected_s(self._size(model), options, int(calls))
        except (BackendError, TypeError, ValueError):  # The visitor may have typed anything.
            sentence = "How long it takes is known once the model is downloaded."
            return str(remarks(sentence)), install
        why = "judging by the size of the model"
        if self._durations.is_measured(model):
            why = "judging by the last comparison here"
        takes = h.strong[f"Takes {about(seconds)} to {about(at_most(seconds))}"]
        sentence = (
            f", {why}. {len(Baseline)} fresh processes; other visitors wait meanwhile. Slow "
            "methods repeat less often."
        )
        return str(remarks([takes, sentence])), install

    def _size(self, model: str) -> ModelSize:
        """Of a model whose files are here.

        Raises:
            ModelUnavailable: they are not.
        """
        if model not in self._sizes:
            info = self._page.info(model)
            if info and info.source == "hub" and not info.loaded:
                # Locating it could start a download.
                raise ModelUnavailable(f"{model} is not downloaded yet.")
            self._sizes[model] = ModelSize.of(model, registry_of(self._page).locate(model))
        return self._sizes[model]

    def _run_of(
        self,
        model: str,
        max_new_tokens: int,
        num_beams: int,
        calls: int,
        prompt: str,
        install: bool,
    ) -> tuple[BaselinesRun, ui.Updates]:
        options = GenerationOptions(num_beams=num_beams, max_new_tokens=max_new_tokens)
        run = baselines_run(self._page, model, prompt, options, calls, install)
        with contextlib.suppress(BackendError):  # it is not downloaded yet
            run.expected_s = self._durations.expected_s(self._size(model), options, calls)
        return run, {}

    def _run_shown(self, run: BaselinesRun) -> ui.Updates:
        if run.taken_at is None:
            return {self.notice: ui.notice(queued(run.ahead), "calm") if run.ahead else ""}
        ways = run.comparison.baselines
        remark = "Waiting until the engine is idle, so that nothing disturbs the comparison."
        if (installing := run.installing) is not None:
            remark = (
                f"Installing for Transformers: {installing.step}, "
                f"{round(installing.installed_bytes / 1e6)} MB, {elapsed(installing.elapsed_s)}."
            )
        if run.progress is not None:
            remark = f"Method {ways.index(run.progress.baseline) + 1} of {len(ways)}."
            if run.progress.stage == "cached":
                remark = "Later calls, in turn."
            if run.left_s is not None and run.left_s >= 1:
                remark += f" About {about(run.left_s)} left."
        return {self.notice: "", self.ways: baselines_report(run.comparison, run.progress, remark)}

    def _run_ended(self, run: BaselinesRun, ending: Ending, *estimated: Any) -> ui.Updates:
        """The results. After an error the last ones stay."""
        comparison = run.comparison
        if run.took_s is not None:
            with contextlib.suppress(BackendError):
                self._durations.record(
                    self._size(comparison.model),
                    comparison.options,
                    comparison.cached_calls,
                    run.took_s,
                )
        remark = "Measured just now on this machine."
        if ending.stopped:
            remark = "Cancelled. What was measured stays."
        estimate, install = self._estimate(*estimated)
        return {
            self.estimate: estimate,
            self.install: install,
            self.ways: baselines_report(comparison, None, remark),
            self.values: all_values(comparison.results),
            self.notice: ui.notice(ending.problem or run.problem),
        }
