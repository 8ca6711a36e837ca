"""OpenAI's protocol at `/v1`, asked by OpenAI's own client; the engine is made up."""

import asyncio
import dataclasses
import io
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi import UploadFile
from gradio_client import Client
from openai.types.audio import TranscriptionVerbose

from playground.context.limits import Limits
from playground.tabs.speech.examples import FOLDER
from tests.playground.api_page import ApiPage, api_page
from tests.playground.fake_backend import MODELS, TOKENS_A_WORD
from tests.waiting import wait_until
from xla_backend import EngineStopped, Grammar, Message, ModelUnavailable, OutOfMemory, TokenIds
from xla_backend.grammar import grammars
from xla_backend.interface.request_queue import AT_ONCE
from xla_backend.openai_api.protocols.transcription import saved

MODEL = "gpt2-stories"
HELLO = [{"role": "user", "content": "Hello you"}]
RECORDING = FOLDER / "command-1.flac"
CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 16}


# --- answers --------------------------------------------------------------------------------------


def test_models_are_those_of_the_page_and_others_are_not_found(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {info.name for info in MODELS}
    one = client.models.retrieve("openai-community/gpt2")
    assert (one.id, one.object, one.owned_by) == ("openai-community/gpt2", "model", "hub")
    with pytest.raises(openai.NotFoundError, match="There is no model 'none'"):
        client.models.retrieve("none")

    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**{**CHAT, "model": "none"})
    error: Any = caught.value.body
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_a_chat_is_answered_and_counted(page: ApiPage, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**CHAT)
    [choice] = answer.choices
    assert choice.message.content == " there was a"
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens == 3
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert answer.system_fingerprint.startswith("fp_")
    assert answer.object == "chat.completion"
    assert 1.7e9 < answer.created <= time.time()
    [(model, prompt, options)] = page.backend.asked
    assert (model, prompt) == (MODEL, (Message("user", "Hello you"),))
    assert (options.temperature, options.top_p, options.top_k) == (1.0, 1.0, 0)
    assert not options.exact_key


def test_a_salt_is_its_sender_s_alone(page: ApiPage, client: openai.OpenAI) -> None:
    other = client.with_options(api_key="another")
    for asking in (client, client, other):
        asking.chat.completions.create(**CHAT, extra_body={"cache_salt": "secret"})
    client.chat.completions.create(**CHAT, extra_body={"cache_salt": "secret2"})
    client.chat.completions.create(**CHAT, extra_body={"prompt_cache_key": "secret"})
    client.chat.completions.create(**CHAT)
    one, again, of_other, different, none, also_none = (
        each.request.cache_salt for each in page.backend.streams
    )
    assert (one, none) == (again, also_none)
    assert len({one, of_other, different, none, "secret", ""}) == 6


def test_timings_are_llama_cpp_s_and_the_engine_s(client: openai.OpenAI) -> None:
    first, again = (client.chat.completions.create(**CHAT).timings for _ in range(2))
    assert (first["cache"], again["cache"]) == ("miss", "hit")
    assert (first["trace_ms"], first["compile_ms"]) == (1000.0, 2000.0)
    assert (again["prompt_ms"], again["predicted_n"], again["predicted_ms"]) == (20.0, 3, 80.0)
    assert again["prompt_per_second"] == pytest.approx(again["prompt_n"] / 0.02)
    assert again["predicted_per_second"] == pytest.approx(1000 / again["tpot_ms"])
    assert again["cache_n"] == 0
    assert again["key"] == {"padded_length": 16, "num_beams": 1, "max_new_tokens": 16}
    assert again["ttft_ms"] == pytest.approx(again["total_ms"] - 80.0)
    assert again["tpot_ms"] == pytest.approx(40.0)
    assert again["queue_ms"] >= 0


def test_every_option_reaches_the_engine(page: ApiPage, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
            },
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": "Go on"},
        ],
        max_tokens=99,
        max_completion_tokens=12,
        temperature=0.5,
        top_p=0.9,
        stop=["\n", "End"],
        seed=7,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={"5": -100},
        user="somebody",
        response_format={"type": "text"},
        tools=[],
        extra_body={
            "top_k": 20,
            "min_p": 0.1,
            "repetition_penalty": 1.2,
            "num_beams": 2,
            "length_penalty": 0.8,
            "exact_key": True,
            "no_such_field": {"any": "thing"},
        },
    )
    [(_, prompt, options)] = page.backend.asked
    assert prompt == (
        Message("system", "Be brief."),
        Message("user", "Hello"),
        Message("assistant", "Yes?"),
        Message("user", "Go on"),
    )
    assert options.to_dict() | {"early_stopping": None} == {
        "max_new_tokens": 12,
        "num_beams": 2,
        "temperature": 0.5,
        "top_k": 20,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"5": -100.0},
        "length_penalty": 0.8,
        "early_stopping": None,
        "seed": 7,
        "stop": ["\n", "End"],
        "stop_token_ids": [],
        "include_stop_str_in_output": False,
        "min_new_tokens": 0,
        "ignore_eos": False,
        "prompt_lookup_num_tokens": 0,
        "grammar": None,
        "exact_key": True,
    }


