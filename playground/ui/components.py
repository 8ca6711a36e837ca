"""Components that several tabs share: the list of models, a notice, settings of events.

Knows Gradio, words and the order of the list. Must not know the engine.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
import htpy as h

from playground.ui.markup import rendered
from playground.ui.prediction_line import awaited_prediction_line
from playground.ui.quantities import file_size
from xla_backend import ModelInfo
from xla_backend.checkpoints.architectures.table import display_name
from xla_backend.interface.options import OPTIONS

# Every event of the page: not in the API, and no component shows that it is under way. Otherwise
# Gradio's page looks up each component that ever showed one, and copies its properties, at every
# message of every event, even where the progress is hidden.
PAGE_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
}

# Events that only change what is on the page: never queued behind the engine.
QUIET: dict[str, Any] = {"queue": False, **PAGE_EVENT}

# Likewise, for what shows the newest values: of the events that come during one, only the last is
# carried out. Gradio then repeats whatever is connected to that event, so two of these on one event
# would put each other off for ever: all else on it has `EACH_TIME`.
LATEST: dict[str, Any] = {**QUIET, "trigger_mode": "always_last"}
EACH_TIME: dict[str, Any] = {**QUIET, "trigger_mode": "multiple"}

# An event that follows another one's. Gradio drops an event while the same one of an earlier press
# is going on: then the run that the first event entered would never be carried out, and its button
# stay switched off. A press that was refused has such events too, and they wait in the line.
FOLLOWING: dict[str, Any] = {**PAGE_EVENT, "trigger_mode": "multiple"}

SEPARATE_PROCESS: dict[str, Any] = {"concurrency_id": "beside", "concurrency_limit": 1}
"""Settings of an event whose work is a process of its own, of a low priority: not in the engine's
line, and one at a time."""

# The button itself, so that there is one way to start a run.
PRESS = "(run) => { if (run) generateInPlayground(); }"

# Said by the browser, at once: the server's answer could come after the one that says that the run
# is over, and the button would stay switched off.
_STOPPING = "() => ({{__type__: 'update', value: '{}', interactive: false}})"

Updates = dict[gr.blocks.Block, Any]
"""An event's updates of components."""
Control = TypeVar("Control", bound=gr.components.Component)
Field = (
    gr.Audio
    | gr.Checkbox
    | gr.CheckboxGroup
    | gr.Dropdown
    | gr.HTML
    | gr.Number
    | gr.Radio
    | gr.Slider
    | gr.Textbox
)
"""What a visitor fills in: Gradio gives these the events `change` and `input`, but not their base
class."""


def html(content: h.Node, elem_id: str | None = None, **options: Any) -> gr.HTML:
    """HTML styled by our own style sheets only, without Gradio's rules."""
    return gr.HTML(str(h.fragment[content]), elem_id=elem_id, apply_default_css=False, **options)


def heading(title: str, caption: h.Node) -> gr.HTML:
    """The head of a card: its title, and a line below it."""
    return html([h.h2[title], h.p(".caption")[caption]])


def without_validation(control: Control) -> Control:
    """Lets a number field accept any input; the request's own check then refuses it.

    Gradio's check would answer a number outside a slider's range with a server error.
    """
    control.preprocess = lambda payload: payload  # type: ignore[method-assign]
    return control


def model_dropdown(
    models: Sequence[ModelInfo], elem_id: str, is_described: bool = False
) -> gr.Dropdown:
    """The models to choose from, the first one chosen, each next to others of its architecture.

    Args:
        models: which.
        elem_id: the element's id.
        is_described: whether a line says what the chosen model does.
    """
    return gr.Dropdown(
        model_choices(models),
        value=models[0].name if models else None,
        label="Model",
        info=model_description(models[0]) if models and is_described else None,
        elem_id=elem_id,
        elem_classes="model-choice",
    )


def described(model: ModelInfo | None) -> Any:
    """The update of a list of models whose chosen model is this one."""
    return gr.update(info=model_description(model)) if model else gr.skip()


def model_choices(models: Sequence[ModelInfo]) -> list[tuple[str, str]]:
    """Label and name of each model, next to others of its architecture."""
    architectures = list(dict.fromkeys(display_name(model.model_type) for model in models))
    grouped = sorted(models, key=lambda model: architectures.index(display_name(model.model_type)))
    return [(_model_label(model, len(architectures) > 1), model.name) for model in grouped]


