"""What clients of other protocols send: OpenAI's responses, Anthropic's messages, llama.cpp's."""

import asyncio
import gzip
import json
from typing import Any

import httpx
import openai
import pytest

from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import TOKENS_A_WORD, FakeTokenizer
from xla_backend import Message, TokenIds, __version__
from xla_backend.openai_api.body_size import MAX_BODY_BYTES
from xla_backend.openai_api.protocols.responses import MAX_STORED, ResponseStore, Stored

MODEL = "gpt2-stories"
HELLO = [{"role": "user", "content": "Hello you"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
BODY = json.dumps({"messages": HELLO}).encode()
PACKED = gzip.compress(BODY, mtime=0)  # the names of tests must not hold the time


# --- /v1/responses --------------------------------------------------------------------------------


def test_a_response_goes_on_after_another(page: ApiPage, client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="Hello you", instructions="Be brief.")
    assert first.output_text == " there was a"
    assert (first.status, first.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (first.usage.input_tokens, first.usage.output_tokens) == (4 * TOKENS_A_WORD, 3)
    part = {"type": "input_text", "text": "And?"}
    client.responses.create(
        model=MODEL,
        input=[{"role": "user", "content": [part]}],
        previous_response_id=first.id,
        max_output_tokens=7,
        temperature=0,
    )
    (_, prompt, _), (_, longer, options) = page.backend.asked
    said = Message("assistant", " there was a")
    assert prompt == (Message("system", "Be brief."), Message("user", "Hello you"))
    assert longer == (Message("user", "Hello you"), said, Message("user", "And?"))
    assert (options.max_new_tokens, options.temperature) == (7, 0.0)


def test_an_answer_stands_in_the_input_by_its_id(page: ApiPage, client: openai.OpenAI) -> None:
    [item] = client.responses.create(model=MODEL, input="Hello").output
    reference: Any = {"type": "item_reference", "id": item.id}
    for said in (reference, item.model_dump()):
        asked: Any = [*HELLO, said, {"role": "user", "content": "And?"}]
        client.responses.create(model=MODEL, input=asked)
    assert page.backend.asked[1][1] == page.backend.asked[2][1]
    assert page.backend.asked[1][1][1] == Message("assistant", " there was a")
    for who in (item.id, f"other_{item.id}", "", None, 5, {}):
        with pytest.raises(openai.BadRequestError, match="There is no item"):
            other = client.with_options(api_key="another" if who == item.id else "none")
            other.responses.create(model=MODEL, input=[{"type": "item_reference", "id": who}])


def test_a_response_is_its_caller_s_until_it_is_deleted(client: openai.OpenAI) -> None:
    id = client.responses.create(model=MODEL, input="Hello").id
    unstored = client.responses.create(model=MODEL, input="Hello", store=False).id
    assert client.responses.retrieve(id).output_text == " there was a"
    base = str(client.base_url).removesuffix("v1/")
    assert httpx.get(f"{base}responses/{id}", headers={"authorization": "Bearer none"}).is_success
    for who, wanted in ((client.with_options(api_key="another"), id), (client, unstored)):
        with pytest.raises(openai.BadRequestError, match="There is no response"):
            who.responses.create(model=MODEL, input="And?", previous_response_id=wanted)
    client.responses.delete(id)
    for gone in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="There is no response"):
            gone(id)


def test_a_response_is_streamed(client: openai.OpenAI) -> None:
    events = list(
        client.responses.create(
            model=MODEL, input="Hello", stream=True, include=["message.output_text.logprobs"]
        )
    )
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 3,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last: Any = events[-1]
    assert last.response.output_text == " there was a"
    assert last.response.output[0].content[0].logprobs[0].token == " there"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"text": {"format": {"type": "xml"}}}, "response_format"),
        ({"input": 5}, "input"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"required": 5}}}},
            "response_format",
        ),
        ({"background": True}, "background"),
        ({"temperature": "hot"}, "temperature"),
        ({"n": 2}, "n"),
    ],
)
def test_wrong_responses(client: openai.OpenAI, changes: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL, input="Hello", extra_body=changes)
    assert caught.value.param == param


def test_responses_are_stored_within_bounds() -> None:
    store = ResponseStore()
    for number in range(MAX_STORED + 1):
        store.put("me", str(number), Stored("{}", (Message("user", "Hello"),)))
    assert store.get("me", "1")
    for large in (Stored("{}", (Message("user", "x" * 2**24),)), Stored("x" * 2**24, ())):
        store.put("me", "large", large)
        for id in ("0", "1", str(MAX_STORED), "large"):
            with pytest.raises(ValueError, match="There is no response"):
                store.get("me", id)
    store.put("me", "after", Stored("{}", ()))
    assert store.get("me", "after")


