"""The About tab: what the numbers mean, for readers who want to be sure.

Knows only words. Every claim here is about how the page and the engine measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr
from markupsafe import Markup

from playground.ui.components import html

if TYPE_CHECKING:
    from playground.context.page_context import PageContext

_TEXT = """
<div class="about">
<h2>What this page shows</h2>
<p>TensorFlow can hand a whole function to XLA, a compiler that makes machine code for it. The code
is fast, but it fits one <strong>shape</strong> only: this many prompt slots, this many beams, this
many new tokens. A request with another shape needs another function, and making one takes
seconds.</p>
<dl>
<dt>Trace</dt><dd>TensorFlow runs the Python code once and records it as a graph.</dd>
<dt>Compile</dt><dd>XLA turns the graph into machine code for one shape.</dd>
<dt>Prefill</dt><dd>The prompt runs through the model, which gives the first new token.</dd>
<dt>Decode</dt><dd>Each further token, one after the other.</dd>
</dl>
<h2>The four outcomes</h2>
<dl>
<dt><span class="badge outcome-hit">HIT</span></dt>
<dd>The function was in memory: the call only ran.</dd>
<dt><span class="badge outcome-reused">REUSED</span></dt>
<dd>A larger function that was in memory served the request. Its own shape is made afterwards, in an
idle moment. “Exact shape only” forbids this.</dd>
<dt><span class="badge outcome-disk">DISK</span></dt>
<dd>The function was restored from disk, where this or an earlier process had left it.</dd>
<dt><span class="badge outcome-miss">MISS</span></dt>
<dd>The function was traced and compiled for this very call.</dd>
</dl>
<h2>Padding</h2>
<p>Prompts of 5 and of 12 tokens would need two functions. Both are padded to 16 slots instead, so
they share one. The model is told to ignore the padding, and the text is the same as without it.</p>
<h2>How the time is measured</h2>
<p>Every phase is measured in the engine with a monotonic clock, outputs are read back before the
clock stops, and the phases add up to the total. Waiting for other visitors counts as queue. Loading
a model, starting the engine and the way from the server to your browser are not part of the total.
TTFT is the time from the arrival of a request to its first token,
queue, trace and compile included. TPOT is the time of all further tokens, each on average. Decode
tokens per second is 1 / TPOT.</p>
<p>“N times faster” divides what the first call of a shape took (trace, compile and run) by what
this call took to run. It is no comparison with other software: that is on the Compare tab, where
every way runs in a fresh process of its own, a call is timed from text to text, and the tokens of
all ways are compared.</p>
<h2>Keys</h2>
<p><kbd>Ctrl</kbd> or <kbd>⌘</kbd> + <kbd>Enter</kbd> generates, <kbd>Esc</kbd> stops,
<kbd>?</kbd> lists the keys.</p>
</div>
"""


class AboutTab:
    """Builds the tab inside the current `gr.Tab`."""

    name = "About these numbers"

    def __init__(self, page: PageContext) -> None:
        del page  # Nothing here depends on the engine.
        with gr.Column(elem_classes="card"):
            html(Markup(_TEXT))
