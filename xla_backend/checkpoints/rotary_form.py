"""`RotaryForm`: the differences between modern decoders (Llama and later ones).

Knows how a Hugging Face configuration of each architecture becomes one description, of which parts
each layer is made, and which tensors its checkpoints have. Must not know TensorFlow or weights:
`families.rotary` runs the models.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar, Literal

import numpy as np

from xla_backend.interface.errors import InvalidRequest, ModelUnavailable

CONTEXT_VARIABLE = "XLA_BACKEND_MAX_CONTEXT"
LONGEST_CONTEXT = 8192
"""Longest served context in tokens: length costs no compile, but memory."""


@dataclass(frozen=True)
class Positions:
    """Rotary positions.

    Attributes:
        inverse_frequencies: radians a position, for each pair of a head's numbers; zeros in a layer
            without positions. The last numbers of a head, if they are in no pair, are not rotated.
        amplitude: factor of the rotated queries and keys.
        query_growth: b and n: queries are multiplied by 1 + b * log(1 + floor(position / n)).
    """

    inverse_frequencies: tuple[float, ...]
    amplitude: float = 1.0
    query_growth: tuple[float, int] | None = None


@dataclass(frozen=True)
class Attention:
    """A mixer: causal softmax attention.

    Attributes:
        kv_heads: of keys and values; divides the number of heads.
        head_size: D, which need not be width / heads.
        window: how many positions a position attends to, itself included; None: all before it.
        source: number of the layer whose keys and values it attends to; None: its own.
    """

    kv_heads: int
    head_size: int
    positions: Positions
    window: int | None = None
    source: int | None = None


@dataclass(frozen=True)
class Convolution:
    """A mixer: a short convolution between two gates (LFM2).

    Attributes:
        taps: how many positions it sums, a position itself included.
        has_bias: whether it and its projections have biases.
    """

    taps: int
    has_bias: bool
    positions: ClassVar[None] = None
    window: ClassVar[None] = None
    source: ClassVar[None] = None


@dataclass(frozen=True)
class State:
    """A mixer: a state that each token changes, behind a short convolution.

    Attributes:
        rule: the gated delta rule (Qwen3.5), or Mamba-2's.
        heads: of values, each with a state. key_heads: divides them.
        keys, values: numbers of a key and of a value.
        alternate: whether heads have the heads of keys in turn, instead of neighbours one.
        taps, has_bias: of the convolution. projections_have_biases: those before and behind it.
        norm: whether what Mamba-2 reads is normalised before its gates, behind them, or not.
        scales: factors of Mamba-2's gates, values, keys, queries and steps; None for none.
    """

    rule: Literal["delta", "mamba"]
    heads: int
    key_heads: int
    keys: int
    values: int
    taps: int
    alternate: bool = False
    has_bias: bool = False
    projections_have_biases: bool = False
    norm: Literal["before", "behind", None] = "behind"
    scales: tuple[float, ...] | None = None
    positions: ClassVar[None] = None
    window: ClassVar[None] = None
    source: ClassVar[None] = None


@dataclass(frozen=True)
class Parallel:
    """A mixer: attention and a state of one input, whose outputs are added (Falcon-H1).

    Attributes:
        scales: factors of what they yield.
    """

    attention: Attention
    state: State
    scales: tuple[float, float]
    window: ClassVar[None] = None
    source: ClassVar[None] = None

    @property
    def positions(self) -> Positions:
        """Those of attention."""
        return self.attention.positions


_Single = Attention | Convolution | State
AnyMixer = _Single | Parallel
STATES = {"delta": "linear_attn", "mamba": "mamba"}
"""What such a mixer is called in a checkpoint."""


@dataclass(frozen=True)
class Gated:
    """A feed-forward network with a gate. `inner` is the width inside it."""

    inner: int


@dataclass(frozen=True)
class Experts:
    """Networks with a gate, of which a router chooses some for each position.

    Attributes:
        inner: the width inside one of them.
        count, chosen: how many there are, and how many a position has.
        sums_to_one: whether the shares of the chosen ones do, instead of those of all.
        sigmoid_scale: shares are this times the sigmoid of each logit; None for a softmax.
        favours: whether a bias changes which are chosen, but not their shares.
        clamp: l and a in min(g, l) * sigmoid(a * min(g, l)) * (clip(u, -l, l) + 1), in place of
            an activation of the gate g times u.
        shared: the width inside a further one, which every position has; 0 for none.
        gates_shared: whether that one has a sigmoid gate.
    """

    inner: int
    count: int
    chosen: int
    sums_to_one: bool
    sigmoid_scale: float | None = None
    favours: bool = False
    clamp: tuple[float, float] | None = None
    shared: int = 0
    gates_shared: bool = False


@dataclass(frozen=True)
class LayerForm:
    """The parts of a layer: what mixes positions, and what follows for each of them."""

    mixer: AnyMixer
    feed_forward: Gated | Experts


@dataclass(frozen=True)
class RotaryForm:
    """A decoder with rotary positions, RMS norms and gated feed-forward networks.

    Attributes:
        layers: the parts of each.
        heads: of queries.
        norm_offset: added to the stored scales of norms, 1 in Gemma.
        qk_norm: whether queries and keys are normalised: each head's, or all heads' as one.
        normalizes_values: whether each head's values are, without a scale.
        gates: the sigmoid gates of what attention yields: one for each head, or for each number.
        has_sinks: whether each head has a further score in softmax, of a position without values.
        has_pre_norms, has_post_norms: whether inputs of mixers and feed-forward networks are
            normalised, and whether outputs are.
        score_scale: factor of queries.
        score_cap, logit_cap: c in c * tanh(x / c), the soft cap of scores and of logits.
        embedding_scale, residual_scale, logit_scale: factors of embeddings, of a layer's outputs,
            and of logits.
        activation_scales: factors before and behind the activation of feed-forward networks.
        layer_inputs: numbers of each token's further embedding for each layer, 0 for none; layers
            then also scale what they yield (Gemma 4).
        layer_tokens: how many tokens have such embeddings.
        is_tied: whether the embedding is the head.
    """

    layers: tuple[LayerForm, ...]
    vocabulary_size: int
    width: int
    heads: int
    activation: str
    epsilon: float
    context_length: int
    is_tied: bool
    qkv_bias: bool = False
    out_bias: bool = False
    feed_forward_bias: bool = False
    norm_offset: float = 0.0
    qk_norm: Literal["head", "all", None] = None
    normalizes_values: bool = False
    gates: Literal["head", "number", None] = None
    has_sinks: bool = False
    has_pre_norms: bool = True
    has_post_norms: bool = False
    score_scale: float = 1.0
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    activation_scales: tuple[float, float] = (1.0, 1.0)
    layer_inputs: int = 0
    layer_tokens: int = 0

    def gate_count(self, mixer: Attention) -> int:
        """How many gates an attention has."""
        return self.heads * {"head": 1, "number": mixer.head_size, None: 0}[self.gates]


# Architectures


def _llama(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {"feed_forward_bias": config.mlp_bias}


def _qwen2(config: Any) -> dict[str, Any]:
    return {"qkv_bias": True}


def _qwen3(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {"qk_norm": "head"}


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
    return _gemma(config) | {"qk_norm": "head"}


def _gemma4(config: Any) -> dict[str, Any]:
    if config.use_bidirectional_attention == "all":
        raise ModelUnavailable(
            "the model's config.json sets use_bidirectional_attention to all, and only causal "
            "attention is supported."
        )
    return _attention_bias(config) | {
        "activation": config.hidden_activation,
        "has_post_norms": True,
        "qk_norm": "head",
        "normalizes_values": True,
        "score_scale": 1.0,
        "logit_cap": config.final_logit_softcapping,
        "embedding_scale": config.hidden_size**0.5,
        "layer_inputs": config.hidden_size_per_layer_input or 0,
        "layer_tokens": config.vocab_size_per_layer_input,
    }


def _olmo2(config: Any) -> dict[str, Any]:
    own = {"qk_norm": "all", "has_pre_norms": False, "has_post_norms": True}
    return _attention_bias(config) | own


def _lfm2(config: Any) -> dict[str, Any]:
    return {"activation": "silu", "qk_norm": "head"}


def _lfm3(config: Any) -> dict[str, Any]:
    gates = "head" if config.use_attention_gate else None
    return _attention_bias(config) | _lfm2(config) | {"has_post_norms": True, "gates": gates}


def _qwen35(config: Any) -> dict[str, Any]:
    return _qwen3(config) | {"norm_offset": 1.0, "gates": "number"}


def _olmoe(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {"qk_norm": "all"}


def _gpt_oss(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {"feed_forward_bias": True, "has_sinks": True}


def _granite(config: Any) -> dict[str, Any]:
    return _attention_bias(config) | {
        "feed_forward_bias": getattr(config, "mlp_bias", False),
        "score_scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": 1.0 / config.logits_scaling,
    }


def _falcon_h1(config: Any) -> dict[str, Any]:
    scores = config.attention_in_multiplier**2 * config.key_multiplier
    return {
        "score_scale": _sizes(config, 0)[1] ** -0.5 * scores,
        "embedding_scale": config.embedding_multiplier,
        "logit_scale": config.lm_head_multiplier,
        "activation_scales": tuple(config.mlp_multipliers),
    }


def _attention_bias(config: Any) -> dict[str, Any]:
    return {"qkv_bias": config.attention_bias, "out_bias": config.attention_bias}


_ARCHITECTURES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": lambda config: {},
    "ministral3": lambda config: {},
    "qwen2": _qwen2,
    "qwen2_moe": lambda config: {"qkv_bias": config.qkv_bias},
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
    "smollm3": _llama,
    "granite": _granite,
    "phi3": lambda config: {},
    "olmo2": _olmo2,
    "olmo3": _olmo2,
    "qwen3_moe": _qwen3,
    "olmoe": _olmoe,
    "granitemoe": _granite,
    "granitemoeshared": _granite,
    "granitemoehybrid": _granite,
    "falcon_h1": _falcon_h1,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "lfm3": _lfm3,
    "gpt_oss": _gpt_oss,
    "qwen3_5_text": _qwen35,
    "qwen3_5_moe_text": _qwen35,
}
"""The fields that each architecture sets beyond `describe`."""


def _qwen3_experts(config: Any, place: int) -> Gated | Experts:
    dense = config.mlp_only_layers or ()
    if place in dense or (place + 1) % config.decoder_sparse_step:
        return Gated(config.intermediate_size)
    shared = getattr(config, "shared_expert_intermediate_size", 0)
    return _experts(
        config,
        config.moe_intermediate_size,
        config.norm_topk_prob,
        shared=shared,
        gates_shared=shared > 0,
    )


def _qwen35_experts(config: Any, place: int) -> Experts:
    shared = config.shared_expert_intermediate_size
    own = {"shared": shared, "gates_shared": shared > 0}
    return _experts(config, config.moe_intermediate_size, True, **own)


def _granite_experts(config: Any, place: int) -> Gated | Experts:
    shared = config.shared_intermediate_size
    if not config.num_local_experts:
        return Gated(shared)
    return _experts(config, config.intermediate_size, True, shared=shared)


def _lfm2_experts(config: Any, place: int) -> Gated | Experts:
    if place < config.num_dense_layers:
        return Gated(config.intermediate_size)
    return _experts(
        config,
        config.moe_intermediate_size,
        config.norm_topk_prob,
        sigmoid_scale=config.routed_scaling_factor,
        favours=config.use_expert_bias,
    )


def _experts(config: Any, inner: int, sums_to_one: bool, **own: Any) -> Experts:
    count = getattr(config, "num_local_experts", None) or config.num_experts
    chosen = config.num_experts_per_tok
    if not 0 < chosen <= count:
        raise ModelUnavailable(
            f"the model's config.json sets num_experts_per_tok to {chosen}; it has {count} experts."
        )
    return Experts(inner, count, chosen, sums_to_one, **own)


def _lfm2_gated(config: Any, place: int) -> Gated:
    inner = config.intermediate_size
    if config.block_auto_adjust_ff_dim:
        inner = int(2 * inner / 3)
        if config.block_ffn_dim_multiplier is not None:
            step = config.block_multiple_of
            inner = -(-int(config.block_ffn_dim_multiplier * inner) // step) * step
    return Gated(inner)


def _gemma4_gated(config: Any, place: int) -> Gated:
    shares = config.kv_sharing_modes[place] == "reuse"
    return Gated(config.intermediate_size * (2 if shares and config.use_double_wide_mlp else 1))


_FEED_FORWARDS: dict[str, Callable[[Any, int], Gated | Experts]] = {
    "qwen2_moe": _qwen3_experts,
    "qwen3_moe": _qwen3_experts,
    "qwen3_5_moe_text": _qwen35_experts,
    "olmoe": lambda config, place: _experts(
        config, config.intermediate_size, config.norm_topk_prob
    ),
    "granitemoe": lambda config, place: _experts(config, config.intermediate_size, True),
    "granitemoeshared": _granite_experts,
    "granitemoehybrid": _granite_experts,
    "lfm2": _lfm2_gated,
    "lfm2_moe": _lfm2_experts,
    "gemma4_text": _gemma4_gated,
    "gpt_oss": lambda config, place: _experts(
        config,
        config.intermediate_size,
        True,
        clamp=(config.swiglu_limit, config.swiglu_alpha),
    ),
}
"""The feed-forward network of a layer, where it is not a gated one of `intermediate_size`."""

MODEL_TYPES = tuple(_ARCHITECTURES)
"""The values of `model_type` in a config.json that are described here."""

_DELTAS = ("qwen3_5_text", "qwen3_5_moe_text")
_PARTLY_TURNED = ("phi3", *_DELTAS)
"""Those in which `partial_rotary_factor` means something."""


def describe(config: Any) -> RotaryForm:
    """The form of a model.

    Args:
        config: a Hugging Face configuration of one of `MODEL_TYPES`.

    Raises:
        ModelUnavailable: the kind of rotary positions is not supported, or heads do not fit.
    """
    heads = config.num_attention_heads
    layers = tuple(_layer(config, place) for place in range(config.num_hidden_layers))
    plain = {
        "vocabulary_size": config.vocab_size,
        "width": config.hidden_size,
        "heads": heads,
        "activation": getattr(config, "hidden_act", ""),
        "epsilon": getattr(config, "rms_norm_eps", None) or config.norm_eps,
        "score_scale": _sizes(config, 0)[1] ** -0.5,
        "context_length": context_length(config.max_position_embeddings, config.to_dict()),
        "is_tied": config.tie_word_embeddings,
    }
    return RotaryForm(layers=layers, **plain | _ARCHITECTURES[config.model_type](config))


def _sizes(config: Any, place: int) -> tuple[int, int]:
    """Heads of keys, and numbers of a head, of a layer."""
    heads = config.num_attention_heads
    config = config.per_layer_config[place] if config.model_type == "gemma4_text" else config
    kv_heads = config.num_key_value_heads
    if heads % kv_heads:
        raise ModelUnavailable(
            f"the model's config.json sets num_key_value_heads to {kv_heads}, which does not "
            f"divide num_attention_heads, {heads}."
        )
    return kv_heads, getattr(config, "head_dim", None) or config.hidden_size // heads


def _layer(config: Any, place: int) -> LayerForm:
    feed_forward = _FEED_FORWARDS.get(config.model_type)
    return LayerForm(
        _mixer(config, place),
        feed_forward(config, place) if feed_forward else Gated(config.intermediate_size),
    )


def _state(config: Any) -> State:
    is_parallel = config.model_type == "falcon_h1"
    if is_mamba := is_parallel or config.model_type == "granitemoehybrid":
        names = ["mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv"]
    else:
        names = ["num_value_heads", "num_key_heads", "key_head_dim", "value_head_dim"]
        names = [f"linear_{name}" for name in (*names, "conv_kernel_dim")]
    sizes = heads, key_heads, keys, values, taps = [getattr(config, name) for name in names]
    suits = (
        (True, ""),
        (heads % key_heads == 0, f"divide {heads}"),
        (keys % 4 == 0, "be a multiple of 4"),
        (values % 16 == 0, "be a multiple of 16"),
        (taps > 1, "be 2 or more"),
        (is_parallel or "full_attention" in config.layer_types, "have a layer of full_attention"),
    )
    found = [*zip(names, sizes, strict=True), ("layer_types", config.layer_types)]
    for (name, value), (is_possible, what) in zip(found, suits, strict=True):
        if not is_possible:
            raise ModelUnavailable(
                f"the model's config.json sets {name} to {value}; here it must {what}."
            )
    if is_mamba:
        has_bias, others = config.mamba_conv_bias, config.mamba_proj_bias
        state = State("mamba", heads, key_heads, keys, values, taps, False, has_bias, others)
        if not is_parallel:
            return state
        norm: Literal["before", "behind", None] = None
        if config.mamba_rms_norm:
            norm = "before" if config.mamba_norm_before_gate else "behind"
        scales = tuple(config.ssm_in_multiplier * x for x in config.ssm_multipliers)
        return replace(state, norm=norm, scales=scales)
    # The heads of GGUF files are in another order.
    alternate = getattr(config, "linear_heads_alternate", False)
    return State("delta", heads, key_heads, keys, values, taps, alternate)


def _mixer(config: Any, place: int) -> AnyMixer:
    window = getattr(config, "sliding_window", None)
    kind = "sliding_attention" if window else "full_attention"
    if getattr(config, "layer_types", None):
        kind = config.layer_types[place]
    if is_parallel := config.model_type == "falcon_h1":
        kind = "full_attention"
    if kind == "conv" and config.model_type.startswith("lfm"):
        if config.conv_L_cache < 2:
            raise ModelUnavailable(
                f"the model's config.json sets conv_L_cache to {config.conv_L_cache}; it must be 2 "
                "or more."
            )
        return Convolution(config.conv_L_cache, config.conv_bias)
    if kind == "linear_attention" and config.model_type in (*_DELTAS, "granitemoehybrid"):
        return _state(config)
    if kind not in ("sliding_attention", "full_attention"):
        raise ModelUnavailable(
            f"the model's config.json sets layer_types to {kind}, which is not supported for "
            f"{config.model_type}: known are full_attention and sliding_attention."
        )
    # The baseline's Transformers is older and has another name; it has no scaling.
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    rotated = getattr(config, "no_rope_layers", None)  # 1: with positions, 0: without
    is_rotated = rotated[place] if rotated else True
    if config.model_type == "granitemoehybrid":
        is_rotated = config.position_embedding_type == "rope"
    kv_heads, head_size = _sizes(config, place)
    if is_rotated:
        positions = _positions(config, rope.get(kind, rope), head_size)
    else:
        positions = Positions((0.0,) * (head_size // 2))
    own_window, source = window if kind == "sliding_attention" else None, None
    if config.model_type == "gemma4_text" and config.kv_sharing_modes[place] == "reuse":
        source = max(
            number
            for number, mode in enumerate(config.kv_sharing_modes)
            if mode == "store" and config.layer_types[number] == kind
        )
    attention = Attention(kv_heads, head_size, positions, own_window, source)
    if not is_parallel:
        return attention
    scale = config.attention_in_multiplier * config.attention_out_multiplier
    return Parallel(attention, _state(config), (scale, config.ssm_out_multiplier))


# Contexts


def context_length(longest: int, config: Mapping[str, Any]) -> int:
    """The most tokens of prompt and output of a model.

    LongRoPE has two sets of frequencies. Transformers changes from one to the other in the middle
    of a text that becomes longer than those that the model was first trained with, and computes all
    of it anew. Here a model is served up to that length, or, where a longer context is asked for,
    with the set for long texts throughout, as llama.cpp and vLLM serve it.

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


