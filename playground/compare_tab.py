"""The Compare tab: one prompt in several ways, one after the other, and what each one took.

Knows the components and what each event does to them. Must not know how anything looks (that is in
the modules that write HTML and in the style sheet) nor how anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground import compare_choice
from playground.compare_choice import BEAMS, LANES, MODELS, OPTIONS
from playground.compare_lanes import all_values, lanes_report
from playground.compare_runs import (
    ComparisonRun,
    Durations,
    LanesRun,
    VariantsRun,
    check_request,
    lanes_run,
)
from playground.compare_variants import variants_report
from playground.components import FOLLOWING, QUIET, empty_on_change, lenient, model_dropdown, notice
from playground.examples import EXAMPLES
from playground.option_controls import slider_end
from playground.quantities import count, elapsed
from playground.report_parts import waiting_for_others
from xla_backend import BackendError, GenerationOptions
from xla_backend.lanes import CACHED_CALLS, Lane

if TYPE_CHECKING:
    from playground.page import PageContext

# Gradio puts what is merely not visible into the page when it is first shown, but only at the first
# such update; what is hidden is there from the start.
_HIDDEN = "hidden"
_FIRST_LANES = "Press Compare: the guide’s claim, measured live on this machine."
_FIRST_VARIANTS = "Press Compare: the same prompt, side by side."

Updates = dict[gr.components.Component, Any]


class CompareTab:
    """Builds the tab inside the current `gr.Tab` and connects it."""

    name = "Compare"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._backend = page.backend
        self._durations = Durations()
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                self._build_choice()
            with gr.Column(elem_classes="card"):
                self.lanes = gr.HTML(
                    lanes_report(remark=_FIRST_LANES), elem_id="lanes", apply_default_css=False
                )
                # Apart from the lanes, whose every update would fold it up again.
                self.values = gr.HTML(all_values(), elem_id="values", apply_default_css=False)
                self.variants = gr.HTML(
                    variants_report(remark=_FIRST_VARIANTS),
                    elem_id="variants",
                    visible=_HIDDEN,
                    apply_default_css=False,
                )
        self._connect()

    def _build_choice(self) -> None:
        models = self._page.models()
        gr.HTML(
            '<h2>Compare</h2><p class="caption">One prompt in several ways, one after the other, '
            "so that they do not disturb each other.</p>",
            apply_default_css=False,
        )
        self.kind = gr.Radio(
            compare_choice.KINDS, value=LANES, label="What to compare", elem_id="compare_kind"
        )
        self.model = model_dropdown(models, "compare_model")
        self.models = gr.Dropdown(
            [(label, name) for label, name in self.model.choices],
            value=[model.name for model in models[:2]],
            multiselect=True,
            max_choices=4,
            label="Models",
            info="Two to four.",
            elem_id="compare_models",
            elem_classes="model-choice",
            visible=_HIDDEN,
        )
        self.prompt = gr.Textbox(
            value=EXAMPLES[0].prompt,
            label="Prompt",
            lines=2,
            max_lines=6,
            elem_id="compare_prompt",
        )
        self.max_new_tokens = lenient(
            gr.Slider(
                1,
                slider_end(self._page.limits.new_tokens),
                value=min(32, self._page.limits.new_tokens),
                step=1,
                label="New tokens",
                elem_id="compare_new_tokens",
            )
        )
        self.num_beams = lenient(
            gr.Slider(1, 8, value=1, step=1, label="Beams", elem_id="compare_num_beams")
        )
        self.cached_calls = lenient(
            gr.Slider(
                1,
                20,
                value=CACHED_CALLS,
                step=1,
                label="Later calls",
                info="How often each lane repeats the request after its first call.",
                elem_id="compare_calls",
            )
        )
        self.beams = gr.CheckboxGroup(
            [(str(number), number) for number in compare_choice.BEAM_CHOICES],
            value=list(compare_choice.BEAM_CHOICES),
            label="Beams",
            visible=_HIDDEN,
            elem_id="compare_beams",
        )
        self.option_sets = gr.Textbox(
            value=compare_choice.OPTION_SETS,
            label="Option sets",
            info="One a line, two to four lines; names as in Hugging Face’s GenerationConfig.",
            lines=4,
            max_lines=6,
            visible=_HIDDEN,
            elem_id="compare_options",
        )
        self.estimate = gr.HTML("", elem_id="compare_estimate", apply_default_css=False)
        with gr.Row(elem_classes="actions"):
            self.compare = gr.Button("Compare", variant="primary", elem_id="compare")
            self.cancel = gr.Button("Cancel", interactive=False, elem_id="compare_cancel")
        self.notice = gr.HTML("", elem_id="compare_notice", apply_default_css=False)

    # ---- what happens

    @property
    def _choice(self) -> list[gr.components.Component]:
        return [
            self.kind,
            self.model,
            self.models,
            self.prompt,
            self.max_new_tokens,
            self.num_beams,
            self.cached_calls,
            self.beams,
            self.option_sets,
        ]

    def _connect(self) -> None:
        empty_on_change(self.notice, [component.change for component in self._choice])
        self.kind.change(
            self._show_kind,
            self.kind,
            [
                self.model,
                self.models,
                self.num_beams,
                self.cached_calls,
                self.beams,
                self.option_sets,
                self.lanes,
                self.values,
                self.variants,
            ],
            **QUIET,
        )
        gr.on(
            [
                self._page.load,
                *(part.change for part in (self.kind, self.model, self.cached_calls)),
            ],
            self._estimate,
            [self.kind, self.model, self.cached_calls],
            self.estimate,
            trigger_mode="always_last",
            **QUIET,
        )
        self.compare.click(
            self._begin, self._choice, [self.notice, self.compare, self.cancel], **QUIET
        ).then(
            self._run,
            None,
            [
                self.lanes,
                self.values,
                self.variants,
                self.notice,
                self.estimate,
                self.compare,
                self.cancel,
            ],
            show_progress="hidden",
            api_visibility="private",
            **FOLLOWING,
            **self._page.alone,
        )
        self.cancel.click(self._cancel_comparison, None, [self.cancel, self.notice], **QUIET)

    def _show_kind(self, kind: str) -> list[Any]:
        return [
            gr.update(visible=True if shown else _HIDDEN)
            for shown in (
                kind != MODELS,
                kind == MODELS,
                kind == LANES,
                kind == LANES,
                kind == BEAMS,
                kind == OPTIONS,
                kind == LANES,
                kind == LANES,
                kind != LANES,
            )
        ]

    def _estimate(self, kind: str, model: str, cached_calls: int) -> str:
        if kind != LANES:
            return (
                '<p class="remarks">Each one takes what its first call takes: seconds when it must '
                "be compiled, milliseconds when it is there.</p>"
            )
        is_typed = isinstance(cached_calls, int | float)  # What was typed may be anything.
        calls = cached_calls if is_typed and cached_calls else CACHED_CALLS
        seconds, is_measured = self._durations.expected(model, calls)
        why = (
            "judging by the last comparison here"
            if is_measured
            else "for a small model on two cores; large models take longer"
        )
        return (
            f'<p class="remarks"><strong>Takes about {elapsed(seconds)}</strong>, {why}. '
            f"{len(Lane)} fresh processes, one after the other; other visitors wait "
            "meanwhile.</p>"
        )

    def _begin(self, request: gr.Request, *choice: Any) -> Updates:
        """Checks the request at once, so that a mistake need not wait for somebody's compile."""
        try:
            run = self._run_for(*choice)
            ahead = self._page.begin(str(request.session_hash), run)
        except BackendError as error:
            return {self.notice: notice(str(error))}
        return {
            self.notice: notice(waiting_for_others(), "calm") if ahead else "",
            self.compare: gr.update(value="Comparing", interactive=False),
            self.cancel: gr.update(interactive=True),
        }

    def _run_for(
        self,
        kind: str,
        model: str,
        models: list[str],
        prompt: str,
        max_new_tokens: int,
        num_beams: int,
        cached_calls: int,
        beams: list[int],
        option_sets: str,
    ) -> ComparisonRun:
        """The comparison that was chosen.

        Raises:
            InvalidRequest, ModelUnavailable: the choice is at fault.
        """
        if kind == LANES:
            options = GenerationOptions(num_beams=num_beams, max_new_tokens=max_new_tokens)
            return lanes_run(self._page, model, prompt, options, cached_calls)
        if kind == BEAMS:
            variants = compare_choice.of_beams(model, beams, max_new_tokens)
        elif kind == MODELS:
            variants = compare_choice.of_models(models, max_new_tokens)
        else:
            variants = compare_choice.of_option_sets(model, option_sets, max_new_tokens)
        for variant in variants:
            check_request(self._page, variant.model, prompt, variant.options)
        return VariantsRun(prompt, variants)

    def _run(self, request: gr.Request) -> Iterator[Updates]:
        """Carries the visitor's comparison out. An error keeps what is shown."""
        session = str(request.session_hash)
        run = self._page.runs.take(session, ComparisonRun)
        if run is None:  # `_begin` found a mistake and has said so.
            yield {self.notice: gr.skip()}  # A generator that yields nothing empties its outputs.
            return
        cancelled = False
        with self._page.runs.carrying_out(session) as ending:
            yield {self.notice: "", **self._shown(run)}
            for _ in run.steps(self._backend):
                yield self._shown(run)
            cancelled = run.stopped  # before the end of the turn, which stops what it ends
        if isinstance(run, LanesRun):
            self._durations.keep(run.comparison)
        yield {
            **self._shown_at_end(run, cancelled),
            self.notice: notice(ending.problem) if ending.problem else "",
            self.compare: gr.update(value="Compare", interactive=True),
            self.cancel: gr.update(value="Cancel", interactive=False),
        }

    def _shown(self, run: ComparisonRun) -> Updates:
        if isinstance(run, VariantsRun):
            rows = run.rows
            remark = "One after the other."
            if run.current is not None:
                remark = f"Measuring {run.current + 1} of {len(rows)}, one after the other."
            return {self.variants: variants_report(rows, run.current, remark)}
        assert isinstance(run, LanesRun)
        lanes = run.comparison.lanes
        remark = "Waiting until the engine is idle, so that nothing disturbs the lanes."
        if run.progress is not None:
            number = lanes.index(run.progress.lane) + 1
            remark = f"Lane {number} of {len(lanes)}, each in a process of its own."
        return {self.lanes: lanes_report(run.comparison, run.progress, remark)}

    def _shown_at_end(self, run: ComparisonRun, cancelled: bool) -> Updates:
        remark = "Cancelled. What was measured stays." if cancelled else ""
        if isinstance(run, VariantsRun):
            return {self.variants: variants_report(run.rows, None, remark)}
        assert isinstance(run, LanesRun)
        calls = count(run.comparison.cached_calls, "later call")
        remark = remark or f"Measured just now on this machine, {calls} a lane."
        return {
            self.lanes: lanes_report(run.comparison, None, remark),
            self.values: all_values(run.comparison.results),
            self.estimate: self._estimate(LANES, run.comparison.model, run.comparison.cached_calls),
        }

    def _cancel_comparison(self, request: gr.Request) -> tuple[Any, Any]:
        run = self._page.runs.of(str(request.session_hash))
        if not isinstance(run, ComparisonRun):
            return gr.skip(), gr.skip()
        run.stop()
        return gr.update(value="Cancelling", interactive=False), ""
