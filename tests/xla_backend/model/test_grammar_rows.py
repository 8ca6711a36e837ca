"""Rows that follow a grammar: their texts have its form, and are those of each row alone."""

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import checkpoints
from tests.gguf_files import smollm2
from xla_backend import (
    Backend,
    GenerationOptions,
    Grammar,
    InvalidRequest,
    Message,
    question,
)
from xla_backend.answers.reader import AnswerReader
from xla_backend.answers.tool_format import GENERIC
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.grammar import grammars
from xla_backend.interface.prompt import TokenIds
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.tools import Tools

CONTEXT = 400
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
BRACKETS = 'root ::= "(" root ")" | [a-c]'
GRAMMARS = (
    Grammar.json_schema(PERSON),
    Grammar.gbnf(BRACKETS),
    Grammar.choice(["yes", "no", "perhaps"]),
    Grammar.regex(r"\d{3}-\d{4}"),
    None,
)
OPTIONS = (
    {"temperature": 1.0, "top_k": 0},
    {"temperature": 1.0},
    {"temperature": 1.5, "top_p": 0.8, "repetition_penalty": 1.3},
    {"temperature": 0.0, "frequency_penalty": 1.0},
    {"temperature": 1.0, "prompt_lookup_num_tokens": 3},
)


def check(text: str, grammar: Grammar) -> None:
    """The text has the form."""
    if grammar.kind == "json_schema":
        jsonschema.validate(json.loads(text), PERSON)
    elif grammar.kind == "choice":
        assert text in json.loads(grammar.text)
    elif grammar.kind == "gbnf":
        inner = text.strip("()")
        assert inner in "abc" and text == (depth := text.count("(")) * "(" + inner + depth * ")"
    else:
        assert re.fullmatch(grammar.text, text)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoints.gpt2(tmp_path_factory.mktemp("model"), seed=5, n_positions=CONTEXT))


@pytest.fixture(scope="module")
def engine() -> Iterator[Backend]:
    with contextlib.closing(Backend(store="off")) as backend:
        yield backend


def requests(model: str) -> list[TextRequest]:
    """Every grammar with all options, from several prompts."""
    return [
        TextRequest(
            model,
            TokenIds((5, 9 + seed, 40)),
            GenerationOptions(grammar=grammar, max_new_tokens=250, seed=seed, **options),
            cache_salt="salt",
        )
        for grammar in GRAMMARS
        for seed, options in enumerate(OPTIONS)
    ]


def test_rows_have_the_form_alone_and_beside_others(engine: Backend, model: str) -> None:
    asked = requests(model)
    alone = [engine.submit(request).read_all() for request in asked]
    pool = engine.pool_key(model)
    assert pool is not None
    engine.warm(model, [pool], rows=4)
    compiled = [entry.key for entry in engine.cached_functions()]
    streams = [engine.submit(request) for request in asked]
    together = [stream.read_all() for stream in streams]
    assert max(result.batch_size for result in together if result) == 4
    assert [entry.key for entry in engine.cached_functions()] == compiled
    for request, one, other in zip(asked, alone, together, strict=True):
        assert (one.text, one.finish) == (other.text, other.finish)
        if grammar := request.options.grammar:
            assert one.finish == "eos"
            check(one.text, grammar)
            way = "step by step" if grammar.kind == "gbnf" else "tensors"
            # A schema's first text may be earlier than its tables.
            assert grammar.kind == "json_schema" or one.grammar == way
            assert other.to_json()["grammar"] == way
            if grammar.kind == "regex":
                forced = [token.text for token in one.tokens if token.is_forced]
                assert forced == ["-"]
                # What must come is one of several tokens of its pass.
                assert one.passes is not None and one.passes < one.new_tokens - 1
        for mine, beside in zip(one.tokens, other.tokens, strict=True):
            assert mine.forbidden == pytest.approx(beside.forbidden, abs=1e-5)
            shares = dict.fromkeys((False, True), 0.0)
            for top in mine.top_logprobs:
                shares[top.is_forbidden] += math.exp(top.logprob)
                assert not (top.is_forbidden and (top.id == mine.id or grammar is None))
            assert shares[True] - 1e-5 <= mine.forbidden <= 1 - shares[False] + 1e-5
        assert any(token.forbidden for token in one.tokens) == (grammar is not None)
    late = GenerationOptions(grammar={"choice": ["never", "seen"]}, max_new_tokens=9)
    for _ in range(2):  # without a salt nothing is shared
        result = engine.generate(model, TokenIds((7, 8, 9, 10)), late)
        assert result.text in ("never", "seen")
        assert result.cached_tokens == 0
    assert [entry.key for entry in engine.cached_functions()] == compiled


