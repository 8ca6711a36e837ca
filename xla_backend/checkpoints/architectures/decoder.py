"""`DecoderArchitecture`: a decoder of known parts, and the parts that most of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xla_backend.checkpoints.architectures import tensors
from xla_backend.checkpoints.architectures.architecture import Architecture, Piece, Shapes
from xla_backend.checkpoints.architectures.forms import (
    AttentionForm,
    DecoderForm,
    ExpertsForm,
    FeedForwardForm,
    GatedForm,
    LayerForm,
    MixerForm,
    Positions,
    StateForm,
)
from xla_backend.checkpoints.architectures.positions import context_length, rotary
from xla_backend.interface.errors import ModelUnavailable

SIZES = tuple(
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
    "max_position_embeddings vocab_size".split()
)


def attention(
    config: Any,
    place: int,
    *,
    kind: str | None = None,
    is_rotated: bool = True,
    rotates_part: bool = False,
    grows_queries: bool = False,
) -> AttentionForm:
    """The attention of a layer.

    Args:
        config: with `num_key_value_heads` and, where heads have their own size, `head_dim`.
        place: the layer's number.
        kind: full or sliding, in place of what the configuration says.
        is_rotated: whether it has positions.
        rotates_part: whether `partial_rotary_factor` means something.
        grows_queries: whether `llama_4_scaling_beta` does.
    """
    window = getattr(config, "sliding_window", None)
    if kind is None:
        kind = layer_kind(config, place)
    if kind not in ("sliding_attention", "full_attention"):
        raise ModelUnavailable(
            f"the model's config.json sets layer_types to {kind}, which is not supported for "
            f"{config.model_type}: known are full_attention and sliding_attention."
        )
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % kv_heads:
        raise ModelUnavailable(
            f"the model's config.json sets num_key_value_heads to {kv_heads}, which does not "
            f"divide num_attention_heads, {heads}."
        )
    size = head_size(config)
    positions = Positions((0.0,) * (size // 2))
    if is_rotated:
        # The baseline's Transformers is older and has another name; it has no scaling.
        rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
        options = {"rotates_part": rotates_part, "grows_queries": grows_queries}
        positions = rotary(config, rope.get(kind, rope), size, **options)
    return AttentionForm(kv_heads, size, positions, window if kind == "sliding_attention" else None)


def layer_kind(config: Any, place: int) -> str:
    """The kind of a layer: as `layer_types` says, else by whether there is a window."""
    if getattr(config, "layer_types", None):
        return config.layer_types[place]
    return "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"


def head_size(config: Any) -> int:
    """D, the numbers of a head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def mamba(config: Any, **own: Any) -> StateForm:
    """A state by Mamba-2's rule."""
    names = ("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv")
    return StateForm(
        "mamba",
        **state_sizes(config, names),
        has_bias=config.mamba_conv_bias,
        projections_have_biases=config.mamba_proj_bias,
        **own,
    )


def state_sizes(config: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a `StateForm` that are sizes.

    Args:
        names: of the settings with `heads`, `key_heads`, `keys`, `values` and `taps`.
    """
    sizes = heads, key_heads, keys, values, taps = [getattr(config, name) for name in names]
    suits = (
        (True, ""),
        (heads % key_heads == 0, f"divide {heads}"),
        (keys % 4 == 0, "be a multiple of 4"),
        (values % 16 == 0, "be a multiple of 16"),
        (taps > 1, "be 2 or more"),
    )
    for name, value, (is_possible, what) in zip(names, sizes, suits, strict=True):
        require(is_possible, name, value, what)
    return dict(zip(("heads", "key_heads", "keys", "values", "taps"), sizes, strict=True))


def require(is_possible: bool, name: str, value: object, what: str) -> None:
    """Refuses a setting."""
    if not is_possible:
        raise ModelUnavailable(
            f"the model's config.json sets {name} to {value}; here it must {what}."
        )


def gated(config: Any, place: int) -> GatedForm:
    """The feed-forward network of most layers."""
    return GatedForm(config.intermediate_size)


def experts(config: Any, place: int, **own: Any) -> GatedForm | ExpertsForm:
    """Routed experts; without any, the shared one alone. Qwen's shared ones have gates."""
    gated_width = getattr(config, "shared_expert_intermediate_size", 0)
    shared = gated_width or getattr(config, "shared_intermediate_size", 0)
    count = getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0)
    if not count:
        return GatedForm(shared or config.intermediate_size)
    chosen = config.num_experts_per_tok
    if not 0 < chosen <= count:
        raise ModelUnavailable(
            f"the model's config.json sets num_experts_per_tok to {chosen}; it has {count} experts."
        )
    return ExpertsForm(
        getattr(config, "moe_intermediate_size", None) or config.intermediate_size,
        count,
        chosen,
        getattr(config, "norm_topk_prob", True),
        shared=shared,
        gates_shared=gated_width > 0,
        **own,
    )


@dataclass(frozen=True, kw_only=True)
class DecoderArchitecture(Architecture):
    """What differs between modern decoders.

    Attributes:
        fields: the fields of `DecoderForm` that it sets beyond `describe`.
        mixer, feed_forward: of a layer, by its number.
        names: what its checkpoints call otherwise than `tensors.shapes`, without the layer before
            it and what follows: the whole name, or what lies between two dots of it.
        split: what a tensor that only it has holds, see `tensors.pieces`.
    """

    sizes: tuple[str, ...] = SIZES
    heads_divide_width: bool = False
    fields: Callable[[Any], dict[str, Any]] = lambda config: {}
    mixer: Callable[[Any, int], MixerForm] = attention
    feed_forward: Callable[[Any, int], FeedForwardForm] = gated
    names: Callable[[Any], Mapping[str, str]] = lambda config: {}
    split: tensors.Split | None = None

    def describe(self, config: Any) -> DecoderForm:
        """The form of a model.

        Args:
            config: a Hugging Face configuration of this architecture.
        """
        layers = tuple(
            LayerForm(self.mixer(config, place), self.feed_forward(config, place))
            for place in range(config.num_hidden_layers)
        )
        plain = {
            "vocabulary_size": config.vocab_size,
            "width": config.hidden_size,
            "heads": config.num_attention_heads,
            "activation": getattr(config, "hidden_act", "silu"),
            "epsilon": getattr(config, "rms_norm_eps", None) or config.norm_eps,
            "context_length": context_length(config.max_position_embeddings, config.to_dict()),
            "is_tied": config.tie_word_embeddings,
            "qkv_bias": getattr(config, "attention_bias", False),
            "out_bias": getattr(config, "attention_bias", False),
            "feed_forward_bias": getattr(config, "mlp_bias", False),
        }
        own = self.fields(config)
        if "score_scale" not in own:
            own = own | {"score_scale": head_size(config) ** -0.5}
        return DecoderForm(layers=layers, **plain | own)

    def shapes(self, config: Any) -> Shapes:
        return tensors.shapes(self.describe(config))

    def pieces(self, config: Any) -> Callable[[str], Iterable[Piece]]:
        return tensors.pieces(self.describe(config), self.names(config), self.split)