def test_vllm_s_and_llama_cpp_s_fields_are_taken(page: ApiPage, client: openai.OpenAI) -> None:
    ends = {"stop_token_ids": [7, 5], "ignore_eos": True, "include_stop_str_in_output": True}
    more = {"min_tokens": 3, "chat_template_kwargs": {"enable_thinking": False}}
    asked: dict[str, Any] = {**CHAT, "extra_body": {**ends, **more, "return_progress": True}}
    events = list(client.chat.completions.create(**asked, stream=True))
    [stream] = page.backend.streams
    options = stream.request.options
    assert (options.stop_token_ids, options.min_new_tokens) == ((5, 7), 3)
    assert options.ignore_eos
    assert options.include_stop_str_in_output
    assert stream.prepared.token_ids, "the template was told"
    told = {"total": 9, "cache": 2, "processed": 5, "time_ms": 250.0}
    assert [x for each in events if (x := getattr(each, "prompt_progress", None))] == [told]


def test_prompt_lookup_is_asked_for_and_told(page: ApiPage, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="Once", extra_body={"prompt_lookup_num_tokens": 3}
    )
    [(_, _, options)] = page.backend.asked
    assert options.prompt_lookup_num_tokens == 3
    assert answer.timings["tokens_per_pass"] is None  # the engine without a model makes no passes
    with pytest.raises(openai.BadRequestError, match="one beam, not with 2"):
        client.completions.create(
            model=MODEL, prompt="Once", extra_body={"prompt_lookup_num_tokens": 3, "num_beams": 2}
        )
    with pytest.raises(openai.BadRequestError, match="prompt_lookup_num_tokens"):
        client.completions.create(
            model=MODEL, prompt="Once", extra_body={"prompt_lookup_num_tokens": 8}
        )


def test_without_options_openai_s_defaults_hold(page: ApiPage, client: openai.OpenAI) -> None:
    client.completions.create(model=MODEL, prompt="Once")
    client.completions.create(model=MODEL, prompt="Once")
    client.completions.create(model=MODEL, prompt="Once", extra_body={"num_beams": 2})
    one, other, beams = (options for _, _, options in page.backend.asked)
    assert (one.max_new_tokens, one.temperature, one.top_p, one.top_k) == (16, 1.0, 1.0, 0)
    assert one.seed != other.seed
    assert beams.temperature == 0.0

    answer = client.completions.create(model=MODEL, prompt=["Once"] * 20)
    assert len(answer.choices) == 20


def test_a_model_is_sampled_as_its_makers_say(page: ApiPage, client: openai.OpenAI) -> None:
    sampling = {"temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.1}
    page.backend.known = [dataclasses.replace(MODELS[0], sampling=sampling)]
    client.completions.create(model=MODEL, prompt="Once")
    client.completions.create(model=MODEL, prompt="Once", temperature=0.7, top_p=1)
    client.completions.create(model=MODEL, prompt="Once", extra_body={"num_beams": 2})
    asked = [
        (options.temperature, options.top_p, options.repetition_penalty)
        for _, _, options in page.backend.asked
    ]
    assert asked == [(0.2, 0.9, 1.1), (0.7, 1.0, 1.1), (0.0, 1.0, 1.0)]
    response = client.responses.create(model=MODEL, input="Hello")
    assert (response.temperature, response.top_p) == (0.2, 0.9)
    assert client.models.retrieve(MODEL).sampling == sampling
    params = httpx.get(f"{page.url}/props").json()["default_generation_settings"]["params"]
    assert params | sampling == params


def test_folders_have_names_and_their_paths_stay_here(page: ApiPage, client: openai.OpenAI) -> None:
    folders = ("/srv/a/my-model", "/srv/b/my-model", "/srv/gpt2-stories", "/srv/other")
    page.backend.known = [
        *MODELS,
        *(dataclasses.replace(MODELS[0], name=name, source="folder") for name in folders),
    ]
    known = {info.name for info in MODELS}
    names = [model.id for model in client.models.list() if model.id not in known]
    assert names == ["a/my-model", "b/my-model", "srv/gpt2-stories", "other"]
    for name, folder in zip(names, folders, strict=True):
        answers: list[Any] = [
            client.models.retrieve(name),
            client.completions.create(model=name, prompt="Once"),
            client.chat.completions.create(model=name, messages=HELLO),
            client.responses.create(model=name, input="Hello"),
            *client.completions.create(model=name, prompt="Once", stream=True),
        ]
        assert {each.model_dump_json().count("/srv") for each in answers} == {0}
        assert answers[1].model == name
        assert page.backend.asked[-1][0] == folder
    page.backend.errors["Once"] = ModelUnavailable("/srv/a/my-model is damaged.")
    with pytest.raises(openai.NotFoundError, match=" a/my-model is damaged"):
        client.completions.create(model="a/my-model", prompt="Once")


def test_several_texts_have_seeds_of_their_own(page: ApiPage, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=["Once upon", "One"], n=3, seed=2**31 - 2, max_tokens=16
    )
    assert [choice.index for choice in answer.choices] == list(range(6))
    asked = sorted((prompt, options.seed) for _, prompt, options in page.backend.asked)
    seeds = (0, 2**31 - 2, 2**31 - 1)
    assert asked == [(prompt, seed) for prompt in ("Once upon", "One") for seed in seeds]
    # A prompt counts once, however often it is run.
    assert answer.usage.prompt_tokens == 3 * TOKENS_A_WORD
    assert answer.usage.completion_tokens == 6 * 3


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ([5.0, 6.0], [TokenIds((5, 6))]),
        ("Once", ["Once"]),
        (["Once"], ["Once"]),
        ([5, 6], [TokenIds((5, 6))]),
        ([[5, 6], [7]], [TokenIds((5, 6)), TokenIds((7,))]),
    ],
)
def test_a_prompt_is_text_or_token_ids(
    page: ApiPage, client: openai.OpenAI, prompt: Any, asked: list[Any]
) -> None:
    client.completions.create(model=MODEL, prompt=prompt)
    assert {str(each) for _, each, _ in page.backend.asked} == {str(each) for each in asked}


