"""Buckets: which compiled function a request asks for.

Knows how a prompt length and a number of new tokens are rounded up, and the `CacheKey` that
results. Must not know models beyond their context length, nor TensorFlow: the page predicts with
this module.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from xla_backend.errors import InvalidRequest


@dataclass(frozen=True, order=True)
class CacheKey:
    """What a compiled function is kept under, for each model.

    Attributes:
        padded_length: tokens of the prompt with its padding (encoder input for encoder-decoders);
            for speech models, frames of the spectrogram of a whole window.
        num_beams: rows decoded side by side.
        max_new_tokens: most tokens that the function can add.
    """

    padded_length: int
    num_beams: int
    max_new_tokens: int

    def to_dict(self) -> dict[str, int]:
        """The key as JSON values."""
        return {
            "padded_length": self.padded_length,
            "num_beams": self.num_beams,
            "max_new_tokens": self.max_new_tokens,
        }

    def __str__(self) -> str:
        return f"padded {self.padded_length} · beams {self.num_beams} · new {self.max_new_tokens}"


def _powers_of_two(low: int, high: int) -> tuple[int, ...]:
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= 2
    return tuple(sizes)


@dataclass(frozen=True)
class BucketRules:
    """How lengths are rounded up. Doubling sizes waste less than half and keep the keys few.

    Above 128 tokens what a prompt takes grows with its slots (below, reading the weights takes as
    long), so from there on a third is wasted at most.

    Attributes:
        padded_lengths: ascending sizes for prompts; longer prompts round up to a multiple of the
            last size.
        max_new_tokens: ascending sizes for new tokens, likewise.
    """

    padded_lengths: tuple[int, ...] = (
        *_powers_of_two(16, 128),
        *range(192, 513, 64),
        *range(640, 1025, 128),
    )
    max_new_tokens: tuple[int, ...] = _powers_of_two(16, 1024)

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
        """The key of a request; the model's context bounds the padding, never the prompt."""
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
