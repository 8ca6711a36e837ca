"""Why a request must compile, and that what is advised is true: the rules of reuse are asked."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xla_backend import Backend, CacheKey, CacheOutcome, GenerationOptions
from xla_backend.interface.buckets import BucketRules, pool_key
from xla_backend.prediction.misses import explain
from xla_backend.prediction.prediction import choose

RULES = BucketRules()
POOL = pool_key(8192)


def key(prompt: int, beams: int, new: int) -> CacheKey:
    return RULES.key_for(prompt, beams, new)


@pytest.mark.parametrize(
    ("request_", "there", "exact", "said"),
    [
        ((10, 4, 32), key(10, 1, 32), False, "With 1 beam instead of 4 it would have been HIT."),
        ((10, 1, 32), key(10, 4, 32), False, "With 4 beams instead of 1 it would have been HIT."),
        (
            (67, 1, 32),
            key(64, 1, 32),
            False,
            "With a prompt shorter by 3 tokens it would have been HIT.",
        ),
        (
            (10, 1, 40),
            key(10, 1, 32),
            False,
            "With at most 32 new tokens instead of 40 it would have been HIT.",
        ),
        (
            (17, 2, 32),
            key(16, 1, 32),
            False,
            "With 1 beam instead of 2 and a prompt shorter by 1 token it would have been HIT.",
        ),
        ((10, 1, 32), key(10, 1, 64), True, "With exact_key off it would have been REUSED."),
        ((10, 1, 32), POOL, False, "With rows instead of a padded shape it would have been HIT."),
        (
            (10, 4, 32),
            POOL,
            False,
            "No compiled function of this model can serve it with other options.",
        ),
    ],
)
def test_the_nearest_function_says_what_differs(
    request_: tuple[int, int, int], there: CacheKey, exact: bool, said: str
) -> None:
    prompt, _, new = request_
    found = explain(key(*request_), prompt, new, [there], not exact)
    assert found.sentence("would have been") == said == found.to_json()["reason"]


sizes = st.tuples(st.integers(1, 600), st.integers(1, 4), st.integers(1, 300))


@settings(max_examples=300, deadline=None)
@given(sizes, st.lists(sizes, max_size=6), st.booleans())
def test_who_follows_the_advice_does_not_compile(
    asked: tuple[int, int, int], there: list[tuple[int, int, int]], exact: bool
) -> None:
    prompt, _, new = asked
    needed, in_memory = key(*asked), [key(*each) for each in there]
    if choose(needed, in_memory, lambda _: False, not exact).outcome is not CacheOutcome.MISS:
        return
    found = explain(needed, prompt, new, in_memory, not exact)
    if found.nearest is None:
        return
    text = found.sentence("would be")
    for change in found.changes:
        words = change.split()
        if "beam" in change:
            asked = (asked[0], int(words[0]), asked[2])
        elif "shorter" in change:
            asked = (asked[0] - int(words[4]), *asked[1:])
        elif "new tokens" in change:
            asked = (*asked[:2], int(words[2]))
        else:
            assert change == "exact_key off"
            exact = False
    again = choose(key(*asked), in_memory, lambda _: False, not exact)
    assert again.outcome is found.outcome, text
    assert again.outcome is not CacheOutcome.MISS


def test_a_miss_says_why_before_and_after_it(backend: Backend) -> None:
    plain = GenerationOptions(max_new_tokens=16)
    backend.generate("gpt2-stories", "Once upon a time", plain, mode="padded")
    beams = plain.replace(num_beams=7)
    before = backend.predict("gpt2-stories", "Once upon a time", beams)
    after = backend.generate("gpt2-stories", "Once upon a time", beams)
    assert before.miss == after.miss and after.miss is not None
    assert after.miss.changes == ("1 beam instead of 7",)
    assert after.to_json()["miss"] == before.to_json()["miss"]
    again = backend.generate("gpt2-stories", "Once upon a time", beams)
    assert again.cache is CacheOutcome.HIT and again.miss is None
