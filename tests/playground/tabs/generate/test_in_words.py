"""An answer's latency in a sentence."""

import re
from html import unescape

import pytest

from playground.tabs.generate.in_words import latency, quote, read_again
from playground.ui.markup import rendered
from tests.playground.samples import INJECTIONS, miss, result
from xla_backend import CacheOutcome, FirstCall
from xla_backend.interface.results import PrefixMiss


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


def test_what_was_read_again_is_named_with_its_cost() -> None:
    parted = PrefixMiss("differs", 30, 412, 0.148, 0, "system", "date")
    assert read_again(parted) == (
        "412 tokens read again, about 148 ms. It parts from an earlier prompt at token 31, in "
        "message 1 (system): a date or time."
    )
    evicted = PrefixMiss("evicted", 64, 1, at=0.0, by_others=True)
    assert read_again(evicted) == (
        "1 token read again. From token 65 on, it was evicted from memory at 00:00:00 UTC, for a "
        "request with another salt."
    )
    assert read_again(PrefixMiss("new salt", 0)) == read_again(None) == ""


def test_nothing_written_is_not_quoted() -> None:
    assert latency(result(tokens=(), text="")) == ""
    assert rendered(quote)("", "here") == ""


@pytest.mark.parametrize("text", INJECTIONS)
def test_the_button_carries_the_sentence_and_what_was_measured(text: str) -> None:
    markup = rendered(quote)(latency(result()), text)
    [carried] = re.findall(r'data-quote="([^"]*)"', markup)
    assert unescape(carried) == f"{latency(result())}\n{text}"
