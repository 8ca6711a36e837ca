"""OLMo 2, OLMo 3 and OLMoE (Ai2): norms of all queries and keys as one; OLMo 2 and 3 have norms of
outputs alone, OLMo 3 windows, OLMoE experts."""

from __future__ import annotations

from typing import Any

from xla_backend.checkpoints.architectures.decoder import DecoderArchitecture, experts
from xla_backend.checkpoints.architectures.gguf import POST_NORMS, GGUFLayout, GGUFSettings


def _olmo2(config: Any) -> dict[str, Any]:
    return {"qk_norm": "all", "has_pre_norms": False, "has_post_norms": True}


def _olmo2_from_gguf(settings: GGUFSettings, values: dict[str, Any]) -> None:
    if settings.value("attention.sliding_window", int, 0):
        values |= settings.windows(4) | {"model_type": "olmo3"}


ARCHITECTURES = (
    DecoderArchitecture(
        model_type="olmo2",
        name="OLMo 2",
        fields=_olmo2,
        gguf=GGUFLayout(
            architecture="olmo2", names=POST_NORMS, local_theta=0.0, complete=_olmo2_from_gguf
        ),
    ),
    DecoderArchitecture(model_type="olmo3", name="OLMo 3", fields=_olmo2),
    DecoderArchitecture(
        model_type="olmoe",
        name="OLMoE",
        required={"clip_qkv": None},
        fields=lambda config: {"qk_norm": "all"},
        feed_forward=experts,
        gguf=GGUFLayout(architecture="olmoe"),
    ),
)
