"""Thoughts at `/v1`, asked by OpenAI's client and as Anthropic's asks; the engine is made up."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import FakeTokenizer
from xla_backend import Message
from xla_backend.answers.tool_format import CHANNELS
from xla_backend.interface.prompt import ToolCall

MODEL = "gpt2-stories"
RAIN = [{"role": "user", "content": "Rain?"}]
FORECAST = {
    "name": "forecast",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS: Any = [{"type": "function", "function": FORECAST}]
ULM = '{"city": "Ulm"}'
CALL = CHANNELS.write(ToolCall("", "forecast", ULM))
QWEN = "<think>\nIs it\n\nwet? </thin\n</think>\n\nNo </think> <b>."


@pytest.fixture(autouse=True, params=[1, 7, 999])
def says(
    page: ApiPage, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Sets what the engine says next, a few characters at a time; its model answers in channels."""
    monkeypatch.setattr(FakeTokenizer, "tool_format", CHANNELS)

    def set_to(text: str) -> None:
        size = request.param
        page.backend.words = tuple(text[at : at + size] for at in range(0, len(text), size))

    yield set_to


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("text", "thoughts", "content", "calls"),
    [
        (QWEN, "Is it\n\nwet? </thin", "No </think> <b>.", 0),
        ("<think>\n\n</think>\n\nNo.", None, "No.", 0),
        ("<think>Hm</think>No <think>.", "Hm", "No <think>.", 0),
        ("No <think>a</think>.", None, "No <think>a</think>.", 0),
        ("<thing>", None, "<thing>", 0),
        ("<think>It may", "It may", None, 0),
        ("<think>", None, None, 0),
        (f"<think>Hm</think>{CALL}", "Hm", None, 1),
        (f"<think>Hm</think>I look.{CALL}", "Hm", "I look.", 1),
        (f"<think>{CALL}</think>No.", CALL, "No.", 0),
        (CALL, None, None, 1),
    ],
)
def test_thoughts_are_apart_from_the_answer(
    page: ApiPage,
    client: openai.OpenAI,
    says: Any,
    text: str,
    thoughts: str | None,
    content: str | None,
    calls: int,
    is_streamed: bool,
) -> None:
    says(text)
    asked: dict[str, Any] = {"model": MODEL, "messages": RAIN, "tools": TOOLS}
    message: dict[str, Any] = {"role": "assistant"}
    if is_streamed:
        for event in client.chat.completions.create(**asked, stream=True):
            [choice] = event.choices
            delta = choice.delta.model_dump(exclude_unset=True)
            for name in delta.keys() & {"content", "reasoning_content"}:
                message[name] = message.get(name, "") + (delta[name] or "")
            for call in delta.get("tool_calls", ()):
                known = message.setdefault("tool_calls", [call])[call["index"]]
                if call is not known:
                    known["function"]["arguments"] += call["function"]["arguments"]
            finish = choice.finish_reason
    else:
        [whole] = client.chat.completions.create(**asked).choices
        message, finish = whole.message.model_dump(exclude={"refusal"}), whole.finish_reason
    told = message.get("tool_calls") or []
    assert message.get("reasoning_content") == thoughts
    assert (message["content"] or None, len(told)) == (content, calls)
    assert [call["function"]["arguments"] for call in told] == [ULM] * calls
    assert finish == ("tool_calls" if calls else "length")

    again: Any = [*RAIN, message, *RAIN]
    client.chat.completions.create(model=MODEL, messages=again)
    [_, said, _] = page.backend.asked[-1][1]
    assert (said.content, said.thoughts) == (content or "", thoughts or "")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_their_tokens_are_counted(
    page: ApiPage, client: openai.OpenAI, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page.backend, "thought_tokens", 2)
    if is_streamed:
        *_, last = client.chat.completions.create(
            model=MODEL, messages=RAIN, n=2, stream=True, stream_options={"include_usage": True}
        )
        usage = last.usage
    else:
        usage = client.chat.completions.create(model=MODEL, messages=RAIN, n=2).usage
    assert usage is not None and usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 4
    told = client.responses.create(model=MODEL, input="Rain?").usage
    assert told is not None
    assert told.output_tokens_details.reasoning_tokens == 2


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_has_them_as_an_item(
    page: ApiPage, client: openai.OpenAI, says: Any, is_streamed: bool
) -> None:
    says(f"<think>Hm</think>{CALL}")
    tool: Any = {"type": "function", **FORECAST}
    asked: dict[str, Any] = {"model": MODEL, "input": "Rain?", "tools": [tool]}
    if is_streamed:
        with client.responses.stream(**asked) as stream:
            kinds = [event.type.removeprefix("response.") for event in stream]
            response = stream.get_final_response()
        assert (
            list(dict.fromkeys(kinds[2:7]))
            == [
                "output_item.added",
                "content_part.added",
                "reasoning_text.delta",
                "reasoning_text.done",
                "content_part.done",
            ][: len(set(kinds[2:7]))]
        )
    else:
        response = client.responses.create(**asked)
    thought, call = response.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "Hm")
    assert (call.type, call.arguments) == ("function_call", ULM)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Yes."}
    items = [item.model_dump(exclude={"parsed_arguments"}) for item in response.output]
    for input, previous in (([*RAIN, *items, output], None), ([output], response.id)):
        client.responses.create(
            model=MODEL, input=input, previous_response_id=previous or openai.NOT_GIVEN
        )
        _, said, _ = page.backend.asked[-1][1]
        calls = (ToolCall(call.call_id, "forecast", ULM),)
        assert said == Message("assistant", "", calls, thoughts="Hm")

    says("<think>Hm</think>No.")
    response = client.responses.create(model=MODEL, input="Rain?")
    assert response.output_text == "No."
    items = [item.model_dump() for item in response.output]
    client.responses.create(model=MODEL, input=[*RAIN, *items, *RAIN])
    assert page.backend.asked[-1][1][1] == Message("assistant", "No.", thoughts="Hm")