# --- /v1/messages ---------------------------------------------------------------------------------


def test_a_message_is_answered_as_anthropic_does(page: ApiPage) -> None:
    body = {
        "model": MODEL,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "max_tokens": 9,
        "stop_sequences": ["End"],
        "top_k": 5,
        "tool_choice": {"type": "none"},
        "tools": [{"name": "f", "input_schema": {}}],
    }
    answer = httpx.post(f"{page.api}/messages", json=body).json()
    assert (answer["type"], answer["role"]) == ("message", "assistant")
    assert answer["content"] == [{"type": "text", "text": " there was a"}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("max_tokens", None)
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (9, 3)
    [(_, prompt, options)] = page.backend.asked
    assert prompt == (Message("system", "Be brief."), Message("user", "Hello"))
    assert (options.max_new_tokens, options.stop, options.top_k) == (9, ("End",), 5)
    for root in (page.api, page.url):
        counted = httpx.post(f"{root}/messages/count_tokens", json=body).json()
        assert counted == {"input_tokens": 9}
        chat = {"messages": [{"role": "system", "content": "Be brief."}, *body["messages"]]}
        counted = httpx.post(f"{root}/chat/completions/input_tokens", json=chat).json()
        assert counted == {"input_tokens": 9}
        asked = {"input": "Hello", "instructions": "Be brief."}
        counted = httpx.post(f"{root}/responses/input_tokens", json=asked).json()
        assert counted == {"object": "response.input_tokens", "input_tokens": 9}


def test_a_message_is_streamed_as_anthropic_does(page: ApiPage) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 9, "stream": True}
    *told, rest = httpx.post(f"{page.api}/messages", json=body).text.split("\n\n")
    assert rest == ""
    events = [json.loads(event.partition("\ndata: ")[2]) for event in told]
    assert [event.partition("\n")[0] for event in told] == [
        f"event: {each['type']}" for each in events
    ]
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["usage"]["input_tokens"] == 2 * TOKENS_A_WORD
    assert events[-2]["usage"]["output_tokens"] == 3


@pytest.mark.parametrize(
    ("changes", "status", "reported"),
    [
        ({"model": "none"}, 404, "There is no model"),
        ({"messages": "Hello"}, 400, "messages must be a list"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "'image' is not"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(
    page: ApiPage, changes: dict[str, Any], status: int, reported: str
) -> None:
    answer = httpx.post(f"{page.api}/messages", json={"messages": HELLO, **changes})
    assert (answer.status_code, answer.json()["type"]) == (status, "error")
    assert reported in answer.json()["error"]["message"]


FORM = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("path", "asked", "more"),
    [
        ("messages", {"messages": HELLO, "output_config": {"format": FORM, "effort": "low"}}, {}),
        (
            "messages",
            {"messages": HELLO, "output_format": FORM, "thinking": {"type": "adaptive"}},
            {},
        ),
        (
            "responses",
            {"input": "a", "text": {"format": FORM | {"name": "a", "strict": True}}},
            {"strict": True},
        ),
    ],
)
def test_an_answer_follows_a_schema(
    page: ApiPage, path: str, asked: dict[str, Any], more: dict[str, Any]
) -> None:
    httpx.post(f"{page.api}/{path}", json=asked).raise_for_status()
    [(_, _, options)] = page.backend.asked
    assert options.to_dict()["grammar"] == {"json_schema": SCHEMA, **more}


# --- both -----------------------------------------------------------------------------------------


def test_fields_of_a_chat_are_taken_too(page: ApiPage) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    chat = {"model": MODEL, "stop": ["End"], "response_format": form}
    logprobs = {"logprobs": True, "top_logprobs": 2}
    httpx.post(f"{page.api}/messages", json={"messages": HELLO, **chat}).raise_for_status()
    asked = {"input": "Hello", **chat, **logprobs}
    answer = httpx.post(f"{page.api}/responses", json=asked).raise_for_status().json()
    assert answer["text"]["format"] == form
    assert len(answer["output"][0]["content"][0]["logprobs"][0]["top_logprobs"]) == 2
    for _, _, options in page.backend.asked:
        assert options.stop == ("End",)
        assert options.to_dict()["grammar"] == {"json_schema": SCHEMA}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"system": "Be brief.", "messages": [{"role": 5, "content": "a"}]}),
        ("responses", {"instructions": "Be brief.", "input": [{"role": 5, "content": "a"}]}),
    ],
)
def test_an_error_names_a_message_s_place(page: ApiPage, path: str, body: dict[str, Any]) -> None:
    error = httpx.post(f"{page.api}/{path}", json=body).json()["error"]
    assert error["message"].startswith("messages.0.role")


