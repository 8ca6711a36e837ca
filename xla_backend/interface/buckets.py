"""Buckets: the rules that turn a request's sizes into a `CacheKey`.

Knows how prompt lengths and numbers of new tokens are rounded up. Must not know models beyond their
context length, nor TensorFlow: the page predicts with this module.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from xla_backend.interface.errors import InvalidRequest

CHUNK_SIZES = (32, 128)
"""Tokens of a prompt that are read at a time. A turn of a conversation mostly fits into the smaller
one. With 256, a token would take a tenth less, but others would wait twice as long."""
CHUNK_ROWS = 16
"""Rows whose tokens the larger chunk can hold, and logits that it can give."""


def chunk_size(tokens: int, sizes: Sequence[int] = CHUNK_SIZES) -> int:
    """The size of the next chunk when this many tokens are still to be read.

    The large one for more than half of it: each call has costs of its own, and places without a
    token are not multiplied with weights.
    """
    small, large = min(sizes), max(sizes)
    return large if tokens > large // 2 else small


def chunk_rows(size: int, sizes: Sequence[int] = CHUNK_SIZES) -> int:
    """Of how many rows a chunk can hold tokens; the smaller one of a single one."""
    return CHUNK_ROWS if size == max(sizes) else 1


def positions(tokens: int) -> int:
    """How many positions are computed to read this many tokens in chunks, padding included."""
    computed = 0
    while tokens > 0:
        size = chunk_size(tokens)
        computed, tokens = computed + size, tokens - size
    return computed


@dataclass(frozen=True, order=True)
class CacheKey:
    """The cache key of a model's compiled function.

    Attributes:
        padded_length: tokens of the prompt with its padding (encoder input for encoder-decoders);
            for speech models, frames of the spectrogram of a whole window.
        num_beams: rows decoded together.
        max_new_tokens: the function can add at most this many tokens.
        is_pooled: whether it serves a pool's rows of all lengths up to `padded_length`, prompt and
            text together; `max_new_tokens` is then the same number.
        prompt_lookup_num_tokens: how many drafts a pass of the model verifies; 0 for none.
    """

    padded_length: int
    num_beams: int
    max_new_tokens: int
    is_pooled: bool = False
    prompt_lookup_num_tokens: int = 0

    def to_dict(self) -> dict[str, int]:
        """The key as JSON values, without default values."""
        sizes, usual = dataclasses.asdict(self), {"is_pooled": False, "prompt_lookup_num_tokens": 0}
        return {name: value for name, value in sizes.items() if value != usual.get(name)}

    def __str__(self) -> str:
        sizes = f"padded {self.padded_length} · beams {self.num_beams} · new {self.max_new_tokens}"
        if self.is_pooled:
            sizes = f"all lengths to {self.padded_length}"
        return " · ".join([sizes, *self.variants])

    @property
    def variants(self) -> list[str]:
        """Its other properties, for display; mostly none."""
        drafts = self.prompt_lookup_num_tokens
        return [f"lookup {drafts}"] * (drafts > 0)


@functools.cache
def pool_key(context_length: int, prompt_lookup_num_tokens: int = 0) -> CacheKey:
    """The key of all requests that a model's pool serves."""
    return CacheKey(context_length, 1, context_length, True, prompt_lookup_num_tokens)


@dataclass(frozen=True)
class BucketRules:
    """Rounds sizes up. Doubling sizes wastes less than half and keeps the number of keys small.

    Up to 128 tokens a prompt takes as long as reading the weights. Above, its time grows with the
    padded length, so steps are smaller there: at most a third is wasted.

    Attributes:
        padded_lengths: ascending sizes for prompts; longer prompts round up to a multiple of the
            last size.
        max_new_tokens: ascending sizes for new tokens, likewise.
    """

    padded_lengths: tuple[int, ...] = (
        *(16, 32, 64, *range(128, 513, 64), *range(640, 1025, 128)),
        *(1536, 2048, 3072, 4096, 6144, 8192),
    )
    max_new_tokens: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)

    def __post_init__(self) -> None:
        for name in ("padded_lengths", "max_new_tokens"):
            sizes = getattr(self, name)
            if not sizes or any(size < 1 for size in sizes) or list(sizes) != sorted(set(sizes)):
                raise InvalidRequest(f"{name} must be ascending positive whole numbers.")

    def key_for(
        self,
        prompt_tokens: int,
        num_beams: int,
        max_new_tokens: int,
        context_length: int | None = None,
    ) -> CacheKey:
        """The cache key of a request; the context length limits the padding, not the prompt."""
        padded_length = _round_up(prompt_tokens, self.padded_lengths)
        if context_length is not None:
            padded_length = max(prompt_tokens, min(padded_length, context_length))
        return CacheKey(
            padded_length=padded_length,
            num_beams=num_beams,
            max_new_tokens=_round_up(max_new_tokens, self.max_new_tokens),
        )


def _round_up(size: int, sizes: tuple[int, ...]) -> int:
    if size > sizes[-1]:
        return -(-size // sizes[-1]) * sizes[-1]
    return sizes[bisect.bisect_left(sizes, size)]