TREE = {"properties": {"below": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}}


@pytest.mark.parametrize("way", ["tensors", "step by step"])
@pytest.mark.parametrize("opening", ['<tool_call>\n{"name": "', '{"name": "'])
def test_a_required_call_always_parses_and_validates(
    engine: Backend, model: str, opening: str, way: str
) -> None:
    form = GENERIC._replace(opening=opening, closing="}")
    schemas = {"person": PERSON, "now": {"additionalProperties": False}}
    if way == "step by step":
        schemas["now"] = TREE | schemas["now"]
    listed = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in schemas.items()
    ]
    for several, choice in itertools.product((False, True), ("auto", "required")):
        tools = Tools.of(listed, choice, several)
        assert tools is not None
        grammar = grammars.of_tools(form, tools, None)
        for seed in range(3):
            options = GenerationOptions(
                grammar=grammar, max_new_tokens=300, temperature=1.0, top_k=0, seed=seed
            )
            result = engine.generate(model, TokenIds((5, 9 + seed, 40)), options)
            assert result.grammar == way
            reader = AnswerReader(form)
            said = reader.read_whole(result.text)
            if choice == "required":
                assert (said, reader.has_called) == ("", result.finish == "eos")
                assert result.finish == "eos" or several
            for call in reader.calls if reader.has_called else ():
                jsonschema.validate(json.loads(call.arguments), schemas[call.name])


@pytest.mark.parametrize("schema", [PERSON, TREE], ids=["tensors", "step by step"])
def test_the_last_message_in_channels_has_the_form(
    engine: Backend, schema: dict[str, Any], tmp_path: Path
) -> None:
    folder = str(checkpoints.in_channels(tmp_path / "gpt-oss"))
    tokenizer = Tokenizer.load(Path(folder))
    # Random weights would think for long.
    ends = {tokenizer.encode(name)[0]: 30 for name in ("<|end|>", "<|return|>", "<|call|>", '"')}
    function = {"name": "f", "parameters": schema, "strict": True}
    tools = Tools.of([{"type": "function", "function": function}], "required", several=False)
    assert tools is not None
    call = grammars.of_tools(tokenizer.tool_format, tools, None)
    validated, thoughts = 0, 0
    for seed, grammar in itertools.product(range(4), (Grammar.json_schema(schema), call)):
        options = GenerationOptions(
            grammar=grammar, max_new_tokens=200, temperature=1.0, seed=seed, logit_bias=ends
        )
        result = engine.generate(folder, question("Who?"), options)
        reader = AnswerReader(tokenizer.tool_format)
        said = reader.read_whole(result.text)
        thoughts += "<think>" in result.text
        if result.finish == "eos":
            arguments = reader.calls[0].arguments if grammar == call else said
            jsonschema.validate(json.loads(arguments), schema)
            assert reader.has_called is (grammar == call)
            ids = [token.id for token in result.tokens]
            thought = [at for at, id in enumerate(ids) if id == tokenizer.encode("<|end|>")[0]]
            assert grammar == call or result.thought_tokens == max(thought, default=0)
            validated += 1
    assert validated > 4
    assert thoughts
    # One that begins in the prompt goes on.
    begun = (*question("Who?"), Message("assistant", "It is"))
    options = GenerationOptions(grammar=Grammar.choice([" I.", " you."]), max_new_tokens=9)
    assert engine.generate(folder, begun, options).text in (" I.", " you.")


