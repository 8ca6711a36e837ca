"""What can be compared, and how a prompt becomes ten of different lengths.

Must not know components or HTML.
"""

import itertools
from collections.abc import Sequence

from playground.tabs.compare.runs import Variant
from xla_backend import GenerationOptions, InvalidRequest, TokenIds

WAYS, SHAPES = "ways", "shapes"
KINDS = [
    ("This engine and Transformers", WAYS),
    ("Buckets or one shape", SHAPES),
]
LENGTHS = 10
LONGEST = 512
"""Tokens of the longest of the prompts: with more, a comparison would last too long."""
SHAPE_CALLS = 3
"""Later calls of each way at each length."""


def of_shapes(
    model: str, ids: Sequence[int], max_new_tokens: int, context_length: int
) -> list[Variant]:
    """Ten prompts of growing length, each through its bucket and as a row of the pool, in turn.

    Args:
        model, max_new_tokens: what is asked.
        ids: the tokens of a prompt; they are repeated as often as it takes.
        context_length: of the model.

    Raises:
        InvalidRequest: there is no room for ten lengths.
    """
    room = min(LONGEST, context_length - max_new_tokens)
    if room < LENGTHS:
        raise InvalidRequest(
            f"The model's context of {context_length} tokens has no room for {LENGTHS} prompts of "
            f"different lengths beside {max_new_tokens} new tokens. Choose fewer new tokens."
        )
    options = GenerationOptions(max_new_tokens=max_new_tokens)
    repeated = tuple(itertools.islice(itertools.cycle(ids), room))
    return [
        Variant(model, options, TokenIds(repeated[:tokens]), is_pooled)
        for number in range(1, LENGTHS + 1)
        for tokens in [room * number // LENGTHS]
        for is_pooled in (False, True)
    ]