# Positions


def _positions(config: Any, rope: dict[str, Any], head_size: int) -> Positions:
    """The rotary positions of a layer.

    Args:
        config: of the model.
        rope: Hugging Face's `rope_parameters`. `linear` stretches all positions (arXiv:2306.15595);
            `llama3` only the slow ones, and those between in part (Llama 3.1's release); `yarn`
            likewise by the index of the pair (arXiv:2309.00071); `longrope` each pair by its own
            factor (arXiv:2402.13753), see `context_length`; `proportional` leaves the slow pairs
            without positions. `dynamic` changes only positions
            beyond `max_position_embeddings`, which are never reached here.
        head_size: D.

    Raises:
        ModelUnavailable: `rope_type` is of another kind, or a value is missing.
    """
    kind = rope.get("rope_type", "default")
    turned, part = head_size, rope.get("partial_rotary_factor", 1.0)
    if part != 1.0 and kind != "proportional":
        if config.model_type not in _PARTLY_TURNED:
            raise ModelUnavailable(
                "the model's config.json rotates only a part of each head "
                f"(partial_rotary_factor), which is not supported for {config.model_type}."
            )
        turned = int(head_size * part)
    growth = rope.get("llama_4_scaling_beta") if config.model_type == "ministral3" else None
    try:
        base = [rope["rope_theta"] ** (-i / turned) for i in range(0, turned, 2)]
        amplitude = 1.0
        if kind == "yarn":
            base, amplitude = list(_yarn(base, rope, turned)), _yarn_amplitude(rope)
        elif kind == "longrope":
            base, amplitude = _longrope(config, base, rope)
        elif kind == "linear":
            base = [x / rope["factor"] for x in base]
        elif kind == "proportional":
            turned = int(head_size * part // 2)
            rotated = [x / rope.get("factor", 1.0) for x in base[:turned]]
            base = rotated + [0.0] * (len(base) - turned)
        elif kind == "llama3":
            base = [_llama3(x, rope) for x in base]
        elif kind not in ("default", "dynamic"):
            raise ModelUnavailable(
                f"the model's config.json asks for rotary positions of the kind {kind!r}; known "
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
    kept = min(max((waves - low) / (high - low), 0.0), 1.0)
    return frequency * (kept + (1.0 - kept) / factor)


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


# Tensors


def shapes(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of all tensors of a checkpoint, matrices as `[out, in]`."""
    form = describe(config)
    yield "model.embed_tokens.weight", (form.vocabulary_size, form.width)
    if form.layer_inputs:
        width = form.layer_inputs * len(form.layers)
        yield "model.embed_tokens_per_layer.weight", (form.layer_tokens, width)
        yield "model.per_layer_model_projection.weight", (width, form.width)
        yield "model.per_layer_projection_norm.weight", (form.layer_inputs,)
    for place, layer in enumerate(form.layers):
        for name, shape in _layer_shapes(form, layer):
            yield f"model.layers.{place}.{name}", shape
    yield "model.norm.weight", (form.width,)
    if not form.is_tied:
        yield "lm_head.weight", (form.vocabulary_size, form.width)


def pieces(config: Any) -> Callable[[str], Iterator[tuple[str, Callable[[Any], Any]]]]:
    """What each tensor of a checkpoint holds: the names in `shapes`, and what takes each out of it.

    What is several matrices here may be one there, each some of its rows, or a stack with one for
    each expert.
    """
    form, own_names = describe(config), _OWN_NAMES.get(config.model_type, {})
    whole = itemgetter(slice(None))

    def find(name: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        found = re.fullmatch(r"(model\.(?:layers\.(\d+)\.)?)(.+?)(\.weight|\.bias|)", name)
        if not found:
            yield name, whole
            return
        at, place, part, leaf = found.groups()
        if config.model_type == "gpt_oss" and (of_experts := _INTERLEAVED.fullmatch(part)):
            yield from _interleaved(
                f"{at}mlp.experts", *of_experts.groups(), leaf=leaf, config=config
            )
            return
        mixers = [layer.mixer for layer in form.layers]
        mixer = mixers[int(place)] if place and int(place) < len(mixers) else None
        has_gates = part == "self_attn.q_proj" and form.gates == "number"
        if has_gates and isinstance(mixer, Attention):
            # Of each head first the query, then its gates.
            both = np.arange(2 * form.heads * mixer.head_size).reshape(form.heads, 2, -1)
            for number, own in enumerate("qg"):
                yield f"{at}self_attn.{own}_proj{leaf}", itemgetter(both[:, number].reshape(-1))
            return
        if part not in _STACKED or not place or int(place) >= len(form.layers):
            each = own_names.get(part) or ".".join(own_names.get(x, x) for x in part.split("."))
            yield f"{at}{each}{leaf}", whole
            return
        layer, (where, names) = form.layers[int(place)], _STACKED[part]
        feed_forward, end = layer.feed_forward, 0
        inner = feed_forward.inner
        if part.startswith("shared_mlp") and isinstance(feed_forward, Experts):
            where, inner = "mlp.shared_expert", feed_forward.shared
        sizes = {"down_proj": form.width}
        if isinstance(layer.mixer, Attention):
            qkv = ("q_proj", "k_proj", "v_proj")
            sizes |= dict(zip(qkv, qkv_sizes(form, layer.mixer), strict=True))
        for own in names:
            begin, end = end, end + sizes.get(own, inner)
            if isinstance(feed_forward, Experts) and where == "mlp.experts":
                for number in range(feed_forward.count):
                    rows = itemgetter((number, slice(begin, end)))
                    yield f"{at}{where}.{number}.{own}.weight", rows
            else:
                yield f"{at}{where}.{own}{leaf}", itemgetter(slice(begin, end))

    return find


_INTERLEAVED = re.compile(r"mlp\.experts\.(?:(\d+)\.)?(gate_up|down)_proj(_bias)?")


def _interleaved(
    at: str, number: str | None, part: str, bias: str | None, *, leaf: str, config: Any
) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """GPT-OSS: `[experts, in, out]`, or in blocks `[out, in]` of one; rows of gate and up take
    turns."""
    parts = {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2)}
    parts = parts if part == "gate_up" else {"down_proj": slice(None)}
    for name, rows in parts.items():
        if number:
            yield f"{at}.{number}.{name}{leaf or '.weight'}", itemgetter(rows)
            continue
        for each in range(config.num_local_experts):
            own = f"{at}.{each}.{name}.{'bias' if bias else 'weight'}"
            yield own, _columns((each, rows) if bias else (each, slice(None), rows))


def _columns(index: tuple[Any, ...]) -> Callable[[Any], Any]:
    def take(tensor: np.ndarray) -> np.ndarray:
        return tensor[index].T

    return take


def norms(form: RotaryForm) -> tuple[str | None, str | None, str | None, str | None]:
    """The names of a layer's norms: before and after the mixer, before and after the feed-forward
    network.

    Where outputs are normalised, the second has the name that the third has elsewhere.
    """
    before, after = "input_layernorm", "post_attention_layernorm"
    if not form.has_post_norms:
        return before, None, after, None
    both = (before, after, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    return both if form.has_pre_norms else (None, both[1], None, both[3])


def _layer_shapes(form: RotaryForm, layer: LayerForm) -> Iterator[tuple[str, tuple[int, ...]]]:
    for norm in filter(None, norms(form)):
        yield f"{norm}.weight", (form.width,)
    mixer = layer.mixer
    parts: tuple[_Single, ...]
    parts = (mixer.attention, mixer.state) if isinstance(mixer, Parallel) else (mixer,)
    linears = [linear for part in parts for linear in _mixer_linears(form, part)]
    for name, out, into, has_bias in (*linears, *_inner_linears(form, layer)):
        yield f"{name}.weight", (out, into)
        if has_bias:
            yield f"{name}.bias", (out,)
    if form.layer_inputs:
        yield "per_layer_input_gate.weight", (form.layer_inputs, form.width)
        yield "per_layer_projection.weight", (form.width, form.layer_inputs)
        yield "post_per_layer_input_norm.weight", (form.width,)
        yield "layer_scale.weight", (1,)
    for part in parts:
        yield from _mixer_vectors(form, part)
    if isinstance(layer.feed_forward, Experts) and layer.feed_forward.favours:
        yield "mlp.expert_bias.bias", (layer.feed_forward.count,)


def _mixer_vectors(form: RotaryForm, mixer: _Single) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(mixer, Attention) and form.qk_norm:
        heads = (form.heads, mixer.kv_heads) if form.qk_norm == "all" else (1, 1)
        names = ("q_norm", "k_norm") if mixer.source is None else ("q_norm",)
        for name, count in zip(names, heads, strict=False):
            yield f"self_attn.{name}.weight", (count * mixer.head_size,)
    if isinstance(mixer, State):
        at, is_mamba = STATES[mixer.rule], mixer.rule == "mamba"
        yield from (
            (f"{at}.{x}", (mixer.heads,)) for x in ("A_log", "dt_bias", "D")[: 2 + is_mamba]
        )
        if mixer.norm:
            yield f"{at}.norm.weight", (mixer.values * (mixer.heads if is_mamba else 1),)
    if isinstance(mixer, Attention) and form.has_sinks:
        yield "self_attn.sink.weight", (form.heads,)


_Linear = tuple[str, int, int, bool]
"""Of a projection the name, the widths behind it and before it, and whether it has a bias."""


def _mixer_linears(form: RotaryForm, mixer: _Single) -> Iterator[_Linear]:
    width = form.width
    if isinstance(mixer, Convolution):
        yield "conv.in_proj", 3 * width, width, mixer.has_bias
        yield "conv.conv", width, mixer.taps, mixer.has_bias
        yield "conv.out_proj", width, width, mixer.has_bias
        return
    if isinstance(mixer, State):
        at, bias = STATES[mixer.rule], mixer.projections_have_biases
        values = mixer.heads * mixer.values
        mixed = 2 * mixer.key_heads * mixer.keys + values
        into = {"in_proj": values + mixed + mixer.heads}
        if mixer.rule == "delta":
            into = {"in_proj_qkv": mixed, "in_proj_z": values}
            into |= {"in_proj_b": mixer.heads, "in_proj_a": mixer.heads}
        for name, out in into.items():
            yield f"{at}.{name}", out, width, bias
        yield f"{at}.conv1d", mixed, mixer.taps, mixer.has_bias
        yield f"{at}.out_proj", width, values, bias
        return
    queries, keys, values = qkv_sizes(form, mixer)
    yield "self_attn.q_proj", queries, width, form.qkv_bias
    if mixer.source is None:
        yield "self_attn.k_proj", keys, width, form.qkv_bias
        yield "self_attn.v_proj", values, width, form.qkv_bias
    yield "self_attn.o_proj", width, queries, form.out_bias
    if form.gates:
        yield "self_attn.g_proj", form.gate_count(mixer), width, form.qkv_bias


def _inner_linears(form: RotaryForm, layer: LayerForm) -> Iterator[_Linear]:
    of, width, has_bias = layer.feed_forward, form.width, form.feed_forward_bias
    networks = [("mlp", of.inner)]
    if isinstance(of, Experts):
        yield "mlp.gate", of.count, width, has_bias
        networks = [(f"mlp.experts.{number}", of.inner) for number in range(of.count)]
        networks += [("mlp.shared_expert", of.shared)] * (of.shared > 0)
        if of.gates_shared:
            yield "mlp.shared_expert_gate", 1, width, False
    for at, inner in networks:
        yield f"{at}.gate_proj", inner, width, has_bias
        yield f"{at}.up_proj", inner, width, has_bias
        yield f"{at}.down_proj", width, inner, has_bias


def qkv_sizes(form: RotaryForm, mixer: Attention) -> tuple[int, int, int]:
    """The widths of queries, keys and values."""
    keys = mixer.kv_heads * mixer.head_size
    return form.heads * mixer.head_size, keys, keys


_LFM_NAMES = {
    "feed_forward": "mlp",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "operator_norm": "input_layernorm",
    "embedding_norm": "norm",
}
_LFM2_NAMES = _LFM_NAMES | {
    "ffn_norm": "post_attention_layernorm",
    "q_layernorm": "q_norm",
    "k_layernorm": "k_norm",
    "self_attn.out_proj": "self_attn.o_proj",
    "feed_forward.expert_bias": "mlp.expert_bias.bias",
}
_GRANITE_NAMES = {"block_sparse_moe.router.layer": "mlp.gate"}
_OWN_NAMES = {
    **dict.fromkeys(("granitemoe", "granitemoeshared", "granitemoehybrid"), _GRANITE_NAMES),
    "falcon_h1": {
        "feed_forward": "mlp",
        "pre_ff_layernorm": "post_attention_layernorm",
        "final_layernorm": "norm",
    },
    "gemma4_text": {"layer_scalar": "layer_scale.weight"},
    "gpt_oss": {"mlp.router": "mlp.gate", "self_attn.sinks": "self_attn.sink.weight"},
    "lfm2": _LFM2_NAMES,
    "lfm2_moe": _LFM2_NAMES,
    "lfm3": _LFM_NAMES
    | {
        "post_operator_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffn_norm": "post_feedforward_layernorm",
        "self_attn.gate_proj": "self_attn.g_proj",  # in the first files
    },
}
"""What a checkpoint calls otherwise than `shapes`, without the layer before it and what follows:
the whole, or what lies between two dots of it."""

_STACKED = {
    "self_attn.qkv_proj": ("self_attn", ("q_proj", "k_proj", "v_proj")),
    "mlp.gate_up_proj": ("mlp", ("gate_proj", "up_proj")),
    "mlp.experts.gate_up_proj": ("mlp.experts", ("gate_proj", "up_proj")),
    "mlp.experts.down_proj": ("mlp.experts", ("down_proj",)),
    "shared_mlp.input_linear": ("mlp", ("gate_proj", "up_proj")),
    "shared_mlp.output_linear": ("mlp", ("down_proj",)),
    "block_sparse_moe.input_linear": ("mlp.experts", ("gate_proj", "up_proj")),
    "block_sparse_moe.output_linear": ("mlp.experts", ("down_proj",)),
}
"""What a checkpoint has as one matrix, or as one for each expert: where its parts belong, and what
they are, in the order of its rows."""
