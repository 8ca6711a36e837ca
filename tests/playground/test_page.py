"""What the page is built of: places, endpoints, and what it needs at launch."""

import functools
import inspect
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest

from playground import create_app, launch_options
from playground.context.limits import Limits
from playground.page import Page
from playground.places import ADMIN_MODES, PLACES, addresses, modes, places
from tests.playground.api_page import ApiPage
from tests.playground.fake_backend import MODELS, TALKER, FakeBackend
from xla_backend.checkpoints.added_models import AddedModels


@functools.cache
def a_page(**options: Any) -> Page:
    return create_app(FakeBackend(), **options)


@functools.cache
def page_for_chat(**options: Any) -> Page:
    """One whose engine offers a model that Chat is there for, before all others."""
    return create_app(FakeBackend(models=(TALKER, *MODELS)), **options)


def dropdown_values(page: gr.Blocks, elem_id: str = "model") -> list[str]:
    [dropdown] = [b for b in page.blocks.values() if getattr(b, "elem_id", None) == elem_id]
    return [value for _, value in dropdown.choices]


def labels(page: gr.Blocks) -> list[str]:
    return [str(block.label) for block in page.blocks.values() if isinstance(block, gr.Tab)]


def test_every_mode_is_there_once_and_some_for_admins_only(tmp_path: Path) -> None:
    assert labels(a_page(admin=True)) == [mode.name for mode in modes(admin=True).values()]
    assert len(modes(admin=True)) == sum(len(place.modes) for place in PLACES.values()) == 12

    page = a_page()
    assert labels(page) == [mode.name for mode in modes(admin=False).values()]
    assert not {mode.name for mode in ADMIN_MODES} & set(labels(page))
    names = {fn.name for fn in page.fns.values()}
    assert not names & {"_make", "_cancel", "_clear", "_ask"}
    assert {"_make", "_cancel", "_clear"} <= {fn.name for fn in a_page(admin=True).fns.values()}

    adding = {"_find", "_add", "cancel", "follow"}
    added = AddedModels(tmp_path / "added_models.json")
    for options in ({}, {"admin": True}, {"added": added}):
        assert not adding & {fn.name for fn in a_page(**options).fns.values()}
    assert adding <= {fn.name for fn in a_page(admin=True, added=added).fns.values()}


@pytest.mark.parametrize("admin", [False, True])
def test_every_place_and_mode_and_each_tab_of_earlier_versions_has_an_address(admin: bool) -> None:
    found = addresses(admin)
    assert set(found.values()) == set(modes(admin))
    assert set(found) >= {*PLACES, *modes(admin), "about"}
    assert all(found[name] == name for name in modes(admin) if name not in PLACES)
    assert all(found[at] in place.modes for at, place in places(admin).items())


@pytest.mark.parametrize("admin", [False, True])
def test_only_what_programs_may_call_is_public(admin: bool) -> None:
    page = page_for_chat(admin=admin)
    public = {fn.api_name for fn in page.fns.values() if fn.api_visibility == "public"}
    assert public == {"generate", "predict", "transcribe", "models"}
    assert {fn.api_visibility for fn in page.fns.values()} == {"public", "private"}


@pytest.mark.parametrize("admin", [False, True])
def test_no_event_waits_in_gradio_s_queue_but_those_that_use_no_engine(admin: bool) -> None:
    events = [fn for fn in page_for_chat(admin=admin).fns.values() if fn.queue]
    limited = {fn.name for fn in events if fn.concurrency_limit not in (None, "default")}
    assert limited == {"_inspect", "_texts", "_passes", "_try"}
    waiting = {"carry_out", "generate", "transcribe", "_measure"}
    assert waiting == {fn.name for fn in events if fn.name in waiting and is_asynchronous(fn.fn)}


def is_asynchronous(function: Any) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)


def test_events_that_the_browser_handles_alone_come_before_the_server_s() -> None:
    # Gradio carries out what is connected to one event in order, each after the one before.
    connected: dict[tuple[Any, str], list[bool]] = {}
    for fn in page_for_chat(admin=True).fns.values():
        for target, event in fn.targets:
            if target is not None:
                connected.setdefault((target, event), []).append(fn.fn is not None)
    several = [asks for asks in connected.values() if False in asks and True in asks]
    assert len(several) > 20
    for asks in several:
        assert asks == sorted(asks)


