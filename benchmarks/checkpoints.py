"""Checkpoints that contenders can all read, built once and without a network.

Knows the Hub's folder layout, published configurations, which get random weights (speed does not
depend on their values), and the packaged model, whose weights are written in the forms that other
programs read.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    LlamaFileType,
    dequantize,
    get_tensor_name_map,
    quantize,
)
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, GPT2Config, GPT2TokenizerFast, PretrainedConfig

from benchmarks.harness import ROOT, WORK, MeasureFailed
from xla_backend.checkpoints import tokenization
from xla_backend.checkpoints.architectures.forms import AttentionForm, DecoderForm
from xla_backend.checkpoints.architectures.table import ARCHITECTURES, describe
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.checkpoints.weights import read_weights

GPT2_124M = "124m"
"""The shape of GPT-2."""
SIZES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("sizes.json").read_text())
"""Configurations of published models, by their names on the command line: Phi-4-mini up to where
its positions are not scaled, and four of Qwen3-30B-A3B's 48 layers."""
_SCALES: dict[str, tuple[int, tuple[float, ...]]] = {
    "Q4_0": (0, (4e-3,)),
    "Q4_1": (0, (4e-3, -3e-2)),
    "Q5_0": (0, (2e-3,)),
    "Q8_0": (0, (2.5e-4,)),
    "Q4_K": (0, (1e-4, 7.5e-4)),
    "Q5_K": (0, (5e-5, 7.5e-4)),
    "Q6_K": (208, (1.5e-5,)),
}
"""Kinds of blocks: where a block has its 16-bit scales, and values that make sums small."""
GGUF_TYPES = ("Q4_0", "Q8_0", "BF16", "F16", "F32")
"""Forms of the packaged model that are made from its own, which is Q4_1."""
# A token that no text holds: no program's text ends before the others'.
_NEVER = 16
_WORDS = "once upon a time there was a little fox who lived near the river and went home "


def folder(model: str) -> Path:
    """A checkpoint's folder: one of `SIZES`, also with `-Q4_K` or another of `_SCALES` after it as
    a GGUF file of random blocks, "124m", the packaged model, a bundled one, or a file's.

    A GGUF file given by its path is in `gguf/` under its format (`format_of_file`).

    Raises:
        MeasureFailed: there is no such file or model.
    """
    size, kind = _split(model)
    if model.endswith(".gguf"):
        size = Path(model).stem
        link = WORK / size / "gguf" / f"{format_of_file(model)}.gguf"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(Path(model).resolve())
        return WORK / size
    made, bundled = WORK / model, ROOT / "demo_models" / model
    build = {GPT2_124M: _gpt2, PACKAGED_MODEL: _packaged}.get(model)
    if build is None and size not in SIZES:
        if bundled.is_dir():
            return bundled
        names = ", ".join((*SIZES, PACKAGED_MODEL, GPT2_124M))
        raise MeasureFailed(
            f"there is no model {model}: known are {names}, those with -Q4_K or another format, "
            "folders of demo_models/ and paths of GGUF files"
        )
    if kind:
        path = made / "gguf" / f"{kind}.gguf"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            config = _config(size)
            _save_tokenizer(made, config.vocab_size)
            _write_blocks(config, GGMLQuantizationType[kind], _new(made))
            _new(made).rename(path)
        return made
    if not (made / "model.safetensors").exists():
        made.mkdir(parents=True, exist_ok=True)
        save_file(build(made) if build else _sized(model, made), _new(made), {"format": "pt"})
        _new(made).rename(made / "model.safetensors")
    return made


def format_of_file(model: str) -> str:
    """What most numbers of a GGUF file are: what it says, `Q4_K_M`, or else its largest tensors'.

    Raises:
        MeasureFailed: there is no such file, or it is none.
    """
    if not Path(model).exists():
        raise MeasureFailed(f"there is no file {model}")
    try:
        reader = GGUFReader(model)
    except (ValueError, IndexError) as error:
        raise MeasureFailed(f"{model} is no GGUF file: {error}") from error
    if field := reader.get_field("general.file_type"):
        return LlamaFileType(field.contents()).name.split("_", 1)[1]
    numbers: Counter[str] = Counter()
    for tensor in reader.tensors:
        numbers[tensor.tensor_type.name] += tensor.n_elements
    return numbers.most_common(1)[0][0]


def name_for_engine(model: str) -> str:
    """What the engine knows a model as: its name, or the path of a folder or a GGUF file."""
    if model == PACKAGED_MODEL or model.endswith(".gguf"):
        return model
    _, kind = _split(model)
    return str(folder(model) / "gguf" / f"{kind}.gguf" if kind else folder(model))


