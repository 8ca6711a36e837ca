"""Links that carry a request: what is read from them, and what is not."""

from __future__ import annotations

import pytest

from playground.tabs.generate.permalink import Link, by_side, copy_script, problem, read
from playground.ui.components import notice
from playground.ui.option_controls import NAMES
from tests.playground.samples import INJECTIONS
from xla_backend import Grammar

MODELS = ["gpt2-stories", "t5-stories"]
RANGES = {"max_new_tokens": (1, 256), "temperature": (0, 2), "num_beams": (1, 8)}


def the_link(**query: str) -> Link:
    return read(query, MODELS, RANGES)


def test_every_setting_is_read() -> None:
    link = the_link(
        model="t5-stories",
        prompt='two\nlines & 100% + "quotes" 🦊',
        system="Be brief.",
        raw="1",
        exact_key="true",
        max_new_tokens="33",
        num_beams="1",
        temperature="0.75",
        top_k="0",
        top_p=".5",
        min_p="0.05",
        repetition_penalty="1.2",
        presence_penalty="-1",
        frequency_penalty="0.5",
        length_penalty="-0.5",
        early_stopping="never",
        seed="7",
        stop="The end\n\\n",
        prompt_lookup_num_tokens="3",
        grammar='{"type": "string"}',
        run="1",
    )
    assert link.problems == ()
    assert (link.model, link.exact_key, link.run) == ("t5-stories", True, True)
    assert link.prompt == 'two\nlines & 100% + "quotes" 🦊'
    assert (link.system, link.raw) == ("Be brief.", True)
    assert link.options == {
        "max_new_tokens": 33,
        "num_beams": 1,
        "temperature": 0.75,
        "top_k": 0,
        "top_p": 0.5,
        "min_p": 0.05,
        "repetition_penalty": 1.2,
        "presence_penalty": -1.0,
        "frequency_penalty": 0.5,
        "length_penalty": -0.5,
        "early_stopping": "never",
        "seed": 7,
        "stop": ("The end", "\n"),
        "prompt_lookup_num_tokens": 3,
        "grammar": Grammar.json_schema({"type": "string"}),
    }
    assert set(link.options) == set(NAMES)
    assert problem(link) == ""


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("model", "/etc", "The model '/etc' is not offered here."),
        ("max_new_tokens", "300", "max_new_tokens goes from 1 to 256 on this page, not '300'."),
        ("max_new_tokens", "many", "max_new_tokens must be a whole number"),
        ("max_new_tokens", "1" * 5000, "max_new_tokens must be a whole number"),
        ("max_new_tokens", "３２", "max_new_tokens must be a whole number"),
        ("num_beams", "9", "num_beams must be from 1 to 8"),
        ("num_beams", "1.5", "num_beams must be a whole number"),
        ("temperature", "nan", "temperature must be a number"),
        ("temperature", "1e400", "temperature must be a number"),
        ("temperature", "5", "temperature goes from 0 to 2 on this page"),
        ("early_stopping", "perhaps", "early_stopping must be true, false"),
        ("seed", "1.5", "seed must be a whole number"),
        ("min_p", "2", "min_p must be from 0 to 1"),
        ("presence_penalty", "-3", "presence_penalty must be from -2 to 2"),
        ("stop", "x" * 101, "a stop string can have 100 characters"),
        ("logit_bias", "{}", "There is no setting 'logit_bias'."),
        ("exact_key", "perhaps", "exact_key must be 1 or 0, not 'perhaps'."),
        ("run", "yes please", "run must be 1 or 0"),
        ("temprature", "1", "There is no setting 'temprature'."),
    ],
)
def test_unusable_settings_are_named_and_the_rest_is_used(
    name: str, text: str, sentence: str
) -> None:
    link = the_link(**{"prompt": "Once", "top_k": "5", name: text})
    assert len(link.problems) == 1
    assert sentence in problem(link)
    assert "Its other settings are used." in problem(link)
    assert (link.prompt, link.options) == ("Once", {"top_k": 5})
    assert len(problem(link)) < 300


def test_a_link_without_stop_strings_sets_none() -> None:
    assert the_link(stop="").options == {"stop": ()}
    assert the_link(prompt="Once", seed="7").options == {"seed": 7}, "a link from before"


def test_a_link_that_was_not_understood_runs_nothing() -> None:
    assert "Nothing was run." in problem(the_link(prompt="Once", run="1", seed="x"))


def test_options_that_do_not_go_together_are_told() -> None:
    link = the_link(prompt="Once", num_beams="4", prompt_lookup_num_tokens="3", run="1")
    assert "works with one beam" in problem(link)
    assert (link.prompt, link.options) == ("Once", {})


def test_parameters_of_others_are_no_mistake() -> None:
    link = the_link(__theme="dark", utm_source="x", view="api", logs="container")
    assert link.is_empty
    assert problem(link) == ""


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_in_a_link_becomes_markup(text: str) -> None:
    reported = notice(problem(read({"model": text, text: "1"}, MODELS, RANGES)))
    assert reported.count("<") == 2  # its own element
    assert the_link(prompt=text).prompt == text


def test_the_script_names_every_setting() -> None:
    script = copy_script()
    for name in ("model", "prompt", "exact_key", *NAMES):
        assert f'"{name}"' in script
    assert '"impossible": "never"' in script


def test_each_side_has_the_settings_with_its_name_and_what_names_none_is_told() -> None:
    query = {"prompt": "A fox", "left.top_k": "7", "right.model": "b", "right.nothing": "1"}
    left, right = (read(each, ["a", "b"], {}) for each in by_side(query))
    assert (left.prompt, left.model, left.options) == ("A fox", None, {"top_k": 7})
    assert (right.prompt, right.model, right.options) == (None, "b", {})
    assert (left.problems, right.problems) == ((), ("There is no setting 'nothing'.",))