def test_logprobs_come_in_the_form_of_each_address(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert [token.token for token in tokens] == [" there", " was", " a"]
    assert bytes(tokens[0].bytes) == b" there"
    assert tokens[0].logprob == -0.5

    [choice] = client.completions.create(model=MODEL, prompt="Once", logprobs=2).choices
    assert choice.logprobs.tokens == [" there", " was", " a"]
    assert choice.logprobs.text_offset == [0, 6, 10]
    assert choice.logprobs.token_logprobs == [-0.5] * 3
    assert len(choice.logprobs.top_logprobs) == 3


@pytest.mark.parametrize(("max_tokens", "top"), [(0, 1), (16, 1), (16, 0)])
def test_a_prompt_has_logprobs_in_every_form(
    client: openai.OpenAI, max_tokens: int, top: int
) -> None:
    """`max_tokens` 0 writes nothing; with the prompt, the token that ends a text is there, too."""
    asked: dict[str, Any] = {"model": MODEL, "prompt": "Once upon", "max_tokens": max_tokens}
    written = [" there", " was", " a"] if max_tokens else []
    answer = client.completions.create(**asked, echo=True, logprobs=top)
    [choice] = answer.choices
    assert choice.text == "Once upon" + "".join(written)
    assert choice.logprobs.tokens == [" Once", ".", ".", " upon", ".", ".", *written]
    assert choice.logprobs.token_logprobs == [None, *[-0.5] * (5 + len(written))]
    assert choice.logprobs.top_logprobs[0] is None
    assert all(map(dict, choice.logprobs.top_logprobs[1:]))
    assert len(choice.logprobs.text_offset) == 6 + len(written)
    assert answer.usage.completion_tokens == len(written)

    [choice] = client.completions.create(**asked, extra_body={"prompt_logprobs": 2}).choices
    first, *others = choice.model_extra["prompt_logprobs"]
    assert (first, len(others), choice.text) == (None, 5, "".join(written))
    assert others[2]["3"] == {"logprob": -0.5, "rank": 1, "decoded_token": " upon"}

    chat = client.chat.completions.create(
        **CHAT | {"max_tokens": max_tokens}, extra_body={"prompt_logprobs": 0}
    )
    assert chat.model_extra["prompt_logprobs"] == [None]
    texts = [each.choices[0].text for each in client.completions.create(**asked, stream=True)]
    assert "".join(texts) == "".join(written)


def test_a_letter_in_parts_has_bytes_and_one_place(page: ApiPage, client: openai.OpenAI) -> None:
    page.backend.words = (" a", "\ufffd", "\ufffd", "b")
    answer = client.chat.completions.create(**CHAT, logprobs=True)
    tokens = answer.choices[0].logprobs.content
    assert [bytes(token.bytes) for token in tokens] == [w.encode() for w in page.backend.words]


def test_a_completion_may_begin_with_its_prompt(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": ["Once", "Then"], "echo": True}
    whole = client.completions.create(**asked)
    assert [choice.text for choice in whole.choices] == ["Once there was a", "Then there was a"]
    texts = ["", ""]
    for event in client.completions.create(**asked, stream=True):
        texts[event.choices[0].index] += event.choices[0].text
    assert texts == [choice.text for choice in whole.choices]
    tokens = client.completions.create(model=MODEL, prompt=[0, 1], echo=True)
    assert tokens.choices[0].text == " there was there was a"


def test_the_best_of_some_texts_are_returned(page: ApiPage, client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": ["Once", "Then"], "echo": True, "n": 2}
    answer = client.completions.create(**asked, best_of=3)
    begins = [choice.text.split()[0] for choice in answer.choices]
    assert (begins, len(page.backend.asked)) == (["Once", "Once", "Then", "Then"], 6)
    assert answer.usage.completion_tokens == 6 * 3
    assert answer.usage.prompt_tokens == 2 * TOKENS_A_WORD


def test_a_text_is_filled_in(page: ApiPage, client: openai.OpenAI) -> None:
    client.completions.create(model=MODEL, prompt=["def f(x):"], suffix="return y")
    assert page.backend.asked[-1][1].ids[::6][:2] == (90, 5)


@pytest.mark.parametrize(
    ("biases", "read"),
    [
        ({"5": 1}, {"5": 1.0}),
        ({"5": 1, "one": -2}, {"0": -2.0, "1": -2.0, "2": -2.0, "5": 1.0}),
        ([[5, 1.0], ["6", -1], [7, False]], {"5": 1.0, "6": -1.0, "7": -100.0}),
        ([["one", 3]], {"0": 3.0, "1": 3.0, "2": 3.0}),
        ([], {}),
    ],
)
def test_biases_are_of_ids_or_texts(
    page: ApiPage, client: openai.OpenAI, biases: Any, read: dict[str, float]
) -> None:
    client.chat.completions.create(**CHAT, extra_body={"logit_bias": biases})
    assert page.backend.asked[-1][2].to_dict()["logit_bias"] == read


@pytest.mark.parametrize(("logprobs", "told"), [(False, None), (True, 1), (0, 1), (3, 3)])
def test_logprobs_may_be_a_truth_value(page: ApiPage, logprobs: Any, told: int | None) -> None:
    body = {"model": MODEL, "prompt": "Once", "logprobs": logprobs}
    said = httpx.post(f"{page.api}/completions", json=body).json()["choices"][0]["logprobs"]
    assert (said is None) == (told is None)
    if told:
        assert {len(each) for each in said["top_logprobs"]} == {told}


@pytest.mark.parametrize(
    "turns", ["du", "sdu", "usu", "ssu", "ua", "uu", "uaua", "s", "uadu", "au"], ids=str
)
def test_messages_come_in_any_order(page: ApiPage, client: openai.OpenAI, turns: str) -> None:
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    messages: Any = [{"role": roles[turn], "content": "Hello"} for turn in turns]
    client.chat.completions.create(model=MODEL, messages=messages)
    [(_, prompt, _)] = page.backend.asked
    assert "".join(message.role[0] for message in prompt) == turns.replace("d", "s")


@pytest.mark.parametrize("content", ["", None, []])
def test_an_earlier_answer_may_be_empty(page: ApiPage, client: openai.OpenAI, content: Any) -> None:
    messages: Any = [*HELLO, {"role": "assistant", "content": content}, *HELLO]
    client.chat.completions.create(model=MODEL, messages=messages)
    assert page.backend.asked[0][1][1] == Message("assistant", "")


def test_an_answer_that_was_begun_goes_on(page: ApiPage, client: openai.OpenAI) -> None:
    messages: Any = [*HELLO, {"role": "assistant", "content": "Well,"}]
    for extra in ({}, {"continue_final_message": True, "add_generation_prompt": False}):
        client.chat.completions.create(model=MODEL, messages=messages, extra_body=extra)
    with pytest.raises(openai.BadRequestError, match="continue_final_message is false"):
        client.chat.completions.create(
            model=MODEL, messages=messages, extra_body={"continue_final_message": False}
        )
    assert page.backend.asked[0] != page.backend.asked[1]  # another seed
    assert {asked[1] for asked in page.backend.asked} == {
        (Message("user", "Hello you"), Message("assistant", "Well,"))
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"},
        {"guided_json": None, "min_tokens": 0, "ignore_eos": False, "best_of": 1},
        {"chat_template_kwargs": {}, "stop_token_ids": [], "grammar": ""},
    ],
)
def test_fields_that_ask_nothing_are_taken(client: openai.OpenAI, changes: dict[str, Any]) -> None:
    assert client.chat.completions.create(**CHAT, extra_body=changes).choices


def test_any_name_of_a_recording_is_taken() -> None:
    for name in ("a.fl\0ac", "a.f/lac", "a." + "é\ud800" * 300, ".", ""):
        with saved(UploadFile(io.BytesIO(b"sound"), filename=name)) as path:
            assert Path(path).read_bytes() == b"sound"


@pytest.mark.parametrize("form", ["json", "text", "verbose_json", "srt", "vtt"])
def test_a_recording_is_written_down(page: ApiPage, client: openai.OpenAI, form: Any) -> None:
    page.backend.windows = 2
    with RECORDING.open("rb") as file:
        answer: Any = client.audio.transcriptions.create(
            model="openai/whisper-tiny",
            file=file,
            response_format=form,
            language="en",
            timestamp_granularities=["segment", "segment"],
            prompt="Names: Leo",
        )
    [(_, path, options, language, max_seconds)] = page.backend.asked
    assert path.endswith(".flac")
    assert (language, options.max_new_tokens, max_seconds) == ("en", 224, 600.0)
    if form == "text":
        assert answer == "turn it off turn it off\n"
        return
    if form == "srt":
        assert answer == (
            "1\n00:00:00,000 --> 00:00:04,000\nturn it off\n\n"
            "2\n00:00:04,000 --> 00:00:08,000\nturn it off\n"
        )
        return
    if form == "vtt":
        assert answer.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:04.000\nturn it off\n\n00:00")
        return
    assert answer.text == "turn it off turn it off"
    assert answer.usage.seconds == 8.0
    if form == "verbose_json":
        assert [(one.start, one.end) for one in answer.segments] == [(0.0, 4.0), (4.0, 8.0)]
        assert [(one.seek, one.tokens) for one in answer.segments] == [(0, [7, 8]), (400, [7, 8])]
        TranscriptionVerbose.model_validate(answer.model_dump(), strict=True)
        assert answer.ignored_fields == ["prompt"]
        assert answer.duration == 8.0
    else:
        assert not hasattr(answer, "segments")


# --- streams --------------------------------------------------------------------------------------


def test_a_chat_is_streamed(client: openai.OpenAI) -> None:
    events = list(
        client.chat.completions.create(
            **CHAT, stream=True, stream_options={"include_usage": True}, logprobs=True
        )
    )
    assert len({event.id for event in events}) == 1
    deltas = [event.choices[0].delta for event in events[:-1]]
    assert [delta.content for delta in deltas] == ["", " there", " was", " a", None]
    assert [delta.role for delta in deltas] == ["assistant", None, None, None, None]
    reasons = [event.choices[0].finish_reason for event in events[:-1]]
    assert reasons == [None] * 4 + ["length"]
    told = [event.choices[0].logprobs for event in events[1:4]]
    assert [each.content[0].token for each in told] == [" there", " was", " a"]
    assert events[-2].choices[0].logprobs is None
    assert events[-2].timings["predicted_n"] == 3
    assert events[-1].choices == []
    assert events[-1].usage.completion_tokens == 3
    assert [event.usage for event in events[:-1]] == [None] * 5


def test_the_events_are_as_curl_sees_them(page: ApiPage) -> None:
    body = {"model": MODEL, "prompt": "Once", "stream": True}
    with httpx.stream("POST", f"{page.api}/completions", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    parsed = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [event["choices"][0]["text"] for event in parsed] == [" there", " was", " a", ""]
    assert all("usage" not in event for event in parsed)
    assert {event["object"] for event in parsed} == {"text_completion"}


def test_logprobs_come_with_their_text(page: ApiPage, client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "Once", "logprobs": 2}
    whole = client.completions.create(**asked).choices[0].logprobs
    events = [event.choices[0] for event in client.completions.create(**asked, stream=True)]
    assert [event.logprobs.tokens for event in events] == [[" there"], [" was"], [" a"], []]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = [each for event in events for each in getattr(event.logprobs, name)]
        assert parts == getattr(whole, name)


def test_texts_streamed_side_by_side_stay_apart(page: ApiPage, client: openai.OpenAI) -> None:
    page.backend.words = tuple(f" {number}" for number in range(40))
    texts = {0: "", 1: "", 2: ""}
    for event in client.chat.completions.create(**CHAT, n=3, stream=True):
        texts[event.choices[0].index] += event.choices[0].delta.content or ""
    assert set(texts.values()) == {"".join(page.backend.words)}


def test_fifty_streams_at_once_keep_their_order(page: ApiPage) -> None:
    page.backend.words = tuple(f" {number}" for number in range(100))

    async def read(client: openai.AsyncOpenAI) -> str:
        events = await client.chat.completions.create(**CHAT, stream=True)
        return "".join([event.choices[0].delta.content or "" async for event in events])

    async def read_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=page.api, api_key="none") as client:
            return await asyncio.gather(*(read(client) for _ in range(50)))

    assert asyncio.run(read_all()) == ["".join(page.backend.words)] * 50


def test_who_leaves_stops_the_run(page: ApiPage, client: openai.OpenAI) -> None:
    page.backend.hold("end")
    events = client.chat.completions.create(**CHAT, stream=True, n=2)
    next(iter(events))
    page.wait_for(running=2)
    events.close()
    wait_until(lambda: all(stream.is_stopped for stream in page.backend.streams))
    page.wait_for(running=0)
    hasty = client.with_options(timeout=0.5)
    with pytest.raises(openai.APITimeoutError):
        hasty.chat.completions.create(**CHAT)
    wait_until(lambda: page.backend.streams[-1].is_stopped)
    page.wait_for(running=0)


def test_who_leaves_the_line_is_never_run(page: ApiPage, client: openai.OpenAI) -> None:
    page.backend.hold("end")
    full = AT_ONCE // 8
    streams = [client.chat.completions.create(**CHAT, stream=True, n=8) for _ in range(full)]
    page.wait_for(running=AT_ONCE)
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(**CHAT)
    page.wait_for(running=AT_ONCE, waiting=0)
    assert page.backend.streams[-1].result is None
    assert page.backend.streams[-1].has_started, "it has ended without starting"
    for stream in streams:
        stream.close()


def test_who_reads_slowly_holds_up_nobody(page: ApiPage, client: openai.OpenAI) -> None:
    page.backend.words = (" a word that is long" * 500,) * 300  # more than sockets hold
    body = json.dumps({**CHAT, "stream": True})
    host, port = page.url.removeprefix("http://").split(":")
    slow = []
    for _ in range(AT_ONCE + 1):
        slow.append(socket.create_connection((host, int(port))))
        slow[-1].sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
    wait_until(lambda: len(page.backend.asked) == len(slow))
    page.wait_for(running=0)  # all are written, and nobody has read them
    page.backend.words = (" there",)
    assert client.chat.completions.create(**CHAT).choices[0].message.content == " there"
    for each in slow:
        each.close()


# --- forms ----------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
RULES = "root ::= [a-z]+"
NAMED = {"name": "answer", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": NAMED}},
            {"json_schema": SCHEMA, "strict": True},
        ),
        (
            {"response_format": {"type": "json_schema"} | NAMED},
            {"json_schema": SCHEMA, "strict": True},
        ),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"response_format": {"type": "text"}}, None),
        ({"guided_json": SCHEMA}, {"json_schema": SCHEMA}),
        ({"guided_json": json.dumps(SCHEMA)}, {"json_schema": SCHEMA}),
        ({"guided_regex": "[0-9]+"}, {"regex": "[0-9]+"}),
        ({"guided_choice": ["yes", "no"]}, {"choice": ["yes", "no"]}),
        ({"structured_outputs": {"json": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"structured_outputs": {"grammar": RULES}}, {"gbnf": RULES}),
        ({"guided_grammar": RULES}, {"gbnf": RULES}),
        ({"grammar": RULES}, {"gbnf": RULES}),
        ({"grammar": ""}, None),
        ({"structured_outputs": {"choice": ["a"], "regex": None}}, {"choice": ["a"]}),
        ({"json_schema": SCHEMA}, {"json_schema": SCHEMA}),
        ({"grammar": {"regex": "a|b"}}, {"regex": "a|b"}),
        ({"grammar": "", "guided_json": None}, None),
    ],
)
def test_a_form_is_asked_for_as_other_servers_have_it(
    page: ApiPage, client: openai.OpenAI, asked: dict[str, Any], form: Any
) -> None:
    client.chat.completions.create(**CHAT, extra_body=asked)
    client.completions.create(model=MODEL, prompt="a", extra_body=asked)
    assert [options.to_dict()["grammar"] for _, _, options in page.backend.asked] == [form, form]