def prompt(checkpoint: Path, tokens: int) -> tuple[int, ...]:
    """The ids of a text of so many tokens."""
    has_own = (checkpoint / "tokenizer.json").exists()
    source = checkpoint if has_own else next((checkpoint / "gguf").iterdir())
    return tuple(tokenization.Tokenizer.load(source).encode(_WORDS * (1 + tokens // 8))[:tokens])


def packaged_file() -> Path:
    return Registry().locate(PACKAGED_MODEL).folder


def _split(model: str) -> tuple[str, str]:
    """The size and the kind of blocks of a model's name, "" for none."""
    size, _, kind = model.rpartition("-")
    return (size, kind) if kind in _SCALES else (model, "")


def _config(size: str) -> PretrainedConfig:
    values = dict(SIZES[size])
    return AutoConfig.for_model(values.pop("model_type"), **values)


def _new(made: Path) -> Path:
    return made / "model.safetensors.new"


def _sized(model: str, made: Path) -> dict[str, np.ndarray]:
    """Configuration and tokenizer of one of `SIZES`; returns float16 weights."""
    config = _config(model)
    config.eos_token_id = config.vocab_size - 1
    _save_tokenizer(made, config.vocab_size)
    save_config(config, made)
    draw = np.random.default_rng(0)
    return {
        name: (0.02 * draw.standard_normal(shape, np.float32)).astype(np.float16)
        for name, shape in ARCHITECTURES[config.model_type].shapes(config)
    }


_ARCHITECTURES = {"gemma4_text": "GEMMA4", "qwen3_5_text": "QWEN35", "qwen3_moe": "QWEN3MOE"}
"""Those that gguf calls otherwise than Transformers."""


def _write_blocks(config: Any, kind: GGMLQuantizationType, path: Path) -> None:
    """A configuration as a GGUF file, its matrices in random blocks."""
    form = describe(config)
    architecture = MODEL_ARCH[_ARCHITECTURES.get(config.model_type, config.model_type.upper())]
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[architecture])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(form.width)
    writer.add_block_count(len(form.layers))
    writer.add_head_count(form.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    _add_layers(writer, config, form)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(_entries(config.vocab_size))
    writer.add_token_merges(["t h"])  # llama.cpp reads no file without any
    writer.add_eos_token_id(config.vocab_size - 1)
    writer.add_vocab_size(config.vocab_size)
    names = get_tensor_name_map(architecture, len(form.layers))
    random, (block, size) = np.random.default_rng(0), GGML_QUANT_SIZES[kind]
    at, scales = _SCALES[kind.name]
    scale_bytes = np.array(scales, np.float16).view(np.uint8)
    for name, shape in _stored_shapes(config):
        # LFM2 has its last norm under the name of one that others have after their embeddings.
        named = names.get_name(name, try_suffixes=(".weight", ".bias"))
        named = named or "token_embd_norm.weight"
        if len(shape) == 1 or shape[-1] % block or ".gate.weight" in name:
            values = random.standard_normal(shape, np.float32) * 0.02 if len(shape) > 1 else None
            sign = -1 if name.endswith("A_log") else 1  # a state decays
            writer.add_tensor(
                named, sign * np.ones(shape, np.float32) if values is None else values
            )
            continue
        lines = (int(np.prod(shape[:-1])), shape[-1] // block, size)
        blocks = random.integers(0, 256, lines, np.uint8)
        blocks[:, :, at : at + scale_bytes.size] = scale_bytes
        writer.add_tensor(named, blocks.reshape(*shape[:-1], -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_layers(writer: GGUFWriter, config: Any, form: DecoderForm) -> None:
    """What a file says of layers, as llama.cpp's converter of each architecture does."""
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    mixers = [layer.mixer for layer in form.layers]
    attend = [mixer for mixer in mixers if isinstance(mixer, AttentionForm)]
    inner, head_size = [layer.feed_forward.inner for layer in form.layers], attend[-1].head_size
    kv_heads = [getattr(mixer, "kv_heads", 0) for mixer in mixers]
    writer.add_feed_forward_length(inner if len({*inner}) > 1 else inner[0])
    writer.add_head_count_kv(kv_heads if config.model_type == "lfm2" else max(kv_heads))
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    if config.model_type == "lfm2":
        writer.add_shortconv_l_cache(config.conv_L_cache)
    if config.model_type == "qwen3_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type in ("phi3", "qwen3_5_text"):
        writer.add_rope_dimension_count(int(head_size * rope["partial_rotary_factor"]))
    if config.model_type == "qwen3_5_text":
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_num_value_heads * config.linear_value_head_dim)
        writer.add_rope_dimension_sections([11, 11, 10, 0])
    if config.model_type == "gemma4_text":
        writer.add_key_length_swa(attend[0].head_size)
        writer.add_value_length_swa(attend[0].head_size)
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([mixer.window is not None for mixer in attend])
        writer.add_shared_kv_layers(config.num_kv_shared_layers)
        writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


_FUSED = {
    "phi3": {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"},
    "qwen3_5_text": {"g_proj": "q_proj"},
}
"""What a file has as further rows of another matrix."""
_RENAMED = {"dt_bias": "dt_proj.bias", "layer_scale": "layer_scalar"}
_RENAMED_FUSED = {"q_proj": "qkv_proj", "mlp.gate_proj": "mlp.gate_up_proj"}
"""Phi's."""


def _stored_shapes(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a GGUF file, by Transformers' names: fused ones, and experts as a stack."""
    found: dict[str, tuple[int, ...]] = {}
    fused = _FUSED.get(config.model_type, {})
    for name, shape in ARCHITECTURES[config.model_type].shapes(config):
        part = name.split(".")[-2]
        if part in fused:
            into = name.replace(part, fused[part])
            found[into] = (found[into][0] + shape[0], shape[1])
            continue
        stack = re.sub(r"experts\.\d+", "experts", name)
        found[stack] = shape if stack == name else (found.get(stack, (0,))[0] + 1, *shape)
    renamed = _RENAMED | (_RENAMED_FUSED if config.model_type == "phi3" else {})
    for name, shape in found.items():
        for ours, its in renamed.items():
            name = name.replace(ours, its)
        yield name, shape


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
    save_config(config, made)
    tokenizer = tokenization.Tokenizer.load(files.folder).to_json()
    (made / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (made / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    # No link: it would outlive the environment that has the file.
    (made / "gguf" / "Q4_1.gguf").unlink(missing_ok=True)
    shutil.copyfile(files.folder, made / "gguf" / "Q4_1.gguf")
    for kind in GGUF_TYPES:
        _requantize(files.folder, made / "gguf" / f"{kind}.gguf", GGMLQuantizationType[kind])
    return {name: np.ascontiguousarray(x) for name, x in read_weights(files.folder).items()}


def save_config(config: PretrainedConfig, folder: Path) -> None:
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