def test_no_two_of_an_event_put_each_other_off_for_ever() -> None:
    """Gradio repeats the whole event for what it has put off.

    After a reload the page asked for its prediction and its code some 15 times a second, for ever.
    """
    put_off: dict[tuple[Any, str], list[str | None]] = {}
    for fn in page_for_chat(admin=True).fns.values():
        for target, event in fn.targets:
            # An event that follows another, or the page's load, is repeated alone.
            if fn.fn is not None and fn.trigger_mode == "always_last" and target is not None:
                put_off.setdefault((target, event), []).append(fn.name)
    assert len(put_off) > 40
    assert {event: names for event, names in put_off.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("model", "prediction"),
        ("model", "chat_prediction"),
        ("speech_model", "speech_prediction"),
    ],
)
def test_what_was_predicted_of_one_model_is_not_said_of_the_next(model: str, line: str) -> None:
    """Reading the next one's vocabulary takes seconds, in which the line kept the other's HIT."""
    page = page_for_chat(admin=True)
    ids = {block.elem_id: at for at, block in page.blocks.items() if block.elem_id}
    answers = [
        fn
        for fn in page.fns.values()
        if (ids[model], "change") in fn.targets and page.blocks[ids[line]] in fn.outputs
    ]
    # What Chat foresees is asked for by the page's script, once the settings have followed.
    assert [fn.fn is None for fn in answers] == [True, False][: 1 if line[:4] == "chat" else 2]
    assert "awaited" in str(answers[0].js)


def test_answers_to_two_choices_of_a_model_cannot_cross() -> None:
    """Each answer of the server to a choice waits for the one before."""
    page = page_for_chat(admin=True)
    pickers = {
        at
        for at, block in page.blocks.items()
        if isinstance(block, gr.Dropdown) and "model-choice" in block.elem_classes
    }
    assert len(pickers) == 5
    answers = [
        (page.blocks[at].elem_id, fn.name, fn.trigger_mode)
        for fn in page.fns.values()
        for at, _ in fn.targets
        if at in pickers and fn.fn is not None
    ]
    assert [each for each in answers if each[2] != "always_last"] == []


def test_no_event_that_follows_another_is_dropped_while_the_same_one_goes_on() -> None:
    # Gradio's default drops it: a press would switch its button off and never run.
    for fn in page_for_chat(admin=True).fns.values():
        if fn.trigger_after is not None and fn.queue:
            assert fn.trigger_mode == "multiple", fn.name


def test_models_are_offered_where_they_fit() -> None:
    assert dropdown_values(a_page()) == ["gpt2-stories", "openai-community/gpt2", "t5-stories"]
    assert dropdown_values(a_page(), "speech_model") == ["openai/whisper-tiny"]
    page = a_page(models=("/somewhere/else", "gpt2-stories"))
    assert dropdown_values(page) == ["/somewhere/else", "gpt2-stories"]

    page = a_page(models=("gpt2-stories",))
    texts = [block.value for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any("offers no speech model" in text for text in texts)
    assert "transcribe" not in {fn.api_name for fn in page.fns.values()}

    blocks = page_for_chat(admin=True).blocks.values()
    chosen = {block.elem_id: block.value for block in blocks if isinstance(block, gr.Dropdown)}
    assert chosen["model"] == "talker"
    assert chosen["compare_model"] == "gpt2-stories"


@pytest.mark.parametrize("most", [1, 20, 100])
def test_no_control_asks_for_more_tokens_than_may_be_had(most: int) -> None:
    page = page_for_chat(limits=Limits(new_tokens=most))
    sliders = [
        block
        for block in page.blocks.values()
        if isinstance(block, gr.Slider) and str(block.elem_id).endswith("new_tokens")
    ]
    assert len(sliders) == 2
    for slider in sliders:
        assert slider.value <= most
        assert slider.maximum <= max(most, 2)


def test_the_page_is_launched_bounded_and_asks_no_other_server() -> None:
    # Ten minutes, the most that is transcribed at once, at 48 kHz in stereo and 24 bits.
    assert launch_options(a_page())["max_file_size"] == "200mb"
    assert 600 * 48_000 * 2 * 3 < 200e6
    assert a_page().delete_cache == (3600, 86_400)

    options = launch_options(a_page())
    assert "http" not in options["css"]
    assert "http" not in options["head"]
    assert options["theme"]._stylesheets == []  # noqa: SLF001 (Gradio has no other name for them)

    assert "<title>XLA Playground</title>" in launch_options(a_page())["head"]


@pytest.mark.parametrize("name", ["ssr_mode", "enable_monitoring", "run_history", "pwa"])
def test_features_that_nobody_asked_for_are_off(name: str) -> None:
    assert launch_options(a_page())[name] is False


def test_the_page_travels_compressed(site: ApiPage) -> None:
    sizes = {}
    for encoding in ("identity", "gzip"):
        with httpx.stream("GET", site.url, headers={"accept-encoding": encoding}) as answer:
            assert answer.headers.get("content-encoding", "identity") == encoding
            sizes[encoding] = len(b"".join(answer.iter_raw()))
    assert sizes["gzip"] < sizes["identity"] / 3