def test_a_message_has_them_as_a_block(page: ApiPage, says: Any) -> None:
    says("<think>Hm</think>No.")
    body: dict[str, Any] = {"messages": RAIN}
    answer = httpx.post(f"{page.api}/messages", json=body).json()
    thinking, text = answer["content"]
    assert (thinking["type"], thinking["thinking"], text["text"]) == ("thinking", "Hm", "No.")
    streamed = httpx.post(f"{page.api}/messages", json=body | {"stream": True}).text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: ")]
    blocks = [event["content_block"] for event in events if "content_block" in event]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    deltas = [event["delta"] for event in events if "index" in event and "delta" in event]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Hm"
    assert "".join(delta.get("text", "") for delta in deltas) == "No."
    talk = [*RAIN, {"role": "assistant", "content": answer["content"]}, *RAIN]
    assert httpx.post(f"{page.api}/messages", json={"messages": talk}).is_success
    assert page.backend.asked[-1][1][1] == Message("assistant", "No.", thoughts="Hm")


def test_how_much_to_think_is_a_variable_of_the_template(
    client: openai.OpenAI, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    says("No.")
    told: list[Any] = []
    monkeypatch.setattr(
        FakeTokenizer, "encode", lambda *_, template, **__: told.append(dict(template)) or [1, 2]
    )
    extra = {"chat_template_kwargs": {"reasoning_effort": "max", "topic": "a"}}
    client.chat.completions.create(model=MODEL, messages=RAIN, reasoning_effort="low")
    client.chat.completions.create(
        model=MODEL, messages=RAIN, reasoning_effort="low", extra_body=extra
    )
    client.responses.create(model=MODEL, input="Rain?", reasoning={"effort": "high"})
    assert told == [
        {"reasoning_effort": "low"},
        {"reasoning_effort": "max", "topic": "a"},
        {"reasoning_effort": "high"},
    ]


def test_a_begun_answer_in_channels_calls_no_tools(client: openai.OpenAI) -> None:
    begun: Any = [*RAIN, {"role": "assistant", "content": "It"}]
    with pytest.raises(openai.BadRequestError, match="leave out the tools") as caught:
        client.chat.completions.create(model=MODEL, messages=begun, tools=TOOLS)
    assert caught.value.param == "tools"


def test_thoughts_may_be_left_out(says: Any, client: openai.OpenAI) -> None:
    says("<think>Hm</think>No.")
    asked: dict[str, Any] = {"model": MODEL, "messages": RAIN}
    asked["extra_body"] = {"include_reasoning": False}
    [choice] = client.chat.completions.create(**asked).choices
    assert (choice.message.content, choice.message.model_extra) == ("No.", {})
    deltas = [e.choices[0].delta for e in client.chat.completions.create(**asked, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == "No."
    assert not any(delta.model_extra for delta in deltas)