def test_a_grammar_is_checked_aside(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def check(grammar: Grammar) -> None:
        begun.set()
        assert goes_on.wait(20)

    monkeypatch.setattr(grammars, "check", check)
    with ThreadPoolExecutor(1) as thread:
        body = {"guided_regex": "[a-c]+"}
        asked = thread.submit(client.chat.completions.create, **CHAT, extra_body=body)
        assert begun.wait(20)
        assert client.models.list().data
        assert not asked.done()
        goes_on.set()
        assert asked.result().choices


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "param", "reported"),
    [
        ({"response_format": {"type": "xml"}}, "response_format", "'xml'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format",
            "has no schema",
        ),
        ({"guided_json": '{"type": "tree"}'}, "guided_json", "a type that JSON has"),
        (
            {"guided_json": {"type": "object", "required": 5}},
            "guided_json",
            "required must be a list of names at #",
        ),
        (
            {"guided_json": {"type": "array", "prefixItems": 5}},
            "guided_json",
            "prefixItems must be a list at #",
        ),
        *(
            ({"guided_json": text}, "guided_json", "has a value that is no JSON at #")
            for text in ('{"const": NaN}', '{"const": Infinity}', '{"enum": [[-Infinity]]}')
        ),
        ({"guided_json": {"enum": ["a"], "pattern": "("}}, "guided_json", "no regular expression"),
        ({"guided_json": '{"type": "number", "minimum": NaN}'}, "guided_json", "must be a number"),
        ({"guided_regex": "(?=a)b"}, "guided_regex", "look-around"),
        (
            {"guided_choice": ["a"], "json_schema": {"type": "null"}},
            "json_schema",
            "leave out all but",
        ),
        ({"structured_outputs": {"grammar": "x"}}, "structured_outputs", "consists of rules"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs", "one of json"),
        ({"guided_choice": []}, "guided_choice", "at least one"),
        ({"guided_regex": ""}, "guided_regex", "not empty"),
        ({"grammar": {"json_object": False}}, "grammar", "must be true"),
        ({"grammar": "root ::= root [a-z]"}, "grammar", "no text has the form"),
        ({"grammar": {"ebnf": "a"}}, "grammar", "one of json_schema"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages",
            "'image_url' is not supported",
        ),
        (
            {"messages": [{"role": "user", "content": "a", "images": ["b"]}]},
            "messages",
            "'image' is not supported",
        ),
        ({"modalities": ["text", "audio"]}, "modalities", "modalities is not"),
        ({"n": 17}, "n", "less than or equal to 16"),
        ({"max_tokens": -2}, "max_tokens", "greater than or equal to -1"),
        ({"prompt_logprobs": 3, "stream": True}, "stream", "not streamed"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "less than or equal to 20"),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"temperature": "nan"}, "temperature", "less than or equal to 100"),
        ({"max_tokens": "4.5"}, "max_tokens", "valid integer"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"stop": ["x"] * 10_000}, None, "at most 64 strings"),
        ({"stop": 5}, "stop", "stop must be a string or a list"),
        ({"messages": "Hello"}, "messages", "messages must be a list"),
        ({"messages": [{"content": "a"}]}, "messages", "role is missing"),
        (
            {"chat_template_kwargs": {"chat_template": "x"}},
            "chat_template_kwargs",
            "a field of its own",
        ),
        ({"logit_bias": [5]}, "logit_bias", "pairs of token and number"),
        ({"logit_bias": [[-5, 1]]}, None, "a token id of logit_bias"),
        ({"logit_bias": [["one", "two"]]}, None, "logit_bias of token"),
        ({"seed": 2**64}, "seed", "less than or equal to 18446744073709551615"),
        ({"messages": []}, None, "There are no messages"),
        ({"continue_final_message": True}, "continue_final_message", "continues the last message"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "at least 1 item"),
        (
            {"bad_words": ["no"], "guided_regex": "a"},
            "bad_words",
            "guided_regex each set a grammar",
        ),
        ({"messages": [{"role": "user", "content": " "}]}, None, "The prompt is empty"),
        ({"stream": "yes"}, "stream", "valid boolean"),
        ({"min_tokens": 17, "max_tokens": 16}, "min_tokens", "but max_tokens is 16"),
        ({"stop_token_ids": [-1]}, None, "must be from 0"),
        ({"stop_token_ids": [1], "num_beams": 2}, None, "one beam, not with 2"),
    ],
)
def test_what_is_wrong_is_said_and_where(
    client: openai.OpenAI, page: ApiPage, changes: dict[str, Any], param: str | None, reported: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**CHAT, "extra_body": changes})
    error: Any = caught.value.body
    assert reported in error["message"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert caught.value.request_id
    assert page.backend.asked == []


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"prompt": []}, "empty list"),
        ({"prompt": " "}, "The prompt is empty"),
        ({"prompt": {}}, "prompt must be a text, a list of texts"),
        ({"prompt": [1, "a"]}, "prompt must be"),
        ({"prompt": ["a"] * 9, "n": 15}, "more than 128 texts"),
        ({"echo": True, "logprobs": 1, "stream": True}, "not streamed"),
        ({"suffix": "end", "echo": True}, "suffix needs"),
        ({"suffix": "end", "prompt": [1, 2]}, "suffix needs"),
        ({"best_of": 2, "n": 3}, "best_of must be at least n"),
        ({"best_of": 3, "stream": True}, "best_of must be at least n"),
    ],
)
def test_wrong_completions(client: openai.OpenAI, changes: dict[str, Any], reported: str) -> None:
    with pytest.raises(openai.BadRequestError, match=reported):
        client.completions.create(**{"model": MODEL, "prompt": "Once", **changes})


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"response_format": "diarized_json"}, "not distinguished"),
        ({"timestamp_granularities": ["segment", "word"]}, "Words have no times here"),
        ({"stream": True}, "not streamed"),
        ({"model": "gpt2-stories"}, "takes text"),
    ],
)
def test_wrong_transcriptions(client: openai.OpenAI, fields: dict[str, Any], reported: str) -> None:
    with RECORDING.open("rb") as file, pytest.raises(openai.BadRequestError, match=reported):
        client.audio.transcriptions.create(
            **{"model": "openai/whisper-tiny", "file": file, **fields}
        )


