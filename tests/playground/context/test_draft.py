"""Links and presets that carry a request: what is read from them, and what is not."""

import pytest

from playground.context.draft import SETTINGS, Draft, by_column, messages_in, read
from playground.ui.components import notice
from playground.ui.option_controls import NAMES
from tests.playground.samples import INJECTIONS
from xla_backend import Grammar, Message, ModelInfo

MODELS = [
    ModelInfo("gpt2-stories", "decoder-only", "bundled", ""),
    ModelInfo("t5-stories", "encoder-decoder", "bundled", ""),
    ModelInfo("/srv/models/Some-Model", "decoder-only", "folder", ""),
]
RANGES = {"max_new_tokens": (1, 256), "temperature": (0, 2), "num_beams": (1, 8)}


def the_link(**query: object) -> Draft:
    return read(query, MODELS, RANGES)


def problem(link: Draft) -> str:
    return link.problem("link")


def test_every_setting_is_read() -> None:
    link = the_link(
        model="t5-stories",
        prompt='two\nlines & 100% + "quotes" 🦊',
        system="Be brief.",
        messages='[{"role": "user", "content": "<b>"}]',
        begins_with="Well,",
        raw="1",
        variables='{"Name": "Ada"}',
        exact_key="true",
        questions="Is it?\nWas it?",
        tools="[]",
        answer_as="Choice",
        choices="yes\nno",
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
    assert link.run
    assert link.settings == {
        "model": "t5-stories",
        "prompt": 'two\nlines & 100% + "quotes" 🦊',
        "system": "Be brief.",
        "messages": '[{"role": "user", "content": "\\u003cb>"}]',
        "begins_with": "Well,",
        "raw": True,
        "variables": '{"name": "Ada"}',
        "questions": "Is it?\nWas it?",
        "tools": "[]",
        "answer_as": "Choice",
        "choices": "yes\nno",
    }
    assert {*link.settings, *link.options} == {*SETTINGS}
    assert messages_in(link.settings["messages"]) == (Message("user", "<b>"),)
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
        "exact_key": True,
    }
    assert set(link.options) == set(NAMES)
    assert problem(link) == ""


def test_a_browser_keeps_the_same_settings_as_json_values() -> None:
    values = {
        "messages": [{"role": "assistant", "content": "Yes"}],
        "variables": {"name": "Ada"},
        "raw": False,
        "temperature": 0.5,
        "early_stopping": True,
        "grammar": {"type": "string"},
    }
    texts = {
        "messages": '[{"role": "assistant", "content": "Yes"}]',
        "variables": '{"name": "Ada"}',
        "raw": "0",
        "temperature": "0.5",
        "early_stopping": "enough",
        "grammar": '{"type": "string"}',
    }
    assert the_link(**values) == the_link(**texts)
    assert the_link(**values).problems == ()


def test_a_folder_s_model_goes_by_its_name() -> None:
    assert the_link(model="some-model").settings == {"model": "/srv/models/Some-Model"}
    assert the_link(model="/srv/models/Some-Model").settings == {"model": "/srv/models/Some-Model"}
    assert "is not offered here" in problem(the_link(model="/etc/Some"))


def test_what_a_draft_does_not_name_is_empty_in_a_request_of_its_own() -> None:
    assert the_link(prompt="Once").whole().settings["answer_as"] == "Text"
    form = the_link(grammar='{"type": "string"}').whole()
    assert form.settings["answer_as"] == "JSON"
    assert {*form.settings, "model", "prompt", "choices", *NAMES} == {*SETTINGS}


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
        ("answer_as", "Number", "answer_as must be one of Text, JSON, Tools, Choice, Yes or no"),
        ("messages", '[{"role": "fox", "content": ""}]', "messages must be a JSON list like"),
        ("messages", "[" * 99_999, "messages must be a JSON list like"),
        ("tools", '{"type": "function"}', "tools must be a JSON list"),
        ("tools", '[{"type": "code"}]', "a tool of the type 'code' is not supported"),
        ("variables", '{"name": 1}', "variables must be a JSON object of texts"),
    ],
)
def test_unusable_settings_are_named_the_rest_is_used(name: str, text: str, sentence: str) -> None:
    link = the_link(**{"prompt": "Once", "top_k": "5", name: text})
    assert len(link.problems) == 1
    assert sentence in problem(link)
    assert "Its other settings are used." in problem(link)
    assert (link.settings, link.options) == ({"prompt": "Once"}, {"top_k": 5})
    assert len(problem(link)) < 300


def test_a_link_says_what_it_sets_and_what_was_not_understood() -> None:
    assert the_link(stop="").options == {"stop": ()}
    assert the_link(prompt="Once", seed="7").options == {"seed": 7}, "a link from before"
    assert "Nothing was run." in problem(the_link(prompt="Once", run="1", seed="x"))
    link = the_link(prompt="Once", num_beams="4", prompt_lookup_num_tokens="3", run="1")
    assert "works with one beam" in problem(link)
    assert (link.settings, link.options) == ({"prompt": "Once"}, {})
    link = the_link(__theme="dark", utm_source="x", view="api", logs="container")
    assert link.is_empty
    assert problem(link) == ""


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_in_a_link_becomes_markup(text: str) -> None:
    reported = notice(problem(read({"model": text, text: "1"}, MODELS, RANGES)))
    assert reported.count("<") == 2  # its own element
    assert the_link(prompt=text).settings == {"prompt": text}


def test_each_column_has_the_settings_with_its_name_and_what_names_none_is_told() -> None:
    query = {
        "prompt": "A fox",
        "left.top_k": "7",
        "right.model": "t5-stories",
        "right.nothing": "1",
    }
    left, right = (read(each, MODELS, {}) for each in by_column(query))
    assert (left.settings, left.options) == ({"prompt": "A fox"}, {"top_k": 7})
    assert (right.settings, right.options) == ({"model": "t5-stories"}, {})
    assert (left.problems, right.problems) == ((), ("There is no setting 'nothing'.",))
    assert by_column({"prompt": "A fox", "third.seed": "1"}) == [{"prompt": "A fox"}, {"seed": "1"}]
    assert len(by_column({"tab": "side_by_side"})) == 2, "an earlier version's link"
