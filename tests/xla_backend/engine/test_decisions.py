"""Questions about a text: each answer has the probability that it would have alone."""

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.xla_backend.engine.fake_functions import BLOCK_BYTES, VOCABULARY, next_token
from tests.xla_backend.engine.fake_model import CONTEXT, Steps, encode, fake_backend
from xla_backend import Backend, GenerationOptions, InvalidRequest
from xla_backend.interface.decisions import MAX_QUESTIONS, Question

TEXT = "A fox went to the sea and saw a ship. " * 9
SOME: dict[str, Any] = {
    "asked": {"type": "yes_no", "instructions": "Is there a ship?"},
    "tone": {"type": "choice", "instructions": "Which tone?", "criteria": ["calm", "c", "angry!"]},
    "level": {"type": "score", "criteria": ["low", "middle", "high"]},
}
MANY = {f"q{n}": {"type": "yes_no", "instructions": f"Is it {n}?"} for n in range(40)}


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture(params=[10**9, (CONTEXT // 64 + 1) * BLOCK_BYTES], ids=["room", "little room"])
def backend(request: pytest.FixtureRequest, steps: Steps) -> Iterator[Backend]:
    with fake_backend(steps, kv_bytes=request.param) as backend:
        yield backend


def logprob(prompt: str, answer: str) -> float:
    """What the fake model says: one token is likelier than all others, which are alike."""
    found, ids = 0.0, encode(prompt)
    for token in encode(answer):
        found += (next_token(ids) == token) - math.log(math.e + VOCABULARY - 1)
        ids.append(token)
    return found


@pytest.mark.parametrize("text", [TEXT, "A fox.", TEXT * 4], ids=["text", "short", "long"])
@pytest.mark.parametrize("asked", [SOME, {"tone": SOME["tone"]}, MANY], ids=["some", "one", "many"])
def test_every_answer_is_as_likely_as_alone(
    backend: Backend, steps: Steps, asked: dict[str, Any], text: str
) -> None:
    questions = Question.all_of(asked)
    for _ in range(2):  # the second time, most of it is in memory
        result = backend.decide("any", text, questions)
        for question, decision in zip(questions, result.decisions, strict=True):
            prompt = f"{question.prompt_for(text)}\nAnswer:"
            expected = [logprob(prompt, f" {answer}") for answer in question.answers]
            assert decision.logprobs == pytest.approx(expected, abs=1e-5)
            assert sum(decision.probabilities.values()) == pytest.approx(1)
    assert (result.new_tokens, result.text, result.key.is_pooled) == (0, "", True)
    assert sum(result.timing.to_dict().values()) == pytest.approx(2 * result.timing.total_s)


def test_the_text_is_read_once_and_questions_side_by_side(steps: Steps) -> None:
    with fake_backend(steps) as backend:
        predicted = backend.predict("any", TEXT, questions=Question.all_of(MANY))
        first = backend.decide("any", TEXT, MANY)
        assert predicted.prompt_tokens == first.prompt_tokens
        assert predicted.key == first.key
        alone = sum(len(q.prompt_for(TEXT)) + len("\nAnswer:") for q in Question.all_of(MANY))
        assert first.prompt_tokens < len(TEXT) + 40 * 50 < alone
        assert (first.rows_at_once, first.batch_size) == (16, 1)
        again = backend.decide("any", TEXT, MANY)
        # Only that is read again behind which a logprob is wanted: ":", " Ye" and " N".
        assert again.cached_tokens == again.prompt_tokens - 40 * 6


def test_texts_go_on_meanwhile_and_those_that_leave_are_forgotten(steps: Steps) -> None:
    with fake_backend(steps, kv_bytes=(CONTEXT // 64 + 1) * BLOCK_BYTES) as backend:
        options = GenerationOptions(max_new_tokens=40)
        alone = backend.generate("any", "Once", options, cache_salt="s").text
        gate = steps.hold("read")
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda: results.append(backend.decide("any", TEXT, SOME))),
            threading.Thread(
                target=lambda: results.append(
                    backend.generate("any", "Once", options, cache_salt="t").text
                )
            ),
        ]
        for thread in threads:
            thread.start()
        gate.wait()
        gate.open()
        for thread in threads:
            thread.join(60)
        assert alone in results
        assert len(results) == 2
        backend.decide("any", TEXT, SOME)
        steps.fail("read", RuntimeError("broken"))
        with pytest.raises(RuntimeError, match="broken"):
            backend.decide("any", TEXT + "!", SOME)
        assert backend.decide("any", TEXT, SOME).decisions


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "1 to 400 questions"),
        ({f"{n}": SOME["asked"] for n in range(MAX_QUESTIONS + 1)}, "1 to 400 questions"),
        ([], "1 to 400 questions"),
        ("spam?", "1 to 400 questions"),
        ({"a": "spam?"}, "type is one of yes_no, noul, choice, score"),
        ({"a": {"type": "number"}}, "type is one of"),
        ({"a": {"type": "choice"}}, "a choice question looks like"),
        ({"a": {"type": "choice", "criteria": []}}, "a choice question looks like"),
        ({"a": {"type": "choice", "criteria": ["x", "x"]}}, "different answers"),
        ({"a": {"type": "choice", "criteria": ["x", " "]}}, "none of them empty"),
        ({"a": {"type": "choice", "criteria": [1]}}, "a choice question looks like"),
        ({"a": {"type": "score", "criteria": "low"}}, "a score question looks like"),
        ({"a": {"type": "score", "criteria": ["x"] * 256}}, "at most 255"),
        ({"a": {"type": "yes_no", "criteria": {"maybe": "x"}}}, "a yes_no question looks like"),
        ({"a": {"type": "yes_no", "instructions": "x" * 17_000}}, "16000 characters"),
        ({"a": {"type": "yes_no", "question": "x"}}, "a yes_no question looks like"),
    ],
)
def test_what_is_no_question_is_refused(asked: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Question.all_of(asked)


@pytest.mark.parametrize(
    ("text", "says"), [(" ", "The text is empty"), ("x" * CONTEXT, "shorten it by")]
)
def test_what_is_no_text_is_refused(steps: Steps, text: str, says: str) -> None:
    with fake_backend(steps) as backend, pytest.raises(InvalidRequest, match=says):
        backend.decide("any", text, SOME)
