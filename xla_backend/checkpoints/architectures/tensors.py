"""Tensors of a decoder's checkpoint: names, shapes, and what a file calls or packs otherwise.

Names are those of Llama's checkpoints, with one matrix for each projection and each expert.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter

import numpy as np

from xla_backend.checkpoints.architectures.architecture import Piece, Shapes
from xla_backend.checkpoints.architectures.forms import (
    AttentionForm,
    ConvolutionForm,
    DecoderForm,
    ExpertsForm,
    LayerForm,
    ParallelForm,
    SingleForm,
    StateForm,
)

Split = Callable[[DecoderForm, str, str], Iterator[Piece]]
"""From a form, a tensor's name within a layer, and its suffix (".weight", ".bias" or none), to its
pieces by their whole names within the layer; no pieces if it is like those of others."""

STATES = {"delta": "linear_attn", "mamba": "mamba"}
"""What such a mixer is called in a checkpoint."""

_GATE_UP = ("gate_proj", "up_proj")
_STACKED = {
    "self_attn.qkv_proj": ("self_attn", ("q_proj", "k_proj", "v_proj")),
    "mlp.gate_up_proj": ("mlp", _GATE_UP),
    "mlp.shared_expert.gate_up_proj": ("mlp.shared_expert", _GATE_UP),
    "mlp.experts.gate_up_proj": ("mlp.experts", _GATE_UP),
    "mlp.experts.down_proj": ("mlp.experts", ("down_proj",)),
}
"""What a checkpoint may have as one matrix, or as one for each expert: where its parts belong, and
what they are, in the order of its rows."""


def shapes(form: DecoderForm) -> Shapes:
    """Name and shape of all tensors of a checkpoint, matrices as `[out, in]`."""
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


def pieces(
    form: DecoderForm, names: Mapping[str, str], split: Split | None
) -> Callable[[str], Iterator[Piece]]:
    """What each tensor of a checkpoint holds: the names in `shapes`, and what takes each out of it.

    What is several matrices here may be one there, each some of its rows, or a stack with one for
    each expert.

    Args:
        names: see `decoder.DecoderArchitecture.names`.
        split: see `Split`.
    """
    whole = itemgetter(slice(None))

    def find(name: str) -> Iterator[Piece]:
        found = re.fullmatch(r"(model\.(?:layers\.(\d+)\.)?)(.+?)(\.weight|\.bias|)", name)
        if not found:
            yield name, whole
            return
        at, place, part, leaf = found.groups()
        part = names.get(part) or ".".join(names.get(x, x) for x in part.split("."))
        layer = form.layers[int(place)] if place and int(place) < len(form.layers) else None
        own = [*split(form, part, leaf)] if split else []
        if not own and layer:
            own = [*_split_gates(form, layer, part, leaf), *_unstacked(form, layer, part, leaf)]
        yield from ((f"{at}{each}", take) for each, take in own or [(f"{part}{leaf}", whole)])

    return find


def _split_gates(form: DecoderForm, layer: LayerForm, part: str, leaf: str) -> Iterator[Piece]:
    """Of each head first the query, then its gates."""
    mixer = layer.mixer
    if part == "self_attn.q_proj" and form.gates == "number" and isinstance(mixer, AttentionForm):
        both = np.arange(2 * form.heads * mixer.head_size).reshape(form.heads, 2, -1)
        for number, own in enumerate("qg"):
            yield f"self_attn.{own}_proj{leaf}", itemgetter(both[:, number].reshape(-1))


def _unstacked(form: DecoderForm, layer: LayerForm, part: str, leaf: str) -> Iterator[Piece]:
    where, names = _STACKED.get(part, ("", ()))
    mixer, feed_forward = layer.mixer, layer.feed_forward
    inner, end = feed_forward.inner, 0
    if where == "mlp.shared_expert" and isinstance(feed_forward, ExpertsForm):
        inner = feed_forward.shared
    sizes = {"down_proj": form.width}
    if isinstance(mixer, AttentionForm):
        sizes |= zip(("q_proj", "k_proj", "v_proj"), qkv_sizes(form, mixer), strict=True)
    for own in names:
        begin, end = end, end + sizes.get(own, inner)
        if where == "mlp.experts" and isinstance(feed_forward, ExpertsForm):
            for number in range(feed_forward.count):
                rows = itemgetter((number, slice(begin, end)))
                yield f"{where}.{number}.{own}.weight", rows
        else:
            yield f"{where}.{own}{leaf}", itemgetter(slice(begin, end))


def norms(form: DecoderForm) -> tuple[str | None, str | None, str | None, str | None]:
    """The names of a layer's norms: before and after the mixer, before and after the feed-forward
    network.

    Where outputs are normalised, the second has the name that the third has otherwise.
    """
    before, after = "input_layernorm", "post_attention_layernorm"
    if not form.has_post_norms:
        return before, None, after, None
    both = (before, after, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    return both if form.has_pre_norms else (None, both[1], None, both[3])


def _layer_shapes(form: DecoderForm, layer: LayerForm) -> Shapes:
    for norm in filter(None, norms(form)):
        yield f"{norm}.weight", (form.width,)
    mixer = layer.mixer
    parts: tuple[SingleForm, ...]
    parts = (mixer.attention, mixer.state) if isinstance(mixer, ParallelForm) else (mixer,)
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
    if isinstance(layer.feed_forward, ExpertsForm) and layer.feed_forward.favours:
        yield "mlp.expert_bias.bias", (layer.feed_forward.count,)


def _mixer_vectors(form: DecoderForm, mixer: SingleForm) -> Shapes:
    if isinstance(mixer, AttentionForm) and form.qk_norm:
        heads = (form.heads, mixer.kv_heads) if form.qk_norm == "all" else (1, 1)
        names = ("q_norm", "k_norm") if mixer.source is None else ("q_norm",)
        for name, count in zip(names, heads, strict=False):
            yield f"self_attn.{name}.weight", (count * mixer.head_size,)
    if isinstance(mixer, StateForm):
        at, is_mamba = STATES[mixer.rule], mixer.rule == "mamba"
        yield from (
            (f"{at}.{x}", (mixer.heads,)) for x in ("A_log", "dt_bias", "D")[: 2 + is_mamba]
        )
        if mixer.norm:
            yield f"{at}.norm.weight", (mixer.values * (mixer.heads if is_mamba else 1),)
    if isinstance(mixer, AttentionForm) and form.has_sinks:
        yield "self_attn.sink.weight", (form.heads,)


_Linear = tuple[str, int, int, bool]
"""Of a projection the name, the widths after it and before it, and whether it has a bias."""


def _mixer_linears(form: DecoderForm, mixer: SingleForm) -> Iterator[_Linear]:
    width = form.width
    if isinstance(mixer, ConvolutionForm):
        yield "conv.in_proj", 3 * width, width, mixer.has_bias
        yield "conv.conv", width, mixer.taps, mixer.has_bias
        yield "conv.out_proj", width, width, mixer.has_bias
        return
    if isinstance(mixer, StateForm):
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


def _inner_linears(form: DecoderForm, layer: LayerForm) -> Iterator[_Linear]:
    of, width, has_bias = layer.feed_forward, form.width, form.feed_forward_bias
    networks = [("mlp", of.inner)]
    if isinstance(of, ExpertsForm):
        yield "mlp.gate", of.count, width, has_bias
        networks = [(f"mlp.experts.{number}", of.inner) for number in range(of.count)]
        networks += [("mlp.shared_expert", of.shared)] * (of.shared > 0)
        if of.gates_shared:
            yield "mlp.shared_expert_gate", 1, width, False
    for at, inner in networks:
        yield f"{at}.gate_proj", inner, width, has_bias
        yield f"{at}.up_proj", inner, width, has_bias
        yield f"{at}.down_proj", width, inner, has_bias


def qkv_sizes(form: DecoderForm, mixer: AttentionForm) -> tuple[int, int, int]:
    keys = mixer.kv_heads * mixer.head_size
    return form.heads * mixer.head_size, keys, keys
