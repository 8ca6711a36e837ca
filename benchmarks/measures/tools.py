"""Calls of tools: the simple questions of the Berkeley Function-Calling Leaderboard (BFCL v4).

`--data` is the folder `bfcl_eval/data` of the package `bfcl-eval` (Apache-2.0; unpacked, because
its requirements contradict others). Each question has one function, and the values that each
argument may have. *Free* leaves the model to call or not, *constrained* is `tool_choice: required`
with `strict`. Counted are answers with one call whose arguments fit the function's schema, and
those whose values are right, too.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
from openai import APIError, OpenAI

from benchmarks.checkpoints import packaged_file
from benchmarks.harness import MeasureFailed, Row, note
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp, settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"data": "", "questions": 100, "new_tokens": 160}
FILE = "BFCL_v4_simple_python.json"
CONTEXT, AT_ONCE = 2048, 4
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""What BFCL calls JSON's types."""
NO_TOOLS = (
    "The packaged model's template shows no tools: llama.cpp leaves them out then, and answers "
    "with text even where a call is required."
)
FREE: dict[str, Any] = {"tool_choice": "auto"}
CONSTRAINED: dict[str, Any] = {"tool_choice": "required"}


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each program, free and constrained."""
    folder = Path(options.data)
    if not options.data or not (folder / FILE).exists():
        raise MeasureFailed(f"--data names no folder with {FILE}")
    asked = _lines(folder / FILE)[: options.questions]
    answers = {
        each["id"]: each["ground_truth"][0] for each in _lines(folder / "possible_answer" / FILE)
    }
    with this_app("--models", PACKAGED_MODEL) as url:
        settle(url)
        yield from _rows("this engine", url, asked, answers, options)
    with llama_cpp(packaged_file(), AT_ONCE, CONTEXT) as peer_url:
        if peer_url:
            yield from _rows("llama.cpp", peer_url, asked, answers, options)
            yield NO_TOOLS
        else:
            yield LLAMA_CPP_MISSING


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _rows(
    program: str,
    url: str,
    asked: list[dict[str, Any]],
    answers: Mapping[str, Mapping[str, Any]],
    options: Namespace,
) -> Iterator[Row]:
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
    for way, more in (("free", FREE), ("constrained", CONSTRAINED)):

        def call(each: dict[str, Any], more: dict[str, Any] = more) -> tuple[bool, bool, bool]:
            tool = dict(each["function"][0])
            schema = tool["parameters"] = _schema(tool["parameters"])
            tool["strict"] = more is CONSTRAINED
            try:
                answer = client.chat.completions.create(
                    model=PACKAGED_MODEL,
                    messages=each["question"][0],
                    tools=[{"type": "function", "function": tool}],
                    max_tokens=options.new_tokens,
                    temperature=0.0,
                    **more,
                )
            except APIError:
                return True, False, False
            calls = answer.choices[0].message.tool_calls or []
            if len(calls) != 1 or calls[0].function.name != tool["name"]:
                return False, False, False
            with suppress(ValueError, jsonschema.ValidationError):
                arguments = json.loads(calls[0].function.arguments)
                jsonschema.validate(arguments, schema)
                return False, True, are_right(arguments, answers[each["id"]][tool["name"]])
            return False, False, False

        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = list(threads.map(call, asked))
        note(f"  {program}, {way}")
        refused, valid, right = (sum(column) for column in zip(*found, strict=True))
        yield {
            "program": program,
            "way": way,
            "questions": len(asked),
            "refused": refused,
            "valid call": valid,
            "right values": right,
        }


def _schema(given: Any) -> Any:
    """BFCL's description of arguments as a JSON schema."""
    if isinstance(given, list):
        return [_schema(each) for each in given]
    if not isinstance(given, dict):
        return given
    made = {name: _schema(value) for name, value in given.items()}
    if isinstance(kind := given.get("type"), str):
        made["type"] = TYPES.get(kind, kind)
    return made


def are_right(arguments: Mapping[str, Any], allowed: Mapping[str, list[Any]]) -> bool:
    """Whether each argument has one of its values, as BFCL's checker compares them; "" among them
    says that it may be missing."""
    present = all(
        name in allowed and any(_plain(value) == _plain(each) for each in allowed[name])
        for name, value in arguments.items()
    )
    return present and all(name in arguments or "" in values for name, values in allowed.items())


def _plain(value: Any) -> Any:
    """Texts without case, spaces and punctuation."""
    if isinstance(value, str):
        return "".join(each for each in value.lower() if each not in " ,./-_*^'\"")
    return [_plain(each) for each in value] if isinstance(value, list) else value
