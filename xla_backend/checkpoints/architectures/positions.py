"""Rotary positions: how a configuration's `rope_parameters` become frequencies, and how long a
context is served."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from xla_backend.checkpoints.architectures.forms import Positions
from xla_backend.interface.errors import InvalidRequest, ModelUnavailable

CONTEXT_VARIABLE = "XLA_BACKEND_MAX_CONTEXT"
LONGEST_CONTEXT = 8192
"""Longest served context in tokens: length costs no compile, but memory."""


def context_length(longest: int, config: Mapping[str, Any]) -> int:
    """The most tokens of prompt and output of a model.

    LongRoPE has two sets of frequencies. Transformers changes from one to the other in the middle
    of a text that outgrows the lengths that the model was first trained with, and recomputes all of
    it. Here a model is served up to that length, or, if a longer context is requested, with the set
    for long texts throughout, as llama.cpp and vLLM do.

    Args:
        longest: what it has room for, `max_position_embeddings`.
        config: its configuration, or config.json by the names of any version.

    Raises:
        InvalidRequest: see `most_context`.
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "long_factor" in rope and not os.environ.get(CONTEXT_VARIABLE):
        name = "original_max_position_embeddings"
        longest = min(longest, rope.get(name) or config.get(name) or longest)
    return min(longest, most_context())


def most_context() -> int:
    """The bound on tokens of prompt and output for models with longer contexts.

    Raises:
        InvalidRequest: `CONTEXT_VARIABLE` is not a valid number.
    """
    given = os.environ.get(CONTEXT_VARIABLE) or str(LONGEST_CONTEXT)
    if not given.isdecimal() or not 1 <= int(given) <= LONGEST_CONTEXT:
        raise InvalidRequest(
            f"{CONTEXT_VARIABLE}, or --max-context, must be a whole number from 1 to "
            f"{LONGEST_CONTEXT}, not {given!r}."
        )
    return int(given)


def rotary(
    config: Any,
    rope: dict[str, Any],
    head_size: int,
    *,
    rotates_part: bool = False,
    grows_queries: bool = False,
) -> Positions:
    """The rotary positions of a layer.

    Args:
        rope: Hugging Face's `rope_parameters`. `linear` stretches all positions (arXiv:2306.15595);
            `llama3` only the slow ones, and those between in part (Llama 3.1's release); `yarn`
            likewise by the index of the pair (arXiv:2309.00071); `longrope` each pair by its own
            factor (arXiv:2402.13753), see `context_length`; `proportional` leaves the slow pairs
            without positions. `dynamic` changes only positions beyond `max_position_embeddings`,
            which are never reached here.
        head_size: D.
        rotates_part: whether `partial_rotary_factor` may rotate only a part of each head.
        grows_queries: whether `llama_4_scaling_beta` counts.
    """
    kind = rope.get("rope_type", "default")
    rotated, part = head_size, rope.get("partial_rotary_factor", 1.0)
    if part != 1.0 and kind != "proportional":
        if not rotates_part:
            raise ModelUnavailable(
                "the model's config.json rotates only a part of each head "
                f"(partial_rotary_factor), which is not supported for {config.model_type}."
            )
        rotated = int(head_size * part)
    growth = rope.get("llama_4_scaling_beta") if grows_queries else None
    try:
        base = [rope["rope_theta"] ** (-i / rotated) for i in range(0, rotated, 2)]
        amplitude = 1.0
        if kind == "yarn":
            base, amplitude = list(_yarn(base, rope, rotated)), _yarn_amplitude(rope)
        elif kind == "longrope":
            base, amplitude = _longrope(config, base, rope)
        elif kind == "linear":
            base = [x / rope["factor"] for x in base]
        elif kind == "proportional":
            pairs = int(head_size * part // 2)
            first = [x / rope.get("factor", 1.0) for x in base[:pairs]]
            base = first + [0.0] * (len(base) - pairs)
        elif kind == "llama3":
            base = [_llama3(x, rope) for x in base]
        elif kind not in ("default", "dynamic"):
            raise ModelUnavailable(
                f"the model's config.json sets rotary positions of the kind {kind!r}; known "
                "are default, linear, dynamic, yarn, longrope, llama3 and proportional."
            )
        queries = (growth, rope["original_max_position_embeddings"]) if growth else None
    except KeyError as error:
        raise ModelUnavailable(
            f"the model's config.json does not set {error.args[0]} of its rotary positions."
        ) from error
    return Positions(tuple(base), amplitude, queries)


def _llama3(frequency: float, rope: dict[str, Any]) -> float:
    """Wavelengths shorter than a part of the original context stay, longer ones are stretched."""
    factor, low, high = (rope[x] for x in ("factor", "low_freq_factor", "high_freq_factor"))
    waves = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    share = min(max((waves - low) / (high - low), 0.0), 1.0)
    return frequency * (share + (1.0 - share) / factor)


def _longrope(config: Any, base: list[float], rope: dict[str, Any]) -> tuple[list[float], float]:
    """Frequencies, of the set that `context_length` decides on, and amplitude."""
    original = rope["original_max_position_embeddings"]
    is_long = context_length(config.max_position_embeddings, config.to_dict()) > original
    factors = rope["long_factor" if is_long else "short_factor"]
    if len(factors) != len(base):
        raise ModelUnavailable(
            f"the model's config.json sets {len(factors)} factors of its rotary positions for "
            f"{len(base)} pairs of numbers."
        )
    amplitude = rope.get("attention_factor")
    if amplitude is None:
        factor = rope.get("factor") or config.max_position_embeddings / original
        amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return [x / factor for x, factor in zip(base, factors, strict=True)], float(amplitude)


def _yarn(base: list[float], rope: dict[str, Any], head_size: int) -> Iterator[float]:
    """Pairs that rotate often in the original context stay, those that rotate seldom stretch."""
    length, theta = rope["original_max_position_embeddings"], rope["rope_theta"]

    def place(turns: float) -> float:
        return head_size * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = place(rope.get("beta_fast") or 32), place(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_size - 1)
    for pair, frequency in enumerate(base):
        stretched = min(max((pair - first) / ((last - first) or 0.001), 0.0), 1.0)
        yield frequency * (1.0 - stretched + stretched / rope["factor"])


def _yarn_amplitude(rope: dict[str, Any]) -> float:
    """`attention_factor`, or its default from the other parameters."""
    if (given := rope.get("attention_factor")) is not None:
        return float(given)

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(max(rope["factor"], 1.0)) + 1.0

    over, under = rope.get("mscale"), rope.get("mscale_all_dim")
    return scale(over) / scale(under) if over and under else scale(1.0)
