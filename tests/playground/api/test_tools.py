"""Tools at `/v1`, asked by OpenAI's own client and as Anthropic's asks; the engine is made up."""

import json
from typing import Any

import httpx
import openai
import pytest

from tests.playground.api_page import ApiPage
from xla_backend import Message, ModelUnavailable
from xla_backend.answers.tool_format import GENERIC
from xla_backend.interface.prompt import ToolCall

MODEL = "gpt2-stories"
RAIN = [{"role": "user", "content": "Rain?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORECAST = {"name": "forecast", "parameters": PARAMETERS}
TOOLS: Any = [{"type": "function", "function": {**FORECAST, "strict": True}}]
ULM = '{"city": "Ulm"}'
RECURSIVE = {"type": "object", "properties": {"a": {"$ref": "#"}}}


def has_called(page: ApiPage, said: str = "") -> None:
    """The engine's next answers are a call, a few characters at a time."""
    text = said + GENERIC.write(ToolCall("", "forecast", ULM))
    page.backend.words = tuple(text[at : at + 7] for at in range(0, len(text), 7))


def grammar(page: ApiPage) -> dict[str, Any]:
    """What the engine was asked to follow last."""
    return page.backend.asked[-1][2].to_dict()["grammar"]["tool_calls"]


@pytest.mark.parametrize(("said", "content"), [("", None), ("Wait.\n", "Wait.")])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_is_answered_and_its_result_is_told(
    page: ApiPage, client: openai.OpenAI, said: str, content: str | None, is_streamed: bool
) -> None:
    has_called(page, said)
    asked: dict[str, Any] = {"model": MODEL, "messages": RAIN, "tools": TOOLS}
    if is_streamed:
        with client.chat.completions.stream(**asked) as stream:
            [choice] = stream.get_final_completion().choices
    else:
        [choice] = client.chat.completions.create(**asked).choices
    [call] = choice.message.tool_calls or []
    assert (choice.finish_reason, choice.message.content or None) == ("tool_calls", content)
    assert (call.type, call.function.name, call.function.arguments) == ("function", "forecast", ULM)
    assert grammar(page)["tools"] == {"forecast": PARAMETERS}

    page.backend.words = ("It", " rains.")
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "Yes."}
    message: Any = choice.message.model_dump(exclude={"parsed", "refusal"})
    again = asked | {"messages": [*RAIN, message, result], "logprobs": True}
    [last] = client.chat.completions.create(**again).choices
    assert (last.message.content, last.message.tool_calls) == ("It rains.", None)
    _, prompt, _ = page.backend.asked[-1]
    calls = (ToolCall(call.id, "forecast", ULM),)
    told = Message("assistant", content or "", calls)
    assert prompt == (Message("user", "Rain?"), told, Message("tool", "Yes.", (), call.id))
    assert page.backend.streams[-1].prepared.token_ids


@pytest.mark.parametrize(
    ("choice", "is_free"),
    [
        (None, True),
        ("auto", True),
        ("required", False),
        ({"type": "function", "function": {"name": "forecast"}}, False),
    ],
)
def test_a_choice_says_what_the_answer_may_be(
    page: ApiPage, client: openai.OpenAI, choice: Any, is_free: bool
) -> None:
    other = {"type": "function", "function": {"name": "tree", "parameters": RECURSIVE}}
    has_called(page)
    client.chat.completions.create(
        model=MODEL,
        messages=RAIN,
        tools=[*TOOLS, other],
        tool_choice=choice or openai.NOT_GIVEN,
        parallel_tool_calls=True,
        response_format={"type": "json_object"},
    )
    assert (grammar(page)["is_free"], grammar(page)["several"]) == (is_free, True)
    assert grammar(page)["answer"] == {"json_object": True}
    # What a grammar cannot hold is any object, where the tool is not strict.
    assert (
        list(grammar(page)["tools"]) == ["forecast", "tree"][: 1 if isinstance(choice, dict) else 2]
    )


@pytest.mark.parametrize(
    ("changes", "param", "reported"),
    [
        ({"tool_choice": {"function": {"name": "g"}}}, "tool_choice", "one of the tools"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {"properties": {"a": {"uniqueItems": True}}},
                            "strict": True,
                        },
                    }
                ]
            },
            "tools",
            "uniqueItems",
        ),
        ({"num_beams": 2}, None, "one beam"),
    ],
)
def test_what_is_wrong_with_tools_is_said(
    client: openai.OpenAI, changes: dict[str, Any], param: str | None, reported: str
) -> None:
    asked = {"messages": RAIN, "tools": TOOLS} | changes
    with pytest.raises(openai.BadRequestError, match=reported) as caught:
        client.chat.completions.create(model=MODEL, messages=[], extra_body=asked)
    assert caught.value.param == param


