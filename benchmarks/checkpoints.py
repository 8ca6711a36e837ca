"""Checkpoints that contenders can all read, built once and without a network.

Knows the Hub's folder layout, published configurations, which get random weights (speed does not
depend on their values), and the packaged model, whose weights are written in the forms that other
programs read. Must not know the engine nor what is measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    dequantize,
    get_tensor_name_map,
    quantize,
)
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, GPT2Config, GPT2TokenizerFast, PretrainedConfig

from benchmarks.harness import ROOT, WORK
from xla_backend.checkpoints import rotary_form, tokenization
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.checkpoints.weights import read_weights

GPT2_124M = "124m"
"""The shape of GPT-2."""
SIZES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "rope_theta": 1e6,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "Qwen3-0.6B": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rope_theta": 1e6,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    },
    "gemma-3-270m": {
        "model_type": "gemma3_text",
        "vocab_size": 262144,
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 32768,
    },
    "Llama-3.2-1B": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "rope_theta": 5e5,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "LFM2.5-1.2B": {
        "model_type": "lfm2",
        "vocab_size": 65536,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "block_auto_adjust_ff_dim": False,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "conv_L_cache": 3,
        "rope_theta": 1e6,
        "max_position_embeddings": 128000,
        "tie_word_embeddings": True,
    },
}
"""Configurations of published models, by their names on the command line."""
BLOCKS = "-Q4_K"
"""Behind the name of a Llama or LFM2 in `SIZES`: as a GGUF file of random blocks."""
GGUF_TYPES = ("Q8_0", "F16")
"""Forms of the packaged model that are made from its own, which is Q4_1."""
# A token that no text holds: no program's text ends before the others'.
_NEVER = 16
_WORDS = "once upon a time there was a little fox who lived near the river and went home "


def folder(model: str) -> Path:
    """A checkpoint's folder: one of `SIZES`, also in `BLOCKS`, "124m", the packaged model or a
    bundled one."""
    made = WORK / model
    if model.endswith(BLOCKS):
        path = _blocks_file(model)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            values = SIZES[model.removesuffix(BLOCKS)]
            _save_tokenizer(made, values["vocab_size"])
            _write_blocks(values, _new(made))
            _new(made).rename(path)
        return made
    build = {GPT2_124M: _gpt2, PACKAGED_MODEL: _packaged}.get(model)
    if build is None and model not in SIZES:
        return ROOT / "demo_models" / model
    if not (made / "model.safetensors").exists():
        made.mkdir(parents=True, exist_ok=True)
        save_file(build(made) if build else _sized(model, made), _new(made), {"format": "pt"})
        _new(made).rename(made / "model.safetensors")
    return made


def served_name(model: str, weights: str) -> str:
    """What the engine knows a model as: the packaged one as it comes is not its folder, whose
    weights are float32 and can be rounded."""
    if (model, weights) == (PACKAGED_MODEL, "auto"):
        return model
    return str(folder(model) if not model.endswith(BLOCKS) else _blocks_file(model))


def is_random(model: str) -> bool:
    """Whether a model's weights are random."""
    return model.removesuffix(BLOCKS) in (GPT2_124M, *SIZES)


