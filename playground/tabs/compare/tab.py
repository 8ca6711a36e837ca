"""The Compare tab: one prompt, several methods, one after the other, and what each one took.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how anything is measured.
"""

import contextlib
import time
from collections.abc import Collection
from typing import Any, Final

import gradio as gr
import htpy as h

from playground.context.measuring import check_answerable, registry_of
from playground.context.page_context import PageContext
from playground.context.run_events import RunEvents
from playground.context.runs import Ending
from playground.tabs.compare import choice as compare_choice
from playground.tabs.compare.baselines_report import all_values, baselines_report
from playground.tabs.compare.choice import SHAPE_CALLS, SHAPES, WAYS
from playground.tabs.compare.difference import headline
from playground.tabs.compare.durations import Durations, ModelSize, at_most
from playground.tabs.compare.runs import BaselinesRun, ComparisonRun, VariantsRun, baselines_run
from playground.tabs.compare.shapes_report import shapes_report
from playground.tabs.generate.examples import EXAMPLES
from playground.ui import components as ui
from playground.ui.markup import remarks
from playground.ui.option_controls import slider_end
from playground.ui.quantities import about, elapsed
from playground.ui.report_parts import queued
from playground.ui.wording import model_name
from xla_backend import BackendError, GenerationOptions, InvalidRequest, ModelUnavailable
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import CACHED_CALLS, MAX_CACHED_CALLS, Baseline
from xla_backend.interface.results import KeyHistory

# Gradio adds an invisible component to the page when it is first shown, but only at the first such
# update; a hidden one is there from the start.
_HIDDEN: Final = "hidden"
_DOWNLOAD = f"{round(overlay.DOWNLOAD_BYTES / 1e6)} MB to download, about {overlay.ABOUT_S} s"
# Headline and first way, once the comparison has begun: after a mistake the button stays in sight.
_BRING_INTO_SIGHT = """async () => {
  const begun = () => document.querySelector("#compare").disabled;
  for (let i = 0; i < 40 && !begun(); i++) await new Promise((done) => setTimeout(done, 50));
  const shown = [...document.querySelectorAll("#ways, #lengths")].find((e) => e.offsetHeight);
  const row = shown.querySelector(".baseline") ?? shown.querySelector(".claim");
  const first = row.getBoundingClientRect();
  const header = document.querySelector("#top").getBoundingClientRect();
  const isSeen = shown.getBoundingClientRect().top > header.bottom && first.bottom < innerHeight;
  if (begun() && !isSeen) shown.scrollIntoView();
}"""
_FIRST_WAYS = "Press Compare: Transformers and this engine, measured live on this machine."
_FIRST_LENGTHS = "Press Compare: ten prompts of different lengths, padded and not."


