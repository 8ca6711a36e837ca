"""From controls to options and back."""

import gradio as gr
import pytest

from playground.settings.examples import EXAMPLES
from playground.ui.option_controls import (
    NAMES,
    OptionControls,
    labelled,
    options_from,
    relevant,
    values_for,
    with_seed,
)
from xla_backend import GenerationOptions, InvalidRequest


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(),
        GenerationOptions(num_beams=4, early_stopping=True, length_penalty=-1.0),
        GenerationOptions(num_beams=2, early_stopping="never"),
        GenerationOptions(temperature=1, min_p=0.05, presence_penalty=-1, frequency_penalty=2),
        GenerationOptions(stop=["\n\n", "The end", "a\\n", " b "]),
        GenerationOptions(grammar={"json_schema": {"type": "string", "pattern": "é"}}),
        GenerationOptions(grammar={"regex": "[0-9]+"}),
        GenerationOptions(grammar={"json_object": True}),
        *(example.options for example in EXAMPLES),
    ],
)
def test_options_survive_the_controls(options: GenerationOptions) -> None:
    assert options_from(tuple(values_for(options))) == options


@pytest.mark.parametrize(
    ("text", "strings"),
    [
        ("", ()),
        ("\n\r\n", ()),
        ("The end\n\n\\n", ("The end", "\n")),
        (" b \r\nb", (" b ", "b")),
        ("C:\\temp\\\\new", ("C:\\temp\\new",)),
    ],
)
def test_each_line_is_a_stop_string(text: str, strings: tuple[str, ...]) -> None:
    values = values_for(GenerationOptions())
    values[NAMES.index("stop")] = text
    assert options_from(tuple(values)).stop == strings


@pytest.mark.parametrize("text", ["{", "[1]", '{"regex": ""}'])
def test_what_is_no_form_is_refused(text: str) -> None:
    values = values_for(GenerationOptions())
    values[NAMES.index("grammar")] = text
    with pytest.raises(InvalidRequest, match=r"schema|regular expression"):
        options_from(tuple(values))


def test_an_empty_number_is_refused_in_words() -> None:
    values = values_for(GenerationOptions())
    values[NAMES.index("seed")] = None
    with pytest.raises(InvalidRequest, match="seed must be a whole number"):
        options_from(tuple(values))


def test_there_is_a_control_for_every_option_and_idle_ones_are_off() -> None:
    with gr.Blocks():
        controls = OptionControls(GenerationOptions())
    by_id = {component.elem_id: component for component in controls.inputs}
    # Token ids are nothing to type in; the button has the other name already.
    without = {"logit_bias", "stop", "stop_token_ids"}
    without |= {"include_stop_str_in_output", "min_new_tokens", "ignore_eos"}  # for programs
    assert set(by_id) == {*GenerationOptions().to_dict(), "stop_strings"} - without
    off = {name for name, component in by_id.items() if component.interactive is False}
    assert off == {"top_k", "top_p", "min_p", "seed", "length_penalty", "early_stopping"}


def test_a_run_that_samples_draws_a_seed_and_only_what_had_an_effect_is_told() -> None:
    options = GenerationOptions(temperature=0.7, seed=5)
    drawn = {with_seed(options, is_held=False).seed for _ in range(20)}
    assert len(drawn) > 10
    assert with_seed(options, is_held=True) == options
    greedy = options.replace(temperature=0.0)
    assert with_seed(greedy, is_held=False) == greedy

    assert relevant(GenerationOptions(seed=5)) == {
        "max_new_tokens": "32",
        "num_beams": "1",
        "temperature": "0",
    }
    sampled = relevant(GenerationOptions(temperature=0.7, seed=123456, num_beams=2))
    assert (sampled["seed"], sampled["length_penalty"]) == ("123456", "1")
    assert "min_p" not in sampled
    assert relevant(GenerationOptions(grammar={"regex": "a"}))["grammar"] == "regex"
    others = relevant(GenerationOptions(min_p=0.1, presence_penalty=-0.5, stop=["\n", "end"]))
    assert (others["presence_penalty"], others["stop"]) == ("-0.5", "'\\n', 'end'")
    assert not {"min_p", "frequency_penalty"} & set(others)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("max_new_tokens is 9, and at most 8", "New tokens is 9, and at most 8"),
        ("Shorten it or lower max_new_tokens.", "Shorten it or lower New tokens."),
        ("seed must be from 0", "Seed must be from 0"),
        ("stop can have at most 4 strings", "Stop strings can have at most 4 strings"),
        ("The prompt has no seed.", "The prompt has no seed."),
        ("grammar works with one beam", "Form of the text works with one beam"),
    ],
)
def test_a_message_calls_options_as_the_page_does(message: str, said: str) -> None:
    assert labelled(message) == said
