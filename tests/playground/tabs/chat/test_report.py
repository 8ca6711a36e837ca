"""What the Chat tab shows of a conversation."""

import html
import json
import re
from dataclasses import replace

import pytest

from playground.tabs.chat import report
from playground.tabs.chat.conversation import Conversation, Figures, Turn
from tests.playground.reader import is_text
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend.interface.timing import Span


def figures(reuses: bool = True, left_out: int = 0, **changes: object) -> Figures:
    return Figures.of(result(**changes), reuses, left_out)


def words(shown: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def test_the_line_says_what_an_answer_cost() -> None:
    line = words(report.line(figures(cached_tokens=412, prompt_tokens=430, finish="eos")))
    assert "HIT" in line
    assert "TTFT 22 ms · TPOT 40 ms · 3 tokens · reused 412 of 430 prompt tokens" in line
    assert "limit" not in line
    assert line.endswith("one shape for all lengths")
    alone = words(report.line(figures(reuses=False, left_out=2, finish="stopped")))
    assert "one shape" not in alone
    assert "without reuse: 5 prompt tokens · the oldest 2 turns not read · you stopped it" in alone
    rounded = words(report.line(figures(rounded_bits=8)))
    assert "prompt tokens · weights rounded to 8 bits ·" in rounded


def test_the_strip_has_a_bar_for_each_turn_and_says_it_in_words() -> None:
    first = Figures.of(miss(), True, 0)
    turns = [Turn("a", "b", first), Turn("c", "d", figures()), Turn("e", "f", None)]
    strip = report.strip(turns)
    assert strip.count('class="chat-bar') == 3  # the box and two bars
    assert 'aria-label="TTFT by turn: 1: 3.10 s MISS, 2: 22 ms HIT"' in strip
    # The turn that compiled would make all others look alike: its bar is cut.
    assert strip.count('class="chat-bar cut"') == 1
    assert report.strip([]) == report.strip(turns[2:]) == ""


def test_waiting_is_told_and_sets_no_scale() -> None:
    timing = result().timing
    waited = figures(timing=replace(timing, queue_s=61.0, total_s=timing.total_s + 61.0))
    line = words(report.line(waited))
    assert "HIT TTFT 61.0 s, of which waiting 61.0 s · TPOT" in line
    strip = report.strip([Turn("a", "b", waited), Turn("c", "d", figures())])
    assert strip.count('class="chat-bar cut"') == 1
    assert strip.count("--share:1.000") == 2

    spans = (
        Span("queue", 0.0, 0.2),
        Span("prefill", 0.2, 0.02, tokens=1),
        Span("queue", 0.22, 3.0),
        Span("decode", 3.22, 0.08, tokens=2),
    )
    later = result(
        timing=replace(timing, queue_s=3.2, total_s=timing.total_s + 3.2),
        since_first_token_s=result().since_first_token_s + 3.0,
        spans=spans,
    )
    assert later.ttft_queue_s == pytest.approx(0.2)
    line = words(report.line(Figures.of(later, True, 0)))
    assert "HIT TTFT 222 ms, of which waiting 200 ms · TPOT" in line


@pytest.mark.parametrize("said", INJECTIONS)
def test_nothing_that_was_said_becomes_markup(said: str) -> None:
    talk = Conversation(said, turns=(Turn(said, said),))
    question, answer = report.messages(talk)
    shown = question["content"]["text"]
    assert not re.search(r"<[a-zA-Z/!?]", shown)
    assert report.as_written(shown) == said
    reported = answer["content"]["value"]
    assert is_text(reported)
    listed = report.conversations(
        json.dumps({"chats": [{"id": said, "name": said, "turns": 1, "changed_s": 1}]}), ""
    )
    assert is_text(listed)


def test_the_newest_conversation_is_listed_first() -> None:
    chats = [
        {"id": name, "name": name, "turns": turns, "changed_s": changed_s}
        for name, turns, changed_s in (("old", 1, 1.0), ("new", 3, 2.0))
    ]
    listed = report.conversations(json.dumps({"chats": chats}), "old")
    assert words(listed).split() == ["new", "3", "turns", "old", "1", "turn"]
    assert listed.count("aria-current") == 1


@pytest.mark.parametrize("summaries", ["", "[]", "null", '{"chats": [{}]}', '{"chats": [5]}'])
def test_a_browser_may_bring_anything(summaries: str) -> None:
    assert "appear here" in report.conversations(summaries, "")


def test_the_context_says_what_is_used_cached_and_left() -> None:
    turns = [Turn("One?", "Yes.", figures(prompt_tokens=300, cached_tokens=200))]
    said = words(report.context_bar(turns, 1000))
    assert said == "Context: 303 of 1,000 tokens cached 200 computed 103 room 697"
    assert report.context_bar(turns, None) == ""
    assert report.context_bar([Turn("One?", "Ye")], 1000) == ""
