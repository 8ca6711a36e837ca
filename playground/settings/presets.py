"""The page's own presets: options that one click chooses.

Knows which options each one changes; the others stay. Must not know components.
"""

import itertools

from playground.ui.option_controls import MAX_NEW_TOKENS
from xla_backend import (
    BackendError,
    BucketRules,
    CacheOutcome,
    GenerationOptions,
    Prompt,
    SharedBackend,
)

FIRST_CALL = "Show a first call"
MORE_BEAMS = (1, 2, 3, 4, 5, 6, 7, 8)


_GREEDY = {"num_beams": 1, "temperature": 0.0, "exact_key": False}
PRESETS: dict[str, dict[str, float]] = {
    "Greedy": _GREEDY,
    "Sampled": {**_GREEDY, "temperature": 0.8, "top_k": 50, "top_p": 0.95},
    "4 beams": {**_GREEDY, "num_beams": 4, "length_penalty": 1.0, "prompt_lookup_num_tokens": 0},
    FIRST_CALL: {"exact_key": True},
}


def first_call(
    backend: SharedBackend, model: str, prompt: Prompt, options: GenerationOptions
) -> GenerationOptions:
    """The nearest options whose function is not compiled yet.

    Other numbers of new tokens come first, then other numbers of beams; the same options where
    everything is there already, or where the engine does not tell.
    """
    sizes = [size for size in BucketRules().max_new_tokens if size <= MAX_NEW_TOKENS]
    beams = [options.num_beams, *(each for each in MORE_BEAMS if each != options.num_beams)]
    lengths = [options.max_new_tokens, *sizes]
    for num_beams, max_new_tokens in itertools.product(beams, lengths):
        try:
            changed = options.replace(num_beams=num_beams, max_new_tokens=max_new_tokens)
            outcome = backend.predict(model, prompt, changed, mode="padded").outcome
        except BackendError:  # No room for so many tokens, no beams with these options, no model.
            continue
        if outcome is CacheOutcome.MISS:
            return changed
    return options
