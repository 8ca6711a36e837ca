"""What stands beside the text after a run, and that it says what was measured."""

import html
import re
from dataclasses import replace

import pytest

from playground.context.runs import Shown
from playground.tabs.generate.report import (
    empty_story,
    origin,
    report,
    story,
    waiting_report,
)
from playground.tabs.generate.token_view import token_view
from playground.ui.wording import ANSWERING
from playground.walkthrough.introduction import introduction
from tests.playground.reader import is_text, words
from tests.playground.samples import INJECTIONS, KEY, miss, result
from xla_backend import (
    CacheKey,
    CacheOutcome,
    FirstCall,
    GenerationOptions,
    Prediction,
    Timing,
    question,
)
from xla_backend.interface.results import Finish
from xla_backend.interface.timing import Span

HIT = Prediction(CacheOutcome.HIT, KEY, KEY, 5, 0.1)


def test_a_cached_call_says_how_many_times_faster_it_was_than_what() -> None:
    # Making the function took 3 s, the first token took this call 20 ms.
    text = words(report(Shown("Once", result())))
    assert text.startswith("HIT ")
    assert (
        "151× faster to the first token than the first call of this shape, compiled 2025-11-24"
        in text
    )
    assert "End to end 102 ms" in text
    assert "Decode tokens/s 25" in text
    assert "Tokens per pass" not in text, "no drafts were asked for"
    assert "Tokens per pass (drafts accepted) 2.0" in words(report(Shown("Once", result(passes=1))))
    assert "TTFT 22 ms TPOT 40 ms" in text

    restored = FirstCall(CacheOutcome.DISK, trace_s=0.1, compile_s=0.1, run_s=0.1, made_at=1.0)
    text = words(report(Shown("Once", result(first_call=restored))))
    assert "11× faster to the first token than restoring this shape from disk" in text


def test_a_first_call_says_what_making_the_function_took() -> None:
    text = words(report(Shown("Once", miss())))
    assert text.startswith("MISS ")
    assert "3.00 s of this went into tracing and compiling, once" in text
    assert "faster" not in text

    assert "End to end 3.20 s TTFT 3.10 s TPOT 50 ms Decode tokens/s 20" in text
    for part in ("Queue –", "Trace 1.00 s", "Compile 2.00 s", "Prefill 100 ms", "Decode 100"):
        assert part in text
    quick = Timing(trace_s=0.0002, compile_s=2.0, prefill_s=0.1, decode_s=0.1, total_s=2.2002)
    assert "Trace, shared" in words(report(Shown("Once", miss(timing=quick))))
    assert "shared" not in words(report(Shown("Once", miss())))
    bar = re.search(r'<div class="bar".*?</div>', report(Shown("Once", miss())))
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar[0])]
    assert sum(widths) == pytest.approx(100, abs=0.1)

    markup = report(Shown("Once", miss(cache=CacheOutcome.DISK)))
    text = words(markup)
    assert "3.00 s of this went into restoring the function" in text
    assert "Restore graph 1.00 s Restore code 2.00 s" in text
    assert "First call 3.10 s Restored 3.10 s" in text
    assert "Compile" not in markup.replace("The compiled shape", "")


def test_a_text_that_a_stop_string_ended_says_so_and_counts_what_was_written() -> None:
    options = GenerationOptions(stop=["<b>", "\n"])
    cut = Shown("Once", result(options=options, finish="stop", cut_tokens=2))
    text = words(report(cut))
    assert "TPOT 20 ms Decode tokens/s 50" in text, "of the five tokens that were written"
    assert "Ended by a stop string" in words(origin(cut))
    assert "Stop strings '<b>', '\\n'" in html.unescape(words(origin(cut)))
    assert "<b>" not in origin(cut)
    nothing = Shown("Once", result(text="", tokens=(), finish="stop", cut_tokens=3))
    assert "TTFT 22 ms TPOT 40 ms" in words(report(nothing))
    assert "token-slots" in token_view(nothing)


