"""A text that goes on from another token, with an engine that a test leads."""

from playwright.sync_api import expect

from tests.browser.visit import Visit
from tests.playground.fake_backend import FakeBackend
from xla_backend.interface.prompt import TokenIds


def go_on(window: Visit, view: str, place: int, alternative: str) -> None:
    """Presses an alternative of a token."""
    token = window.at(f"{view} button.token").nth(place)
    token.scroll_into_view_if_needed()
    window.let_be_filled_in()  # scrolling hides what the click opens
    token.click()
    window.at(f"{view} button.alternative", has_text=alternative).click()


def test_branches_are_a_tree_and_two_of_them_stand_side_by_side(
    window: Visit, engine: FakeBackend
) -> None:
    window.write("Say it")
    window.set_number("max_new_tokens", 12)
    window.generate()
    expect(window.at("#branches")).to_be_hidden()
    window.at("#result_view label", has_text="Tokens").click()
    go_on(window, "#tokens", 1, "other0")
    window.says("#branch_list", "As it was written", "“␣other0” 14% instead of “␣was” 61%")
    expect(window.at("#branch_pair figure")).to_have_count(2)
    window.says("#branch_pair figure:nth-child(2)", " there was there was a", "TTFT")
    first = engine.streams[-1].request
    # The prompt's six tokens, the one before, and the alternative.
    assert first.prompt == TokenIds((0, 1, 2, 3, 4, 5, 0, 100))
    assert first.options.max_new_tokens == 10
    assert first.cache_salt

    go_on(window, "#branch_tokens", 0, "other1")
    expect(window.at("#branch_list ul ul ul button[data-side=right]")).to_have_count(1)
    window.wait_for_result()
    second = engine.streams[-1].request
    assert second.prompt == TokenIds((*first.prompt.ids, 101))
    assert second.cache_salt == first.cache_salt  # so that it finds those before cached

    window.at("#branch_list [data-branch='0'][data-side=left]").click()
    window.says("#branch_pair figure:nth-child(1)", "As it was written")
    window.at("#branch_code").click()
    window.has_value("#prompt textarea", "Say it there was a")
    window.write("Say it")

    window.generate()  # another text has no branches yet
    expect(window.at("#branches")).to_be_hidden()
