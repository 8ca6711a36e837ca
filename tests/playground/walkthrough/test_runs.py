"""Which requests a walkthrough sends. That the engine answers them so is `tests/browser`'s."""

import pytest

from playground.walkthrough.runs import Step, requests_for
from xla_backend import BucketRules, CacheKey, CacheOutcome, GenerationOptions
from xla_backend.prediction.prediction import choose


@pytest.mark.parametrize("new_tokens", [1, 16, 17, 32, 96, 512, 1024])
def test_the_smaller_request_is_served_by_the_function_of_the_first(new_tokens: int) -> None:
    own = GenerationOptions(max_new_tokens=new_tokens)
    first, smaller = requests_for(own)
    assert own in (first, smaller)
    assert smaller is not None

    def key_of(options: GenerationOptions) -> CacheKey:
        return BucketRules().key_for(5, options.num_beams, options.max_new_tokens)

    choice = choose(key_of(smaller), {key_of(first)}, lambda key: False, may_reuse=True)
    assert (choice.outcome, choice.key) == (CacheOutcome.REUSED, key_of(first))


def test_each_outcome_has_a_step() -> None:
    assert {step.value for step in Step} == set(CacheOutcome)
