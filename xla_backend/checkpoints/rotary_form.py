"""`RotaryForm`: the differences between modern decoders (Llama and later ones).

Knows how a Hugging Face configuration of each architecture becomes one description, and which
tensors its checkpoints have. Must not know TensorFlow or weights: `families.rotary` runs the
models.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from xla_backend.interface.errors import InvalidRequest, ModelUnavailable

CONTEXT_VARIABLE = "XLA_BACKEND_MAX_CONTEXT"
LONGEST_CONTEXT = 8192
"""Longest served context in tokens: length costs no compile, but memory."""


@dataclass(frozen=True)
class LayerForm:
    """What may differ between the layers of one model.

    Attributes:
        inverse_frequencies: of the rotary positions, in radians per position, for each pair of a
            head's numbers; zeros in a layer without positions.
        window: how many positions a position attends to, itself included; None: all before it.
        amplitude: factor of the rotated queries and keys.
    """

    inverse_frequencies: tuple[float, ...]
    window: int | None
    amplitude: float = 1.0


@dataclass(frozen=True)
class RotaryForm:
    """A decoder with rotary positions, RMS norms and a gated feed-forward network.

    Attributes:
        heads, kv_heads: of queries, and of keys and values; the second divides the first.
        head_size: D, which need not be width / heads.
        inner: the width inside the feed-forward network.
        norm_offset: added to the stored scales of norms, 1 in Gemma.
        has_qk_norm: whether queries and keys of each head are normalised.
        has_post_norms: whether the outputs of attention and feed-forward are, too.
        score_scale: factor of queries.
        score_cap, logit_cap: c in c * tanh(x / c), the soft cap of scores and of logits.
        embedding_scale, residual_scale, logit_scale: factors of embeddings, of a layer's outputs,
            and of logits.
        is_tied: whether the embedding is the head.
    """

    layers: tuple[LayerForm, ...]
    vocabulary_size: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    activation: str
    epsilon: float
    context_length: int
    is_tied: bool
    qkv_bias: bool = False
    out_bias: bool = False
    feed_forward_bias: bool = False
    norm_offset: float = 0.0
    has_qk_norm: bool = False
    has_post_norms: bool = False
    score_scale: float = 1.0
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0


def _llama(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {"feed_forward_bias": config.mlp_bias}


def _qwen2(config: Any) -> dict[str, Any]:
    return {"qkv_bias": True}


def _qwen3(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {"has_qk_norm": True}


def _gemma(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {
        "activation": config.hidden_activation,
        "norm_offset": 1.0,
        "has_post_norms": True,
        "score_scale": config.query_pre_attn_scalar**-0.5,
        "logit_cap": config.final_logit_softcapping,
        "embedding_scale": config.hidden_size**0.5,
    }


def _gemma2(config: Any) -> dict[str, Any]:
    return _gemma(config) | {"score_cap": config.attn_logit_softcapping}


def _gemma3(config: Any) -> dict[str, Any]:
    return _gemma(config) | {"has_qk_norm": True}


def _granite(config: Any) -> dict[str, Any]:
    return _llama(config) | {
        "score_scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": 1.0 / config.logits_scaling,
    }


def _attention_bias(config: Any) -> dict[str, Any]:
    return {"qkv_bias": config.attention_bias, "out_bias": config.attention_bias}


_ARCHITECTURES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": lambda config: {},
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "smollm3": _llama,
    "granite": _granite,
}
"""The fields that each architecture sets beyond `describe`."""

MODEL_TYPES = tuple(_ARCHITECTURES)
"""The values of `model_type` in a config.json that are described here."""


def describe(config: Any) -> RotaryForm:
    """The form of a model.

    Args:
        config: a Hugging Face configuration of one of `MODEL_TYPES`.

    Raises:
        ModelUnavailable: the kind of rotary positions is not supported, or heads do not fit.
    """
    heads = config.num_attention_heads
    kv_heads = config.num_key_value_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    if heads % kv_heads:
        raise ModelUnavailable(
            f"the model's config.json sets num_key_value_heads to {kv_heads}, which does not "
            f"divide num_attention_heads, {heads}."
        )
    plain = {
        "vocabulary_size": config.vocab_size,
        "width": config.hidden_size,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "inner": config.intermediate_size,
        "activation": getattr(config, "hidden_act", ""),
        "epsilon": config.rms_norm_eps,
        "score_scale": head_size**-0.5,
        "context_length": min(config.max_position_embeddings, most_context()),
        "is_tied": config.tie_word_embeddings,
    }
    layers = tuple(_layer(config, place, head_size) for place in range(config.num_hidden_layers))
    return RotaryForm(layers=layers, **plain | _ARCHITECTURES[config.model_type](config))


def _layer(config: Any, place: int, head_size: int) -> LayerForm:
    window = getattr(config, "sliding_window", None)
    kind = "sliding_attention" if window else "full_attention"
    if getattr(config, "layer_types", None):
        kind = config.layer_types[place]
    if kind not in ("sliding_attention", "full_attention"):
        raise ModelUnavailable(
            f"the model's config.json sets layer_types to {kind}; known are full_attention and "
            "sliding_attention."
        )
    # The baseline's Transformers is older and has another name; it has no scaling.
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    rope = rope.get(kind, rope)
    frequencies = inverse_frequencies(rope, head_size)
    rotated = getattr(config, "no_rope_layers", None)  # 1: with positions, 0: without
    if rotated and not rotated[place]:
        frequencies = (0.0,) * len(frequencies)
    return LayerForm(frequencies, window if kind == "sliding_attention" else None, _amplitude(rope))


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


def inverse_frequencies(rope: dict[str, Any], head_size: int) -> tuple[float, ...]:
    """Radians per position, for each pair of a head's numbers (RoFormer, arXiv:2104.09864).

    Args:
        rope: Hugging Face's `rope_parameters`. `linear` stretches all positions (arXiv:2306.15595);
            `llama3` only the slow ones, and those between in part (Llama 3.1's release); `yarn`
            likewise by the index of the pair (arXiv:2309.00071). `dynamic` changes only positions
            beyond `max_position_embeddings`, which are never reached here.
        head_size: D.

    Raises:
        ModelUnavailable: `rope_type` is of another kind, or a value is missing.
    """
    kind = rope.get("rope_type", "default")
    try:
        base = [rope["rope_theta"] ** (-i / head_size) for i in range(0, head_size, 2)]
        if rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise ModelUnavailable(
                "the model's config.json rotates only a part of each head "
                "(partial_rotary_factor), which is not supported."
            )
        if kind in ("default", "dynamic"):
            return tuple(base)
        if kind == "yarn":
            return tuple(_yarn(base, rope, head_size))
        if kind == "linear":
            return tuple(x / rope["factor"] for x in base)
        if kind == "llama3":
            return tuple(_llama3(x, rope) for x in base)
    except KeyError as error:
        raise ModelUnavailable(
            f"the model's config.json does not set {error.args[0]} of its rotary positions."
        ) from error
    raise ModelUnavailable(
        f"the model's config.json asks for rotary positions of the kind {kind!r}; known are "
        "default, linear, dynamic, yarn and llama3."
    )


def _llama3(frequency: float, rope: dict[str, Any]) -> float:
    """Wavelengths shorter than a part of the original context stay, longer ones are stretched."""
    factor, low, high = (rope[x] for x in ("factor", "low_freq_factor", "high_freq_factor"))
    waves = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    kept = min(max((waves - low) / (high - low), 0.0), 1.0)
    return frequency * (kept + (1.0 - kept) / factor)


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


def _amplitude(rope: dict[str, Any]) -> float:
    """`attention_factor`, or its default from the other parameters: 1 except for `yarn`."""
    if rope.get("rope_type") != "yarn":
        return 1.0
    if (given := rope.get("attention_factor")) is not None:
        return float(given)

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(max(rope["factor"], 1.0)) + 1.0

    over, under = rope.get("mscale"), rope.get("mscale_all_dim")
    return scale(over) / scale(under) if over and under else scale(1.0)


def shapes(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of all tensors of a checkpoint, matrices as `[out, in]`."""
    form = describe(config)
    queries, keys = form.heads * form.head_size, form.kv_heads * form.head_size
    norms = ["input_layernorm", "post_attention_layernorm"]
    if form.has_post_norms:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    linears = [
        ("self_attn.q_proj", queries, form.width, form.qkv_bias),
        ("self_attn.k_proj", keys, form.width, form.qkv_bias),
        ("self_attn.v_proj", keys, form.width, form.qkv_bias),
        ("self_attn.o_proj", form.width, queries, form.out_bias),
        ("mlp.gate_proj", form.inner, form.width, form.feed_forward_bias),
        ("mlp.up_proj", form.inner, form.width, form.feed_forward_bias),
        ("mlp.down_proj", form.width, form.inner, form.feed_forward_bias),
    ]
    yield "model.embed_tokens.weight", (form.vocabulary_size, form.width)
    for layer in range(len(form.layers)):
        at = f"model.layers.{layer}"
        for name in norms:
            yield f"{at}.{name}.weight", (form.width,)
        for name, out, into, has_bias in linears:
            yield f"{at}.{name}.weight", (out, into)
            if has_bias:
                yield f"{at}.{name}.bias", (out,)
        for name in ("q_norm", "k_norm") if form.has_qk_norm else ():
            yield f"{at}.self_attn.{name}.weight", (form.head_size,)
    yield "model.norm.weight", (form.width,)
    if not form.is_tied:
        yield "lm_head.weight", (form.vocabulary_size, form.width)
