"""Answers in channels: what is thought, said and called, at any cut of their tokens."""

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from tests.xla_backend.grammar.vocabularies import refused_at, sampled, tokenizer, vocabulary
from xla_backend import Grammar
from xla_backend.answers.decoder import AnswerDecoder
from xla_backend.answers.reader import AnswerReader, Thought
from xla_backend.answers.tool_format import CHANNELS
from xla_backend.grammar import grammars
from xla_backend.grammar.automaton import Automaton
from xla_backend.grammar.grammars import Grammars
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.tools import Tools

KIND = "in channels"
C, M, E, S = "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant"
R, K, J = "<|return|>", "<|call|>", " <|constrain|>json"
HM = f"{C}analysis{M}Hm.{E}{S}"
CALL = f'{C}commentary to=functions.f{J}{M}{{"a": 1}}{K}'
CALLED = ("commentary", "functions.f", '{"a": 1}')

# What `StreamableParser` of openai-harmony 0.0.8 (strict=False) makes of each with GPT-OSS's
# vocabulary, behind "<|start|>assistant": channel, recipient and text of each message.
PARSED: dict[str, list[tuple[str | None, str | None, str]]] = {
    f"{HM}{C}final{M}Yes <think>.{R}": [("analysis", None, "Hm."), ("final", None, "Yes <think>.")],
    f"{C}final{M}Yes.{R}": [("final", None, "Yes.")],
    f"{C}final{M}Is\n\n é 🦊 {{": [("final", None, "Is\n\n é 🦊 {")],
    HM + CALL: [("analysis", None, "Hm."), CALLED],
    CALL: [CALLED],
    f'{HM} to=functions.f{C}commentary json{M}{{"a": 1}}{K}': [("analysis", None, "Hm."), CALLED],
    f'{C}commentary to=functions.f<|constrain|>json{M}{{"a": 1}}{K}': [CALLED],
    f"{C}analysis to=functions.f code{M}{{}}{K}": [("analysis", "functions.f", "{}")],
    f"{HM}{C}commentary{M}I look.{E}{S}{CALL}": [
        ("analysis", None, "Hm."),
        ("commentary", None, "I look."),
        CALLED,
    ],
    f"{HM}{C}analysis{M}So.{E}{S}{C}final{M}Yes.{R}": [
        ("analysis", None, "Hm."),
        ("analysis", None, "So."),
        ("final", None, "Yes."),
    ],
    f"{C}analysis{M}Hm": [("analysis", None, "Hm")],
    f"{HM}": [("analysis", None, "Hm.")],
    f"{HM}{C}fin": [("analysis", None, "Hm.")],
    f"{C}analysis{M}Hm.{R}": [("analysis", None, "Hm.")],
    f"Hello there{R}": [(None, None, "Hello there")],
    f"{M}Hello{R}": [(None, None, "Hello")],
    f"{C}final Hello{R}": [("final", None, "Hello")],
    f"{C}final{M}a{C}b{M}c{R}": [("final", None, f"a{C}b{M}c")],
    f"{CALL}{S}{C}final{M}Done.{R}": [CALLED, ("final", None, "Done.")],
    f"{HM}{C}analysis to=python code{M}1+1{K}": [
        ("analysis", None, "Hm."),
        ("analysis", "python", "1+1"),
    ],
    f'{C}final{J}{M}{{"a":1}}{R}': [("final", None, '{"a":1}')],
    f"{C}final{M}{R}": [("final", None, "")],
}
# What it refuses.
REFUSED: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    f"{C}{M}Yes.{R}": ("", "Yes.", []),
    f"{C}analysis{M}Hm.{E}lost{S}{C}final{M}Yes.{R}": ("Hm.", "Yes.", []),
    f'{C}commentary commentary to=functions.f json{M}{{"a": 1}}{K}': ("", "", [("f", '{"a": 1}')]),
    f"{C}commentary to=functions.f{J}{M}{K}": ("", "", [("f", "{}")]),
    # Nor is a message without an end text of the one before it.
    f"{C}analysis{M}Hm.{S}{C}final{M}Yes.{R}": ("Hm.", "Yes.", []),
    # No protocol has a place for thoughts behind text.
    f"{C}commentary{M}I look.{E}{S}{HM}{CALL}": ("", "I look.", [("f", '{"a": 1}')]),
}


def expected(text: str) -> tuple[str, str, list[tuple[str, str]]]:
    """What is thought, said and called."""
    if text in REFUSED:
        return REFUSED[text]
    thoughts, said, calls = [], "", []
    for channel, recipient, content in PARSED[text]:
        if recipient and recipient.startswith("functions."):
            calls.append((recipient.removeprefix("functions."), content))
        elif channel == "analysis":
            thoughts.append(content)
        else:
            said += content
    return "\n".join(thoughts), said, calls


@pytest.mark.parametrize("text", [*PARSED, *REFUSED])
def test_an_answer_is_read_at_any_cut(text: str) -> None:
    of, _ = tokenizer(KIND)
    begun, ids = of.encode(f"<|start|>user{M}Q{E}{S}"), of.encode(text, special=False)
    for cuts in ([], range(1, len(ids)), *([at] for at in range(1, len(ids)))):
        decoder, reader, said = AnswerDecoder(of, frozenset(), begun), AnswerReader(CHANNELS), ""
        thoughts = ""
        for first, last in itertools.pairwise([0, *cuts, len(ids)]):
            for part in reader.push(decoder.push(ids[first:last])):
                thoughts += part if isinstance(part, Thought) else ""
                said += part if type(part) is str else ""
        rest = [*reader.push(decoder.finish()), *reader.finish()]
        thoughts += "".join(part for part in rest if isinstance(part, Thought))
        said += "".join(part for part in rest if type(part) is str)
        calls = [(call.name, call.arguments) for call in reader.calls]
        assert (thoughts, said, calls) == expected(text)
        assert reader.thoughts == thoughts
        assert reader.has_called is bool(calls)