@pytest.mark.parametrize(
    ("error", "status"),
    [(EngineStopped("The engine stopped."), 503), (OutOfMemory("No memory."), 503)],
)
def test_a_client_tries_again_where_the_engine_has_stopped(
    page: ApiPage, client: openai.OpenAI, error: Exception, status: int
) -> None:
    prompt = (Message("user", "Hello you"),)
    page.backend.errors[prompt] = error
    with pytest.raises(openai.InternalServerError, match=str(error)) as caught:
        client.chat.completions.create(**CHAT)
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "2"
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(client.with_options(max_retries=2).chat.completions.create, **CHAT)
        wait_until(lambda: len(page.backend.asked) == 2)
        del page.backend.errors[prompt]
        assert asked.result().choices[0].message.content == " there was a"


def test_an_error_of_the_program_is_a_sentence_and_in_the_log(
    page: ApiPage, client: openai.OpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    page.backend.errors[(Message("user", "Hello you"),)] = RuntimeError("a secret")
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(**CHAT)
    assert caught.value.status_code == 500
    assert "a secret" not in str(caught.value)
    wait_until(lambda: "a secret" in caplog.text)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/none", None, 404),
        ("GET", "/chat/completions", None, 405),
        ("POST", "/chat/completions", b"", 400),
        ("POST", "/chat/completions", b"{", 400),
        ("POST", "/chat/completions", b"[" * 100_000, 400),
        ("POST", "/chat/completions", b"[]", 400),
        ("POST", "/chat/completions", b'{"model": "\\ud800", "messages": []}', 404),
        ("POST", "/chat/completions", b'{"seed": ' + b"9" * 5000 + b"}", 400),
        ("POST", "/chat/completions", b" " * (5 * 2**20), 413),
        ("POST", "/audio/transcriptions", b"file=x&model=y", 400),
    ],
)
def test_every_answer_is_an_error_in_openai_s_form(
    page: ApiPage, method: str, path: str, body: bytes | None, status: int
) -> None:
    kind = "x-www-form-urlencoded" if "audio" in path else "json"
    headers = {"content-type": f"application/{kind}"}
    answer = httpx.request(method, f"{page.api}{path}", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert len(answer.json()["error"]["message"]) > 10
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("mine-1", True),
        ("x" * 65, False),
        ("a b", False),
        ("a\u00e9", False),
        ('"><script>', False),
    ],
)
def test_a_request_has_an_id(page: ApiPage, sent: str, kept: bool) -> None:
    answer = httpx.get(f"{page.api}/models", headers=[(b"x-request-id", sent.encode("latin-1"))])
    assert (answer.headers["x-request-id"] == sent) == kept


