"""`/v1/decide`, `/v1/systemone` and `/v1/decisions`; the engine is made up."""

from typing import Any

import httpx
import openai
import pytest
from openai.types import Decision

from tests.playground.api_page import ApiPage

SPAM = {"type": "noul", "instructions": "Is it spam?", "criteria": {"true": "An advertisement"}}
ASKED: dict[str, Any] = {
    "model": "gpt2-stories",
    "state": "WIN a FREE phone",
    "questions": {
        "spam": SPAM,
        "tone": {"type": "choice", "criteria": {"calm": "Polite", "pushy": None}},
        "urgent": {"type": "score", "criteria": ["Can wait", "This week", "Today"]},
    },
}


def post(page: ApiPage, body: Any, address: str = "decide") -> httpx.Response:
    return httpx.post(f"{page.api}/{address}", json=body)


def test_every_question_is_answered_by_its_name(page: ApiPage) -> None:
    answer = post(page, ASKED).raise_for_status().json()
    spam, tone, urgent = (answer["answers"][name] for name in ("spam", "tone", "urgent"))
    assert (spam["type"], spam["noul"]) == ("noul", pytest.approx(0.75))
    assert tone["choice"] == "calm"
    assert tone["probabilities"] == {"calm": pytest.approx(0.75), "pushy": pytest.approx(0.25)}
    assert tone["confidence"] == pytest.approx(0.5)
    assert urgent["legend"] == {"0": "Can wait", "1": "This week", "2": "Today"}
    assert urgent["score"] == pytest.approx((3 + 2) / 13)
    assert urgent["confidence"] == pytest.approx(1 - (5 / 13) / (2 / 3))
    assert answer["usage"] == {"input_tokens": 114, "output_tokens": 0}
    [stream] = page.backend.streams
    asked = stream.request
    assert (asked.prompt, asked.in_chunks) == ("WIN a FREE phone", False)
    assert asked.cache_salt
    assert [each.prompt_for("T") for each in asked.questions] == [
        "T\n\nAnswer Yes or No.\nIs it spam?\nYes: An advertisement",
        "T\n\nAnswer with one of: calm, pushy.\ncalm: Polite",
        "T\n\nAnswer with a number from 0 to 2.\n0: Can wait\n1: This week\n2: Today",
    ]


def test_a_state_may_be_any_json(page: ApiPage) -> None:
    state = {"from": "Zoë", "lines": ["Hi", 2]}
    post(page, ASKED | {"state": state}).raise_for_status()
    assert page.backend.asked[-1][1] == '{"from": "Zoë", "lines": ["Hi", 2]}'


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"questions": {}}, "1 to 400 questions"),
        ({"questions": {"a": {"type": "guess"}}}, "question 'a' must be"),
        ({"questions": []}, "questions: "),
        ({"state": 3}, "state must be a text"),
        ({"state": ""}, "empty"),
    ],
)
def test_what_is_wrong_is_said(page: ApiPage, change: dict[str, Any], says: str) -> None:
    for address, status in (("decide", 400), ("systemone", 422)):
        answer = post(page, ASKED | change, address)
        assert answer.status_code == status
        assert says in answer.json()["error"]["message"]


def test_system_one_answers_by_any_model_s_name(page: ApiPage) -> None:
    answer = post(page, ASKED | {"model": "jev-latest"}, "systemone").raise_for_status().json()
    assert answer["model"] == "gpt2-stories"
    assert answer["answers"]["spam"] == post(page, ASKED).json()["answers"]["spam"]
    assert "confidence" not in answer["answers"]["spam"]
    assert post(page, ASKED | {"model": "jev-latest"}).status_code == 404


QUESTIONS: Any = [
    {"type": "predicate", "instructions": "Is it spam?", "name": "spam"},
    {
        "type": "choice",
        "instructions": [{"type": "input_text", "text": "Which?"}],
        "choices": [
            {"value": "true"},
            {"value": True, "description": "It is."},
            {"value": "no"},
        ],
    },
    {
        "type": "score",
        "instructions": "How urgent?",
        "levels": [{"label": "low", "description": "Can wait"}, {"label": "high"}],
    },
]


def test_openai_s_decisions_are_answered_in_order(page: ApiPage, client: openai.OpenAI) -> None:
    messages: Any = [
        {"role": "user", "content": [{"type": "input_json", "data": {"a": 1}}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "Yes."},
    ]
    for input in ("WIN", messages):
        answer = client.decisions.create(model="gpt2-stories", input=input, questions=QUESTIONS)
        Decision.model_validate(answer.model_dump(), strict=True)
    spam, which, urgent = answer.answers
    assert (spam.type, spam.name, spam.probability) == ("predicate", "spam", pytest.approx(0.75))
    assert [each.value for each in which.probabilities] == ["true", True, "no"]
    assert (which.choice, which.name) == ("true", None)
    assert [each.label for each in urgent.probabilities] == ["low", "high"]
    assert urgent.score == pytest.approx(0.25)
    assert answer.usage.output_tokens == 0
    text = 'user: {"a": 1}\nassistant calls f {}\ntool: Yes.'
    assert [stream.request.prompt for stream in page.backend.streams] == ["WIN", text]
    assert [each.prompt_for("T") for each in page.backend.streams[-1].request.questions] == [
        "T\n\nAnswer Yes or No.\nIs it spam?",
        "T\n\nAnswer with one of: true, true (boolean), no.\nWhich?\ntrue (boolean): It is.",
        "T\n\nAnswer with a number from 0 to 1.\nHow urgent?\n0: low: Can wait\n1: high",
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"questions": []}, "1 to 400 questions"),
        ({"questions": QUESTIONS * 200}, "1 to 400 questions"),
        ({"questions": [{"type": "choice", "instructions": "a"}]}, "cannot be read"),
        ({"questions": [{**QUESTIONS[1], "choices": [{"value": "a"}] * 2}]}, "cannot be read"),
        ({"questions": [{"type": "guess", "instructions": "a"}]}, "questions.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "'input_image'"),
        ({"model": "none"}, "no model"),
    ],
)
def test_wrong_decisions(page: ApiPage, change: dict[str, Any], says: str) -> None:
    body = {"model": "gpt2-stories", "input": "WIN", "questions": QUESTIONS, **change}
    answer = post(page, body, "decisions")
    assert answer.status_code == (404 if "model" in change else 400)
    assert says in answer.json()["error"]["message"]