def test_only_the_models_own_tokens_are_the_format() -> None:
    of, end = tokenizer(KIND)
    spelt = [id for letter in "<|end|><|call|>" for id in of.encode(letter)]
    written = [*of.encode(f"{C}final{M}"), *spelt, end]
    decoder = AnswerDecoder(of, frozenset(), of.encode(S))
    assert decoder.push(written) + decoder.finish() == "<|end|><|call|>"
    # A text to continue is no answer in channels.
    plain = AnswerDecoder(of, frozenset(), of.encode("Once"))
    assert not plain.before
    assert plain.push(of.encode(f"{C}final{M}a{E}")) == "finala"
    # A begun answer goes on, and a stop string may be one of these tokens.
    begun = AnswerDecoder(of, of.special_ids([E]), of.encode(f"{S}{C}final{M}It"))
    assert not begun.before
    assert begun.push(of.encode(f" is.{E}")) == f" is.{E}"


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
RECURSIVE = {**PERSON, "properties": {**PERSON["properties"], "child": {"$ref": "#"}}}
WAYS = pytest.mark.parametrize("schema", [PERSON, RECURSIVE], ids=["tables", "step by step"])
ANNA = '{"name": "Anna", "age": 3}'


def followed(grammar: Grammar, schema: dict[str, Any]) -> Automaton | StepByStep:
    of, grammar = Grammars(lambda: vocabulary(KIND)), grammars.preamble(grammar, "channels")
    first = of.get(grammar).result()
    of.wait()
    made = of.get(grammar).result()
    del first
    assert isinstance(made, Automaton) is (schema is PERSON)
    return made


def with_tools(schema: dict[str, Any], choice: str, answer: Grammar | None = None) -> Grammar:
    function = {"name": "f", "parameters": schema, "strict": True}
    tools = Tools.of([{"type": "function", "function": function}], choice, several=True)
    assert tools is not None
    return grammars.of_tools(CHANNELS, tools, answer)


def call(arguments: str) -> str:
    return f"{C}commentary to=functions.f{J}{M}{arguments}"


@WAYS
def test_the_last_message_has_the_form(schema: dict[str, Any]) -> None:
    made = followed(Grammar.json_schema(schema), schema)
    final = f"{C}final{M}{ANNA}"
    for text in (final, HM + final, HM + HM + final):
        assert refused_at(made, KIND, text) is None
    look = f"{C}commentary{M}I look.{E}{S}"
    for text in (ANNA, look + final, HM, f"{C}final{M}Yes.", final.replace("Anna", E), final + E):
        assert refused_at(made, KIND, text) is not None


@WAYS
def test_a_call_or_a_text_is_last(schema: dict[str, Any]) -> None:
    free, forced = (followed(with_tools(schema, how), schema) for how in ("auto", "required"))
    look = f"{C}commentary{M}I look.{E}{S}"
    for before in ("", HM, HM + look):
        assert refused_at(free, KIND, before + call(ANNA)) is None
        assert refused_at(forced, KIND, before + call(ANNA)) is None
        assert refused_at(free, KIND, f"{before}{C}final{M}It is {{") is None
        assert refused_at(forced, KIND, f"{before}{C}final{M}It is {{") is not None
        assert refused_at(free, KIND, before + call("{}")) is not None
    formed = followed(with_tools(schema, "auto", Grammar.json_object()), schema)
    for text, is_one in ((call(ANNA), True), (f"{C}final{M}{{}}", True), (f"{C}final{M}a", False)):
        assert (refused_at(formed, KIND, HM + text) is None) is is_one


@WAYS
@pytest.mark.parametrize("choice", ["none", "required"])
def test_what_is_sampled_validates(schema: dict[str, Any], choice: str) -> None:
    is_call, dice, validated = choice == "required", random.Random(choice), 0
    grammar = with_tools(schema, choice) if is_call else Grammar.json_schema(schema)
    made = followed(grammar, schema)
    for _ in range(40):
        if (text := sampled(made, KIND, dice, most=400)) is None:
            continue
        reader = AnswerReader(CHANNELS)
        said = reader.read_whole(text)
        assert reader.has_called is is_call
        jsonschema.validate(json.loads(reader.calls[0].arguments if is_call else said), schema)
        validated += 1
    assert validated > 4


def test_rules_and_patterns_are_followed_in_the_last_message() -> None:
    lists = Grammar.gbnf('root ::= "[" root? "]"')
    for grammar, text, other in (
        (Grammar.choice(["yes", "no"]), "yes", "maybe"),
        (Grammar.regex("[0-9]+|é"), "42", "4a"),
        (lists, "[[[]]]", "[["),
    ):
        made = (
            Grammars(lambda: vocabulary(KIND)).get(grammars.preamble(grammar, "channels")).result()
        )
        assert isinstance(made, StepByStep) is (grammar is lists)
        for before in ("", HM):
            assert refused_at(made, KIND, f"{before}{C}final{M}{text}") is None
            assert refused_at(made, KIND, f"{before}{C}final{M}{other}") is not None
