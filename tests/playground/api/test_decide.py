"""`/v1/decide` and `/v1/systemone`, in the shapes of Transformers 5.24's; the engine is made up."""

from typing import Any

import httpx
import pytest

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
    assert [each.asked("T") for each in asked.questions] == [
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
        ({"questions": {}}, "1 to 64 questions"),
        ({"questions": {"a": {"type": "guess"}}}, "question 'a' must be"),
        ({"questions": []}, "questions: "),
        ({"state": 3}, "state"),
        ({"state": ""}, "empty"),
    ],
)
def test_what_is_wrong_is_said(page: ApiPage, change: dict[str, Any], says: str) -> None:
    answer = post(page, ASKED | change)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_no_model_here_is_made_for_decisions(page: ApiPage) -> None:
    answer = post(page, ASKED, "systemone")
    assert answer.status_code == 501
    assert "/v1/decide" in answer.json()["error"]["message"]
