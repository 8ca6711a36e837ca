"""`DecoderForm`: of which parts a modern decoder (Llama and later ones) is made.

`model.families.rotary` runs what is described here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


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
class AttentionForm:
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
class ConvolutionForm:
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
class StateForm:
    """A mixer: a short convolution, then a state that each token changes.

    Attributes:
        rule: the gated delta rule (Qwen3.5), or Mamba-2's.
        heads: of values, each with a state. key_heads: divides them.
        keys, values: numbers of a key and of a value.
        alternate: whether heads have the heads of keys in turn, instead of neighbours one.
        taps, has_bias: of the convolution. projections_have_biases: the first and the last.
        norm: whether what Mamba-2 reads is normalised before its gates, after them, or not.
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
    norm: Literal["before", "after", None] = "after"
    scales: tuple[float, ...] | None = None
    positions: ClassVar[None] = None
    window: ClassVar[None] = None
    source: ClassVar[None] = None


@dataclass(frozen=True)
class ParallelForm:
    """A mixer: attention and a state of one input, whose outputs are added (Falcon-H1).

    Attributes:
        scales: factors of what they yield.
    """

    attention: AttentionForm
    state: StateForm
    scales: tuple[float, float]
    window: ClassVar[None] = None
    source: ClassVar[None] = None

    @property
    def positions(self) -> Positions:
        return self.attention.positions


SingleForm = AttentionForm | ConvolutionForm | StateForm
MixerForm = SingleForm | ParallelForm


@dataclass(frozen=True)
class GatedForm:
    """A feed-forward network with a gate. `inner` is the width inside it."""

    inner: int


@dataclass(frozen=True)
class ExpertsForm:
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


FeedForwardForm = GatedForm | ExpertsForm


@dataclass(frozen=True)
class LayerForm:
    """The parts of a layer: what mixes positions, and what follows for each of them."""

    mixer: MixerForm
    feed_forward: FeedForwardForm


@dataclass(frozen=True)
class DecoderForm:
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
        activation_scales: factors before and after the activation of feed-forward networks.
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

    def gate_count(self, mixer: AttentionForm) -> int:
        return self.heads * {"head": 1, "number": mixer.head_size, None: 0}[self.gates]
