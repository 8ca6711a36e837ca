"""What programs send back to `/v1`: every answer of every protocol, and histories as they are."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from tests.playground.api_page import ApiPage
from xla_backend import Message
from xla_backend.answers.tool_format import GENERIC
from xla_backend.interface.prompt import ToolCall

MODEL = "gpt2-stories"
RAIN: dict[str, Any] = {"role": "user", "content": "Rain?"}
AND: dict[str, Any] = {"role": "user", "content": "And?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FORECAST: dict[str, Any] = {"name": "forecast", "parameters": PARAMETERS}
CALL = GENERIC.write(ToolCall("", "forecast", '{"city": "Ulm"}'))
WHOLE = f"<think>Hm\u2028</think>Wait.\x85\n{CALL}\n{CALL}"
PLACES = sorted({*range(0, len(WHOLE), 9), WHOLE.index("</think>") + 8, len(WHOLE) - 1, len(WHOLE)})
HIDDEN = ", which is not shown here]"
TEXTS = [{"type": "text", "text": "b"}]
History = Callable[[ApiPage, bool], dict[str, Any]]


def of_chat(page: ApiPage, is_streamed: bool) -> dict[str, Any]:
    client = openai.OpenAI(base_url=page.api, api_key="none", max_retries=0)
    tools: Any = [{"type": "function", "function": FORECAST}]
    asked: dict[str, Any] = {"model": MODEL, "messages": [RAIN], "tools": tools}
    if is_streamed:
        with client.chat.completions.stream(**asked) as stream:
            for _ in stream:
                pass
            message = stream.current_completion_snapshot.choices[0].message
    else:
        message = client.chat.completions.create(**asked).choices[0].message
    sent: Any = message.model_dump()
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "Yes."}
        for call in sent["tool_calls"] or ()
    ]
    return {"messages": [RAIN, sent, *results, AND], "tools": tools}


def of_responses(page: ApiPage, is_streamed: bool) -> dict[str, Any]:
    client = openai.OpenAI(base_url=page.api, api_key="none", max_retries=0)
    tools: Any = [{"type": "function", **FORECAST}]
    asked: dict[str, Any] = {"model": MODEL, "input": [RAIN], "tools": tools}
    if is_streamed:
        *_, last = client.responses.create(**asked, stream=True)
        output = last.response.output
    else:
        output = client.responses.create(**asked).output
    items: Any = [item.model_dump() for item in output]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "Yes."}
        for item in items
        if item["type"] == "function_call"
    ]
    return {"input": [RAIN, *items, *results, AND], "tools": tools}


def of_messages(page: ApiPage, is_streamed: bool) -> dict[str, Any]:
    tools = [{"name": "forecast", "input_schema": PARAMETERS}]
    asked = {"messages": [RAIN], "tools": tools, "stream": is_streamed}
    answer = httpx.post(f"{page.api}/messages", json=asked).raise_for_status()
    content: list[dict[str, Any]] = [] if is_streamed else answer.json()["content"]
    for line in answer.text.splitlines() if is_streamed else ():
        event = json.loads(line[6:]) if line.startswith("data: ") else {}
        if block := event.get("content_block"):
            content.append({**block, "json": ""})
        for name, text in event.get("delta", {}).items() if "index" in event else ():
            if name == "partial_json":
                content[-1]["json"] += text
            elif name in ("text", "thinking"):
                content[-1][name] += text
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "Yes."}
        for block in content
        if block["type"] == "tool_use"
    ]
    again = {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]}
    return {"messages": [RAIN, {"role": "assistant", "content": content}, again], "tools": tools}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("path", "history"),
    [("chat/completions", of_chat), ("responses", of_responses), ("messages", of_messages)],
)
def test_every_answer_may_come_back_wherever_it_was_cut(
    page: ApiPage, path: str, history: History, is_streamed: bool
) -> None:
    for place in PLACES:
        page.backend.words = tuple(WHOLE[at : at + 5] for at in range(0, place, 5))
        if page.backend.words:
            last = page.backend.words[-1]
            page.backend.words = (*page.backend.words[:-1], last[: (place - 1) % 5 + 1])
        sent = history(page, is_streamed)
        page.backend.words = ("It", " rains.")
        answer = httpx.post(f"{page.api}/{path}", json=sent)
        assert answer.status_code == 200, (WHOLE[:place], sent, answer.text)
        _, (user, *said, last), _ = page.backend.asked[-1]
        assert (user, last) == (Message("user", "Rain?"), Message("user", "And?"))
        calls = [call for message in said for call in message.tool_calls]
        assert len(calls) == WHOLE[:place].count('": {')
        for call in calls:
            assert isinstance(json.loads(call.arguments), dict)


def asked(page: ApiPage, path: str, body: dict[str, Any]) -> tuple[Message, ...]:
    httpx.post(f"{page.api}/{path}", json=body).raise_for_status()
    return page.backend.asked[-1][1]


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"role": "function", "name": "f", "content": "1"}, Message("tool", "1")),
        ({"role": "critic", "content": "No."}, Message("user", "critic: No.")),
        (
            {"role": "model", "content": "a", "reasoning": "b"},
            Message("assistant", "a", (), "", "b"),
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            Message("assistant", "No."),
        ),
        ({"role": "user", "content": {"type": "text", "text": "a"}}, Message("user", "a")),
        ({"role": "user", "content": {"text": {"value": "a"}}}, Message("user", "a")),
        ({"role": "user", "content": [{"type": "text", "text": None}, 5]}, Message("user", "5")),
        ({"role": "user", "content": "a", "images": ["b"]}, Message("user", f"a[image{HIDDEN}")),
        ({"role": "tool", "content": 7}, Message("tool", "7")),
        ({"role": "tool", "content": {"a": "Ü"}}, Message("tool", '{"a": "Ü"}')),
        ({"role": "tool", "content": [None, {"b": 1}]}, Message("tool", '{"b": 1}')),
        ({"role": "assistant", "refusal": "No."}, Message("assistant", "No.")),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": ["a"]}, "b"]},
            Message("assistant", "b"),
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}, "And"]},
            Message("user", f"[image_url{HIDDEN}And"),
        ),
        (
            {"role": "tool", "tool_call_id": 5, "content": [{"type": "file", "file_id": "f"}]},
            Message("tool", f"[file f{HIDDEN}", (), "5"),
        ),
        *(
            (
                {"role": "assistant", "tool_calls": calls},
                Message("assistant", "", (ToolCall("", "f", read),)),
            )
            for calls, read in (
                ([{"id": None, "function": {"name": "f", "arguments": None}}], "{}"),
                ([{"id": None, "function": {"name": "f", "arguments": []}}], "{}"),
                ({"function": {"name": "f", "arguments": {"a": 1}}}, '{"a": 1}'),
                ([{"name": "f", "arguments": '{"a": "Ü'}], '{"arguments": "{\\"a\\": \\"Ü"}'),
                ([{"function": {"name": "f", "arguments": "{}{}"}}], '{"arguments": "{}{}"}'),
                ([{"function": {"name": "f", "arguments": [1]}}], '{"arguments": [1]}'),
                ([{"type": "custom", "custom": {"name": "f", "input": "x"}}], '{"arguments": "x"}'),
            )
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            Message("assistant", "", (ToolCall("", "f", "{}"),)),
        ),
    ],
)
def test_an_old_turn_is_read(page: ApiPage, message: dict[str, Any], read: Message) -> None:
    prompt = asked(page, "chat/completions", {"messages": [message, AND]})
    assert prompt == (read, Message("user", "And?"))


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ([{"type": "tool_reference", "tool_name": "f"}], f"[tool_reference f{HIDDEN}"),
        (
            [{"type": "search_result", "source": "a", "title": "A", "content": TEXTS}],
            "A\na\nb",
        ),
        ([{"type": "document", "title": "A", "source": {"type": "text", "data": "b"}}], "A\nb"),
        ([{"type": "image", "source": {"type": "base64", "data": "b"}}], f"[image{HIDDEN}"),
        (None, ""),
    ],
)
def test_a_result_of_a_tool_is_read(page: ApiPage, content: Any, read: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "content": content}
    message = {"role": "user", "content": [result, {"type": "text", "text": "And?"}]}
    prompt = asked(page, "messages", {"messages": [message]})
    assert prompt == (Message("tool", read, (), "1"), Message("user", "And?"))


def test_items_of_other_models_become_notes(page: ApiPage) -> None:
    items = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "1", "name": "f", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "y"},
    ]
    called, result, _ = asked(page, "responses", {"input": [RAIN, *items, AND]})[1:]
    assert (called.content, called.tool_calls[0].name) == (f"[web_search_call{HIDDEN}", "f")
    assert result == Message("tool", "y", (), "1")


def test_thoughts_of_any_form_and_items_without_a_type_are_read(page: ApiPage) -> None:
    for content in (None, ["a"], [{"type": "reasoning_text", "text": None}]):
        items = [{"type": "reasoning", "content": content}, {"type": None, **AND}]
        assert asked(page, "responses", {"input": items})[-1] == Message("user", "And?")
    blocks = [{"type": "thinking"}, {"type": "text", "text": "a"}]
    told = {"role": "assistant", "content": blocks}
    assert asked(page, "messages", {"messages": [told, AND]})[0] == Message("assistant", "a")


@pytest.mark.parametrize(
    ("path", "fields", "listed"),
    [
        (
            "responses",
            {"text": {"verbosity": "low"}, "reasoning": {"summary": "auto", "mode": None}},
            ["text.verbosity", "reasoning.summary"],
        ),
        (
            "responses",
            {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
            ["include.reasoning.encrypted_content"],
        ),
        ("messages", {"output_config": {"effort": "low", "mood": "calm"}}, ["output_config.mood"]),
    ],
)
def test_what_is_not_read_of_a_field_is_listed(
    page: ApiPage, path: str, fields: dict[str, Any], listed: list[str]
) -> None:
    body = {"input" if path == "responses" else "messages": [AND], **fields}
    assert httpx.post(f"{page.api}/{path}", json=body).json()["ignored_fields"] == listed


def test_what_is_not_read_of_a_message_is_listed(page: ApiPage) -> None:
    message = {**AND, "name": "me", "images": [], "mood": "grim"}
    body = {"messages": [message, message], "detokenize": False}
    told = httpx.post(f"{page.api}/chat/completions", json=body).json()["ignored_fields"]
    assert sorted(told) == ["detokenize", "messages.0.mood", "messages.1.mood"]


@pytest.mark.parametrize(
    "path", ["chat/completions", "completions", "completion", "messages", "responses"]
)
def test_no_event_ends_within_a_line(page: ApiPage, path: str) -> None:
    page.backend.words = ("a\u2028b\u2029c\x85d\x0be\x1cf",)
    fields = {"completion": "prompt", "completions": "prompt", "responses": "input"}
    field = fields.get(path, "messages")
    body = {field: [AND] if field == "messages" else "And?", "stream": True}
    streamed = httpx.post(f"{page.api}/{path}", json=body).text
    lines = [line[6:] for line in streamed.splitlines() if line.startswith("data: {")]
    assert any(page.backend.words[0] in texts(json.loads(line)) for line in lines)


def texts(values: Any) -> list[str]:
    """All strings in a JSON value."""
    if isinstance(values, dict | list):
        inner = values.values() if isinstance(values, dict) else values
        return [text for each in inner for text in texts(each)]
    return [values] if isinstance(values, str) else []
