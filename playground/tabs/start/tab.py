"""The Start place: a measured example at once, a prompt box, and what the numbers mean.

Knows words, the components and what each event does to them. Every claim here is about how the page
and the engine measure. Must not know how a walkthrough looks, nor how one is measured.
"""

from typing import Any

import gradio as gr
import htpy as h
from markupsafe import Markup

from playground.context.page_context import PageContext
from playground.context.request_fields import FilledRequest, RequestFields
from playground.tabs.generate.examples import examples_for
from playground.ui import components as ui
from playground.walkthrough.panel import WalkthroughPanel
from playground.walkthrough.report import stored_report
from playground.walkthrough.stored import stored

_INTRODUCTION = (
    "XLA compiles TensorFlow’s text generation to machine code for one shape: a prompt length, a "
    "number of beams and a number of new tokens. The first call of a shape is compiled and takes "
    "seconds; every later call is fast. This page says before each click which of the two it will "
    "be, and shows afterwards where the time went."
)
_MEANINGS = Markup(
    """
<div class="about">
<section>
<h2>The four outcomes</h2>
<dl>
<dt><span class="badge outcome-miss">MISS</span></dt>
<dd>The function was traced and compiled for this call.</dd>
<dt><span class="badge outcome-hit">HIT</span></dt>
<dd>The function was in memory: the call only ran.</dd>
<dt><span class="badge outcome-reused">REUSED</span></dt>
<dd>A larger function that was in memory handled the request. Its own shape is compiled later, in
the background. “Exact shape only” forbids this.</dd>
<dt><span class="badge outcome-disk">DISK</span></dt>
<dd>The function was restored from disk, where this or an earlier process had saved it.</dd>
</dl>
</section>
<section>
<h2>The phases</h2>
<dl>
<dt>Trace</dt><dd>TensorFlow runs the Python code once and records it as a graph.</dd>
<dt>Compile</dt><dd>XLA turns the graph into machine code for one shape.</dd>
<dt>Prefill</dt><dd>The prompt runs through the model, which gives the first new token.</dd>
<dt>Decode</dt><dd>Each further token, one after the other.</dd>
</dl>
</section>
<section>
<h2>Padding</h2>
<p>Prompts of 5 and of 12 tokens would need two functions. Both are padded to 16 slots instead, so
they share one. The model is told to ignore the padding, and the text is the same as without it.</p>
</section>
<section>
<h2>How the time is measured</h2>
<p>Every phase is measured in the engine with a monotonic clock, outputs are read back before the
clock stops, and the phases add up to the total. Waiting for other visitors counts as queue. Loading
a model, starting the engine and the way from the server to your browser are not part of the total.
TTFT is the time from the arrival of a request to its first token,
queue, trace and compile included. TPOT is the time of all further tokens, each on average. Decode
tokens per second is 1 / TPOT.</p>
<p>“N times faster” divides what the first call of a shape took (trace, compile and run) by what
this call took to run. It does not compare with other software: <a href="?tab=compare">Compare</a>
does, where every method runs in a fresh process of its own, a call is timed from text to text, and
the tokens of all methods are compared.</p>
</section>
</div>
"""
)


class StartTab:
    name = "Start"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self._stored = stored()
        models = page.models()
        with gr.Column(elem_classes="card"):
            ui.html(h.p[_INTRODUCTION], "introduction")
            with gr.Row(elem_classes="actions start-ask"):
                self.prompt = gr.Textbox(
                    value=examples_for(models[0] if models else None)[0].prompt,
                    label="Your prompt",
                    lines=1,
                    max_lines=4,
                    elem_id="start_prompt",
                )
                self.generate = gr.Button(
                    "Generate", variant="primary", elem_id="start_generate", scale=0, min_width=150
                )
        with gr.Column(elem_classes="card"):
            self.walkthrough = WalkthroughPanel(page, "start_", stored_report(self._stored))
            self.walkthrough.build_panel("Back to the recorded run")
            with gr.Row(elem_classes="actions start-run"):
                self.walkthrough.build_button("Run it here")
                self.stop = gr.Button("Stop", interactive=False, elem_id="start_stop")
            self.notice = ui.html("", "start_notice")
        with gr.Column(elem_classes="card"):
            ui.html(_MEANINGS)
        self.walkthrough.connect({self.prompt}, self._request, self.stop, self.notice)
        ui.stop_by(self.stop, page.stop, self.notice)

    def open_in(self, request: RequestFields) -> None:
        """Has the prompt asked in the Playground, with the model and options chosen there."""
        filled_in = gr.on(
            [self.generate.click, self.prompt.submit],
            None,
            self.prompt,
            request.settings["prompt"],
            js="(prompt) => prompt",
            **ui.QUIET,
        )
        filled_in.then(None, None, None, js="() => generateInPlayground()", **ui.QUIET)

    def _request(self, values: Any) -> FilledRequest:
        """The stored run's request; of the first model where that one is not offered."""
        del values
        run, models = self._stored.run, self._page.models()
        is_offered = self._page.info(run.model) is not None or not models
        model = run.model if is_offered else models[0].name
        prompt = self._page.prompt(model, str(run.prompt))
        return FilledRequest(model, prompt, run.options, exact_key=False, holds_seed=True)