class CompareTab:
    name = "Compare"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        self._durations = Durations()
        self._sizes: dict[str, ModelSize] = {}
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_choice()
            with gr.Column(elem_classes="card"):
                self.ways = ui.html(baselines_report(remark=_FIRST_WAYS), "ways")
                # Separate from the ways, because each of their updates would fold it up again.
                self.values = ui.html(all_values(), "values")
                self.lengths = ui.html(headline("", _FIRST_LENGTHS), "lengths", visible=_HIDDEN)
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
        self.kind = gr.Radio(
            compare_choice.KINDS, value=WAYS, label="What to compare", elem_id="compare_kind"
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

    @property
    def _choice(self) -> list[ui.Field]:
        return [*self._estimated, self.prompt, self.install]

    @property
    def _estimated(self) -> list[ui.Field]:
        return [self.kind, self.model, self.max_new_tokens, self.num_beams, self.cached_calls]

    def _connect(self) -> None:
        ui.empty_on_change(self.notice, [component.change for component in self._choice])
        self.kind.change(self._show_kind, self.kind, [*self._kinds_of], **ui.EACH_TIME)
        gr.on(
            [self._page.in_sight["compare"].click, *(part.change for part in self._estimated)],
            self._estimate,
            {*self._estimated},
            [self.estimate, self.install],
            **ui.LATEST,
        )
        events = RunEvents[ComparisonRun](
            self._page,
            self.notice,
            {self.compare: "Comparing"},
            self.cancel,
            shows=[self.ways, self.lengths, self.notice],
            shown=self._run_shown,
            ends=[self.values],
            ended=self._run_ended,
            stopping="Cancelling",
        )
        events.connect(
            self.compare.click, self._run_for, {*self._choice}, meanwhile=_BRING_INTO_SIGHT
        ).then(self._estimate, {*self._estimated}, [self.estimate, self.install], **ui.LATEST)
        events.connect_stop()

    @property
    def _kinds_of(self) -> dict[gr.components.Component, tuple[str, ...]]:
        """The kinds of comparison that have these parts."""
        of_ways = (self.num_beams, self.cached_calls, self.ways, self.values)
        return {self.lengths: (SHAPES,), **dict.fromkeys(of_ways, (WAYS,))}

    def _show_kind(self, kind: str) -> ui.Updates:
        return {
            part: gr.update(visible=True if kind in kinds else _HIDDEN)
            for part, kinds in self._kinds_of.items()
        }

    def _estimate(self, values: dict[Any, Any]) -> tuple[str, Any]:
        """How long it will take, and whether the overlay can be installed first."""
        if values[self.kind] == SHAPES:
            sentence = (
                "The prompt is repeated to ten lengths. A bucket is compiled when a length first "
                "falls into it; one shape serves all lengths."
            )
            return str(remarks(sentence)), gr.update(visible=_HIDDEN)
        request = (values[self.max_new_tokens], values[self.num_beams], values[self.cached_calls])
        return self._estimate_ways(values[self.model], *request)

    def _estimate_ways(
        self, model: str, max_new_tokens: Any, num_beams: Any, calls: Any
    ) -> tuple[str, Any]:
        install = gr.update(visible=_HIDDEN if overlay.is_installed() else True)
        try:
            options = GenerationOptions(num_beams=num_beams, max_new_tokens=max_new_tokens)
            size = self._size(model)
            seconds = self._durations.expected_s(size, options, int(calls), self._past(model))
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

    def _past(self, model: str) -> Collection[KeyHistory]:
        return self._backend.past().get(model, {}).values()

    def _left(self, run: BaselinesRun) -> str:
        """How much longer a comparison takes, as a sentence; empty where nobody knows."""
        model = run.comparison.model
        try:
            size = self._size(model)
        except BackendError:
            return ""
        assert run.progress is not None
        left_s = self._durations.left_s(run.comparison, run.progress, size, self._past(model))
        run.ends_at = time.perf_counter() + left_s
        return f" About {about(left_s)} left." if left_s >= 1 else ""

    def _run_for(self, choice: dict[Any, Any]) -> tuple[ComparisonRun, ui.Updates]:
        """The comparison that was chosen.

        Raises:
            InvalidRequest, ModelUnavailable: the choice is at fault.
        """
        kind, model, prompt = choice[self.kind], choice[self.model], choice[self.prompt]
        max_new_tokens = choice[self.max_new_tokens]
        if kind == WAYS:
            options = GenerationOptions(
                num_beams=choice[self.num_beams], max_new_tokens=max_new_tokens
            )
            calls, install = choice[self.cached_calls], choice[self.install]
            return baselines_run(self._page, model, prompt, options, calls, install), {}
        return self._shapes_run(model, prompt, max_new_tokens), {}

    def _shapes_run(self, model: str, prompt: str, max_new_tokens: int) -> VariantsRun:
        """Ten lengths through buckets and through the pool.

        Raises:
            InvalidRequest, ModelUnavailable: the choice is at fault.
        """
        options = GenerationOptions(max_new_tokens=max_new_tokens)
        check_answerable(self._page, model, prompt, options)
        found = self._backend.predict(model, prompt, options)
        if not found.requested_key.is_pooled:
            raise InvalidRequest(
                f"{model_name(model)} only has buckets: one shape for all lengths needs a "
                "decoder-only model. Choose one of those."
            )
        variants = compare_choice.of_shapes(
            model,
            self._backend.tokenizer(model).encode(prompt),
            max_new_tokens,
            context_length=found.requested_key.padded_length,
        )
        return VariantsRun(variants, SHAPE_CALLS)

    def _run_shown(self, run: ComparisonRun) -> ui.Updates:
        if run.taken_at is None:
            return {self.notice: ui.notice(queued(run.ahead), "calm") if run.ahead else ""}
        return {self.notice: "", **self._shown(run)}

    def _run_ended(self, run: ComparisonRun, ending: Ending) -> ui.Updates:
        """The results. After an error the last ones stay."""
        problem = ending.problem
        if isinstance(run, BaselinesRun):
            with contextlib.suppress(BackendError):
                self._durations.record(run.comparison, self._size(run.comparison.model))
            problem = problem or run.problem
        return {**self._shown_at_end(run, ending.stopped), self.notice: ui.notice(problem)}

    def _shown(self, run: ComparisonRun) -> ui.Updates:
        if isinstance(run, VariantsRun):
            rows = run.rows
            remark = "First calls, one after the other."
            if run.current is not None:
                remark = f"First call {run.current + 1} of {len(rows)}, one after the other."
            elif run.turn:
                remark = f"Later calls, round {run.turn} of {run.most_calls}."
            return {self.lengths: shapes_report(rows, run.current, remark)}
        assert isinstance(run, BaselinesRun)
        ways = run.comparison.baselines
        remark = "Waiting until the engine is idle, so that nothing disturbs the comparison."
        if (installing := run.installing) is not None:
            remark = (
                f"Installing for Transformers: {installing.step}, "
                f"{round(installing.installed_bytes / 1e6)} MB, {elapsed(installing.elapsed_s)}."
            )
        if run.progress is not None:
            number = ways.index(run.progress.baseline) + 1
            remark = f"Method {number} of {len(ways)}."
            if run.progress.stage == "cached":
                remark = "Later calls, in turn."
            remark += self._left(run)
        return {self.ways: baselines_report(run.comparison, run.progress, remark)}

    def _shown_at_end(self, run: ComparisonRun, cancelled: bool) -> ui.Updates:
        remark = "Cancelled. What was measured stays." if cancelled else ""
        if isinstance(run, VariantsRun):
            return {self.lengths: shapes_report(run.rows, None, remark, is_over=True)}
        assert isinstance(run, BaselinesRun)
        remark = remark or "Measured just now on this machine."
        return {
            self.ways: baselines_report(run.comparison, None, remark),
            self.values: all_values(run.comparison.results),
        }
