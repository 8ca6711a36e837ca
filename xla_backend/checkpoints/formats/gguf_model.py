"""GGUF checkpoints: the config and the weights of a decoder, as its Hugging Face folder has them.

Knows llama.cpp's names of the settings and tensors of each architecture, and what it changes in
them. Must not know the file's format, tokenizers, or what a model computes.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xla_backend.checkpoints.formats.gguf_file import GGUFFile
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown
from xla_backend.kernels.matmul.blocks import Weights

MODEL_TYPES = {
    "llama": "llama",  # and Mistral, SmolLM2
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "granite": "granite",
    "smollm3": "smollm3",
    "mistral3": "ministral3",
    "phi3": "phi3",
    "olmo2": "olmo2",  # and OLMo 3, whose layers have windows
    "qwen3moe": "qwen3_moe",
    "olmoe": "olmoe",
    "granitemoe": "granitemoe",  # with shared experts granitemoeshared
    "granitehybrid": "granitemoehybrid",
    "falcon-h1": "falcon_h1",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2_moe",
    "gpt-oss": "gpt_oss",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
}
"""Hugging Face's names of the architectures, by llama.cpp's."""

# llama.cpp rotates neighbouring pairs where these rotate a head's halves, so it reorders q and k.
_PERMUTED = ("llama", "granite", "smollm3", "mistral3", "granitemoe", "granitehybrid")

_DELTAS, _ONLY_EXPERTS = ("qwen35", "qwen35moe"), ("qwen3moe", "qwen35moe")
_PARTLY_TURNED = ("phi3", *_DELTAS)
# llama.cpp has already added the 1 of these norms.
_OFFSET_NORMS = ("gemma2", "gemma3", *_DELTAS)
_GEMMAS, _LFMS = ("gemma2", "gemma3"), ("lfm2", "lfm2moe")
_GRANITES, _MAMBAS = ("granite", "granitemoe", "granitehybrid"), ("granitehybrid", "falcon-h1")
_SLIDING_PATTERN = {"gemma2": 2, "gemma3": 6, "gemma4": 6, "olmo2": 4}
"""One layer in this many has full attention; the others have a sliding window."""

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "token_embd_norm": "model.norm",  # LFM2's
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
    "output": "lm_head",
}
_BLOCK_NAMES = {
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
_EXPERT_NAMES = {
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}
"""Of what lies there as one tensor, with a matrix for each expert."""
_POST_NORM_NAMES = _BLOCK_NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_CONVOLUTION_NAMES = _BLOCK_NAMES | {
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": "conv.conv",
    "shortconv.out_proj": "conv.out_proj",
}
_SHARED_NAMES = _BLOCK_NAMES | {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_MAMBA_NAMES = _SHARED_NAMES | {
    "ssm_in": "mamba.in_proj",
    "ssm_conv1d": "mamba.conv1d",
    "ssm_norm": "mamba.norm.weight",
    "ssm_out": "mamba.out_proj",
    "ssm_dt": "mamba.dt_bias",
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
}
_DELTA_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm.weight",
    "ssm_out": "linear_attn.out_proj",
    "ssm_dt": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
}
_VECTORS = ("ssm_a", "ssm_d", "ssm_dt", "ssm_norm")
"""Whose names here are whole, and which have a further axis in some files."""
_BLOCK_NAMES_OF = {
    "phi3": _BLOCK_NAMES | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    **dict.fromkeys((*_GEMMAS, "olmo2"), _POST_NORM_NAMES),
    "gemma4": _POST_NORM_NAMES
    | {
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "layer_output_scale": "layer_scale",
    },
    **dict.fromkeys(_LFMS, _CONVOLUTION_NAMES),
    **dict.fromkeys(_DELTAS, _SHARED_NAMES | _DELTA_NAMES),
    **dict.fromkeys(("qwen2moe", "granitemoe"), _SHARED_NAMES),
    **dict.fromkeys(_MAMBAS, _MAMBA_NAMES),
    "gpt-oss": _BLOCK_NAMES | {"post_attention_norm": "post_attention_layernorm"},
}
_ROPE_FACTORS = "rope_freqs.weight"
_SHORT_FACTORS, _LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"


def read_config_values(path: Path) -> dict[str, Any]:
    """The values that the model's config.json would have.

    `eos_token_id` is a list if the file names an end of turn besides the end of text.

    Raises:
        ModelUnavailable: the file is damaged, or its architecture or a setting is not supported.
    """
    return copy.deepcopy(_config_values(path, path.stat().st_mtime_ns))


@functools.lru_cache
def _config_values(path: Path, modified: int) -> dict[str, Any]:
    """Cached, because lists of models ask often, and the file is long."""
    file = GGUFFile(path)
    architecture = _architecture(file)

    def size(key: str, default: int | None = None) -> int:
        value = file.value(f"{architecture}.{key}", int, default)
        if not 0 < value < 2**31:
            raise file.damaged(f"it sets {architecture}.{key} to {value}")
        return value

    def number(key: str, default: float | None = None) -> float:
        return file.value(f"{architecture}.{key}", float, default)

    if "token_embd.weight" not in file.tensors:
        raise file.damaged("it has no tensor token_embd.weight")
    width, heads = size("embedding_length"), size("attention.head_count")
    head_size = size("attention.key_length", max(1, width // heads))
    layers, inner_key = size("block_count"), f"{architecture}.feed_forward_length"
    widths = file.numbers(inner_key) if file.is_array(inner_key) else []
    for key, default in (("attention.value_length", width // heads), ("rope.dimension_count", 0)):
        # Both default to the head's size in llama.cpp.
        value = file.value(f"{architecture}.{key}", int, default or head_size)
        if value != head_size and not (architecture in _PARTLY_TURNED and key.startswith("rope")):
            raise ModelUnavailable(
                f"{path} sets {architecture}.{key} to {value} and its heads have the size "
                f"{head_size}; only equal sizes are supported. Choose another model."
            )
    values: dict[str, Any] = {
        "model_type": MODEL_TYPES[architecture],
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": width,
        "intermediate_size": widths[0]
        if widths
        else size("feed_forward_length", 1 if architecture in _ONLY_EXPERTS else None),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(file, architecture, heads),
        "head_dim": head_size,
        "max_position_embeddings": size("context_length"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(file, architecture, head_size),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": _token_id(file, "bos"),
        "eos_token_id": _ends(file),
        "pad_token_id": _token_id(file, "padding"),
    }
    if architecture != "qwen2":  # it always has biases of q, k and v, which the file does not say
        values["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    if architecture in _PERMUTED and architecture not in ("granitemoe", "granitehybrid"):
        values["mlp_bias"] = "blk.0.ffn_up.bias" in file.tensors
    window = file.value(f"{architecture}.attention.sliding_window", int, 0)
    if architecture in _GEMMAS or (architecture == "olmo2" and window):
        values |= {
            "sliding_window": size("attention.sliding_window"),
            "layer_types": _layer_types(file, architecture, min(layers, 1000)),
        }
    if architecture == "olmo2" and window:
        values["model_type"] = "olmo3"
    if architecture in _PARTLY_TURNED:
        turned = file.value(f"{architecture}.rope.dimension_count", int, head_size)
        values["rope_parameters"]["partial_rotary_factor"] = turned / head_size
    if architecture == "phi3":
        values["sliding_window"] = window or None
        if original := file.optional("phi3.rope.scaling.original_context_length", int):
            values["original_max_position_embeddings"] = original
    if count := file.optional(f"{architecture}.expert_count", int):
        inner = size("expert_feed_forward_length", values["intermediate_size"])
        shared = file.value(f"{architecture}.expert_shared_feed_forward_length", int, 0)
        has_own_width = architecture in ("qwen2moe", "lfm2moe", *_ONLY_EXPERTS)
        values |= {
            "num_local_experts": count,
            "num_experts_per_tok": size("expert_used_count"),
            "norm_topk_prob": has_own_width and architecture != "qwen2moe",  # which no file says
            "moe_intermediate_size" if has_own_width else "intermediate_size": inner,
        }
        if architecture in ("qwen2moe", "qwen35moe"):
            values["num_experts"] = values.pop("num_local_experts")
            values["shared_expert_intermediate_size"] = shared
        elif architecture in _GRANITES and shared:
            values["shared_intermediate_size"] = shared
            if architecture == "granitemoe":
                values["model_type"] = "granitemoeshared"
    if architecture == "gemma4":
        values |= {
            "head_dim": size("attention.key_length_swa", head_size),
            "global_head_dim": head_size,
            "sliding_window": size("attention.sliding_window"),
            "layer_types": _layer_types(file, architecture, min(layers, 1000)),
            "num_kv_shared_layers": file.value("gemma4.attention.shared_kv_layers", int, 0),
            "use_double_wide_mlp": len({*widths}) > 1,
            "hidden_size_per_layer_input": file.value(
                "gemma4.embedding_length_per_layer_input", int, 0
            ),
            "vocab_size_per_layer_input": values["vocab_size"],
            "final_logit_softcapping": file.optional("gemma4.final_logit_softcapping", float),
        }
    if architecture == "gpt-oss":
        values["sliding_window"] = window
        values["rope_parameters"]["truncate"] = False  # which no file says
    if architecture == "lfm2moe":
        values |= {
            "num_experts": values.pop("num_local_experts"),
            "num_dense_layers": file.value("lfm2moe.leading_dense_block_count", int, 0),
            "routed_scaling_factor": number("expert_weights_scale", 1.0) or 1.0,
            "use_expert_bias": any("exp_probs_b" in name for name in file.tensors),
        }
    if architecture in _LFMS:
        values |= {
            "norm_eps": values.pop("rms_norm_eps"),
            "block_auto_adjust_ff_dim": False,  # the file has the width that comes of it
            "conv_L_cache": size("shortconv.l_cache"),
            "conv_bias": "blk.0.shortconv.in_proj.bias" in file.tensors,
            "layer_types": [
                "conv" if f"blk.{layer}.shortconv.conv.weight" in file.tensors else "full_attention"
                for layer in range(min(layers, 1000))
            ],
        }
    if architecture in _MAMBAS:
        heads, inner = size("ssm.time_step_rank"), size("ssm.inner_size")
        values |= {
            "mamba_conv_bias": any(name.endswith("ssm_conv1d.bias") for name in file.tensors),
            "mamba_d_conv": size("ssm.conv_kernel"),
            "mamba_d_head": inner // heads,
            "mamba_d_state": size("ssm.state_size"),
            "mamba_n_groups": size("ssm.group_count"),
            "mamba_n_heads": heads,
            "mamba_proj_bias": any(name.endswith("ssm_in.bias") for name in file.tensors),
        }
    if architecture == "falcon-h1":  # all factors are in the weights
        values |= {
            "mamba_d_ssm": inner,
            "mamba_norm_before_gate": False,
            "mamba_rms_norm": "blk.0.ssm_norm.weight" in file.tensors,
        }
    if architecture == "granitehybrid":
        has_positions = file.value("granitehybrid.rope.scaling.finetuned", bool, True)
        values = {
            "num_local_experts": 0,
            "shared_intermediate_size": values["intermediate_size"],
            **values,
            "attention_bias": any(name.endswith("attn_q.bias") for name in file.tensors),
            "layer_types": [
                "linear_attention" if f"blk.{layer}.ssm_a" in file.tensors else "full_attention"
                for layer in range(min(layers, 1000))
            ],
            "mamba_expand": inner // width,
            "position_embedding_type": "rope" if has_positions else "nope",
        }
    if architecture in _DELTAS:
        # Further layers guess drafts.
        further = file.value(f"{architecture}.nextn_predict_layers", int, 0)
        values["num_hidden_layers"] = layers = layers - further
        heads = size("ssm.time_step_rank")
        values |= {
            "layer_types": [
                "linear_attention" if f"blk.{layer}.ssm_a" in file.tensors else "full_attention"
                for layer in range(min(layers, 1000))
            ],
            "attention_bias": False,
            "linear_conv_kernel_dim": size("ssm.conv_kernel"),
            "linear_key_head_dim": size("ssm.state_size"),
            "linear_num_key_heads": size("ssm.group_count"),
            "linear_num_value_heads": heads,
            "linear_value_head_dim": size("ssm.inner_size") // heads,
            "linear_heads_alternate": True,
        }
    if architecture in _GEMMAS:
        values |= {
            "attn_logit_softcapping": file.optional(
                f"{architecture}.attn_logit_softcapping", float
            ),
            "final_logit_softcapping": file.optional(
                f"{architecture}.final_logit_softcapping", float
            ),
            # Not in the file. The two models of 27 billion weights are the exceptions.
            "query_pre_attn_scalar": (
                width // heads if (architecture, layers) in _LARGEST_GEMMAS else head_size
            ),
        }
    if architecture in _GRANITES:
        values |= {
            "embedding_multiplier": number("embedding_scale", 1.0),
            "residual_multiplier": number("residual_scale", 1.0),
            "attention_multiplier": number("attention.scale", head_size**-0.5),
            "logits_scaling": number("logit_scale", 1.0),
        }
    return values


_LARGEST_GEMMAS = {("gemma2", 46), ("gemma3", 62)}


def _kv_heads(file: GGUFFile, architecture: str, heads: int) -> int:
    """Those of layers with attention; LFM2's file has a number for each layer, 0 for the others."""
    key = f"{architecture}.attention.head_count_kv"
    if not file.is_array(key):
        return file.value(key, int, heads)
    found = {*file.numbers(key)} - {0}
    if len(found) != 1:
        raise ModelUnavailable(
            f"{file.path} has layers with {shown(sorted(found), 60)} heads of keys, and only one "
            "number is supported. Choose another model."
        )
    return found.pop()


