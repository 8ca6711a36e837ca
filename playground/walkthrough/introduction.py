"""What the page is for, and what its numbers mean, in words.

Every claim here is about how the page and the engine measure. Must not know components.
"""

import htpy as h
from markupsafe import Markup

from playground.ui.markup import rendered

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
<p>“N× faster” divides the time to the first token with tracing and compiling, as in the shape’s
first call, by the time without. It does not compare with other software:
<a href="?tab=compare">Compare</a> does, where every method runs in a fresh process of its own, a
call is timed from text to text, and the tokens of all methods are compared.</p>
</section>
</div>
"""
)


@rendered
def introduction() -> h.Node:
    """A sentence or two for those who come for the first time."""
    return h.p[
        "XLA compiles text generation for one shape: prompt length, beams, new tokens. Its first "
        "call takes seconds, later ones are fast. This page says before each click which it will "
        "be, and afterwards where the time went. ",
        h.a(href="#meanings")["What the numbers mean"],
        " · ",
        h.a(href="?tab=runs")["Your earlier runs"],
    ]


@rendered
def meanings() -> h.Node:
    """Outcomes, phases, padding, and how the time is measured; folded until somebody asks."""
    return h.details[h.summary[h.h2["What the numbers mean"]], _MEANINGS]
