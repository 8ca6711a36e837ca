"""A run of the Playground tab, from the press to its end, with an engine that a test leads."""

import re
import time
from collections.abc import Callable

from playwright.sync_api import Request, Route, expect

from tests.browser.visit import Visit
from tests.playground.fake_backend import FakeBackend
from tests.waiting import wait_until
from xla_backend import EngineStatus

Open = Callable[..., Visit]
PLACES = "['#story', '#report', '#meanings'].map((each) => document.querySelector(each).offsetTop)"
NEW = "#story .story-new"
_STATES = """async () => {
  const scripts = performance.getEntriesByType("resource").map(({name}) => name);
  const parts = await import(scripts.find((name) => name.includes("/statustracker-")));
  const noted = Object.values(parts).find((part) => part.prototype?.resolve_args);
  return noted.prototype.resolve_args({fn_index: 0});
}"""


def test_a_run_is_told_step_by_step_and_nothing_jumps(window: Visit, engine: FakeBackend) -> None:
    window.write("A tale")
    window.at("#prediction .outcome-miss").wait_for()
    engine.hold("load", "make", "prefill", "text")
    window.at("#generate").click()
    window.at("#status .status-loading").wait_for()
    window.says("#report .busy", "Loading the model")
    engine.release("load")
    window.at("#status .status-compiling").wait_for()
    window.says("#report .busy", "Compiling this shape")
    window.set_number("max_new_tokens", 33)  # the page stays live
    window.says("#prediction .prediction-key", "64 new")
    window.set_number("max_new_tokens", 96)
    engine.release("make")
    window.at("#status .status-generating").wait_for()
    engine.release("prefill")
    engine.write(" there")
    expect(window.at(NEW)).to_have_text("there")
    engine.write(" was")
    expect(window.at(NEW)).to_have_text("there was")
    engine.end()
    window.wait_for_result()
    window.says("#report", "MISS", "went into tracing and compiling")
    assert window.text("#story .story-prompt") == "A tale"

    window.at("#prediction .outcome-hit").wait_for()
    before = window.page.evaluate(PLACES)
    window.at("#generate").click()
    engine.write(" there")
    expect(window.at(NEW)).to_have_text("there")
    window.says("#report .busy", "Generating")
    assert window.page.evaluate(PLACES) == before
    engine.end()
    window.wait_for_result()
    window.says(
        "#report", "HIT", re.compile(r"faster to the first token than the first call of this shape")
    )
    assert window.page.evaluate(PLACES) == before


def test_the_header_counts_from_the_click_whatever_it_counted_before(
    window: Visit, engine: FakeBackend
) -> None:
    """It went on from the engine's start where Gradio had left the element of its clock."""
    counted = "() => parseInt(document.querySelector('#status .status-clock')?.textContent)"
    engine.status = EngineStatus("loading", "gpt2-stories", time.perf_counter() - 100.0)
    window.page.wait_for_function(f"({counted})() >= 100")
    engine.hold("turn")
    window.at("#generate").click()
    window.at("#report .phase").wait_for()
    window.page.wait_for_function(f"({counted})() < 60")
    window.page.wait_for_timeout(600)  # the script counts four times a second
    assert window.page.evaluate(counted) < 60
    engine.release()


def test_the_final_numbers_wait_for_no_further_event(window: Visit, engine: FakeBackend) -> None:
    window.write("A tale")
    engine.hold("text")
    window.at("#generate").click()
    engine.write(" there")
    expect(window.at(NEW)).to_have_text("there")
    # What follows the run is answered later.
    held: list[Route] = []
    window.page.route("**/run/**", lambda route: held.append(route))
    engine.end()
    window.says("#report", "Decode tokens/s")
    expect(window.at("#generate")).to_be_disabled()
    assert window.page.evaluate(_STATES) == [], "Gradio's page copies what nobody is shown"
    for route in held:
        route.continue_()
    window.page.unroute("**/run/**")
    window.wait_for_result()