def _layer_types(file: GGUFFile, architecture: str, layers: int) -> list[str]:
    """Which layers have a sliding window: all but one in so many, or each as the file says."""
    key = f"{architecture}.attention.sliding_window_pattern"
    default = _SLIDING_PATTERN[architecture]
    if file.is_array(key):
        slide = file.numbers(key)[:layers]
        if len(slide) != layers:
            raise file.damaged(f"{key} has {len(slide)} entries for {layers} layers")
    else:
        pattern = max(1, file.value(key, int, default))
        slide = [layer % pattern != 0 for layer in range(1, layers + 1)]
    return ["sliding_attention" if slides else "full_attention" for slides in slide]


def read_tensors(path: Path, *, as_stored: bool = False) -> Iterator[tuple[str, Weights]]:
    """Yields the weights, one at a time, by the names that they have in a Hugging Face folder.

    Yields:
        name and tensor, see `GGUFFile`, without the factors of rotary positions.

    Raises:
        ModelUnavailable: the file is damaged, or has a tensor that this architecture does not have.
    """
    file = GGUFFile(path)
    architecture = _architecture(file)
    heads = file.value(f"{architecture}.attention.head_count", int)
    layers = file.value(f"{architecture}.block_count", int)
    layers -= file.value(f"{architecture}.nextn_predict_layers", int, 0)
    heads_of = {"attn_q": heads, "attn_k": _kv_heads(file, architecture, heads)}
    for name in sorted(file.tensors - {_ROPE_FACTORS, _SHORT_FACTORS, _LONG_FACTORS}):
        stem, _, leaf = name.rpartition(".")
        if leaf not in ("weight", "bias"):  # Falcon-H1's norms, and vectors
            stem, leaf = name, "weight"
        at, _, part = stem.rpartition(".")
        layer = name.removeprefix("blk.").partition(".")[0]
        if architecture in _DELTAS and layer.isdecimal() and int(layer) >= layers:
            continue
        if part in _VECTORS:
            vector = file.read(name).reshape(-1)  # ssm_a is -exp(A_log)
            yield _name(file, architecture, stem), np.log(-vector) if part == "ssm_a" else vector
            continue
        if part in _EXPERT_NAMES and at.startswith("blk."):
            where = f"model.layers.{at.removeprefix('blk.')}.mlp.experts"
            is_bias = leaf == "bias"
            stack = file.read(name) if is_bias else file.read_matrices(name, as_stored=as_stored)
            for number, matrix in enumerate(stack):
                yield f"{where}.{number}.{_EXPERT_NAMES[part]}.{leaf}", matrix
            continue
        tensor = file.read_stored(name) if as_stored else file.read(name)
        if architecture in _PERMUTED and part in heads_of:
            tensor = _unpermuted(file, name, tensor, heads_of[part])
        if architecture in _OFFSET_NORMS and stem.endswith("norm"):
            assert isinstance(tensor, np.ndarray)
            tensor = tensor - np.float32(1)
        yield f"{_name(file, architecture, stem)}.{leaf}", tensor