def test_one_token_or_none_has_no_time_per_further_token() -> None:
    one = result(tokens=result().tokens[:1], since_first_token_s=0.001)
    assert "TTFT 101 ms TPOT – Decode tokens/s –" in words(report(Shown("Once", one)))

    stopped = result(finish="stopped", tokens=(), text="", timing=Timing(total_s=0.0))
    text = words(report(Shown("Once", stopped)))
    assert "TTFT – TPOT – Decode tokens/s –" in text
    assert "You stopped it" in words(origin(Shown("Once", stopped)))


@pytest.mark.parametrize("outcome", list(CacheOutcome))
def test_every_outcome_is_a_word_and_a_colour(outcome: CacheOutcome) -> None:
    markup = report(Shown("Once", result(cache=outcome)))
    assert f'outcome-{outcome.value}" translate="no">{outcome.value.upper()}</span>' in markup


def test_every_slot_of_the_shape_is_drawn_a_large_one_in_proportion() -> None:
    markup = report(Shown("Once", result()))
    strip = re.search(r'<div class="slots".*?</div>', markup)
    assert strip[0].count("slot-padding") == 11
    assert strip[0].count("slot-prompt") == 5
    assert strip[0].count("slot-new") == 3
    assert strip[0].count("slot-room") == 29

    key = CacheKey(512, 1, 256)
    strip = re.search(
        r'<div class="slots".*?</div>',
        report(Shown("Once", result(key=key, requested_key=key, prompt_tokens=300))),
    )
    assert strip[0].count("<i") == 4
    assert 'aria-label="212 padding, 300 prompt, 3 new, 253 unused"' in strip[0]

    slots = "11 padding, 5 {}, 3 new, 29 unused"
    assert f'aria-label="{slots.format("prompt")}"' in report(Shown("Once", result()))
    markup = report(Shown("Once", result()), ANSWERING)
    assert 'aria-label="5 input, 11 padding, 3 new, 29 unused"' in markup
    text = words(markup)
    assert "16 input slots" in text
    for page in (markup, waiting_report(HIT, 0, ANSWERING)):
        assert "prompt" not in words(page).lower()
        assert page.index("slot-prompt") < page.index("slot-padding")


def test_a_larger_function_others_beside_it_and_rounding_are_told() -> None:
    larger = CacheKey(32, 1, 64)
    text = words(report(Shown("Once", result(key=larger, cache=CacheOutcome.REUSED))))
    assert "32 prompt slots" in text
    assert str(KEY) in text

    assert "side by side" not in words(report(Shown("Once", result())))
    text = words(report(Shown("Once", result(batch_size=4))))
    assert "It ran side by side with 3 other requests, which share the processor." in text

    assert "1 other request," in words(report(Shown("Once", result(batch_size=2))))

    assert "rounded" not in words(report(Shown("Once", result())))
    text = words(report(Shown("Once", result(rounded_bits=8, activations="int8"))))
    assert "Weights were rounded to 8 bits. Activations were rounded to 8 bits." in text


@pytest.mark.parametrize(
    ("finish", "said"),
    [
        ("eos", "The model ended it"),
        ("stop", "Ended by a stop string"),
        ("length", "Stopped at 3 tokens"),
    ],
)
def test_what_ended_a_text_is_said_below_it(finish: Finish, said: str) -> None:
    assert said in words(origin(Shown("Once", result(finish=finish))))


def test_loading_is_a_phase_and_time_outside_the_total_is_named() -> None:
    markup = report(Shown("Once", result(load_s=1.5), other_s=4.0))
    assert "Load model 1.50 s" in words(markup)
    assert 'class="phase-load"' in markup
    assert "Not in the total: 4.00 s until the engine had started." in words(markup)
    at_once = words(report(Shown("Once", result(load_s=0.0001))))
    assert "Not in the total" not in at_once
    assert "Load model" not in at_once


@pytest.mark.parametrize("text", INJECTIONS)
def test_prompt_and_text_stay_text(text: str) -> None:
    markup = story(text, text)
    assert text not in markup or "<" not in text
    assert is_text(markup)


