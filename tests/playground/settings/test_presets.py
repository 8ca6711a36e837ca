"""Presets set what they say, and nothing else."""

import pytest

from playground.settings.presets import PRESETS, first_call
from tests.playground.fake_backend import FakeBackend
from xla_backend import CacheKey, GenerationOptions

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