def _architecture(file: GGUFFile) -> str:
    architecture = file.value("general.architecture", str)
    if (kind := file.value("general.type", str, "model")) == "adapter":
        raise ModelUnavailable(
            f"{file.path} is a LoRA adapter, which only changes another model. Merge it into that "
            "one, with `llama-export-lora`, and load the result."
        )
    if kind != "model":
        raise ModelUnavailable(
            f"{file.path} is not a model: its type is {shown(kind, 60)}. Choose the model's "
            "own file."
        )
    if architecture not in MODEL_TYPES:
        raise ModelUnavailable(
            f"{file.path} has an architecture that is not supported: {shown(architecture, 60)}. "
            f"Supported in GGUF files are {', '.join(MODEL_TYPES)}."
        )
    if file.value("split.count", int, 0) > 1:
        raise ModelUnavailable(
            f"{file.path} is one part of a model in several files. Join them first, with "
            "`llama-gguf-split --merge`."
        )
    return architecture


def _name(file: GGUFFile, architecture: str, stem: str) -> str:
    """The name of a tensor in a Hugging Face folder, without `.weight` or `.bias`."""
    if stem in _NAMES:
        return _NAMES[stem]
    at, _, rest = stem.partition(".")
    number, _, part = rest.partition(".")
    names = _BLOCK_NAMES_OF.get(architecture, _BLOCK_NAMES)
    if at == "blk" and number.isdecimal() and part in names:
        return f"model.layers.{int(number)}.{names[part]}"
    raise ModelUnavailable(
        f"{file.path} has the tensor {shown(stem, 60)}, which {architecture} models here do not "
        "have: this form (with shared experts, for example) is not supported. Choose another model."
    )


