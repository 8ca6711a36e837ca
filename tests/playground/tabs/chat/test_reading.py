"""Which turns are left out where a conversation is longer than the model's context."""

import functools
from dataclasses import replace

import pytest

from playground import create_app
from playground.context.limits import Limits
from playground.context.page_context import PageContext
from playground.tabs.chat.conversation import Conversation, Turn
from playground.tabs.chat.reading import fitted
from tests.playground.fake_backend import CONTEXT_LENGTH, FakeBackend
from xla_backend import GenerationOptions, InvalidRequest

NEW = GenerationOptions(max_new_tokens=16)
TALK = Conversation("gpt2-stories", "", NEW, tuple(Turn(f"q{n}", "word " * 5) for n in range(12)))


@functools.cache
def built() -> PageContext:
    return create_app(FakeBackend()).context


def context(**limits: int) -> PageContext:
    return replace(built(), limits=Limits(**limits))


def test_what_fits_is_read_whole_and_a_limit_of_the_page_counts_too() -> None:
    short = replace(TALK, turns=TALK.turns[:2])
    left_out, prediction = fitted(context(), short, "And now?", "")
    assert left_out == 0
    assert prediction.prompt_tokens <= CONTEXT_LENGTH - 16

    short = replace(TALK, turns=TALK.turns[:3])
    assert fitted(context(prompt_bytes=40), short, "And now?", "")[0] > 0


def test_the_oldest_go_several_at_once_and_stay_away() -> None:
    page = context()
    left_out, prediction = fitted(page, TALK, "And now?", "")
    assert 0 < left_out < len(TALK.turns)
    assert prediction is not None
    # The next turn begins as this one did: what the engine keeps of it serves.
    longer = TALK.after(Turn("And now?", "word"), left_out)
    assert fitted(page, longer, "And then?", "")[0] == left_out


def test_a_question_that_does_not_fit_alone_is_refused_for_what_it_is() -> None:
    with pytest.raises(InvalidRequest, match="has room for"):
        fitted(context(), TALK, "word " * 200, "")
    with pytest.raises(InvalidRequest, match="bytes"):
        fitted(context(prompt_bytes=10), TALK, "a question of many bytes", "")