# --- the line, the limits and the password --------------------------------------------------------


def test_requests_of_both_apis_stand_in_one_line(page: ApiPage, client: openai.OpenAI) -> None:
    page.backend.hold("end")
    of_gradio = Client(page.url, verbose=False)
    jobs = [of_gradio.submit("Once", max_new_tokens=16, api_name="/generate") for _ in range(8)]
    page.wait_for(running=8)
    rest = (AT_ONCE - 8) // 8
    streams = [client.chat.completions.create(**CHAT, stream=True, n=8) for _ in range(rest)]
    page.wait_for(running=AT_ONCE)
    with ThreadPoolExecutor(3) as threads:
        chat = threads.submit(client.chat.completions.create, **CHAT)
        page.wait_for(running=AT_ONCE, waiting=1)
        jobs.append(of_gradio.submit("Last", max_new_tokens=16, api_name="/generate"))
        page.wait_for(running=AT_ONCE, waiting=2)
        page.backend.streams[0].stop()
        page.wait_for(running=AT_ONCE, waiting=1)
        assert page.backend.streams[-1].progress.ahead == AT_ONCE, "the chat has come in before it"
        page.backend.streams[1].stop()
        page.wait_for(running=AT_ONCE)
        running = page.backend.streams[2:]
        wait_until(lambda: all(each.progress.state == "writing" for each in running))
        for stream in running:
            stream.stop()
        assert chat.result().timings["queue_ms"] > 0
        jobs[-1].result()
    last = [prompt for _, prompt, _ in page.backend.asked][-2:]
    assert last == [(Message("user", "Hello you"),), "Last"]
    for stream in streams:
        stream.close()