def _unpermuted(file: GGUFFile, name: str, tensor: Weights, heads: int) -> Weights:
    """The rows of each head in Transformers' order."""
    rows = tensor.shape[0]
    if heads < 1 or rows % (2 * heads):
        raise file.damaged(f"{name} has {rows} rows for {heads} heads")
    pairs = np.arange(rows).reshape(heads, rows // heads // 2, 2)
    return tensor[pairs.swapaxes(1, 2).reshape(rows)]


def _token_id(file: GGUFFile, name: str) -> int | None:
    token_id = file.optional(f"tokenizer.ggml.{name}_token_id", int)
    # -1, also as an unsigned number, means none.
    return token_id if token_id is not None and 0 <= token_id < 2**31 else None


def _ends(file: GGUFFile) -> int | list[int] | None:
    """The ends of a text, of a turn and of a message that the file names."""
    found = [_token_id(file, name) for name in ("eos", "eot", "eom")]
    ends = list(dict.fromkeys(end for end in found if end is not None))
    return ends if len(ends) > 1 else next(iter(ends), None)


# Positions


def _rope(file: GGUFFile, architecture: str, head_size: int) -> dict[str, Any]:
    """`rope_parameters`; Gemma 3 and 4 and OLMo 3 have two sets, by the kind of attention."""

    def number(key: str, default: float | None = None) -> float:
        return file.value(f"{architecture}.rope.{key}", float, default)

    theta = number("freq_base", 10_000.0)
    # As in llama.cpp: a factor alone is linear, and had another name in old files.
    scaling = file.value(f"{architecture}.rope.scaling.type", str, "linear")
    factor = number("scaling.factor", number("scale_linear", 1.0))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if scaling == "linear":
        if factor not in (0.0, 1.0):
            rope |= {"rope_type": "linear", "factor": factor}
    elif scaling == "yarn":
        length = file.value(f"{architecture}.rope.scaling.original_context_length", int)
        stretch, less = math.log(max(factor, 1.0)), number("scaling.yarn_log_multiplier", 0.0)
        rope |= {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": length,
            "beta_fast": number("scaling.yarn_beta_fast", 32.0),
            "beta_slow": number("scaling.yarn_beta_slow", 1.0),
            "attention_factor": number("scaling.attn_factor", 1.0)
            * ((1.0 + 0.1 * stretch) / (1.0 + 0.1 * less * stretch)),
            "llama_4_scaling_beta": file.optional(
                f"{architecture}.attention.temperature_scale", float
            ),
        }
    elif scaling not in ("none", "longrope"):
        raise ModelUnavailable(
            f"{file.path} scales its positions by {shown(scaling, 60)}, which is not supported. "
            "Choose another model."
        )
    if _ROPE_FACTORS in file.tensors and architecture == "gemma4":
        factors = file.read(_ROPE_FACTORS).ravel()
        turned = int((factors == 1).sum())
        if not (factors[:turned] == 1).all() or (factors[turned:] < 1e20).any():
            raise ModelUnavailable(
                f"{file.path} scales its positions in a way that is not supported. Choose another "
                "model."
            )
        part = {"rope_type": "proportional", "partial_rotary_factor": turned / factors.size}
        rope |= part
    elif _ROPE_FACTORS in file.tensors:
        rope = _llama3_rope(file, theta, head_size)
    if {_SHORT_FACTORS, _LONG_FACTORS} <= file.tensors:
        rope |= {
            "rope_type": "longrope",
            "short_factor": file.read(_SHORT_FACTORS).ravel().tolist(),
            "long_factor": file.read(_LONG_FACTORS).ravel().tolist(),
            "original_max_position_embeddings": file.value(
                f"{architecture}.rope.scaling.original_context_length", int
            ),
            "attention_factor": number("scaling.attn_factor", 1.0),
        }
    elif scaling == "longrope":
        raise file.damaged(f"it scales its positions by {scaling} and has no factors for it")
    has_windows = file.value(f"{architecture}.attention.sliding_window", int, 0) > 0
    is_gemma = architecture in ("gemma3", "gemma4")
    if not is_gemma and not (architecture == "olmo2" and has_windows):
        return rope
    base = number("freq_base_swa", 10_000.0 if is_gemma else theta)
    near = {"rope_type": "default", "rope_theta": base}
    return {"full_attention": rope, "sliding_attention": near}


def _llama3_rope(file: GGUFFile, theta: float, head_size: int) -> dict[str, Any]:
    """The parameters from which llama.cpp computed the stored factors of each frequency.

    Only the largest factor differs between the models of Llama 3.1, 3.2 and 3.3; all factors are
    computed from it and compared.
    """
    found = file.read(_ROPE_FACTORS).ravel()
    factor, low, high, length = float(found.max()), 1.0, 4.0, 8192
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head_size, 2) / head_size)
    share = np.clip((length / wavelengths - low) / (high - low), 0, 1)
    if found.size != share.size or not np.allclose(found, 1 / ((1 - share) / factor + share)):
        raise ModelUnavailable(
            f"{file.path} scales its positions in a way that is not supported. Choose another "
            "model."
        )
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": length,
    }
