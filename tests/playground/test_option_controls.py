"""From controls to options and back."""

from __future__ import annotations

import gradio as gr
import pytest

from playground.examples import EXAMPLES
from playground.option_controls import NAMES, OptionControls, options_from, values_for
from xla_backend import GenerationOptions, InvalidRequest


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(),
        GenerationOptions(num_beams=4, early_stopping=True, length_penalty=-1.0),
        GenerationOptions(num_beams=2, early_stopping="never"),
        *(example.options for example in EXAMPLES),
    ],
)
def test_options_survive_the_controls(options: GenerationOptions) -> None:
    assert options_from(tuple(values_for(options))) == options


def test_an_empty_number_is_refused_in_words() -> None:
    values = values_for(GenerationOptions())
    values[NAMES.index("seed")] = None
    with pytest.raises(InvalidRequest, match="seed must be a whole number"):
        options_from(tuple(values))


def test_there_is_a_control_for_every_option_and_idle_ones_are_off() -> None:
    with gr.Blocks():
        controls = OptionControls(GenerationOptions())
    by_id = {component.elem_id: component for component in controls.inputs}
    assert set(by_id) == set(GenerationOptions().to_dict())
    off = {name for name, component in by_id.items() if component.interactive is False}
    assert off == {"top_k", "top_p", "seed", "length_penalty", "early_stopping"}
