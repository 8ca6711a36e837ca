"""The page says that it is English; what visitors and models write runs as its script does."""

from collections.abc import Callable

from playwright.sync_api import expect

from playground.tabs.chat.report import writing
from playground.tabs.generate.report import story
from playground.ui.wording import ANSWERING
from tests.browser.visit import Visit
from xla_backend import question

# "Once upon a time there was a small house", and an answer that thinks first.
ARABIC = "كان يا ما كان بيت صغير"
ANSWER = "<think>نعم</think>\n\nنعم، كان هناك بيت."


def test_the_page_is_english_and_arabic_text_right_to_left(visit: Callable[..., Visit]) -> None:
    window = visit(locale="ar")
    # Gradio has its own words in the browser's language by now, and has called the page Arabic.
    expect(window.at("footer")).to_contain_text("عبر API")
    expect(window.at("html")).to_have_attribute("lang", "en")

    window.write(ARABIC)
    expect(window.at("#prompt textarea")).to_have_css("unicode-bidi", "plaintext")
    window.generate()
    expect(window.at("#story .story-text")).to_have_css("direction", "rtl")
    window.open_mode("Your runs")
    expect(window.at("#history .run-text").first).to_have_css("direction", "rtl")
    window.open_mode("Playground")

    # An answer to a question, whose headings are English.
    [_, said] = writing(ARABIC, ANSWER)
    answers = story(question(ARABIC), ANSWER, wording=ANSWERING) + said["content"]["value"]
    window.page.evaluate("html => document.querySelector('#report').innerHTML = html", answers)
    parts = window.at("#report :is(.story-part, .chat-answer)")
    expect(parts).to_have_count(3)
    for part in parts.all():
        expect(part).to_have_css("direction", "rtl")
