"""Sets of options worth a click of their own.

Knows what each sets, and leaves everything else as it is. Must not know components.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playground.option_controls import MOST_NEW_TOKENS
from xla_backend import BackendError, BucketRules, CacheOutcome, GenerationOptions

if TYPE_CHECKING:
    from xla_backend import Backend, BackendProcess

MORE_BEAMS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Preset:
    """Options under a name.

    Attributes:
        name: what the button says.
        change: what becomes of the options.
        exact_key: whether a larger function may not serve.
    """

    name: str
    change: Callable[[GenerationOptions], GenerationOptions]
    exact_key: bool = False


PRESETS = (
    Preset("Greedy", lambda options: options.replace(num_beams=1, temperature=0.0)),
    Preset(
        "Sampled",
        lambda options: options.replace(num_beams=1, temperature=0.8, top_k=50, top_p=0.95),
    ),
    Preset(
        "4 beams",
        lambda options: options.replace(num_beams=4, temperature=0.0, length_penalty=1.0),
    ),
    Preset("Show a first call", lambda options: options, exact_key=True),
)


def first_call(
    backend: Backend | BackendProcess, model: str, prompt: str, options: GenerationOptions
) -> GenerationOptions:
    """Options whose function is not there yet, as near to these as there are.

    Other numbers of new tokens come first, then other numbers of beams; the same options where
    everything is there already, or where the engine does not tell.
    """
    sizes = [size for size in BucketRules().max_new_tokens if size <= MOST_NEW_TOKENS]
    beams = [options.num_beams, *(each for each in MORE_BEAMS if each != options.num_beams)]
    lengths = [options.max_new_tokens, *sizes]
    for num_beams, max_new_tokens in itertools.product(beams, lengths):
        changed = options.replace(num_beams=num_beams, max_new_tokens=max_new_tokens)
        try:
            outcome = backend.predict(model, prompt, changed, exact_key=True).outcome
        except BackendError:  # No room for as many, or a model of which nothing is known.
            continue
        if outcome is CacheOutcome.MISS:
            return changed
    return options
