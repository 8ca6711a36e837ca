"""GPT-OSS (OpenAI): routed experts with biases and a clamped activation, in MXFP4 or 16 bits; a
sink for each head."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from xla_backend.checkpoints.architectures.architecture import Piece
from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, experts
from xla_backend.checkpoints.architectures.forms import DecoderForm, ExpertsForm, FeedForwardForm
from xla_backend.checkpoints.architectures.gguf import GGUFLayout, GGUFSettings

_EXPERTS = re.compile(r"mlp\.experts\.(?:(\d+)\.)?(gate_up|down)_proj(_bias)?")


def _experts(config: Any, place: int) -> FeedForwardForm:
    return experts(config, place, clamp=(config.swiglu_limit, config.swiglu_alpha))


def _split(form: DecoderForm, part: str, leaf: str) -> Iterator[Piece]:
    """`[experts, in, out]`, or in blocks `[out, in]` of one; rows of gate and up take turns."""
    found = _EXPERTS.fullmatch(part)
    if not found:
        return
    number, kind, bias = found.groups()
    rows_of = {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2)}
    rows_of = rows_of if kind == "gate_up" else {"down_proj": slice(None)}
    feed_forward = form.layers[0].feed_forward
    assert isinstance(feed_forward, ExpertsForm), "every layer has experts"
    for name, rows in rows_of.items():
        if number:
            yield f"mlp.experts.{number}.{name}{leaf or '.weight'}", itemgetter(rows)
            continue
        for each in range(feed_forward.count):
            own = f"mlp.experts.{each}.{name}.{'bias' if bias else 'weight'}"
            yield own, _columns((each, rows) if bias else (each, slice(None), rows))


def _columns(index: tuple[Any, ...]) -> Callable[[Any], Any]:
    def take(tensor: np.ndarray) -> np.ndarray:
        return tensor[index].T

    return take


def _from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    values["sliding_window"] = settings.value("attention.sliding_window", int, 0)
    values["rope_parameters"]["truncate"] = False  # which no file says


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="gpt_oss",
        name="GPT-OSS",
        quantizations=("mxfp4",),
        fields=lambda config: {"feed_forward_bias": True, "has_sinks": True},
        feed_forward=_experts,
        names=lambda config: {"mlp.router": "mlp.gate", "self_attn.sinks": "self_attn.sink.weight"},
        split=_split,
        gguf=GGUFLayout(
            architecture="gpt-oss",
            names={"post_attention_norm": "post_attention_layernorm"},
            complete=_from_gguf,
        ),
    ),
)
