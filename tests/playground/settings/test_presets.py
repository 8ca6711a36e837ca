"""Presets set what they say, and nothing else; files of them are read with suspicion."""

import pytest

from playground import create_app
from playground.settings.preset_buttons import FILE, PresetButtons
from playground.settings.presets import PRESETS, first_call
from tests.playground.fake_backend import FakeBackend
from xla_backend import CacheKey, GenerationOptions, InvalidRequest

BEFORE = GenerationOptions(
    max_new_tokens=77, num_beams=2, temperature=1.5, seed=9, repetition_penalty=1.1
)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Greedy", {"num_beams": 1, "temperature": 0.0}),
        ("Sampled", {"num_beams": 1, "temperature": 0.8, "top_p": 0.95}),
        ("4 beams", {"num_beams": 4, "temperature": 0.0}),
        ("Show a first call", {"exact_key": True}),
    ],
)
def test_a_preset_leaves_the_rest_alone(name: str, changes: dict[str, float]) -> None:
    changed = {"exact_key": False, **changes}
    exact = BEFORE.replace(exact_key=not changed["exact_key"])
    assert exact.replace(**PRESETS[name]) == exact.replace(**changed)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_pressed_whatever_is_set(name: str) -> None:
    options = GenerationOptions(prompt_lookup_num_tokens=3).replace(**PRESETS[name])
    engine = FakeBackend()
    for size in (16, 32, 64, 128):
        engine.make_ready("gpt2-stories", CacheKey(16, options.num_beams, size))
    first_call(engine, "gpt2-stories", "p", options)


def found(there: set[tuple[int, int]], options: GenerationOptions) -> tuple[int, int]:
    """Beams and new tokens whose first call is shown where these functions are in memory."""
    engine = FakeBackend()  # its models have room for the prompt and 128 new tokens
    for num_beams, max_new_tokens in there:
        engine.make_ready("gpt2-stories", CacheKey(16, num_beams, max_new_tokens))
    options = first_call(engine, "gpt2-stories", "p", options.replace(exact_key=True))
    return options.num_beams, options.max_new_tokens


def test_a_first_call_is_found_near_the_options() -> None:
    options = GenerationOptions(max_new_tokens=77)
    assert found(set(), options) == (1, 77)
    assert found({(1, 128)}, options) == (1, 16)
    assert found({(1, 128), (1, 16), (1, 32)}, options) == (1, 64)
    lengths = (16, 32, 64, 128)
    assert found({(1, n) for n in lengths}, options) == (2, 77)
    assert found({(b, n) for b in range(1, 9) for n in lengths}, options) == (1, 77)


@pytest.fixture(scope="module")
def buttons() -> PresetButtons:
    owners = [getattr(fn.fn, "__self__", None) for fn in create_app(FakeBackend()).fns.values()]
    return next(owner for owner in owners if isinstance(owner, PresetButtons))


def the_file(*presets: object) -> str:
    return FILE.written({"presets": presets})


def test_a_file_of_presets_brings_those_without_a_mistake(buttons: PresetButtons) -> None:
    good = {
        "name": "Good",
        "model": "of another page",
        "prompt": "Hello {{name}}",
        "messages": [{"role": "user", "content": "Hi"}],
        "variables": {"name": "Ada"},
        "temperature": 0.5,
    }
    bad = {**good, "name": "Bad", "temperature": "hot", "messages": "Hi"}
    presets, problems = buttons.read(the_file(good, bad, {"prompt": "Hi"}, 7, {"name": " "}))
    assert presets == [good]
    assert problems[0].startswith("'Bad' is left out: messages must be a JSON list")
    assert "temperature must be a number" in problems[0]
    assert [each[:8] for each in problems[1:]] == ["Preset 3", "Preset 4", "Preset 5"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("GIF89a", "not JSON"),
        ('{"format": "xla-playground-runs"}', "holds no presets"),
        (the_file(), "has no presets"),
        ('{"format": "xla-playground-presets", "version": 1, "presets": {}}', "has no presets"),
        ("[" * 2**20 + "]", "larger than 1 MB"),
    ],
)
def test_another_file_is_told_what_is_wrong(buttons: PresetButtons, data: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        buttons.read(data)
