"""The Playground tab, used as a visitor uses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.browser.visit import Visit
from tests.playground.samples import INJECTIONS
from tests.playground.served import Site, children, slowed, was_cut_short

Open = Callable[..., Visit]


def figures(window: Visit) -> dict[str, float]:
    """The times that the report tells, in seconds; after waiting, some of them in a sentence."""
    found = re.findall(r"(End to end|TTFT|TPOT)\s+<?\s*([\d.]+)\s*(ms|s)\b", window.text("#report"))
    return {name: float(value) * {"s": 1.0, "ms": 1e-3}[unit] for name, value, unit in found}


# Shapes that nobody has had, the page's own default included, which is made ready by itself; the
# larger one comes second, for it could serve the other.
@pytest.mark.parametrize(("width", "repeated"), [(1280, 1), (390, 10)])
def test_the_first_call_compiles_and_the_second_runs(
    visit: Open, site: Site, width: int, repeated: int
) -> None:
    window = visit(width, 844)
    window.hold_seed()
    window.write("Once upon a time " * repeated)
    window.set_number("max_new_tokens", 200)
    window.at("#prediction .outcome-miss").wait_for()

    (engine,) = children(site.served.process.pid)
    with slowed(engine):  # else it may have compiled before the page has asked what it does
        window.at("#generate").click()
        window.at("#status .status-compiling, #status .status-tracing").first.wait_for()
    window.wait_for_result()
    assert window.text("#report .badge") == "MISS"
    missed = figures(window)
    assert "went into making the function" in window.text("#report")
    written = window.text("#story .story-new")

    window.at("#prediction .outcome-hit").wait_for()
    window.generate()
    assert window.text("#report .badge") == "HIT"
    against = r"[\d,.]+× faster than the first call of this shape, compiled \d{4}-\d\d-\d\d \d\d:"
    assert re.search(against, window.text("#report"))
    hit = figures(window)
    assert hit["TTFT"] < missed["TTFT"], "the first token had waited for the compile"
    assert missed["TTFT"] > 0.5 * missed["End to end"]
    assert window.text("#story .story-new") == written, "the same seed gives the same text"
    assert window.overflow() == 0


def test_each_press_writes_a_new_text_and_reports_its_seed(visit: Open) -> None:
    window = visit()
    window.set_number("max_new_tokens", 24)
    window.set_number("temperature", 2)
    texts, seeds = [], []
    for _ in range(3):
        window.generate()
        texts.append(window.text("#story .story-new"))
        reported = re.search(r"Seed (\d+)", window.text("#origin"))
        assert reported is not None
        seeds.append(reported[1])
    assert len(set(seeds)) == 3
    assert len(set(texts)) > 1  # two may be alike by chance: some end with their first token
    window.hold_seed()
    window.has_value("#seed input", seeds[-1])
    window.generate()
    assert window.text("#story .story-new") == texts[-1], "its seed gives the same text"

    window.at("#view_code button").first.click()
    window.at("#code_form label", has_text="This library").click()
    window.at("#request_code", has_text=f"seed={seeds[-1]}").wait_for()


def test_a_text_that_was_cut_is_copied_and_continued(visit: Open) -> None:
    window = visit(390, 844, permissions=["clipboard-read", "clipboard-write"])
    window.write("The old owl")
    window.set_number("max_new_tokens", 8)
    window.set_number("temperature", 0)  # one sampled text in fifteen ends by itself before
    window.generate()
    written = window.at("#story .story-new").text_content()
    assert "New tokens 8" in window.text("#origin")
    window.at("#copy_text").click()
    window.at("#copy_text", has_text="Copied").wait_for()
    assert window.page.evaluate("navigator.clipboard.readText()") == written
    window.at("#continue_text").click()
    window.at("#history tbody tr >> nth=1").wait_for()
    window.wait_for_result()
    assert window.at("#story .story-prompt").text_content() == f"The old owl{written}"
    assert window.overflow() == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_a_problem_is_in_sight_and_the_result_is_the_earlier_run_s(visit: Open, width: int) -> None:
    window = visit(width, {1280: 800, 390: 844}[width])
    window.write("The old owl")
    window.set_number("max_new_tokens", 8)
    window.generate()
    earlier = window.at("#origin .origin-earlier")
    assert not earlier.is_visible()
    window.write("Once " * 3000)
    window.page.evaluate("document.getElementById('history').scrollIntoView()")
    window.page.keyboard.press("Control+Enter")
    problem = window.at("#notice .problem")
    problem.wait_for()
    window.page.wait_for_function(
        """() => { const box = document.querySelector('#notice .problem')?.getBoundingClientRect();
        return box && box.top >= 0 && box.bottom <= innerHeight; }"""
    )
    assert "lower New tokens" in problem.inner_text()
    assert earlier.is_visible()
    assert (
        float(window.page.evaluate("getComputedStyle(document.querySelector('#story')).opacity"))
        < 1
    )
    window.write("The old owl")
    earlier.wait_for(state="hidden")


def test_a_notice_stays_when_a_change_from_before_the_press_is_told_late(visit: Open) -> None:
    window = visit()
    # How the event of a change, whenever Gradio carries it out, asks what to leave of a notice.
    left = "keptNotice('what the press was answered')"
    window.write(" ")
    assert window.page.evaluate(left) == ""
    window.page.keyboard.press("Control+Enter")
    window.at("#notice .problem").wait_for()
    window.page.evaluate("document.getElementById('status_is_new').click()")  # there is news
    assert window.page.evaluate(left) != ""
    window.write("The old owl")
    window.at("#notice .problem").wait_for(state="detached")
    assert window.page.evaluate(left) == ""


# A model of which a chunk holds far less than the text: the small ones' whole text is one chunk.
def test_the_text_comes_in_pieces_that_only_grow(visit: Open) -> None:
    window = visit()
    window.choose_model("slow-gpt2")
    window.set_number("max_new_tokens", 256)
    window.watch_story()
    window.generate()
    written = [text for text in window.seen() if text]
    assert len(written) >= 3
    for earlier, later in pairwise(written):
        assert later.startswith(earlier)


def test_stop_keeps_what_was_written(visit: Open, site: Site) -> None:
    window = visit()
    window.choose_model("slow-gpt2")
    window.set_number("max_new_tokens", 256)
    (engine,) = children(site.served.process.pid)
    with slowed(engine):  # else it may be done before a busy browser has shown the first of it
        window.at("#generate").click()
        window.page.wait_for_function(
            "document.querySelector('#story .story-new')?.textContent.length > 10"
        )
        window.at("#stop").click()
    window.wait_for_result()
    assert "You stopped it" in window.text("#report")
    assert len(window.text("#story .story-new")) > 10
    assert window.at("#stop").is_disabled()
    unused = re.search(r"(\d+)\s+unused", window.text("#report"))
    assert unused is not None
    assert int(unused[1]) > 0


def test_a_visitor_who_leaves_stops_the_run(visit: Open, site: Site) -> None:
    window = visit()
    window.choose_model("slow-gpt2")
    window.set_number("max_new_tokens", 256)
    before = len(site.log_lines())
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#generate").click()
        window.page.wait_for_function(
            "document.querySelector('#story .story-new')?.textContent.length > 10"
        )
        window.close()
        ended = site.line_after(before)
    assert ended["model"] == site.slow
    assert was_cut_short(ended)
    other = visit()
    other.set_number("max_new_tokens", 8)
    other.generate()
    served = site.log_lines()[-1]
    assert (served["model"], served["ahead"]) == (site.fast, 0)
    assert 0 < served["new_tokens"] <= 8, "a text that was drawn may end by itself"
    assert served["timing"]["queue_s"] < 2, "the engine went on for nobody"


def test_the_keyboard_is_enough(visit: Open, site: Site) -> None:
    window = visit()
    window.choose_model("slow-gpt2")
    window.set_number("max_new_tokens", 256)
    window.at("#prompt textarea").focus()
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.page.keyboard.press("Control+Enter")
        window.page.wait_for_function(
            "document.querySelector('#story .story-new')?.textContent.length > 10"
        )
        window.page.keyboard.press("Escape")
    window.wait_for_result()
    assert "You stopped it" in window.text("#report")
    window.at("#prompt textarea").focus()
    for _ in range(30):
        window.page.keyboard.press("Tab")
        if window.page.evaluate("document.activeElement.id") == "generate":
            break
    outline = window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (window.page.evaluate("document.activeElement.id"), outline) == ("generate", "solid")


def test_a_mistake_is_told_beside_the_button_and_keeps_the_last_result(visit: Open) -> None:
    window = visit()
    window.write("The old owl")
    window.generate()
    story, report = window.text(".story"), window.text(".report")

    window.write("   ")
    window.at("#generate").click()
    window.page.wait_for_function(
        "document.querySelector('#notice')?.innerText.includes('prompt is empty')"
    )

    window.write("Once " * 3000)
    window.at("#generate").click()
    window.page.wait_for_function(
        "document.querySelector('#notice')?.innerText.includes('too long')"
    )
    assert re.search(r"[\d,]+ tokens too long", window.text("#notice"))
    assert (window.text(".story"), window.text(".report")) == (story, report)
    window.at("#generate:enabled").wait_for()

    window.write("The old owl")
    window.generate()
    assert window.text("#notice") == ""


# Keeps back what the server sends to this page beside the answers to its own questions.
_HOLD_MESSAGES = """
() => {
  const ask = window.fetch;
  const released = new Promise((release) => { window.release = release; });
  window.held = "";
  window.fetch = async (...question) => {
    const answer = await ask(...question);
    if (!String(question[0].url ?? question[0]).includes("/queue/data")) return answer;
    const reader = answer.body.getReader();
    const later = new ReadableStream({
      async start(onwards) {
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
          const { value } = piece;
          window.held += new TextDecoder().decode(value);
          released.then(() => onwards.enqueue(value));
        }
        released.then(() => onwards.close());
      },
    });
    return new Response(later, answer);
  };
}
"""


def test_a_press_counts_while_the_refused_one_before_is_not_quite_over(visit: Open) -> None:
    window = visit()
    window.page.evaluate(_HOLD_MESSAGES)
    window.write("   ")
    window.at("#generate").click()
    window.page.wait_for_function(
        "document.querySelector('#notice')?.innerText.includes('prompt is empty')"
    )
    window.page.wait_for_function("window.held.includes('process_completed')")
    window.write("The old owl")
    window.at("#generate").click()
    window.page.locator("#generate:disabled").wait_for()
    window.page.wait_for_timeout(500)  # for the page to have sent it, and to wait for its messages
    window.page.evaluate("window.release()")
    window.wait_for_result()
    assert window.text("#story .story-prompt") == "The old owl"
    assert window.text("#story .story-new")


_DELAY_QUESTIONS = """
() => {
  const ask = window.fetch;
  window.isSlow = true;
  window.fetch = async (...question) => {
    if (window.isSlow) await new Promise((done) => setTimeout(done, 1000));
    return ask(...question);
  };
}
"""


def test_a_notice_stays_when_what_was_typed_before_it_is_answered_later(visit: Open) -> None:
    window = visit()
    window.page.evaluate(_DELAY_QUESTIONS)
    window.write("   ")
    window.page.evaluate(
        "() => { window.isSlow = false; document.getElementById('generate').click(); }"
    )
    window.page.wait_for_function(
        "document.querySelector('#notice')?.innerText.includes('prompt is empty')"
    )
    window.page.wait_for_function(  # which is out of sight while a notice says the same
        "document.querySelector('#prediction')?.textContent.includes('empty')"
    )
    window.page.wait_for_timeout(1500)
    assert "prompt is empty" in window.text("#notice")


def test_text_of_visitors_never_becomes_markup(visit: Open) -> None:
    window = visit()
    prompt = " ".join(INJECTIONS) + " <img src=x onerror='window.hacked=1'>"
    window.write(prompt)
    window.generate()
    assert window.text("#story .story-prompt") == prompt
    assert "${7*7}" in window.text("#history")
    assert window.at("#story img, #story script, #history img, #history script").count() == 0
    assert window.page.evaluate("window.hacked") is None


def test_a_reload_finds_the_history_again(visit: Open) -> None:
    window = visit()
    window.write("A run to remember")
    window.generate()
    window.generate()
    assert window.at("#history tbody tr").count() == 2
    window.go()
    window.settle()
    window.at("#history tbody tr").first.wait_for()
    assert window.at("#history tbody tr").count() == 2
    assert "A run to remember" in window.text("#history")
    window.at("#clear").click()
    window.at("#history .nothing").wait_for()
    window.go()
    window.settle()
    assert "Your runs appear here" in window.text("#history")


def test_a_cleared_history_can_be_brought_back(visit: Open) -> None:
    window = visit()
    window.set_number("max_new_tokens", 8)
    window.generate()
    window.at("#clear").click()
    window.at("#history .nothing").wait_for()
    window.generate()
    window.at("#undo_clear").click()
    window.at("#history tbody tr >> nth=1").wait_for()
    assert window.at("#history tbody tr td:first-child").all_inner_texts() == ["2", "1"]
    assert not window.at("#undo_clear").is_visible()


def test_the_page_stays_live_while_something_compiles(visit: Open, site: Site) -> None:
    window = visit()
    window.choose_model("slow-gpt2")
    window.write("A new shape " * 8)
    window.set_number("num_beams", 3)
    window.at("#prediction .outcome-miss").wait_for()
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#generate").click()
        window.at("#status .status-compiling, #status .status-tracing").first.wait_for()
        window.set_number("max_new_tokens", 33)
        window.page.wait_for_function(
            "document.querySelector('.prediction-key')?.innerText.includes('64 new')"
        )
        busy = window.at("#report .busy").count()
        window.at("#stop").click()
    window.wait_for_result()
    assert busy, "it was predicted only when the compile was over"


def keep_the_engine_busy(window: Visit, num_beams: int) -> None:
    """Asks for a shape that no test has had, whose compile and run take seconds."""
    window.choose_model("slow-gpt2")
    window.set_number("num_beams", num_beams)
    window.set_number("max_new_tokens", 128)
    window.at("#prediction .outcome-miss").wait_for()
    window.at("#generate").click()
    window.at("#report .busy").wait_for()


def test_a_second_visitor_waits_and_is_told_so(visit: Open, site: Site) -> None:
    first, second = visit(), visit()
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        keep_the_engine_busy(first, num_beams=5)
        second.at("#generate").click()
        second.page.wait_for_function(
            "document.querySelector('#report')?.innerText.includes('Queued.')"
        )
        second.at("#status .status-before", has_text="1 request before yours").wait_for()
    first.wait_for_result()
    second.wait_for_result()
    waited = re.search(r"Queue\s+([\d.]+ m?s)", second.text("#report .legend >> nth=0"))
    assert waited is not None, "the wait for the first visitor is part of the second one's time"


def test_a_run_that_is_stopped_while_it_waits_never_begins(visit: Open, site: Site) -> None:
    first, second = visit(), visit()
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        keep_the_engine_busy(first, num_beams=6)
        second.at("#generate").click()
        second.at("#report .busy").wait_for()
        second.at("#stop").click()
        second.page.wait_for_function("document.querySelector('#stop')?.disabled")
    first.wait_for_result()
    second.wait_for_result()
    assert "Stopped before it began" in second.text("#notice")
    assert "Press Show what XLA does" in second.text("#report")


def test_an_example_fills_in_prompt_and_options(visit: Open) -> None:
    window = visit()
    window.at("#examples button", has_text="Four beams").click()
    window.page.wait_for_function(
        "document.querySelector('.prediction-key')?.innerText.includes('4 beams')"
    )
    window.at("button", has_text="More options").click()
    assert window.at('#length_penalty input[type="range"]').is_enabled()
    assert window.at('#top_k input[type="range"]').is_disabled()


@pytest.mark.parametrize("size", [(390, 844), (853, 533)], ids=["phone", "at 150%"])
def test_on_a_small_screen_text_badge_and_button_are_in_sight(
    visit: Open, size: tuple[int, int]
) -> None:
    window = visit(*size)
    window.generate()
    window.page.wait_for_function(
        """() => {
          const place = (part) => document.querySelector(part)?.getBoundingClientRect() ?? {};
          const [top, bar] = [place("#top").bottom, place(".within-reach").top];
          return ["#story .story", "#report .badge"].every(
            (part) => place(part).top >= top && place(part).bottom <= bar);
        }"""
    )
    window.at("#history").scroll_into_view_if_needed()
    for button in ("#generate", "#stop", "#walkthrough_show"):
        box = window.at(button).bounding_box()
        assert box is not None and box["y"] > 0 and box["y"] + box["height"] <= size[1], button
    assert window.overflow() == 0
    # The bar covers nothing that could not be scrolled above it.
    window.page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    assert window.page.evaluate(
        "document.querySelector('#history').getBoundingClientRect().bottom"
        " <= document.querySelector('.within-reach').getBoundingClientRect().top"
    )


def test_the_tab_that_is_shown_is_marked_in_the_bar_of_a_phone(visit: Open) -> None:
    window = visit(390, 844)
    for name in ("Compare", "About these numbers", "Playground"):
        window.open_tab(name)
        window.at("#tabs [role=tab][aria-selected=true]", has_text=name).wait_for()
        assert window.overflow() == 0


def test_the_words_of_the_first_screen_are_explained(visit: Open) -> None:
    window = visit(390, 844, has_touch=True)
    window.at("#prediction .term").tap()
    panel = window.at("#terms")
    panel.wait_for()
    assert set(window.at("#terms dt").all_inner_texts()) >= {"Shape", "Slots", "Padding", "Beams"}
    window.page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    assert window.overflow() == 0


def test_the_presenter_view_needs_no_scrolling(visit: Open) -> None:
    window = visit(1920, 1080)
    size = "parseFloat(getComputedStyle(document.querySelector('#report .figures dd')).fontSize)"
    height = "document.documentElement.scrollHeight"
    window.generate()
    assert window.page.evaluate("document.querySelector('#page').clientWidth") > 0.9 * 1920
    ordinary = window.page.evaluate(size)
    window.at("#present_switch").click()
    window.page.wait_for_url("**present=1*")
    assert window.page.evaluate(size) > 1.5 * ordinary
    assert window.page.evaluate(height) == 1080

    window.go()
    window.settle()
    window.generate()
    assert window.page.evaluate(height) == 1080
    for part in ("#generate", "#prediction", "#temperature", "#report .phases"):
        box = window.at(part).bounding_box()
        assert box is not None and box["y"] + box["height"] <= 1080, part
    window.at("#present_switch").click()
    window.page.wait_for_url(lambda url: "present" not in url)
    assert window.at("#history").is_visible()


def test_light_or_dark_is_chosen_in_the_header_and_remembered(visit: Open) -> None:
    window = visit(color_scheme="light")
    ground = "getComputedStyle(document.querySelector('.area-request')).backgroundColor"
    light = window.page.evaluate(ground)
    window.at("#dark_switch").click()
    dark = window.page.evaluate(ground)
    assert dark != light
    window.go(window.page.url.split("?")[0])
    window.settle()
    assert window.page.evaluate(ground) == dark
    window.at("#dark_switch").click()
    window.go()
    window.settle()
    assert window.page.evaluate(ground) == light


def test_the_layout_does_not_jump_while_text_streams(visit: Open, site: Site) -> None:
    window = visit()
    window.write("The layout")
    window.generate()
    places = "['#story', '#report', '#entries'].map(s => document.querySelector(s).offsetTop)"
    before = window.page.evaluate(places)
    (engine,) = children(site.served.process.pid)
    with slowed(engine):
        window.at("#generate").click()
        window.at("#report .busy").wait_for(state="attached")
        during = window.page.evaluate(places)
    window.wait_for_result()
    assert before == during == window.page.evaluate(places)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_system_s_colours(visit: Open, scheme: str) -> None:
    window = visit(color_scheme=scheme)
    ground = window.page.evaluate(
        "getComputedStyle(document.querySelector('.area-request')).backgroundColor"
    )
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 26, 35)"}[scheme]


def test_reduced_motion_is_honoured(visit: Open) -> None:
    window = visit(reduced_motion="reduce")
    assert (
        window.page.evaluate(
            "getComputedStyle(document.querySelector('.status-dot')).animationName"
        )
        == "none"
    )


# Counts what wakes the page up: Gradio's `tick` sets a timer without a delay.
COUNT_TIMERS = """() => {
  window.timers = 0;
  const set = window.setTimeout;
  window.setTimeout = (run, delay) => {
    if (!delay) window.timers += 1;
    return set(run, delay);
  };
}"""


def test_a_page_at_rest_is_at_rest(visit: Open, site: Site) -> None:
    window = visit()
    window.generate()
    for name in ("Functions", "Playground"):
        window.open_tab(name)
    marks: list[str] = []
    while len(marks) < 5 or len(set(marks[-5:])) > 1:  # what that and others have set off
        window.page.wait_for_timeout(1000)
        marks.append(window.page.request.get(f"{site.url}/changes").text())
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    window.page.evaluate(COUNT_TIMERS)
    window.page.wait_for_timeout(4000)
    assert set(asked) == {"changes"}, "nothing is new"
    assert window.page.evaluate("window.timers") <= len(asked), "Gradio's tabs go round and round"


def test_prompt_lookup_writes_the_same_text_and_tells_of_its_passes(visit: Open) -> None:
    window = visit()
    window.set_number("temperature", 0)
    window.write("The fox, the fox, the fox")
    window.generate()
    written = window.text("#story .story-new")
    assert "Tokens a pass" not in window.text("#report")
    window.open_more()
    window.set_number("prompt_lookup_num_tokens", 3)
    window.generate()
    assert window.text("#story .story-new") == written
    [a_pass] = re.findall(r"Tokens a pass\s+([\d.]+)", window.text("#report"))
    assert 1.0 <= float(a_pass) <= 4.0
    window.set_number("num_beams", 2)
    problem = "Prompt lookup works with one beam, not with 2"
    window.at("#prediction, #notice", has_text=problem).first.wait_for()
