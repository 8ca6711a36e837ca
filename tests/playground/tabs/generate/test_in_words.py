"""An answer's latency in a sentence."""

import re
from html import unescape

import pytest

from playground.tabs.generate.in_words import latency, quote
from playground.ui.markup import rendered
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend import CacheOutcome, FirstCall


def test_a_cached_call_names_what_the_first_one_took_and_when() -> None:
    assert latency(result(prompt_tokens=480, cached_tokens=412)) == (
        "First token after 22 ms (412 of 480 prompt tokens were cached), then 25 tokens/s; "
        "compiling this shape took 3.00 s on 24 Nov 2025."
    )
    unknown = FirstCall(CacheOutcome.MISS, 1.0, 2.0, 0.2)
    assert latency(result(first_call=unknown)).endswith("compiling this shape took 3.00 s.")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (CacheOutcome.MISS, "; 3.00 s of this was tracing and compiling, once."),
        (CacheOutcome.DISK, "; 3.00 s of this was restoring the function from disk."),
    ],
)
def test_a_first_call_names_what_was_paid_once(outcome: CacheOutcome, said: str) -> None:
    assert latency(miss(cache=outcome)) == f"First token after 3.10 s, then 20 tokens/s{said}"


def test_nothing_written_is_not_quoted() -> None:
    nothing = result(tokens=(), text="")
    assert latency(nothing) == ""
    assert rendered(quote)(nothing, "here") == ""


@pytest.mark.parametrize("text", INJECTIONS)
def test_the_buttons_carry_the_sentence_and_what_was_measured(text: str) -> None:
    markup = rendered(quote)(result(), text)
    carried = dict(re.findall(r'data-(sentence|about|outcome)="([^"]*)"', markup))
    assert carried["outcome"] == "hit"
    assert unescape(carried["sentence"]) == latency(result()) and unescape(carried["about"]) == text