@pytest.mark.parametrize(("path", "field"), [("messages", "messages"), ("responses", "input")])
def test_a_stream_that_fails_ends_with_an_event_of_it(page: ApiPage, path: str, field: str) -> None:
    page.backend.hold("end")
    body = {"model": MODEL, field: HELLO, "stream": True}
    with httpx.stream("POST", f"{page.api}/{path}", json=body) as stream:
        page.backend.crash()
        name, data = stream.read().decode().strip().split("\n\n")[-1].split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert (name, told["type"]) == ("event: error", "error")
    assert told["error"]["message"] == "The engine stopped."
    assert path == "messages" or told["message"] == "The engine stopped."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"messages": HELLO, "stream": True}),
        ("messages/count_tokens", {"messages": HELLO}),
        ("responses/input_tokens", {"input": HELLO}),
        ("chat/completions/input_tokens", {"messages": HELLO}),
        ("tokenize", {"content": "Hello"}),
        ("tokenize", {"messages": HELLO}),
        ("detokenize", {"tokens": [0, 1]}),
    ],
)
def test_others_go_on_while_a_prompt_is_tokenized(
    page: ApiPage, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    encode, on_the_loop = FakeTokenizer.encode, []

    def watched(*arguments: Any, **named: Any) -> list[int]:
        try:
            asyncio.get_running_loop()
            on_the_loop.append(True)
        except RuntimeError:
            on_the_loop.append(False)
        return encode(*arguments, **named)

    monkeypatch.setattr(FakeTokenizer, "encode", watched)
    assert httpx.post(f"{page.api}/{path}", json=body).is_success
    assert on_the_loop == [False]
    for stream in page.backend.streams:  # the engine gets the tokens that were counted
        assert len(stream.prepared.token_ids) == 2 * TOKENS_A_WORD


# --- llama.cpp's ----------------------------------------------------------------------------------


def test_tokens_and_server_as_llama_cpp_has_them(page: ApiPage, client: openai.OpenAI) -> None:
    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        return httpx.post(f"{page.url}/{path}", json=body).json()

    assert ask("tokenize", {"content": "Hello"})["tokens"] == [0, 1, 2]
    assert ask("tokenize", {"messages": HELLO})["count"] == 2 * TOKENS_A_WORD
    pieces = ask("tokenize", {"prompt": "Hello", "with_pieces": True})["tokens"]
    assert pieces[1] == {"id": 1, "piece": " was"}
    for wanted, texts in ((True, [" there", " was", " a"]), (False, None)):
        body = {"prompt": "Hello", "return_token_strs": wanted}
        assert ask("tokenize", body)["token_strs"] == texts
    assert ask("detokenize", {"tokens": [0, 1]})["content"] == " there was"
    assert "content is missing" in ask("tokenize", {})["error"]["message"]

    props = httpx.get(f"{page.url}/props").json()
    assert {"default_generation_settings", "total_slots", "chat_template"} <= set(props)
    [listed] = [x for x in httpx.get(f"{page.url}/v1/models").json()["data"] if x["id"] == MODEL]
    assert (props["kernels"], props["device"]) == (listed["kernels"], listed["device"])
    assert (props["kernels"], props["device"]) == ("own", "cpu")
    page.backend.hold("end")
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    page.wait_for(running=1)
    slots = httpx.get(f"{page.url}/slots").json()
    assert [slot["is_processing"] for slot in slots].count(True) == 1
    assert len(slots) == props["total_slots"]
    stream.close()


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("Once", "Once"),
        ([5, 6], TokenIds((5, 6))),
        ([5, "Once", 6], TokenIds((5, 0, 1, 2, 6))),
        ({"prompt_string": "Once"}, "Once"),
    ],
)
def test_llama_cpp_s_own_completions(page: ApiPage, prompt: Any, asked: Any) -> None:
    body = {"prompt": prompt, "n_predict": 5, "n_probs": 2, "return_tokens": True}
    whole = httpx.post(f"{page.url}/completion", json=body).raise_for_status().json()
    assert page.backend.asked[-1][1:3] == (asked, page.backend.asked[-1][2])
    assert page.backend.asked[-1][2].max_new_tokens == 5
    assert (whole["content"], whole["tokens"]) == (" there was a", [0, 1, 2])
    assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 3)
    named = [[top["id"] for top in of["top_logprobs"]] for of in whole["completion_probabilities"]]
    assert [len(ids) for ids in named] == [2] * 3
    assert whole["timings"]["predicted_n"] == 3

    text = httpx.post(f"{page.url}/completion", json=body | {"stream": True}).text
    *events, last = [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-1]]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * 3
    assert {name: last[name] for name in ("stop", "stop_type", "tokens_predicted")} == {
        name: whole[name] for name in ("stop", "stop_type", "tokens_predicted")
    }