def prompt(checkpoint: Path, tokens: int) -> tuple[int, ...]:
    """The ids of a text of so many tokens."""
    tokenizer = tokenization.Tokenizer.load(checkpoint)
    return tuple(tokenizer.encode(_WORDS * (1 + tokens // 8))[:tokens])


def packaged_file() -> Path:
    """The GGUF file of the packaged model."""
    return Registry().locate(PACKAGED_MODEL).folder


def _new(made: Path) -> Path:
    return made / "model.safetensors.new"


def _sized(model: str, made: Path) -> dict[str, np.ndarray]:
    """Configuration and tokenizer of one of `SIZES`; returns float16 weights."""
    values = dict(SIZES[model])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    config.eos_token_id = config.vocab_size - 1
    _save_tokenizer(made, config.vocab_size)
    _save_config(config, made)
    draw = np.random.default_rng(0)
    return {
        name: (0.02 * draw.standard_normal(shape, np.float32)).astype(np.float16)
        for name, shape in rotary_form.shapes(config)
    }


def _blocks_file(model: str) -> Path:
    return WORK / model / "gguf" / f"{BLOCKS[1:]}.gguf"


def _write_blocks(values: dict[str, Any], path: Path) -> None:
    """A configuration as a GGUF file, its matrices in random blocks of Q4_K."""
    kind, config = GGMLQuantizationType.Q4_K, AutoConfig.for_model(**values)
    kv_heads: int | list[int] = values["num_key_value_heads"]
    writer = GGUFWriter(path, values["model_type"])
    if "full_attn_idxs" in values:
        layers = range(values["num_hidden_layers"])
        kv_heads = [kv_heads if at in values["full_attn_idxs"] else 0 for at in layers]
        writer.add_shortconv_l_cache(values["conv_L_cache"])
    writer.add_context_length(values["max_position_embeddings"])
    writer.add_embedding_length(values["hidden_size"])
    writer.add_block_count(values["num_hidden_layers"])
    writer.add_feed_forward_length(values["intermediate_size"])
    writer.add_head_count(values["num_attention_heads"])
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(values["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(_entries(values["vocab_size"]))
    writer.add_token_merges(["t h"])  # llama.cpp reads no file without any
    writer.add_eos_token_id(values["vocab_size"] - 1)
    writer.add_vocab_size(values["vocab_size"])
    architecture = MODEL_ARCH[values["model_type"].upper()]
    names = get_tensor_name_map(architecture, config.num_hidden_layers)
    random, (block, size) = np.random.default_rng(0), GGML_QUANT_SIZES[kind]
    for name, shape in rotary_form.shapes(config):
        # LFM2 has its last norm under the name of one that others have after their embeddings.
        named = names.get_name(name, try_suffixes=(".weight",)) or "token_embd_norm.weight"
        if shape[-1] % block or len(shape) == 1:
            writer.add_tensor(named, np.ones(shape, np.float32))
            continue
        blocks = random.integers(0, 256, (shape[0], shape[1] // block, size), np.uint8)
        blocks[:, :, :4] = np.array([1e-4, 7.5e-4], np.float16).view(np.uint8)
        writer.add_tensor(named, blocks.reshape(shape[0], -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gpt2(made: Path) -> dict[str, np.ndarray]:
    """Configuration and tokenizer of GPT-2's shape; returns its weights."""
    config = GPT2Config(architectures=["GPT2LMHeadModel"])
    config.bos_token_id = config.eos_token_id = config.vocab_size - 1
    _save_tokenizer(made, config.vocab_size)
    config.save_pretrained(made)
    random, width = np.random.default_rng(0), config.n_embd

    def normal(*shape: int, std: float) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(std)

    # Three times the usual spread: the most likely token then has a clear lead, and rounding does
    # not make two correct programs differ.
    weights = {
        "wte.weight": normal(config.vocab_size, width, std=0.1),
        "wpe.weight": normal(config.n_positions, width, std=0.1),
    }
    norms = ["ln_f", *(f"h.{i}.{name}" for i in range(config.n_layer) for name in ("ln_1", "ln_2"))]
    for norm in norms:
        weights[f"{norm}.weight"] = np.ones(width, np.float32)
        weights[f"{norm}.bias"] = np.zeros(width, np.float32)
    for i in range(config.n_layer):
        for name, rows, columns in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ):
            weights[f"h.{i}.{name}.weight"] = normal(rows, columns, std=0.06)
            weights[f"h.{i}.{name}.bias"] = np.zeros(columns, np.float32)
    return weights


def _packaged(made: Path) -> dict[str, np.ndarray]:
    """The packaged model as the Hub has it, and `gguf/` with a file for each form; returns its
    weights in float32."""
    files = Registry().locate(PACKAGED_MODEL)
    (made / "gguf").mkdir(exist_ok=True)
    config = files.config
    config.eos_token_id = _NEVER
    _save_config(config, made)
    tokenizer = tokenization.Tokenizer.load(files.folder).to_json()
    (made / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (made / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    (made / "gguf" / "Q4_1.gguf").unlink(missing_ok=True)
    (made / "gguf" / "Q4_1.gguf").symlink_to(files.folder)
    for kind in GGUF_TYPES:
        _requantize(files.folder, made / "gguf" / f"{kind}.gguf", GGMLQuantizationType[kind])
    return {name: np.ascontiguousarray(x) for name, x in read_weights(files.folder).items()}


def _save_config(config: PretrainedConfig, folder: Path) -> None:
    """Writes it with the base of the rotary positions where Transformers 4 reads it, too."""
    config.architectures = [f"{type(config).__name__.removesuffix('Config')}ForCausalLM"]
    config.save_pretrained(folder)
    values = json.loads((folder / "config.json").read_text())
    positions = values["rope_parameters"]
    # Gemma's configuration has one for each kind of layer.
    of_all = positions.get("full_attention", positions)
    values["rope_theta"] = of_all["rope_theta"]
    if of_all is not positions:
        values["rope_local_base_freq"] = positions["sliding_attention"]["rope_theta"]
    (folder / "config.json").write_text(json.dumps(values, indent=2) + "\n")


def _requantize(source: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """Writes a GGUF file with its matrices in another form; all else stays."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        # The first are the writer's own.
        if not name.startswith("GGUF.") and name != "general.architecture":
            values = field.types
            sub_type = values[-1] if len(values) > 1 else None
            writer.add_key_value(name, field.contents(), values[0], sub_type)
    for tensor in reader.tensors:
        numbers = dequantize(tensor.data, tensor.tensor_type)
        form = kind if numbers.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(numbers, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _save_tokenizer(made: Path, vocabulary_size: int) -> None:
    """A byte-level tokenizer with the size of the model's vocabulary; most entries are unused."""
    *entries, end = _entries(vocabulary_size)
    model = models.BPE(vocab={entry: i for i, entry in enumerate(entries)}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([end])
    GPT2TokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, unk_token=end
    ).save_pretrained(made)
    settings = made / "tokenizer_config.json"
    values = json.loads(settings.read_text()) | {"model_max_length": 1024}
    settings.write_text(json.dumps(values, indent=2) + "\n")


def _entries(vocabulary_size: int) -> list[str]:
    """A byte-level vocabulary: the bytes, a merge, unused entries, the end of a text."""
    entries = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th"]
    unused = [f"<unused{i}>" for i in range(len(entries), vocabulary_size - 1)]
    return [*entries, *unused, "<|endoftext|>"]
