"""What stands beside the text after a run, and that it says what was measured."""

from __future__ import annotations

import re

import pytest

from playground.families import ANSWERING
from playground.result_panel import (
    Shown,
    downloading,
    empty_report,
    empty_story,
    report,
    story,
    waiting_report,
)
from tests.playground.samples import INJECTIONS, KEY, miss, result
from xla_backend import CacheKey, CacheOutcome, EngineStatus, Prediction, Timing

HIT = Prediction(CacheOutcome.HIT, KEY, KEY, 5, 0.1)


def words(markup: str) -> str:
    """What a reader sees of some HTML."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", markup)).strip()


def test_a_cached_call_says_how_many_times_faster_it_was() -> None:
    # The first call took 3.2 s, this one ran for 0.1 s.
    text = words(report(Shown("Once", result())))
    assert text.startswith("HIT ")
    assert "32× faster than the first call of this shape" in text
    assert "Total 102 ms" in text
    assert "Speed 30 tokens/s" in text
    assert "First token 20 ms" in text


def test_a_first_call_says_what_making_the_function_took() -> None:
    text = words(report(Shown("Once", miss())))
    assert text.startswith("MISS ")
    assert "3.00 s of this went into making the function, once" in text
    assert "faster" not in text


@pytest.mark.parametrize("outcome", list(CacheOutcome))
def test_every_outcome_is_a_word_and_a_colour(outcome: CacheOutcome) -> None:
    markup = report(Shown("Once", result(cache=outcome)))
    assert f'<span class="badge outcome-{outcome.value}">{outcome.value.upper()}</span>' in markup


def test_every_phase_has_its_number() -> None:
    text = words(report(Shown("Once", miss())))
    for part in ("Queue –", "Trace 1.00 s", "Compile 2.00 s", "First token 100 ms", "Decode 100"):
        assert part in text


def test_the_widths_of_the_phases_add_up_to_the_whole_bar() -> None:
    bar = re.search(r'<div class="bar".*?</div>', report(Shown("Once", miss())))
    assert bar is not None
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar[0])]
    assert sum(widths) == pytest.approx(100, abs=0.1)


def test_every_slot_of_the_shape_is_drawn() -> None:
    markup = report(Shown("Once", result()))
    strip = re.search(r'<div class="slots".*?</div>', markup)
    assert strip is not None
    assert strip[0].count("slot-padding") == 11
    assert strip[0].count("slot-prompt") == 5
    assert strip[0].count("slot-new") == 3
    assert strip[0].count("slot-room") == 29


def test_a_large_shape_is_drawn_in_proportion() -> None:
    key = CacheKey(512, 1, 256)
    strip = re.search(
        r'<div class="slots".*?</div>',
        report(Shown("Once", result(key=key, requested_key=key, prompt_tokens=300))),
    )
    assert strip is not None
    assert strip[0].count("<i") == 4
    assert 'aria-label="212 padding, 300 prompt, 3 new, 253 unused"' in strip[0]


def test_a_larger_function_is_named_beside_the_one_that_was_asked_for() -> None:
    larger = CacheKey(32, 1, 64)
    text = words(report(Shown("Once", result(key=larger, cache=CacheOutcome.REUSED))))
    assert "32 prompt slots" in text
    assert str(KEY) in text


def test_a_run_beside_others_says_beside_how_many() -> None:
    assert "side by side" not in words(report(Shown("Once", result())))
    text = words(report(Shown("Once", result(batch_size=4))))
    assert "It ran side by side with 3 other requests, which share the processor." in text
    assert "1 other request," in words(report(Shown("Once", result(batch_size=2))))


def test_a_run_that_was_stopped_at_once_can_be_shown() -> None:
    stopped = result(finish="stopped", tokens=(), text="", timing=Timing(total_s=0.0))
    text = words(report(Shown("Once", stopped)))
    assert "Speed – tokens/s" in text
    assert "You stopped it" in text


def test_what_is_not_in_the_total_is_said() -> None:
    text = words(report(Shown("Once", result(load_s=1.5), other_s=4.0)))
    assert "Not in the total: loading the model (1.50 s) and" in text
    assert "waiting for the engine to start (4.00 s)" in text
    assert "Not in the total" not in words(report(Shown("Once", result(load_s=0.0001))))


@pytest.mark.parametrize("text", INJECTIONS)
def test_prompt_and_text_stay_text(text: str) -> None:
    markup = story(text, text)
    assert text not in markup or "<" not in text
    assert "<script" not in markup
    assert "<img" not in markup


def test_the_box_says_that_it_is_being_written() -> None:
    assert 'aria-busy="true"' in story("Once", " upon", writing=True)
    assert "caret" not in story("Once", " upon")


def test_before_the_first_run_the_page_explains_itself() -> None:
    assert "The first time a shape is used, XLA must compile it." in words(empty_report())
    assert "The text appears here" in words(empty_story())


def test_while_waiting_the_page_says_for_what() -> None:
    prediction = Prediction(CacheOutcome.MISS, KEY, KEY, 5, None)
    assert "Waiting for others." in words(waiting_report(prediction, ahead=2))
    assert "Making the function" in words(waiting_report(prediction, ahead=0))
    assert "Loading the model, then making the function" in words(waiting_report(None, ahead=0))
    assert "Running it" in words(waiting_report(HIT, ahead=0))


def test_an_answer_stands_apart_from_its_input() -> None:
    markup = story("summarize: a <b>", "A fox.", family=ANSWERING)
    assert words(markup) == "Input text summarize: a &lt;b&gt; Answer A fox."
    assert words(story("Once", "upon")) == "Once upon"


def test_what_is_padded_on_the_right_is_drawn_so() -> None:
    slots = "11 padding, 5 {}, 3 new, 29 unused"
    assert f'aria-label="{slots.format("prompt")}"' in report(Shown("Once", result()))
    markup = report(Shown("Once", result()), ANSWERING)
    assert 'aria-label="5 input, 11 padding, 3 new, 29 unused"' in markup
    text = words(markup)
    assert "16 input slots" in text
    assert "The answer ended at max new tokens" in text
    for page in (markup, empty_report(ANSWERING), waiting_report(HIT, 0, ANSWERING)):
        assert "prompt" not in words(page).lower()
        assert page.index("slot-prompt") < page.index("slot-padding")


def test_a_download_is_drawn_as_far_as_it_is() -> None:
    status = EngineStatus("downloading", "someone/<b>: 12 of 48 MB", progress=0.25)
    markup = downloading(status)
    assert 'aria-valuenow="25"' in markup
    assert "width:25.00%" in markup
    assert words(markup).endswith("someone/&lt;b&gt;: 12 of 48 MB")
    assert downloading(EngineStatus("loading", "someone/thing")) == ""