def test_each_press_draws_a_seed_unless_one_is_held(window: Visit, engine: FakeBackend) -> None:
    seeds = []
    for _ in range(2):
        window.generate()
        seeds.append(engine.asked[-1][2].seed)
        window.says("#origin", f"Seed {seeds[-1]}")
    assert len(set(seeds)) == 2
    window.open_more()
    window.at("#hold input").check()
    window.has_value("#seed input", str(seeds[-1]))
    window.generate()
    assert engine.asked[-1][2].seed == seeds[-1]
    window.at("#hold input").uncheck()


def test_a_text_that_was_cut_is_copied_and_continued(window: Visit, engine: FakeBackend) -> None:
    window.resize(390, 844)
    window.write("The old owl")
    window.generate()
    window.at("#copy_text").click()
    window.says("#copy_text", "Copied")
    assert window.page.evaluate("navigator.clipboard.readText()") == " there was a"
    window.at("#continue_text").click()
    window.says("#story .story-prompt", "The old owl there was a")
    wait_until(lambda: len(engine.asked) == 2)
    assert engine.asked[-1][1] == "The old owl there was a"
    assert window.overflow() == 0


def test_the_keyboard_starts_and_stops_a_run(window: Visit, engine: FakeBackend) -> None:
    engine.hold("text")
    window.at("#prompt textarea").focus()
    window.page.keyboard.press("Control+Enter")
    window.at("#stop:enabled").wait_for()  # The text of the run before may be the same.
    engine.write(" there was")
    expect(window.at(NEW)).to_have_text("there was")
    window.page.keyboard.press("Escape")
    window.says("#origin", "You stopped it")
    window.wait_for_result()
    expect(window.at(NEW)).to_have_text("there was")
    expect(window.at("#stop")).to_be_disabled()
    window.at("#prompt textarea").focus()
    focused = "document.activeElement.id"
    for _ in range(30):
        window.page.keyboard.press("Tab")
        if window.page.evaluate(focused) == "generate":
            break
    outline = window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (window.page.evaluate(focused), outline) == ("generate", "solid")


def test_a_stop_while_xla_compiles_waits_for_it(window: Visit, engine: FakeBackend) -> None:
    window.write("A prompt of the size")
    window.at("#prediction .outcome-miss").wait_for()
    engine.hold("make")
    window.at("#generate").click()
    window.at("#status .status-compiling").wait_for()
    window.at("#stop").click()
    window.says("#notice", "The compile cannot be interrupted; its result is cached.")
    window.says("#stop", "Stopping")
    engine.release("make")
    window.says("#notice", "Stopped before any text.")
    window.write("Another prompt of that size")
    window.at("#prediction .outcome-hit").wait_for()


def test_a_visitor_waits_stops_and_leaves(visit: Open, window: Visit, engine: FakeBackend) -> None:
    first, second = window, visit()
    engine.hold("text")
    first.at("#generate").click()
    first.at("#status .status-generating").wait_for()
    engine.hold("turn")
    second.at("#generate").click()
    second.says("#report", "QUEUED", "Queued: 1 request ahead")
    second.says("#status .status-activity", "Queued: 1 request ahead")
    second.at("#stop").click()
    second.says("#notice", "Stopped before any text.")
    expect(second.at("#report .report")).to_have_count(0)

    second.at("#generate:enabled").click()
    engine.reached("turn")
    engine.clock.advance(12.0)
    engine.release()
    for each in (first, second):
        each.says("#report", "Decode tokens/s")
    second.says("#report", re.compile(r"Waited\s*12\.0\ss"), "12.0 s in the queue")
    assert len(engine.asked) == 3

    engine.hold("text")
    second.at("#generate:enabled").click()
    engine.write(" somewhere")
    expect(second.at(NEW)).to_have_text("somewhere")
    second.close()
    wait_until(lambda: engine.streams[-1].is_over)
    assert engine.streams[-1].is_stopped
    engine.release()
    first.generate()
    first.says("#report", "End to end")


def write_somewhere(window: Visit, engine: FakeBackend) -> None:
    window.write("The old owl")
    engine.hold("text")
    window.at("#generate").click()
    engine.write(" somewhere")
    window.says(NEW, "somewhere")


