"""`GGUFLayout`: how llama.cpp's files have an architecture, and the settings of such a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xla_backend.checkpoints.formats.gguf_file import GGUFFile

_Value = TypeVar("_Value", bool, int, float, str)

BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "exp_probs_b": "mlp.expert_bias",
    "attn_sinks": "self_attn.sink",
}
"""Hugging Face's names of a layer's tensors, by llama.cpp's."""
SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
MAMBA = {
    "ssm_in": "mamba.in_proj",
    "ssm_conv1d": "mamba.conv1d",
    "ssm_norm": "mamba.norm.weight",
    "ssm_out": "mamba.out_proj",
    "ssm_dt": "mamba.dt_bias",
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
}
POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


class GGUFSettings:
    """The settings of a file, by their names without the architecture's before them.

    Attributes:
        tensors: the names of the file's tensors. layers, width, heads, head_size: sizes.
    """

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture
        self.tensors = file.tensors
        self.layers = self.size("block_count")
        self.width = self.size("embedding_length")
        self.heads = self.size("attention.head_count")
        self.head_size = self.size("attention.key_length", max(1, self.width // self.heads))

    def value(self, key: str, kind: type[_Value], default: _Value | None = None) -> _Value:
        return self.file.value(f"{self.architecture}.{key}", kind, default)

    def optional(self, key: str, kind: type[_Value]) -> _Value | None:
        return self.file.optional(f"{self.architecture}.{key}", kind)

    def size(self, key: str, default: int | None = None) -> int:
        """A positive number."""
        value = self.value(key, int, default)
        if not 0 < value < 2**31:
            raise self.file.damaged(f"it sets {self.architecture}.{key} to {value}")
        return value

    def numbers(self, key: str) -> list[Any]:
        """A list, empty if the setting is a single value or missing."""
        name = f"{self.architecture}.{key}"
        return self.file.numbers(name) if self.file.is_array(name) else []

    def has(self, ending: str) -> bool:
        return any(name.endswith(ending) for name in self.tensors)

    def layer_types(self, kind: str, tensor: str) -> list[str]:
        """Layers with the tensor are of the kind, the others have full attention."""
        return [
            kind if f"blk.{layer}.{tensor}" in self.tensors else "full_attention"
            for layer in range(min(self.layers, 1000))
        ]

    def windows(self, default: int) -> dict[str, Any]:
        """The window, and the layers that have it: all but one in so many, or as the file says."""
        key, layers = "attention.sliding_window_pattern", min(self.layers, 1000)
        if slides := self.numbers(key)[:layers]:
            if len(slides) != layers:
                raise self.file.damaged(
                    f"{self.architecture}.{key} has {len(slides)} entries for {layers} layers"
                )
        else:
            pattern = max(1, self.value(key, int, default))
            slides = [layer % pattern != 0 for layer in range(1, layers + 1)]
        return {
            "sliding_window": self.size("attention.sliding_window"),
            "layer_types": ["sliding_attention" if x else "full_attention" for x in slides],
        }

    def experts(self, width: int) -> dict[str, Any]:
        """The values of routed and shared experts; none if the file has none.

        Args:
            width: inside an expert, if that is no setting of its own.
        """
        count = self.optional("expert_count", int)
        if not count:
            return {}
        shared = "shared_expert" if self.has("ffn_gate_inp_shexp.weight") else "shared"
        return {
            "num_local_experts": count,
            "num_experts": count,
            "num_experts_per_tok": self.size("expert_used_count"),
            "moe_intermediate_size": self.size("expert_feed_forward_length", width),
            f"{shared}_intermediate_size": self.value("expert_shared_feed_forward_length", int, 0),
        }

    def mamba(self) -> dict[str, Any]:
        heads = self.size("ssm.time_step_rank")
        return {
            "mamba_conv_bias": self.has("ssm_conv1d.bias"),
            "mamba_d_conv": self.size("ssm.conv_kernel"),
            "mamba_d_head": self.size("ssm.inner_size") // heads,
            "mamba_d_state": self.size("ssm.state_size"),
            "mamba_n_groups": self.size("ssm.group_count"),
            "mamba_n_heads": heads,
            "mamba_proj_bias": self.has("ssm_in.bias"),
        }


@dataclass(frozen=True, kw_only=True)
class GGUFLayout:
    """What llama.cpp's converter makes of an architecture.

    Attributes:
        architecture: llama.cpp's name.
        names: of a layer's tensors, beyond or in place of `BLOCK_NAMES`.
        is_permuted: whether rows of queries and keys are reordered, because llama.cpp rotates
            neighbouring pairs where Transformers rotates a head's halves.
        has_offset_norms: whether the 1 of these norms is already added.
        rotates_part: whether `rope.dimension_count` may be less than a head.
        rotates_first_pairs: whether frequency factors say how many pairs of a head are rotated.
        local_theta: base of the rotary positions in layers with a window, if it is another one;
            0 for that of all layers.
        plain_tokens: of a SentencePiece vocabulary, the special tokens that leave the spaces after
            them, where the others take them; None if all leave them. No file has it.
        complete: adds what else a config.json would have, given the values so far.
    """

    architecture: str
    names: Mapping[str, str] = field(default_factory=dict)
    is_permuted: bool = False
    has_offset_norms: bool = False
    rotates_part: bool = False
    rotates_first_pairs: bool = False
    local_theta: float | None = None
    plain_tokens: tuple[str, ...] | None = None
    complete: Callable[[GGUFSettings, dict[str, Any]], None] = lambda settings, values: None
