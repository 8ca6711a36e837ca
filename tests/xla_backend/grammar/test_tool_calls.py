"""Calls of tools: their format in a chat template, the texts there may be, and what these say."""

import json
import random
import re
import time
from typing import Any

import jsonschema
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tests.xla_backend.grammar.vocabularies import refused_at, sampled, vocabulary
from xla_backend import Grammar, InvalidRequest, Message
from xla_backend.answers.reader import AnswerReader, CallPart
from xla_backend.answers.tool_format import GENERIC, ToolFormat, as_text, learn
from xla_backend.grammar import grammars
from xla_backend.grammar.automaton import Automaton
from xla_backend.grammar.grammars import Grammars
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.prompt import ToolCall
from xla_backend.interface.tools import Tools

FORECAST = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
RECURSIVE = {**FORECAST, "properties": {**FORECAST["properties"], "then": {"$ref": "#"}}}
TOOLS = {"forecast": FORECAST, "forecast_now": {}, "time": {"additionalProperties": False}}


def listed(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


LISTED = [listed("forecast", FORECAST)]

# Reduced from what models of these families have on the Hub.
TOLD = "{% if tools %}<s>{% for t in tools %}{{ t | tojson }}{% endfor %}</s>{% endif %}"
TURNS = (
    "{% for m in messages %}<u>{{ m.role }}\n{% if m.tool_calls %}CALLS{% else %}"
    "{{ m.content }}{% endif %}</u>{% endfor %}"
)
EACH = "{% for t in m.tool_calls %}{% set c = t.function %}CALL{% endfor %}"
HERMES = """\n<tool_call>\n{"name": "{{ c.name }}", "arguments": @A}\n</tool_call>"""
LISTS = "{{ m.tool_calls | map(attribute='function') | list | tojson(indent=4) }}"


def written(call: str, arguments: str = "{{ c.arguments | tojson }}") -> str:
    call = call.replace("@A", arguments).replace("@I", "{{ t.id }}")
    return TOLD + TURNS.replace("CALLS", EACH.replace("CALL", call))


PLAIN = "{% for m in messages %}<u>{{ m.role }}\n{{ m.content }}</u>{% endfor %}"
TEMPLATES: dict[str, tuple[str, ToolFormat]] = {
    "hermes": (written(HERMES), GENERIC._replace(has_tools=True, has_calls=True)),
    "llama3": (
        written("""{"name": "{{ c.name }}", "parameters": @A}"""),
        ToolFormat('{"name": "', '", "parameters": ', "}", True, True),
    ),
    "granite": (
        TOLD + TURNS.replace("CALLS", "<|tool_call|>" + LISTS),
        ToolFormat(
            '<|tool_call|>[\n    {\n        "name": "',
            '",\n        "arguments": ',
            "\n    }\n]",
            True,
            True,
        ),
    ),
    "granite3.3": (
        TOLD.replace("</s>", " Write <|tool_call|> and a list.</s>") + PLAIN,
        ToolFormat('<|tool_call|>[{"name": "', '", "arguments": ', "}]", True, False),
    ),
    "smollm3": (
        TOLD.replace("tools", "xml_tools").replace("</s>", " Write <tool_call>.</s>") + PLAIN,
        GENERIC._replace(has_tools=True),
    ),
    "mistral": (
        written("""[TOOL_CALLS][{"name": "{{ c.name }}", "arguments": @A, "id": "@I"}]"""),
        ToolFormat('[TOOL_CALLS][{"name": "', '", "arguments": ', "}]", True, True),
    ),
    "ministral": (
        written("[TOOL_CALLS]{{ c.name }}[ARGS]@A"),
        ToolFormat("[TOOL_CALLS]", "[ARGS]", "", True, True),
    ),
    "cohere": (
        TOLD
        + TURNS.replace(
            "CALLS", "<|DO|>[" + EACH.replace("CALL", "{{ c | tojson }}") + "]<|DONE|>"
        ).replace("{{ m.content }}", "<|SAY|>{{ m.content }}<|SAID|>"),
        ToolFormat('<|DO|>[{"name": "', '", "arguments": ', "}]<|DONE|>", True, True),
    ),
    "xml": (
        written("<tool_call>\n<function={{ c.name }}>\n<parameter=a>1</parameter>\n</tool_call>"),
        GENERIC,
    ),
    "text of JSON": (
        written("<tool_call>{{ c.name }}@A", "{{ c.arguments | tojson | tojson }}"),
        GENERIC,
    ),
    "none": (PLAIN, GENERIC),
    "raises": ("{{ raise_exception('never') }}", GENERIC),
}
FORMATS = {name: form for name, (_, form) in TEMPLATES.items()}


def render(template: str, messages: tuple[Message, ...], tools: list[dict[str, Any]]) -> str:
    told = [message.to_dict() for message in messages]
    rendered, _ = render_jinja_template(
        [told], tools=tools, xml_tools=tools, chat_template=template
    )
    return rendered[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_tells_how_calls_are_written(name: str) -> None:
    template, form = TEMPLATES[name]
    assert learn(template, lambda *asked: render(template, *asked)) == form


@pytest.mark.parametrize("name", FORMATS)
def test_tools_calls_and_results_are_in_the_prompt(name: str) -> None:
    template, form = TEMPLATES[name]
    call = ToolCall("123456789", "forecast", '{"city": "Ulm"}')
    talk = (
        Message("system", "Be brief."),
        Message("user", "Rain?"),
        Message("assistant", "", (call,)),
        Message("tool", "No.", tool_call_id=call.id),
    )
    told = as_text(talk, LISTED, form)
    if name == "raises":
        return
    rendered = render(template, told, LISTED if form.has_tools else [])
    assert rendered.count('"additionalProperties": false') == 1
    assert "Be brief." in rendered
    assert form.write(call).strip() in rendered or form.has_calls
    assert re.search(r'forecast\W.*"city": "Ulm".*No\.', rendered, re.DOTALL)


CALL = ToolCall("", "forecast", '{"city": "Ulm <tool_call>", "days": 3}')
SMALL = "sentencepiece"


WAYS = pytest.mark.parametrize("forecast", [FORECAST, RECURSIVE], ids=["tables", "step by step"])


def made(
    form: ToolFormat,
    forecast: dict[str, Any],
    choice: str = "auto",
    several: bool = False,
    answer: Grammar | None = None,
) -> Automaton | StepByStep:
    asked = {**TOOLS, "forecast": forecast}
    tools = Tools.of([listed(*each, strict=True) for each in asked.items()], choice, several)
    assert tools is not None
    grammar = grammars.of_tools(form, tools, answer)
    followed = Grammars(lambda: vocabulary(SMALL)).get(grammar).result()
    assert isinstance(followed, Automaton) is (forecast is FORECAST)
    return followed


def read(form: ToolFormat | None, text: str, size: int) -> tuple[str, AnswerReader]:
    """What a text says, and its calls; read in pieces of so many characters."""
    reader, said, arguments = AnswerReader(form), "", [""] * 99
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    parts = [part for piece in pieces for part in reader.push(piece)]
    for part in [*parts, *reader.finish()]:
        if isinstance(part, CallPart):
            arguments[part.number] += part.arguments
        else:
            said += part
    assert [call.arguments for call in reader.calls] == arguments[: len(reader.calls)]
    return said, reader


@WAYS
@pytest.mark.parametrize("name", FORMATS)
def test_answers_may_be_text_or_calls_and_are_read_as_they_come(
    name: str, forecast: dict[str, Any]
) -> None:
    form, forced = FORMATS[name], made(FORMATS[name], forecast, "required")
    free, call = made(form, forecast), form.write(CALL)
    assert refused_at(forced, SMALL, call) is None
    assert refused_at(forced, SMALL, "It rains.") is not None
    assert refused_at(free, SMALL, call.replace("forecast", "forget")) is not None
    assert refused_at(free, SMALL, call.replace("3", '"3"')) is not None
    for text in ("", "It rains.", "a < b <<tool [TOOL {} é", '{"names": [1]}', "<tool_calm>"):
        assert refused_at(free, SMALL, text) is None
        for size in (1, 3, 999):
            assert read(form, text, size)[0] == text
        if form.marker:
            assert refused_at(free, SMALL, text + call) is None
    for before in ("", "Wait. \n<")[: 1 + bool(form.marker)]:
        for size in (1, 2, 5, 999):
            said, reader = read(form, before + call, size)
            assert said == before.rstrip(" \n")
            assert [each._replace(id="") for each in reader.calls] == [CALL]
            assert reader.has_called
            assert not read(form, (before + call)[:-6], size)[1].has_called


@WAYS
@pytest.mark.parametrize("name", ["hermes", "llama3", "granite", "ministral"])
def test_what_is_sampled_validates(name: str, forecast: dict[str, Any]) -> None:
    form, dice, validated = FORMATS[name], random.Random(name), 0
    schemas = {**TOOLS, "forecast": forecast}
    for several in (False, True):
        followed = made(form, forecast, "required", several)
        for _ in range(40):
            if (text := sampled(followed, SMALL, dice, most=1000)) is None:
                continue
            said, reader = read(form, text, 7)
            assert (said, reader.has_called) == ("", True)
            assert len(reader.calls) == 1 or (several and form.can_repeat)
            for call in reader.calls:
                jsonschema.validate(json.loads(call.arguments), schemas[call.name])
            validated += 1
    assert validated > 20


@WAYS
def test_the_other_answer_may_have_a_form(forecast: dict[str, Any]) -> None:
    free = made(GENERIC, forecast, answer=Grammar.json_schema({"enum": ["yes", "no"]}))
    for text, is_one in (('"yes"', True), ("It rains.", False), (GENERIC.write(CALL), True)):
        assert (refused_at(free, SMALL, text) is None) is is_one
    if forecast is RECURSIVE:
        with pytest.raises(InvalidRequest, match=r"of the tool forecast .* refers to itself"):
            made(GENERIC, forecast, answer=Grammar.choice(["yes", "no"]))


@WAYS
def test_several_calls_are_read_one_after_the_other(forecast: dict[str, Any]) -> None:
    text = "\n".join([GENERIC.write(CALL)] * 2)
    assert refused_at(made(GENERIC, forecast, several=True), SMALL, text) is None
    assert refused_at(made(GENERIC, forecast), SMALL, text) is not None
    said, reader = read(GENERIC, text + "\n", 4)
    assert (said, len(reader.calls), reader.has_called) == ("", 2, True)
    assert len({call.id for call in reader.calls}) == 2
    assert read(None, text, 4)[0] == text


@pytest.mark.parametrize(
    ("tools", "choice", "why"),
    [
        ([{"type": "web_search"}], None, "type 'web_search' is not supported"),
        (["f"], None, "type None is not supported"),
        ([listed("a b")], None, "name of a tool"),
        ([*LISTED, *LISTED], None, "same name"),
        (LISTED, {"type": "function", "function": {"name": "g"}}, "tool_choice must be none"),
        (LISTED, "any", "tool_choice must be none"),
        (LISTED, {"type": "function", "function": {"name": []}}, "tool_choice must be none"),
        ([], "required", "needs tools"),
        ([listed("f", []), 5], None, "type None is not supported"),
        ([listed("f", [5])], None, "JSON schema"),
        ([listed(f"f{n}") for n in range(129)], None, "128 tools, not 129"),
    ],
)
def test_what_is_wrong_with_tools_is_said(tools: Any, choice: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Tools.of(tools, choice, several=False)


def test_long_schemas_of_many_tools_are_followed() -> None:
    names = [f"{n:060}" for n in range(40)]
    long = {"properties": {name: {"type": "null"} for name in names}, "required": names}
    for strict in ({}, {"strict": True}):
        tools = Tools.of([listed(f"f{n}", long, **strict) for n in range(30)], None, several=False)
        assert tools is not None
        grammar = grammars.of_tools(GENERIC, tools, None)
        assert len(grammar.text) > 100_000
        made = Grammars(lambda: vocabulary(SMALL)).get(grammar).result()
        arguments = json.dumps(dict.fromkeys(names))
        assert refused_at(made, SMALL, GENERIC.write(ToolCall("", "f9", arguments))) is None
        wrong = arguments.replace("null", "1")
        assert refused_at(made, SMALL, GENERIC.write(ToolCall("", "f9", wrong))) is not None


UNREADABLE = {
    "type": "object",
    "properties": {
        "a": {"type": "int", "minimum": 3, "exclusiveMinimum": True, "maximum": "9"},
        "b": {"type": "any"},
        "c": {"type": "string", "pattern": "(", "maxLength": 2, "required": True},
        "d": {"$ref": "#/gone"},
    },
    "required": None,
}


def test_a_keyword_that_cannot_be_read_drops_no_others() -> None:
    tools = Tools.of([listed("f", UNREADABLE)], "required", several=False)
    assert tools is not None
    made = Grammars(lambda: vocabulary(SMALL)).get(grammars.of_tools(GENERIC, tools, None)).result()
    for arguments, is_one in (
        ('{"a": 4, "b": [1], "c": "ab", "d": 1}', True),
        ('{"a": 3, "c": "ab"}', False),
        ('{"a": 4.5, "c": "ab"}', False),
        ('{"c": "abc"}', False),
        ('{"a": 4}', False),
    ):
        call = GENERIC.write(ToolCall("", "f", arguments))
        assert (refused_at(made, SMALL, call) is None) is is_one, arguments
    strict = Tools.of([listed("f", UNREADABLE, strict=True)], "required", several=False)
    assert strict is not None
    with pytest.raises(InvalidRequest, match="of the tool f at #/properties/"):
        grammars.of_tools(GENERIC, strict, None)


@pytest.mark.parametrize("limit", ["automaton.MAX_STATES", "grammars.MAX_TOOL_CHARACTERS"])
def test_large_schemas_are_any_object(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    recursive = {"properties": {"a": {"$ref": "#"}}, "description": "x" * 99_999}
    long = {"properties": {"a": {"type": "string", "maxLength": 300}}}
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"not": [deep]}
    free = [listed("tree", recursive), listed("deep", deep), listed("loose", long)]
    tools = Tools.of([*free, listed("strict", FORECAST, strict=True)], None, several=False)
    assert tools is not None
    grammar = grammars.of_tools(GENERIC, tools, None)

    for way in (Automaton, StepByStep):
        made = Grammars(lambda: vocabulary(SMALL)).get(grammar).result()
        assert isinstance(made, way)
        names = ("tree", "deep", "loose", "strict")
        calls = [GENERIC.write(ToolCall("", name, '{"a": 1}')) for name in names]
        refused = [n for n, call in zip(names, calls, strict=True) if refused_at(made, SMALL, call)]
        assert refused == ["loose", "strict"]
        monkeypatch.setattr(f"xla_backend.grammar.{limit}", 1500)  # longer: step by step
    unlike = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
    tools = Tools.of([listed("set", unlike, strict=True)], None, several=False)
    assert tools is not None
    with pytest.raises(InvalidRequest, match=r"of the tool set .* uniqueItems"):
        grammars.of_tools(GENERIC, tools, None)


def test_long_arguments_in_small_pieces_take_linear_time() -> None:
    # Parsed from the start at each piece, these took minutes.
    def took_s(times: int) -> float:
        text = json.dumps({"days": 3, "city": ['\\"}]{[' * 5, {}] * times})
        written = GENERIC.write(ToolCall("", "forecast", text)) + "\n"
        started = time.process_time()
        said, reader = read(GENERIC, written, 3)
        took = time.process_time() - started
        assert (said, reader.has_called) == ("", True)
        assert json.loads(reader.calls[0].arguments) == json.loads(text)
        return took

    # Eight times as much takes 64 times as long if it is not linear; a busy machine at most twice.
    assert min(took_s(3200), took_s(3200)) < 24 * min(took_s(400) for _ in range(3))