def test_what_was_written_until_an_engine_died_stays(window: Visit, engine: FakeBackend) -> None:
    write_somewhere(window, engine)
    engine.crash()
    window.says("#notice .problem", "The engine stopped.")
    window.says("#origin", "Interrupted")
    window.says(NEW, "somewhere")
    engine.release()
    window.at("#retry_text").click()
    window.wait_for_result()
    window.says("#report", "MISS")
    expect(window.at("#retry_text")).to_be_hidden()
    assert window.text("#notice") == ""


def test_what_was_written_until_a_reload_stays(window: Visit, engine: FakeBackend) -> None:
    write_somewhere(window, engine)
    window.go()
    engine.release()
    window.says("#origin", "Interrupted")
    window.says("#story", "The old owl", "somewhere")
    expect(window.at("#retry_text")).to_be_visible()
    window.choose_model("t5-stories")  # which has other examples, and they come with the rest
    expect(window.at("#examples")).not_to_contain_text("Longer prompt, another shape")
    assert window.text(NEW).strip() == "somewhere"
    window.choose_model("gpt2-stories")


def test_a_download_shows_how_far_it_is(window: Visit, engine: FakeBackend) -> None:
    engine.hold("load")
    window.choose_model("openai-community/gpt2")
    window.says("#model", "Downloaded when first used")
    window.at("#generate").click()
    engine.reached("load")
    for share in (0.25, 0.75):
        engine.status = EngineStatus("downloading", "GPT-2", progress=share)
        window.says("#report .busy", "Downloading the model")
        bar = window.at("#report .phase-share")
        expect(bar).to_have_attribute("aria-valuenow", f"{100 * share:.0f}")
    engine.release()
    window.says("#report", "MISS")
    window.choose_model("gpt2-stories")


def test_a_mistake_is_in_sight_beside_the_earlier_run(window: Visit, engine: FakeBackend) -> None:
    window.write("The old owl")
    window.generate()
    story, report = window.text(".story"), window.text(".report")
    earlier, problem = window.at("#origin .origin-earlier"), window.at("#notice .problem")
    for size in ((1280, 800), (390, 844)):
        window.resize(*size)
        expect(earlier).to_be_hidden()
        window.write("Once " * 300)
        window.page.evaluate("document.getElementById('meanings').scrollIntoView()")
        window.page.keyboard.press("Control+Enter")
        expect(problem).to_contain_text("room for 150 tokens")
        expect(problem).to_be_in_viewport(ratio=1)
        expect(earlier).to_be_visible()
        faded = "Number(getComputedStyle(document.querySelector('#story')).opacity) < 1"
        assert window.page.evaluate(faded)
        window.write("   ")
        window.at("#generate:enabled").click()
        expect(problem).to_contain_text("prompt is empty")
        assert (window.text(".story"), window.text(".report")) == (story, report)
        window.write("The old owl")
        expect(problem).to_have_count(0)
    assert len(engine.asked) == 1


def test_a_notice_outlives_what_was_typed_before_the_press(window: Visit) -> None:
    late: list[Route] = []

    def is_of_the_change(request: Request) -> bool:
        return '"   "' in (request.post_data or "")

    def hold(route: Route) -> None:
        late.append(route) if is_of_the_change(route.request) else route.continue_()

    window.page.route("**/run/**", hold)
    with window.page.expect_request(is_of_the_change):
        window.write("   ")
    window.page.unroute("**/run/**")
    window.page.evaluate("document.getElementById('generate').click()")
    window.says("#notice", "prompt is empty")
    answers = [route.request for route in late]
    for route in late:
        route.continue_()
    for each in answers:
        response = each.response()
        response.finished()
    expect(window.at("#prediction")).to_have_text(re.compile("empty"))
    window.let_be_filled_in()
    window.says("#notice", "prompt is empty")

    # How a change's event, whenever Gradio carries it out, asks what to leave of a notice.
    left = "keptNotice('what the press was answered')"
    assert window.page.evaluate(left) != ""
    window.page.evaluate("document.getElementById('status_is_new').click()")  # there is news
    assert window.page.evaluate(left) != ""
    window.write("The old owl")
    expect(window.at("#notice .problem")).to_have_count(0)
    assert window.page.evaluate(left) == ""
