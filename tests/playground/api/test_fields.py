"""Fields of other programs at `/v1`: none is dropped in silence."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import TOKENS_A_WORD
from xla_backend.openai_api.fields import MEANINGS, REFUSED, WITHOUT_EFFECT

HELLO: Any = [{"role": "user", "content": "Hello you"}]
DOCS = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def post(page: ApiPage, path: str = "chat/completions", **fields: Any) -> dict[str, Any]:
    body = {"messages": HELLO, "prompt": "Once", "input": "Hello", **fields}
    del body["prompt" if path != "completions" else "messages"]
    if path != "responses":
        del body["input"]
    return httpx.post(f"{page.api}/{path}", json=body).json()


def test_every_known_name_is_in_the_docs() -> None:
    known = {*MEANINGS, *REFUSED, *WITHOUT_EFFECT}
    assert [name for name in sorted(known) if f"`{name}`" not in DOCS] == []


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"n_predict": 5}, {"max_new_tokens": 5}),
        ({"n_predict": "5", "temperature": "0.5"}, {"max_new_tokens": 5, "temperature": 0.5}),
        ({"num_predict": 5.0}, {"max_new_tokens": 5}),
        ({"max_new_tokens": 5, "max_tokens": 4}, {"max_new_tokens": 4}),
        ({"options": {"num_predict": 5, "min_p": 0.5}}, {"max_new_tokens": 5, "min_p": 0.5}),
        ({"repeat_penalty": 1.5}, {"repetition_penalty": 1.5}),
        ({"do_sample": False}, {"temperature": 0.0}),
        ({"regex": "a+"}, {"grammar": {"regex": "a+"}}),
        ({"ebnf": 'root ::= "a"'}, {"grammar": {"gbnf": 'root ::= "a"'}}),
        ({"json_schema": '{"type": "null"}'}, {"grammar": {"json_schema": {"type": "null"}}}),
        ({"no_stop_trim": True}, {"include_stop_str_in_output": True}),
        ({"logit_bias": {"5": False}}, {"logit_bias": {"5": -100.0}}),
        ({"format": "json"}, {"grammar": {"json_object": True}}),
        ({"format": {"type": "null"}}, {"grammar": {"json_schema": {"type": "null"}}}),
        ({"seed": 7.0, "stop_token_ids": [5.0]}, {"seed": 7, "stop_token_ids": [5]}),
    ],
)
def test_other_names_mean_the_same(
    page: ApiPage, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    answer = post(page, **fields)
    assert "ignored_fields" not in answer
    asked = page.backend.asked[-1][2].to_dict()
    assert {name: asked[name] for name in options} == options


def test_bad_words_are_sequences_of_tokens_with_and_without_a_space_before_them(
    page: ApiPage,
) -> None:
    assert "choices" in post(page, bad_words=["no", " way"], allowed_token_ids=[7, 5, 5])
    tokenizer = page.backend.tokenizer("gpt2-stories")
    banned = [tokenizer.encode(text, special=False) for text in ("no", " no", " way", " way")]
    asked = page.backend.asked[-1][2].grammar
    assert asked is not None
    assert asked.to_dict() == {"tokens": {"allowed": [5, 7], "banned": banned}}


def test_thinking_is_a_variable_of_the_template(page: ApiPage) -> None:
    assert "choices" in post(page, think=False)
    assert page.backend.streams[-1].request.template == {"enable_thinking": False}


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in ("tools", "tool_choice")])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_what_would_change_an_answer_is_refused_by_name(
    page: ApiPage, path: str, name: str
) -> None:
    if name in ("chat_template", "system"):  # of chats; of Anthropic's
        path = "completions"
    if name == "prompt_logprobs" and path == "chat/completions":  # which have them
        path = "messages"
    answer = post(page, path, **{name: 7, "repetition_penalty": 1.1})
    assert (answer["error"]["param"], name in answer["error"]["message"]) == (name, True)
    assert not post(page, path, **{name: REFUSED[name][-1]}).get("error")


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages"])
def test_what_is_not_understood_is_listed_in_the_answer(page: ApiPage, path: str) -> None:
    odd = {"no_such_field": 1, "timings_per_token": True, "another": False, "metadata": {"a": "b"}}
    told = ["no_such_field", "timings_per_token", "another"]
    assert post(page, path, **odd, nothing=[])["ignored_fields"] == told
    assert "ignored_fields" not in post(page, path)
    many = post(page, path, **{f"field{place}": 1 for place in range(500)})
    assert len(many["ignored_fields"]) == 20


def test_streams_list_it_too(client: openai.OpenAI) -> None:
    odd = {"stream_options": {"include_usage": True, "no_such_option": True}, "odd": 1}
    asked: dict[str, Any] = {"model": "gpt2-stories", "messages": HELLO, "stream": True}
    events = list(client.chat.completions.create(**asked, extra_body=odd))
    told = [getattr(event, "ignored_fields", None) for event in events]
    assert [each for each in told if each] == [["odd", "stream_options.no_such_option"]]


def events(page: ApiPage, path: str, **fields: Any) -> list[dict[str, Any]]:
    prompt = {"messages": HELLO} if "chat" in path else {"prompt": "Hello you"}
    text = httpx.post(f"{page.api}/{path}", json={**prompt, "stream": True, **fields}).text
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_tokens_come_with_their_ids(page: ApiPage, path: str) -> None:
    fields = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": True}
    whole, parts = post(page, path, **fields, prompt="Hello you"), events(page, path, **fields)
    prompt = page.backend.streams[0].prepared.token_ids
    holds_prompt = whole if "chat" in path else whole["choices"][0]
    assert holds_prompt["prompt_token_ids"] == list(prompt)
    holders = [event if "chat" in path else event["choices"][0] for event in parts]
    assert [h["prompt_token_ids"] for h in holders if "prompt_token_ids" in h] == [list(prompt)]
    ids = whole["choices"][0]["token_ids"]
    assert len(ids) == 3
    assert [id for event in parts for id in event["choices"][0].get("token_ids", ())] == ids
    told = whole["choices"][0]["logprobs"]
    names = told["tokens"] if "tokens" in told else [each["token"] for each in told["content"]]
    assert names == [f"token_id:{id}" for id in ids]
    [choice] = post(page, path)["choices"]
    assert not any(map(choice.get, ("token_ids", "prompt_token_ids")))
    for other in ("responses", "messages"):
        refused = post(page, other, return_token_ids=True)["error"]
        assert refused["param"] == "return_token_ids"


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_every_event_may_have_its_usage(page: ApiPage, path: str) -> None:
    def counted(with_usage: bool) -> list[dict[str, Any]]:
        options = {"include_usage": with_usage, "continuous_usage_stats": True}
        return events(page, path, stream_options=options)

    usages = [event["usage"] for event in counted(with_usage=True)]
    counts = [usage["completion_tokens"] for usage in usages]
    first = [0] if "chat" in path else []  # the event with the role
    assert (counts[: len(first) + 3], counts[-1]) == ([*first, 1, 2, 3], 3)
    assert {usage["prompt_tokens"] for usage in usages} == {2 * TOKENS_A_WORD}
    assert not any("usage" in event for event in counted(with_usage=False))


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("chat/completions", {"type": "web_search"}),
        ("responses", {"type": "web_search"}),
        ("responses", {"type": "custom", "name": "f"}),
        ("messages", {"type": "bash_20250124", "name": "bash"}),
    ],
)
def test_tools_that_are_no_functions_are_left_out(
    page: ApiPage, path: str, tool: dict[str, Any]
) -> None:
    answer = post(page, path, tools=[tool])
    assert answer["ignored_fields"] == [f"tools.0 ({tool['type']})"]
    assert page.backend.asked[-1][2].grammar is None


def test_other_endpoints_list_it_too(page: ApiPage) -> None:
    odd = {"no_such_field": 1}
    for path, body in (
        ("tokenize", {"content": "a"}),
        ("detokenize", {"tokens": [1]}),
        ("decide", {"state": "a", "questions": {"a": {"type": "yes_no", "instructions": "b"}}}),
    ):
        answer = httpx.post(f"{page.api}/{path}", json={**body, **odd}).json()
        assert answer["ignored_fields"] == ["no_such_field"]


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("POST", "/v1/complete", "/v1/completion may be meant"),
        ("POST", "/v1/v1/chat/completions", "/v1/chat/completions may be meant"),
        ("POST", "/api/chat", "/v1/chat/completions may be meant"),
        ("GET", "/api/tags", "/v1/models may be meant"),
        ("POST", "/api/v0/chat/completions", "/v1/chat/completions may be meant"),
        ("POST", "/v1/engines/gpt2/completions", "/v1/completions may be meant"),
        ("POST", "/V1/Chat/Completions", "/v1/chat/completions may be meant"),
        ("POST", "/audio/transcriptions", "/v1/audio/transcriptions may be meant"),
        ("POST", "/anthropic/v1/messages", "/v1/messages may be meant"),
        ("GET", "/healthz", "/health may be meant"),
        ("GET", "/no/such/place", "/v1/models lists the models"),
        ("GET", "/v1", "/v1/models lists the models"),
        ("POST", "/v1/", "/v1/models lists the models"),
        ("POST", "/api/pull", "not loaded by this address"),
        ("POST", "/reranking", "Embeddings and reranking are not offered"),
        ("POST", "/v1/chat", "/v1/chat/completions may be meant"),
        ("GET", "/v1/none", "/v1/models lists the models"),
        ("POST", "/v1/responses/compact", "not compacted"),
        ("POST", "/v1/responses/resp_1/cancel", "close the connection"),
        ("GET", "/v1/chat/completions", "takes POST, not GET"),
    ],
)
def test_an_unknown_address_names_the_right_one(
    page: ApiPage, method: str, path: str, named: str
) -> None:
    answer = httpx.request(method, f"{page.url}{path}", json=None if method == "GET" else {})
    assert answer.status_code == (405 if "takes" in named else 404)
    assert named in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "content", "reported"),
    [
        ({"content-type": "multipart/form-data"}, b"x", "multipart/form-data with a boundary"),
        ({"content-type": "multipart/form-data; boundary=a"}, b"--a--\r\n", "file is missing"),
        ({"content-type": "application/json"}, b"{}", "file is missing"),
        (
            {"content-type": "multipart/form-data; boundary=a"},
            b'--a\r\ncontent-disposition: form-data; name="file"\r\n\r\nx\r\n--a--\r\n',
            "an uploaded file that has a name",
        ),
    ],
)
def test_a_broken_form_is_not_told_to_send_json(
    page: ApiPage, headers: dict[str, str], content: bytes, reported: str
) -> None:
    url = f"{page.api}/audio/transcriptions"
    answer = httpx.post(url, headers=headers, content=content)
    assert answer.status_code == 400
    assert reported in answer.json()["error"]["message"]
    assert "JSON" not in answer.text