def test_the_box_explains_itself_and_says_that_it_is_being_written() -> None:
    assert 'aria-busy="true"' in story("Once", " upon", writing=True)
    assert "caret" not in story("Once", " upon")
    assert "The text appears here" in words(empty_story())
    assert 'href="?tab=runs"' in introduction(), "after a reload, earlier texts are found here"
    markup = story("summarize: a <b>", "A fox.", wording=ANSWERING)
    assert words(markup) == "Input text summarize: a &lt;b&gt; Answer A fox."
    assert words(story("Once", "upon")) == "Once upon"


def test_from_the_click_on_it_says_what_is_awaited_and_for_how_long() -> None:
    missing = replace(HIT, outcome=CacheOutcome.MISS, expected_s=6.2, low_s=4.0, high_s=7.1)
    page = waiting_report(missing, ahead=0, clicked_s=3.4)
    assert "Elapsed 3 s Work expected 4 s to 7.1 s" in words(page)
    assert 'data-spent="3.4"' in page
    assert 'data-expected="7.10"' in page, "a bar for compiling, which fills in that time"
    waits = waiting_report(missing, ahead=1)
    assert words(waits).startswith("QUEUED Queued: 1 request ahead")
    assert "data-expected" not in waits, "nothing is made yet"
    assert "data-expected" not in waiting_report(HIT, ahead=0)
    assert "Work expected" not in words(waiting_report(None, ahead=0))

    prediction = Prediction(CacheOutcome.MISS, KEY, KEY, 5, None)
    assert "Queued: 2 requests ahead" in words(waiting_report(prediction, ahead=2))
    assert "New shape compiled first" in words(waiting_report(prediction, ahead=0))
    assert "Loading the model then compiling" in words(waiting_report(None, ahead=0))
    assert "Already compiled" in words(waiting_report(HIT, ahead=0))


def test_waiting_for_others_is_told_apart_from_work() -> None:
    timing = replace(result().timing, queue_s=3.5, total_s=3.5 + result().timing.total_s)
    page = words(report(Shown("Once", result(timing=timing))))
    assert "This call only had to run. Work 102 ms Waited 3.50 s TTFT 3.52 s TPOT 40 ms" in page
    assert "End to end 3.60 s and TTFT 3.52 s include 3.50 s in the queue." in page
    # Waiting between chunks of the text is none of the first token's.
    spans = (Span("prefill", 0.0, 0.02, tokens=1), Span("queue", 0.02, 3.5))
    later = words(report(Shown("Once", result(timing=timing, spans=spans))))
    assert "End to end 3.60 s includes 3.50 s in the queue." in later
    assert "Waited 3.50 s TTFT 3.52 s TPOT 40 ms" in later
    both = (Span("queue", 0.0, 1.5), Span("prefill", 1.5, 0.02, tokens=1), Span("queue", 1.52, 2.0))
    twice = words(report(Shown("Once", result(timing=timing, spans=both))))
    assert "Waited 3.50 s TTFT 3.52 s TPOT 40 ms" in twice
    assert "TTFT 3.52 s includes 1.50 s in the queue." in twice
    at_once = words(report(Shown("Once", result(timing=replace(timing, queue_s=0.02)))))
    assert "Waited" not in at_once
    assert "End to end 3.60 s TTFT" in at_once


def test_a_result_says_whose_it_is_and_how_it_was_to_be_given() -> None:
    options = GenerationOptions(max_new_tokens=8, temperature=0.7, seed=123456)
    answer = result(model="/folders/<b>", options=options)
    markup = origin(Shown("Once", answer, ended_s=3661.0))
    text = words(markup)
    assert "/folders" not in text
    assert "Limit 8, written 3" in text
    assert "Seed 123456" in text
    assert text.endswith("01:01:01 UTC")
    assert "<b>" not in markup

    asked = Shown(question("Where?", "Be <b>brief</b>."), result())
    assert "System prompt 'Be <b>brief</b>.'" in html.unescape(words(origin(asked)))
    assert "<b>" not in origin(asked)
    for other in (question("Where?"), "Where?"):
        assert "System prompt" not in origin(Shown(other, result()))