def test_several_of_llama_cpp_s_prompts_and_none(page: ApiPage) -> None:
    prompts = ["Once", [5, 6], [5, "Once"], {"prompt_string": "Once"}]
    answers = httpx.post(f"{page.url}/completion", json={"prompt": prompts}).json()
    assert [(each["index"], each["content"]) for each in answers] == [
        (place, " there was a") for place in range(4)
    ]
    for wrong in ([], {}, [None], 5.5, [5, None], {"prompt_string": "a", "multimodal_data": ["b"]}):
        answer = httpx.post(f"{page.url}/completion", json={"prompt": wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt"), wrong


def test_a_hole_is_filled_in(page: ApiPage) -> None:
    body = {"input_prefix": "a", "input_suffix": "b", "prompt": "c", "input_extra": [{"text": "d"}]}
    answer = httpx.post(f"{page.url}/infill", json=body).raise_for_status().json()
    assert page.backend.asked[-1][1] == TokenIds((90, 0, 1, 2, 91, 0, 1, 2, 92, 0, 1, 2))
    assert (answer["content"], answer["ignored_fields"]) == (" there was a", ["input_extra"])


def test_a_server_is_described_as_vllm_does(page: ApiPage) -> None:
    assert httpx.get(f"{page.url}/version").json() == {"version": __version__}
    info = httpx.get(f"{page.url}/tokenizer_info").json()
    assert info["chat_template"] == httpx.get(f"{page.url}/props").json()["chat_template"]
    for model in httpx.get(f"{page.api}/models").json()["data"]:
        assert model["max_model_len"] == model["context_length"]


def test_messages_become_the_text_that_is_read(page: ApiPage) -> None:
    answer = httpx.post(f"{page.url}/apply-template", json={"messages": HELLO})
    assert answer.json() == {"prompt": " there was a there was a"}


# --- ways in --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "headers", "content", "status"),
    [
        ("/v1/chat/completions", {}, BODY, 200),
        ("/v1/chat/completions", {"content-type": "application/x-www-form-urlencoded"}, BODY, 200),
        ("/v1/chat/completions", {"content-encoding": "gzip"}, PACKED, 200),
        ("/v1/chat/completions", {"content-encoding": "gzip"}, PACKED[:40], 400),
        ("/v1/chat/completions", {"content-encoding": "gzip"}, BODY, 400),
        (
            "/v1/chat/completions",
            {"content-encoding": "gzip"},
            gzip.compress(b" " * (MAX_BODY_BYTES + 1), mtime=0),
            413,
        ),
        ("/v1/chat/completions/", {}, BODY, 200),
        ("/chat/completions", {}, BODY, 200),
        ("/v1/embeddings", {}, b"{}", 404),
        ("/v1/conversations", {}, b"{}", 404),
        ("/rerank", {}, b"{}", 404),
    ],
)
def test_a_request_finds_its_way(
    page: ApiPage, path: str, headers: dict[str, str], content: bytes, status: int
) -> None:
    answer = httpx.post(f"{page.url}{path}", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["x-request-id"]
    assert status == 200 or answer.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/", "/models", "/models/gpt2-stories"])
def test_models_are_found_in_every_way(page: ApiPage, path: str) -> None:
    whole, head = httpx.get(f"{page.url}{path}"), httpx.head(f"{page.url}{path}")
    assert (whole.status_code, head.status_code, head.content) == (200, 200, b"")
    assert httpx.get(f"{page.url}/models/none").json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (None, MODEL),
        ("", MODEL),
        ("gpt2", "openai-community/gpt2"),
        ("OpenAI-Community/GPT2", "openai-community/gpt2"),
        ("somebody/gpt2-stories", MODEL),
        ("somebody/gpt2", None),
    ],
)
def test_a_model_is_meant_by_its_short_name_its_full_one_or_none(
    page: ApiPage, name: str | None, meant: str | None
) -> None:
    answer = httpx.post(f"{page.api}/completions", json={"model": name, "prompt": "Once"})
    assert answer.json().get("model") == meant
    assert answer.status_code == (404 if meant is None else 200)