def test_limits_hold_here_too() -> None:
    limits = Limits(waiting=3, waiting_each=2, new_tokens=20, prompt_bytes=40)
    with api_page(limits=limits) as page:
        client = openai.OpenAI(base_url=page.api, api_key="none", max_retries=0)
        client.completions.create(model=MODEL, prompt="Once", max_tokens=21)
        assert page.backend.asked[-1][2].max_new_tokens == 20
        with pytest.raises(openai.BadRequestError, match="at most 40 are allowed"):
            client.completions.create(model=MODEL, prompt="Once" * 11)
        long = [{"role": "user", "content": "Once" * 11}]
        for path in ("messages/count_tokens", "tokenize"):
            refused = httpx.post(f"{page.api}/{path}", json={"model": MODEL, "messages": long})
            assert "at most 40 are allowed" in refused.json()["error"]["message"]
        client.chat.completions.create(model=MODEL, messages=HELLO)
        assert page.backend.asked[-1][2].max_new_tokens == 20
        page.backend.hold("end")
        short = {**CHAT, "stream": True}
        full = [client.chat.completions.create(**short, n=2) for _ in range(AT_ONCE // 2)]
        page.wait_for(running=AT_ONCE)
        with pytest.raises(openai.RateLimitError, match="of yours wait already") as caught:
            client.chat.completions.create(**short, n=3)
        assert caught.value.response.headers["retry-after"] == "2"
        page.wait_for(running=AT_ONCE)
        for stream in full:
            stream.close()


def test_the_key_is_the_password() -> None:
    with api_page(password="sesame") as page:
        right = openai.OpenAI(base_url=page.api, api_key="sesame", max_retries=0)
        assert right.chat.completions.create(**CHAT).choices
        for key, status in (("sesame", 200), ("open", 401)):  # as Anthropic's clients send it
            headers = {"x-api-key": key}
            answer = httpx.post(f"{page.api}/messages", json={"messages": HELLO}, headers=headers)
            assert answer.status_code == status
        wrong = right.with_options(api_key="open")
        with pytest.raises(openai.AuthenticationError) as caught:
            wrong.models.list()
        error: Any = caught.value.body
        assert error["code"] == "invalid_api_key"
        assert "Bearer" in error["message"]
        assert caught.value.request_id
        for _ in range(20):
            with pytest.raises((openai.AuthenticationError, openai.RateLimitError)) as last:
                wrong.models.list()
        assert last.value.status_code == 429
        assert last.value.response.headers["retry-after"] == "60"


def test_other_pages_may_ask_where_they_are_named() -> None:
    chat = "https://chat.example.com"
    asks = {"origin": chat, "access-control-request-method": "POST"}
    with api_page(password="sesame", cors=[chat]) as page:
        url = f"{page.api}/chat/completions"
        may = httpx.options(
            url, headers={**asks, "access-control-request-headers": "authorization"}
        )
        assert may.headers["access-control-allow-origin"] == chat
        assert may.status_code == 200
        operations = httpx.get(f"{page.url}/openapi.json", auth=("any", "sesame")).json()["paths"]
        methods = {method.upper() for of_path in operations.values() for method in of_path}
        assert methods <= {*may.headers["access-control-allow-methods"].split(", ")}
        refused = httpx.get(f"{page.api}/models", headers={"origin": chat})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == chat
        other = httpx.options(url, headers={**asks, "origin": "https://other.example.com"})
        assert "access-control-allow-origin" not in other.headers
        elsewhere = httpx.options(f"{page.url}/config", headers=asks)
        assert "access-control-allow-origin" not in elsewhere.headers


def test_no_other_page_may_ask_by_default(page: ApiPage) -> None:
    answer = httpx.get(f"{page.api}/models", headers={"origin": "https://chat.example.com"})
    assert "access-control-allow-origin" not in answer.headers