def test_thoughts_that_the_prompt_opens_are_open_in_the_answer(
    engine: Backend, tmp_path: Path
) -> None:
    folder = checkpoints.instruct(tmp_path / "thinker")
    template = checkpoints.CHAT_TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%")
    (folder / "chat_template.jinja").write_text(template)
    asked, short = question("Who?"), GenerationOptions(max_new_tokens=5)
    function = {"type": "function", "function": {"name": "f", "parameters": PERSON}}
    calls = {}
    for choice in ("auto", "required"):
        tools = Tools.of([function], choice, several=False)
        assert tools is not None
        calls[choice] = grammars.of_tools(GENERIC, tools, None)
    for salt, grammar, prompt, opens in (
        ("", None, asked, True),
        ("a", None, asked, True),
        ("a", calls["auto"], asked, True),
        ("a", calls["required"], asked, True),
        ("a", GRAMMARS[2], asked, True),
        ("a", None, (*asked, Message("assistant", "<think>")), False),
        ("a", None, "Who? <think>", False),
    ):
        stream = engine.stream(str(folder), prompt, short.replace(grammar=grammar), cache_salt=salt)
        text = "".join(stream)
        assert stream.result is not None
        assert stream.result.text == text
        assert text.startswith("<think>") is opens


@pytest.mark.parametrize("schema", [PERSON, TREE], ids=["tensors", "step by step"])
def test_the_form_holds_behind_thoughts_that_the_prompt_opens(
    engine: Backend, schema: dict[str, Any], tmp_path: Path
) -> None:
    folder, asked = str(checkpoints.thinker(tmp_path / "thinker")), question("Who?")
    tokenizer = Tokenizer.load(Path(folder))
    [end] = tokenizer.encode("</think>")
    # Random weights would think and write for long.
    bias = {end: 25, **{tokenizer.encode(each)[0]: 30 for each in ('"', "}", "<|endoftext|>")}}
    function = {"name": "f", "parameters": schema, "strict": True}
    listed = [{"type": "function", "function": function}]
    form = Grammar.json_schema(schema)
    required, auto = (Tools.of(listed, choice, several=False) for choice in ("required", "auto"))
    assert required is not None and auto is not None
    calls = grammars.of_tools(GENERIC, required, None)
    either = grammars.of_tools(GENERIC, auto, form)
    plain = {"enable_thinking": False}
    validated = 0
    for seed, grammar, template in itertools.product(range(3), (form, calls, either), ({}, plain)):
        options = GenerationOptions(
            grammar=grammar, max_new_tokens=200, temperature=1.0, seed=seed, logit_bias=bias
        )
        result = engine.submit(TextRequest(folder, asked, options, template=template)).read_all()
        reader = AnswerReader(GENERIC)
        said = reader.read_whole(result.text)
        written = [token.id for token in result.tokens]
        if schema is not PERSON or grammar is not form:
            assert result.grammar == ("tensors" if schema is PERSON else "step by step")
        assert result.text.startswith("<think>") is (not template)
        assert result.thought_tokens == (0 if template else written.index(end))
        if result.finish == "eos":
            arguments = reader.calls[0].arguments if reader.calls else said
            jsonschema.validate(json.loads(arguments), schema)
            assert reader.has_called or grammar is not calls
            validated += 1
    assert validated > 9


def test_what_ends_early_and_what_is_refused(engine: Backend, model: str, tmp_path: Path) -> None:
    short = GenerationOptions(grammar=GRAMMARS[3], max_new_tokens=3)
    assert engine.generate(model, TokenIds((5,)), short).finish == "length"
    never = Grammar.json_schema({"not": {"type": "array", "uniqueItems": True}})
    for folder, options, said in (
        (model, {"grammar": never}, "uniqueItems"),
        (str(checkpoints.t5(tmp_path / "t5")), {"grammar": GRAMMARS[2]}, "cannot follow a grammar"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            engine.generate(folder, "a b", GenerationOptions(**options))
    with pytest.raises(InvalidRequest, match="exact_key"):
        engine.generate(model, "a b", short.replace(exact_key=True))
    with pytest.raises(InvalidRequest, match="one beam"):
        GenerationOptions(grammar=GRAMMARS[2], num_beams=2)


@pytest.mark.release
def test_a_real_model_fills_in_a_schema(engine: Backend) -> None:
    options = GenerationOptions(grammar=GRAMMARS[0], max_new_tokens=120, temperature=1.0)
    for seed in range(5):
        asked = "Describe a person as JSON."
        result = engine.generate(str(smollm2()), asked, options.replace(seed=seed))
        check(result.text, Grammar.json_schema(PERSON))
