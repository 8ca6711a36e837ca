"""The buttons that clear compiled functions, and the sentence that says beforehand what they do.

Knows its components and words. Must not know how the engine clears them.
"""

import json

import gradio as gr
import htpy as h

from playground.ui.components import html
from playground.ui.markup import rendered
from playground.ui.quantities import count
from playground.ui.wording import model_name
from xla_backend import CacheKey

MEMORY, ONE, ALL = "memory", "one", "all"
_WHAT = [
    ("From memory: next calls restore what is on disk (DISK)", MEMORY),
    ("Everything, from disk too: all next calls compile (MISS)", ALL),
]


class ClearControls:
    """Builds the controls where it is created.

    Attributes:
        what: what to clear of all models.
        ask: the button that asks; `confirmation` with `sentence`, `confirm` and `cancel` answers.
        choice: what the sentence is about.
    """

    def __init__(self) -> None:
        self.what = gr.Radio(
            _WHAT, value=MEMORY, label="What to clear", elem_id="clear_what", container=True
        )
        self.ask = gr.Button("Clear…", elem_id="clear_shapes", scale=0, min_width=140)
        with gr.Column(visible=False, elem_classes="confirmation") as self.confirmation:
            self.choice = gr.State(None)
            self.sentence = html("", "clear_sentence")
            with gr.Row(elem_classes="actions"):
                self.confirm = gr.Button("Clear now", variant="stop", elem_id="clear_now")
                self.cancel = gr.Button("Cancel", elem_id="clear_not")
        self.notice = html("", "clear_notice")


@rendered
def confirmation(what: str, shape: str | None, in_memory: int) -> h.Node:
    """What the click will do; it affects everybody who uses the page."""
    from_disk = {
        MEMORY: "Nothing is removed from disk.",
        ONE: f"Removed from disk: {shape_label(*parse(shape))}." if shape else "",
        ALL: "All saved functions of all models are removed from disk.",
    }[what]
    text = (
        " The engine restarts, because XLA never frees a compiled function; requests wait for some "
        f"seconds. {count(in_memory, 'function')} "
        f"{'is' if in_memory == 1 else 'are'} removed from memory. {from_disk} The list of your "
        "runs stays."
    )
    strong = h.strong["This affects everybody who uses this page."]
    return h.div(".notice.problem", role="alert")[h.p[strong, text]]


def shape_label(model: str, key: CacheKey) -> str:
    """A shape in words."""
    model = model_name(model)
    if key.is_pooled:
        return " · ".join([model, f"all lengths to {key.padded_length}", *key.variants])
    label = (
        f"{model} · {key.padded_length} slots · {count(key.num_beams, 'beam')} · "
        f"{key.max_new_tokens} new"
    )
    return " · ".join([label, *key.variants])


def parse(value: str) -> tuple[str, CacheKey]:
    """The model and key that a row's button stands for."""
    model, sizes = json.loads(value)
    return model, CacheKey(**sizes)
