"""Shapes that are compiled ahead of requests: which there are, and which a model has room for.

Knows the engine's predictions. Must not know components or HTML.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from xla_backend import (
    BucketRules,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    InvalidRequest,
    SharedBackend,
    TokenIds,
)

LARGEST = 256
PADDED_LENGTHS = tuple(n for n in BucketRules().padded_lengths if n <= LARGEST)
MAX_NEW_TOKENS = tuple(n for n in BucketRules().max_new_tokens if n <= LARGEST)
NUM_BEAMS = tuple(range(1, 9))


def missing(
    backend: SharedBackend,
    model: str,
    padded_lengths: Iterable[int],
    num_beams: Iterable[int],
    max_new_tokens: Iterable[int],
) -> tuple[list[CacheKey], int]:
    """The keys of all combinations that are not in memory, and how many combinations are too long.

    Raises:
        InvalidRequest: the model takes no text.
        ModelUnavailable: the model is not known, or not loaded yet.
    """
    keys: dict[CacheKey, None] = {}
    too_long = 0
    sizes = product(sorted(padded_lengths), sorted(num_beams), sorted(max_new_tokens))
    # Does the model take a prompt? The visitor sees the error that this raises.
    backend.predict(model, TokenIds((0,)), GenerationOptions(max_new_tokens=1), mode="padded")
    for length, beams, tokens in sizes:
        # The shortest request of this shape fits if any of this shape does.
        prompt = TokenIds((0,) * (_below(length, PADDED_LENGTHS) + 1))
        shortest = _below(tokens, MAX_NEW_TOKENS) + 1
        options = GenerationOptions(num_beams=beams, max_new_tokens=shortest)
        try:
            prediction = backend.predict(model, prompt, options, mode="padded")
        except InvalidRequest:
            too_long += 1
            continue
        if prediction.outcome is not CacheOutcome.HIT:
            keys[prediction.requested_key] = None
    return [*keys], too_long


def _below(size: int, sizes: Sequence[int]) -> int:
    return max((other for other in sizes if other < size), default=0)