def small_button(label: str, elem_id: str, visible: bool = True, min_width: int = 90) -> gr.Button:
    """A button in a row, as wide as its label."""
    return gr.Button(
        label, size="sm", elem_id=elem_id, scale=0, min_width=min_width, visible=visible
    )


def slider(
    least: int, most: int, value: int, label: str, elem_id: str, info: str | None = None
) -> gr.Slider:
    """A slider of whole numbers, `without_validation`."""
    return without_validation(
        gr.Slider(least, most, value=value, step=1, label=label, info=info, elem_id=elem_id)
    )


def link_controls(prefix: str = "", min_width: int = 90) -> tuple[gr.Checkbox, gr.Button]:
    """Whether a link runs its request, and the button that copies the link."""
    runs = gr.Checkbox(
        label="Link also runs it",
        elem_id=f"{prefix}link_runs",
        elem_classes="link-runs",
        container=False,
        scale=0,
        min_width=90,
    )
    return runs, small_button("Copy link", f"{prefix}copy_link", min_width=min_width)


def import_file(
    button: gr.Button,
    brought: gr.Textbox,
    take: Callable[..., Any],
    inputs: Sequence[gr.blocks.Block],
    outputs: Sequence[gr.blocks.Block],
) -> Any:
    """Makes a button read a file of text that the visitor chooses; returns the event.

    Args:
        brought: a hidden component, which is `take`'s first input: the text, one byte more than
            2 MB if the file is larger, or empty if none was chosen.
        inputs: `take`'s other inputs.
    """
    js = "async (_, ...others) => [await chosenFile, ...others]"
    return button.click(take, [brought, *inputs], outputs, js=js, **QUIET)


def system_prompt(elem_id: str) -> gr.Textbox:
    return gr.Textbox(
        label="System prompt",
        lines=1,
        max_lines=4,
        placeholder="How to answer: in one sentence",
        elem_id=elem_id,
    )


PRESSED = "(_, ...others) => [pressedName, ...others]"
"""The script of a click on `name_buttons`, whose handler then gets the pressed one's index."""
_PRESS_NAME = """
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-at]");
  if (!button) return;
  pressedName = Number(button.dataset.at);
  trigger("click", {});
});
"""


def name_buttons(names: Sequence[str], label: str, elem_id: str) -> gr.HTML:
    """A button for each name; the script of its click is `PRESSED`."""
    shown = names_html(names, label)
    return html(shown, elem_id, js_on_load=_PRESS_NAME, visible=bool(names))


@rendered
def names_html(names: Sequence[str], label: str) -> h.Node:
    """What `name_buttons` shows; `ui/assets/request.js` draws those of presets likewise."""
    return h.div(".names", role="group", aria_label=label)[
        h.p[label],
        h.div[(h.button(type="button", data_at=str(at))[name] for at, name in enumerate(names))],
    ]


def stop_by(
    button: gr.Button,
    stop: Callable[..., Any],
    notice: gr.HTML | None = None,
    inputs: gr.State | None = None,
    meanwhile: str = "Stopping",
) -> None:
    """Makes a button stop a run; its label says so from the click until the run has ended."""
    button.click(None, None, button, js=_STOPPING.format(meanwhile), **QUIET)
    button.click(stop, inputs, notice, **QUIET)


def saved_file() -> gr.Textbox:
    """A hidden value, see `file_of`, that the browser saves: nothing stays on the server."""
    made = gr.Textbox(visible=False, elem_id="saved_file")
    made.change(None, made, None, js="(file) => saveFile(JSON.parse(file))", **QUIET)
    return made


def file_of(name: str, kind: str, text: str) -> str:
    """The value of `saved_file`, each time another one."""
    return json.dumps({"name": name, "type": kind, "text": text, "made_at": time.time()})


def save_file(
    button: gr.Button,
    made: gr.Textbox,
    holder: gr.blocks.Block,
    notice_html: gr.HTML,
    export: Callable[[Any], str],
    name: str,
    kind: str,
) -> None:
    """Makes a button save what `export` makes of the value of `holder`, unless that is empty.

    Args:
        made: of `saved_file`.
    """

    def written(value: Any) -> tuple[Any, str]:
        if text := export(value):
            return file_of(name, kind, text), ""
        return gr.skip(), notice("There is nothing to export yet.", "calm")

    button.click(written, holder, [made, notice_html], **QUIET)