def test_a_model_that_is_not_there_yet_is_loaded_first(
    page: ApiPage, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, tokenizer = page.backend, page.backend.tokenizer

    def once_loaded(model: str) -> Any:
        if model not in backend.loaded:
            raise ModelUnavailable(f"{model} is not loaded yet.")
        return tokenizer(model)

    monkeypatch.setattr(backend, "tokenizer", once_loaded)
    has_called(page)
    model = "openai-community/gpt2"
    [choice] = client.chat.completions.create(model=model, messages=RAIN, tools=TOOLS).choices
    assert choice.finish_reason == "tool_calls"
    assert [asked[1] for asked in backend.asked] == ["a", (Message("user", "Rain?"),)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"tool_choice": []}),
        ("chat/completions", {"tools": [{"type": []}]}),
        ("messages", {"tool_choice": {"type": []}}),
        ("messages", {"tools": [{"type": {}}]}),
        ("messages", {"tools": [{"name": "f", "input_schema": 5}]}),
        ("responses", {"input": [{"type": "function_call"}, {"type": "function_call_output"}]}),
        ("responses", {"input": [{"type": "function_call_output", "output": 5}]}),
        ("responses", {"input": "a", "tools": [{}]}),
        ("responses", {"input": "a", "tool_choice": {"type": "function", "name": 5}}),
    ],
)
def test_malformed_tools_are_refused(page: ApiPage, path: str, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{page.api}/{path}", json={"messages": RAIN, "tools": TOOLS, **body})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"].endswith(".")


# --- /v1/responses --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_calls_a_tool(page: ApiPage, client: openai.OpenAI, is_streamed: bool) -> None:
    has_called(page, "Wait.\n")
    tool: Any = {"type": "function", **FORECAST, "strict": True}
    choice: Any = {"type": "function", "name": "forecast"}
    asked: dict[str, Any] = {"model": MODEL, "input": "Rain?", "tools": [tool]}
    if is_streamed:
        with client.responses.stream(**asked, tool_choice=choice) as stream:
            kinds = [event.type.removeprefix("response.") for event in stream]
            response = stream.get_final_response()
        assert list(dict.fromkeys(kinds[2:])) == [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "completed",
        ]
    else:
        response = client.responses.create(**asked, tool_choice=choice)
    text, call = response.output
    assert (response.status, text.type, response.output_text) == ("completed", "message", "Wait.")
    assert (call.type, call.name, call.arguments) == ("function_call", "forecast", ULM)

    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Yes."}
    item = call.model_dump(exclude={"parsed_arguments"})
    for input, previous in (([*RAIN, item, output], None), ([output], response.id)):
        client.responses.create(
            model=MODEL, input=input, previous_response_id=previous or openai.NOT_GIVEN
        )
        user, said, result = page.backend.asked[-1][1]
        assert user == Message("user", "Rain?")
        assert said.tool_calls == (ToolCall(call.call_id, "forecast", ULM),)
        assert said.content == ("Wait." if previous else "")
        assert result == Message("tool", "Yes.", (), call.call_id)


# --- /v1/messages ---------------------------------------------------------------------------------


def test_a_message_uses_a_tool_and_is_told_the_result(page: ApiPage) -> None:
    has_called(page, "Wait.\n")
    tool = {"name": "forecast", "description": "Rain?", "input_schema": PARAMETERS}
    body: dict[str, Any] = {"messages": RAIN, "tools": [tool], "tool_choice": {"type": "any"}}
    answer = httpx.post(f"{page.api}/messages", json=body).json()
    text, use = answer["content"]
    assert (answer["stop_reason"], text["text"]) == ("tool_use", "Wait.")
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "forecast", {"city": "Ulm"})
    assert not grammar(page)["is_free"]

    streamed = httpx.post(f"{page.api}/messages", json=body | {"stream": True}).text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: ")]
    assert [event["index"] for event in events if "index" in event] == [0, 0, 0, *[1] * 5]
    pieces = [event["delta"].get("partial_json", "") for event in events if "delta" in event]
    assert "".join(pieces) == ULM
    assert events[-2]["delta"]["stop_reason"] == "tool_use"

    result = {
        "type": "tool_result",
        "tool_use_id": use["id"],
        "content": [{"type": "text", "text": "Yes."}],
    }
    talk = [
        *RAIN,
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    for path in ("messages", "messages/count_tokens"):
        assert httpx.post(f"{page.api}/{path}", json=body | {"messages": talk}).is_success
    _, said, told, asked = page.backend.asked[-1][1]
    assert said == Message("assistant", "Wait.", (ToolCall(use["id"], "forecast", ULM),))
    assert (told, asked) == (Message("tool", "Yes.", (), use["id"]), Message("user", "And?"))
