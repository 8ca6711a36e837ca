"""Every answer of `/v1` as the types of OpenAI's own client have it, streamed too."""

import json
from typing import Any

import httpx
import pytest
from openai.types import Completion, Decision, Model
from openai.types.audio import Transcription, TranscriptionVerbose
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.responses.response_usage import ResponseUsage
from pydantic import TypeAdapter

from playground.tabs.speech.examples import FOLDER
from tests.playground.api_page import ApiPage
from xla_backend.answers.tool_format import GENERIC
from xla_backend.interface.prompt import ToolCall

ASKED: dict[str, Any] = {"role": "user", "content": "Rain?"}
CALL = GENERIC.write(ToolCall("", "forecast", '{"city": "Ulm"}'))
TEXTS = ("", "It rains.", f"<think>\nHm.\n</think>\n\nWait.\n{CALL}", CALL, CALL[:-20], "<think>Hm")
FORECAST = {"name": "forecast", "parameters": {"type": "object"}}
QUESTIONS = [
    {"type": "predicate", "instructions": "Is it?"},
    {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": True}]},
    {"type": "score", "instructions": "How?", "levels": [{"label": "a"}, {"label": "b"}]},
]


def check(kind: Any, values: Any) -> None:
    """Whether values have every field of a type, of the right type."""
    TypeAdapter(kind).validate_json(json.dumps(values), strict=True)


def post(page: ApiPage, path: str, body: dict[str, Any]) -> Any:
    return httpx.post(f"{page.api}/{path}", json=body).raise_for_status().json()


def events(page: ApiPage, path: str, body: dict[str, Any]) -> list[Any]:
    body = {**body, "stream": True}
    text = httpx.post(f"{page.api}/{path}", json=body).raise_for_status().text
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


@pytest.mark.parametrize("text", TEXTS)
def test_texts(page: ApiPage, text: str) -> None:
    page.backend.words = tuple(text[at : at + 5] for at in range(0, len(text), 5))
    page.backend.thought_tokens = len(("<think>" in text and page.backend.words[:2]) or "")
    chat = {
        "messages": [ASKED],
        "tools": [{"type": "function", "function": FORECAST}],
        **{"logprobs": True, "top_logprobs": 2, "n": 2},
    }
    check(ChatCompletion, post(page, "chat/completions", chat))
    with_usage = chat | {"stream_options": {"include_usage": True}}
    for event in events(page, "chat/completions", with_usage):
        check(ChatCompletionChunk, event)
    completion = {"prompt": "Rain?", "logprobs": 2, "n": 2, "echo": False}
    check(Completion, post(page, "completions", completion))
    for event in events(page, "completions", completion):
        # The type has no end that is not reached yet, which OpenAI's own events have, too.
        [choice] = event["choices"]
        check(Completion, event | {"choices": [choice | {"finish_reason": "stop"}]})
    response = {
        "input": [ASKED],
        "tools": [{"type": "function", **FORECAST, "strict": False}],
        "include": ["message.output_text.logprobs"],
    }
    check(Response, post(page, "responses", response))
    for event in events(page, "responses", response):
        check(ResponseStreamEvent, event)


def test_what_is_no_text(page: ApiPage) -> None:
    models = httpx.get(f"{page.api}/models").json()
    check(list[Model], models["data"])
    decided = post(page, "decisions", {"input": "a", "questions": QUESTIONS})
    check(Decision, decided)
    counted = post(page, "responses/input_tokens", {"input": "a b"})
    check(InputTokenCountResponse, counted)
    stored = post(page, "responses", {"input": "a"})
    again = httpx.get(f"{page.api}/responses/{stored['id']}").json()
    check(Response, again)
    check(ResponseUsage, again["usage"])
    for form, kind in (("json", Transcription), ("verbose_json", TranscriptionVerbose)):
        files = {"file": ("a.flac", (FOLDER / "command-1.flac").read_bytes())}
        data = {"response_format": form, "model": "openai/whisper-tiny"}
        answer = httpx.post(f"{page.api}/audio/transcriptions", files=files, data=data)
        check(kind, answer.raise_for_status().json())