def empty_on_change(notice: gr.HTML, events: Sequence[Any]) -> None:
    """Clears a notice in the browser when an input changes.

    Call it before anything else is connected to these events: Gradio runs the listeners of an event
    in that order, each after the answer to the one before. It may still come after the answer to a
    press that followed the change; that answer's notice stays.
    """
    gr.on(events, None, notice, notice, js="(shown) => keptNotice(shown)", **QUIET)


def suggestion_for(fields: Sequence[Field]) -> gr.Textbox:
    """A hidden value, see `suggested`, that sets fields unless the visitor has changed them."""
    suggestion = gr.Textbox(visible=False)
    suggestion.change(None, [suggestion, *fields], [*fields], js="takeSuggested", **QUIET)
    return suggestion


def suggested(
    cause: str,
    fields: Sequence[Field],
    before: Mapping[Any, Any],
    updates: Mapping[Any, Any],
) -> str:
    """The value of a suggestion.

    The answer of the server may come when the visitor has gone on writing or has started a run.

    Args:
        cause: differs from that of the latest suggestion.
        fields: those that can be set.
        before: their values as the server was asked.
        updates: new values of some.
    """
    changes = [[before[each], updates[each]] if each in updates else None for each in fields]
    return json.dumps({"cause": cause, "changes": changes})


def await_prediction(line: gr.HTML, model: gr.Dropdown) -> None:
    """Clears the line at once when another model is chosen: its prediction may take seconds.

    Call it before the line's own events are connected, as `empty_on_change`.
    """
    awaited = json.dumps(awaited_prediction_line("Counting tokens"))
    model.change(None, None, line, js=f"() => {awaited}", **QUIET)


@rendered
def notice(message: h.Node, kind: str = "problem") -> h.Node:
    """A notice beside a button, if any; the other kind is "calm"."""
    role = "alert" if kind == "problem" else "status"
    return message and h.div(f".notice.{kind}", role=role)[message]


def model_description(model: ModelInfo) -> str:
    """What the model does, then its facts: size, weights, context, license, sampling."""
    facts = []
    if model.parameters:
        facts.append(f"{_rounded(model.parameters)} parameters")
    if model.weights_bytes:
        kind = f"rounded to {model.rounded_bits} bits" if model.rounded_bits else model.formats
        facts.append(f"{kind}, {file_size(model.weights_bytes)} in memory")
    elif model.source == "hub" and not model.on_disk:
        size = f": {file_size(model.download_bytes)}" if model.download_bytes else ""
        facts.append(f"downloaded when first used{size}")
    elif model.stored_bytes:
        facts.append(f"{file_size(model.stored_bytes)} on disk")
    if model.kernels == "xla":
        facts.append(f"XLA alone on {model.device}, float32 in memory")
    if model.activations != "exact":
        facts.append(f"activations {model.activations}")
    if model.context_length:
        of = f" of the model's {model.own_context:,}" if model.own_context else ""
        facts.append(f"context {model.context_length:,}{of} tokens")
    if model.license:
        facts.append(f"license {model.license}")
    if model.family == "decoder-only":
        facts.append("instruct" if model.is_instruct else "base: continues texts")
    if model.is_instruct and model.sampling:
        recommended = ", ".join(
            f"{OPTIONS[name].label.lower()} {value:g}" for name, value in model.sampling.items()
        )
        facts.append(f"its makers recommend {recommended}")
    known = " · ".join(facts)
    return f"{model.description} {known[:1].upper()}{known[1:]}"


def _rounded(number: int) -> str:
    return f"{number / 1e9:.1f}B" if number >= 999.5e6 else f"{max(1, round(number / 1e6))}M"


def _model_label(model: ModelInfo, with_architecture: bool) -> str:
    name = {
        "bundled": model.name,
        "hub": f"{model.name} (Hub)",
        "folder": Path(model.name).name,
    }[model.source]
    return f"{display_name(model.model_type)} · {name}" if with_architecture else name
