"""Small random checkpoints in the Hub's own folder layout.

Knows the file names, tensor names and shapes that PyTorch-format checkpoints of GPT-2, OPT, T5,
Whisper and the decoders with rotary positions have on the Hub, written out here by hand so that the
code under test is not its own judge. Must not know the package under test. No network; equal
arguments give equal files.

The weights are larger than a fresh initialisation, so that the most likely token leads clearly and
the continuation wanders instead of repeating one token.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.decoder_forms import (
    BIASED,
    DEFAULTS,
    DELTAS,
    NAMES,
    NORMED_AS_ONE,
    NORMED_HEADS,
    OFFSET_NORMS,
    ONLY_POST_NORMS,
    POST_NORMS,
    WITH_EXPERTS,
)

TEXT = """Once upon a time there was a little fox who lived near the river. Every morning the fox
ran down the hill to look for her friend, the old grey owl. "Good morning," said the
fox. "What shall we do today?" The owl blinked and thought for a long while. "We shall
find the lost red kite," he said. They walked through the forest, over the bridge, past
the mill, and asked every rabbit they met. The rain began to fall, and the wind blew
hard, but the two friends did not stop. At last they saw it: the red kite was caught in
the tallest tree. The fox was sad, for she could not climb. The owl flapped his wings,
flew up, and brought it down. Then they went home and were happy ever after. Turn on the
light in the kitchen. Set a timer for seven minutes. 0123456789 naïve café — Ünïcödé.
"""

GPT2_124M = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
"""Config values of `gpt2()` for the shape of the smallest published GPT-2."""


class _Draw:
    """Random float32 tensors, reproducible from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, std: float) -> np.ndarray:
        values = self._rng.standard_normal(shape, dtype=np.float32)
        values *= std
        return values

    def matrix(self, rows: int, columns: int, fan_in: int, gain: float = 1.5) -> np.ndarray:
        return self.normal(rows, columns, std=gain / fan_in**0.5)

    def linear(self, out: int, into: int, gain: float = 1.5) -> np.ndarray:
        """A PyTorch `nn.Linear` weight, (out, in)."""
        return self.matrix(out, into, fan_in=into, gain=gain)

    def scale(self, size: int, mean: float = 1.0) -> np.ndarray:
        """A layer norm's weight."""
        return mean + self.normal(size, std=0.1)

    def bias(self, size: int) -> np.ndarray:
        return self.normal(size, std=0.05)


def gpt2(folder: Path | str, *, seed: int = 0, hub_names: bool = True, **config: Any) -> Path:
    """Writes a GPT-2 language model: config, tokenizer and PyTorch-format `model.safetensors`.

    Args:
        folder: where the files go; made if missing.
        seed: of the random weights.
        hub_names: tensor names as in openai-community/gpt2 (no `transformer.` prefix, with the
            causal-mask buffers); False writes what Transformers saves today.
        **config: `GPT2Config` values; `**GPT2_124M` gives the smallest published shape.
    """
    from transformers import GPT2Config

    folder = _made(folder)
    tokenizer = _byte_level_bpe(["<|endoftext|>"])
    _save_tokenizer(folder, "GPT2Tokenizer", tokenizer, _same_token("<|endoftext|>"))
    end = tokenizer.token_to_id("<|endoftext|>")
    settings = GPT2Config(
        **{
            "vocab_size": tokenizer.get_vocab_size(),
            "n_positions": 128,
            "n_embd": 48,
            "n_layer": 2,
            "n_head": 4,
            "bos_token_id": end,
            "eos_token_id": end,
            "architectures": ["GPT2LMHeadModel"],
            **config,
        }
    )
    width, inner = settings.n_embd, settings.n_inner or 4 * settings.n_embd
    draw = _Draw(seed)
    tensors = {
        "wte.weight": draw.normal(settings.vocab_size, width, std=0.4),
        "wpe.weight": draw.normal(settings.n_positions, width, std=0.4),
        "ln_f.weight": draw.scale(width),
        "ln_f.bias": draw.bias(width),
    }
    for layer in range(settings.n_layer):
        block = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            tensors[f"{block}{norm}.weight"] = draw.scale(width)
            tensors[f"{block}{norm}.bias"] = draw.bias(width)
        # GPT-2 keeps these as (in, out), the other way round than nn.Linear.
        for name, into, out in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, inner),
            ("mlp.c_proj", inner, width),
        ):
            tensors[f"{block}{name}.weight"] = draw.matrix(into, out, fan_in=into)
            tensors[f"{block}{name}.bias"] = draw.bias(out)
        if hub_names:
            causal = np.tril(np.ones((settings.n_positions, settings.n_positions), np.float32))
            tensors[f"{block}attn.bias"] = causal[None, None]
    if not hub_names:
        tensors = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
    _save(folder, settings, tensors)
    return folder


def opt(folder: Path | str, *, seed: int = 0, hub_names: bool = True, **config: Any) -> Path:
    """Writes an OPT language model in the layout of facebook/opt-125m.

    Args:
        folder: where the files go; made if missing.
        seed: of the random weights.
        hub_names: tensor names without the `model.` prefix, as older checkpoints have them.
        **config: `OPTConfig` values. `do_layer_norm_before=False, word_embed_proj_dim=32` gives the
            post-norm form of facebook/opt-350m, with projections around the embeddings.
    """
    from transformers import OPTConfig

    folder = _made(folder)
    tokenizer = _byte_level_bpe(["<s>", "<pad>", "</s>", "<unk>"])
    special = {**_same_token("</s>"), "pad_token": "<pad>"}
    _save_tokenizer(folder, "GPT2Tokenizer", tokenizer, special, add_bos_token=True)
    # The published folders have vocab.json and merges.txt only: the loader builds the rest.
    (folder / "tokenizer.json").unlink()
    settings = OPTConfig(
        **{
            "vocab_size": tokenizer.get_vocab_size(),
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "ffn_dim": 96,
            "num_attention_heads": 4,
            "max_position_embeddings": 128,
            "bos_token_id": 2,
            "eos_token_id": 2,
            "pad_token_id": 1,
            "architectures": ["OPTForCausalLM"],
            **config,
        }
    )
    width, narrow = settings.hidden_size, settings.word_embed_proj_dim
    draw = _Draw(seed)
    tensors = {
        "decoder.embed_tokens.weight": draw.normal(settings.vocab_size, narrow, std=0.4),
        # Positions start at 2, an inheritance of fairseq.
        "decoder.embed_positions.weight": draw.normal(
            settings.max_position_embeddings + 2, width, std=0.4
        ),
    }
    if narrow != width:
        tensors["decoder.project_in.weight"] = draw.linear(width, narrow)
        tensors["decoder.project_out.weight"] = draw.linear(narrow, width)
    is_left_out = settings._remove_final_layer_norm  # noqa: SLF001 (Transformers' own setting)
    if settings.do_layer_norm_before and not is_left_out:
        tensors["decoder.final_layer_norm.weight"] = draw.scale(width)
        tensors["decoder.final_layer_norm.bias"] = draw.bias(width)
    for layer in range(settings.num_hidden_layers):
        block = f"decoder.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            tensors[f"{block}self_attn.{name}.weight"] = draw.linear(width, width)
            tensors[f"{block}self_attn.{name}.bias"] = draw.bias(width)
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            tensors[f"{block}{norm}.weight"] = draw.scale(width)
            tensors[f"{block}{norm}.bias"] = draw.bias(width)
        tensors[f"{block}fc1.weight"] = draw.linear(settings.ffn_dim, width)
        tensors[f"{block}fc1.bias"] = draw.bias(settings.ffn_dim)
        tensors[f"{block}fc2.weight"] = draw.linear(width, settings.ffn_dim)
        tensors[f"{block}fc2.bias"] = draw.bias(width)
    if not hub_names:
        tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
    _save(folder, settings, tensors)
    return folder


def t5(folder: Path | str, *, seed: int = 0, **config: Any) -> Path:
    """Writes a T5 model in the layout of google-t5/t5-small.

    Args:
        folder: where the files go; made if missing.
        seed: of the random weights.
        **config: `T5Config` values. `feed_forward_proj="gated-gelu", tie_word_embeddings=False`
            gives the form of T5 v1.1 and Flan-T5.
    """
    from transformers import T5Config

    folder = _made(folder)
    extra = 8
    tokenizer = _unigram(extra)
    special = {
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "additional_special_tokens": [f"<extra_id_{index}>" for index in range(extra)],
    }
    _save_tokenizer(folder, "T5Tokenizer", tokenizer, special, extra_ids=extra)
    settings = T5Config(
        **{
            # Published vocabularies are padded beyond what the tokenizer knows.
            "vocab_size": -(-tokenizer.get_vocab_size() // 16) * 16,
            "d_model": 48,
            "d_kv": 12,
            "d_ff": 96,
            "num_layers": 2,
            "num_heads": 4,
            "n_positions": 512,
            "decoder_start_token_id": 0,
            "architectures": ["T5ForConditionalGeneration"],
            **config,
        }
    )
    # As published. Transformers 5 says of every T5 that it is tied, and keeps the difference there.
    settings.tie_word_embeddings = tied = config.get("tie_word_embeddings", True)
    vars(settings).pop("scale_decoder_outputs", None)
    width, heads = settings.d_model, settings.num_heads * settings.d_kv
    draw = _Draw(seed)
    tensors = {"shared.weight": draw.normal(settings.vocab_size, width, std=0.2 if tied else 0.4)}
    if not tied:
        tensors["lm_head.weight"] = draw.normal(settings.vocab_size, width, std=0.4)
    for stack, layers in (
        ("encoder", settings.num_layers),
        ("decoder", settings.num_decoder_layers),
    ):
        # A tied head divides by sqrt(d_model): the last norm makes up for it.
        mean = 12.0 if tied and stack == "decoder" else 1.0
        tensors[f"{stack}.final_layer_norm.weight"] = draw.scale(width, mean)
        for layer in range(layers):
            attentions = ("SelfAttention", "EncDecAttention")[: 2 if stack == "decoder" else 1]
            for place, attention in enumerate(attentions):
                block = f"{stack}.block.{layer}.layer.{place}."
                tensors[f"{block}layer_norm.weight"] = draw.scale(width)
                # T5 does not divide scores by sqrt(d_kv): its queries are that much smaller.
                small = 1.5 / settings.d_kv**0.5
                tensors[f"{block}{attention}.q.weight"] = draw.linear(heads, width, gain=small)
                for name in ("k", "v"):
                    tensors[f"{block}{attention}.{name}.weight"] = draw.linear(heads, width)
                tensors[f"{block}{attention}.o.weight"] = draw.linear(width, heads)
                if layer == 0 and attention == "SelfAttention":
                    buckets = settings.relative_attention_num_buckets
                    tensors[f"{block}{attention}.relative_attention_bias.weight"] = draw.normal(
                        buckets, settings.num_heads, std=0.5
                    )
            block = f"{stack}.block.{layer}.layer.{len(attentions)}."
            tensors[f"{block}layer_norm.weight"] = draw.scale(width)
            inner = ("wi_0", "wi_1") if settings.is_gated_act else ("wi",)
            for name in inner:
                tensors[f"{block}DenseReluDense.{name}.weight"] = draw.linear(settings.d_ff, width)
            tensors[f"{block}DenseReluDense.wo.weight"] = draw.linear(width, settings.d_ff)
    _save(folder, settings, tensors)
    return folder


def whisper(folder: Path | str, *, seed: int = 0, multilingual: bool = True, **config: Any) -> Path:
    """Writes a Whisper model in the layout of openai/whisper-tiny, for audio of two seconds.

    Args:
        folder: where the files go; made if missing.
        seed: of the random weights.
        multilingual: languages and tasks in the generation config, as whisper-tiny has and
            whisper-tiny.en has not.
        **config: `WhisperConfig` values.
    """
    from transformers import WhisperConfig, WhisperFeatureExtractor

    folder = _made(folder)
    seconds = 2
    names = ["<|endoftext|>", "<|startoftranscript|>"]
    names += ["<|en|>", "<|de|>"] if multilingual else []
    names += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    names += ["<|nospeech|>", "<|notimestamps|>"]
    tokenizer = _byte_level_bpe([])
    _add_special(tokenizer, names)
    # Not special: they are part of the text when timestamps are asked for.
    tokenizer.add_tokens([f"<|{tick * 0.02:.2f}|>" for tick in range(seconds * 50 + 1)])
    special = {**_same_token("<|endoftext|>"), "additional_special_tokens": names}
    _save_tokenizer(folder, "WhisperTokenizer", tokenizer, special)
    WhisperFeatureExtractor(feature_size=80, chunk_length=seconds).save_pretrained(folder)
    ids = {name: tokenizer.token_to_id(name) for name in names}
    settings = WhisperConfig(
        **{
            "vocab_size": tokenizer.get_vocab_size(),
            "num_mel_bins": 80,
            "d_model": 48,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "max_source_positions": seconds * 50,
            "max_target_positions": 64,
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|endoftext|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "decoder_start_token_id": ids["<|startoftranscript|>"],
            "begin_suppress_tokens": [tokenizer.token_to_id("Ġ"), ids["<|endoftext|>"]],
            "suppress_tokens": [],
            "architectures": ["WhisperForConditionalGeneration"],
            **config,
        }
    )
    width = settings.d_model
    draw = _Draw(seed)
    tensors = {
        "model.encoder.conv1.weight": draw.normal(width, settings.num_mel_bins, 3, std=0.1),
        "model.encoder.conv1.bias": draw.bias(width),
        "model.encoder.conv2.weight": draw.normal(width, width, 3, std=0.12),
        "model.encoder.conv2.bias": draw.bias(width),
        "model.encoder.embed_positions.weight": _sinusoids(settings.max_source_positions, width),
        "model.decoder.embed_tokens.weight": draw.normal(settings.vocab_size, width, std=0.2),
        "model.decoder.embed_positions.weight": draw.normal(
            settings.max_target_positions, width, std=0.6
        ),
    }
    for stack, layers, inner in (
        ("encoder", settings.encoder_layers, settings.encoder_ffn_dim),
        ("decoder", settings.decoder_layers, settings.decoder_ffn_dim),
    ):
        mean = 3.0 if stack == "decoder" else 1.0
        tensors[f"model.{stack}.layer_norm.weight"] = draw.scale(width, mean)
        tensors[f"model.{stack}.layer_norm.bias"] = draw.bias(width)
        for layer in range(layers):
            block = f"model.{stack}.layers.{layer}."
            attentions = ("self_attn", "encoder_attn")[: 2 if stack == "decoder" else 1]
            for attention in attentions:
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    tensors[f"{block}{attention}.{name}.weight"] = draw.linear(width, width)
                    if name != "k_proj":
                        tensors[f"{block}{attention}.{name}.bias"] = draw.bias(width)
            for norm in (*(f"{name}_layer_norm" for name in attentions), "final_layer_norm"):
                tensors[f"{block}{norm}.weight"] = draw.scale(width)
                tensors[f"{block}{norm}.bias"] = draw.bias(width)
            tensors[f"{block}fc1.weight"] = draw.linear(inner, width)
            tensors[f"{block}fc1.bias"] = draw.bias(inner)
            tensors[f"{block}fc2.weight"] = draw.linear(width, inner)
            tensors[f"{block}fc2.bias"] = draw.bias(width)
    generation = {
        "begin_suppress_tokens": settings.begin_suppress_tokens,
        "suppress_tokens": settings.suppress_tokens,
        "is_multilingual": multilingual,
        "logprob_threshold": -100.0,  # random weights find nothing likely
        "max_initial_timestamp_index": seconds * 50,
        "max_length": settings.max_target_positions,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "return_timestamps": False,
    }
    if multilingual:
        generation["lang_to_id"] = {name: ids[name] for name in ("<|en|>", "<|de|>")}
        generation["task_to_id"] = {
            task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")
        }
        generation["forced_decoder_ids"] = [[1, None], [2, ids["<|transcribe|>"]]]
    else:
        generation["forced_decoder_ids"] = [[1, ids["<|notimestamps|>"]]]
    _save(folder, settings, tensors, generation)
    return folder


CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and 'never' in m.content %}"
    "{{ raise_exception('no such system prompt') }}{% endif %}"
    "<|turn|>{{ m.role }}\n{{ m.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def instruct(folder: Path | str, **config: Any) -> Path:
    """Writes a Llama with a chat template, a small one where `config` says nothing else."""
    config = {"max_position_embeddings": 512, **config}
    folder = rotary(folder, "llama", special=["<|turn|>"], **config)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return folder


def thinker(folder: Path | str) -> Path:
    """Writes a Llama whose template opens thoughts as Qwen3.5's does; tokens mark them."""
    folder = rotary(folder, "llama", special=["<think>", "</think>"], max_position_embeddings=512)
    begun = "<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}{% endif %}"
    template = CHAT_TEMPLATE.replace("<|turn|>", "@").removesuffix("{% endif %}") + begun
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    for token in told["added_tokens"]:
        token["special"] = "think" not in token["content"]  # they are part of the text
    path.write_text(json.dumps(told))
    return folder


# Reduced from what GPT-OSS has.
CHANNEL_TEMPLATE = (
    "<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}<|end|>"
    "{% if tools %}<|start|>developer<|message|>"
    "{% for t in tools %}{{ t.function | tojson }}\n{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}{% if '<|channel|>final' in m.content %}{{ raise_exception('tags') }}"
    "{% elif m.role == 'tool' %}<|start|>functions.f to=assistant<|channel|>commentary<|message|>"
    "{{ m.content | tojson }}<|end|>"
    "{% elif m.tool_calls %}{% if m.content and m.thinking %}{{ raise_exception('both') }}"
    "{% elif m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>"
    "{% endif %}{% set c = m.tool_calls[0].function %}<|start|>assistant to=functions.{{ c.name }}"
    "<|channel|>commentary json<|message|>{{ c.arguments | tojson }}<|call|>"
    "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
CHANNEL_TOKENS = tuple(
    f"<|{name}|>" for name in ("return", "constrain", "channel", "start", "end", "message", "call")
)


def in_channels(folder: Path | str, **config: Any) -> Path:
    """Writes a GPT-OSS that answers in channels."""
    config = {"max_position_embeddings": 512, "num_hidden_layers": 2, **config}
    folder = rotary(folder, "gpt_oss", special=CHANNEL_TOKENS, **config)
    (folder / "chat_template.jinja").write_text(CHANNEL_TEMPLATE, encoding="utf-8")
    return folder


def rotary(
    folder: Path | str,
    model_type: str,
    *,
    seed: int = 0,
    dtype: str = "float32",
    shards: int = 1,
    special: Sequence[str] = (),
    image_model: str = "",
    **config: Any,
) -> Path:
    """Writes a decoder with rotary positions, as Llama and those after it are.

    Args:
        folder: where the files go; made if missing.
        model_type: as in config.json.
        seed: of the random weights.
        dtype: in which the file has them: "float32", "float16" or "bfloat16".
        shards: the number of files that share them.
        special: tokens of the tokenizer besides that which ends a text.
        image_model: the `model_type` of a model of images and text, whose text model this is.
        **config: values of the architecture's configuration.
    """
    from transformers import AutoConfig

    folder = _made(folder)
    tokenizer = _byte_level_bpe(["<|endoftext|>", *special])
    _save_tokenizer(folder, "GPT2Tokenizer", tokenizer, _same_token("<|endoftext|>"))
    end = tokenizer.token_to_id("<|endoftext|>")
    settings = AutoConfig.for_model(
        model_type,
        **{
            "vocab_size": tokenizer.get_vocab_size(),
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "max_position_embeddings": 128,
            "bos_token_id": end,
            "eos_token_id": end,
            "pad_token_id": end,
            **DEFAULTS.get(model_type, {}),
            **config,
        },
    )
    if model_type == "qwen3_5_moe_text":  # all layers have experts
        del settings.intermediate_size
    width, size = settings.hidden_size, _head_size(settings, 0)
    names = NAMES.get(model_type, {})
    is_gemma = model_type.startswith("gemma")
    draw = _Draw(seed)

    def norm(size: int) -> np.ndarray:
        # Some multiply by 1 + weight.
        is_offset = model_type in OFFSET_NORMS
        return draw.scale(size, mean=0.0 if is_offset else 1.0)

    # Gemma and Granite multiply embeddings before the first layer.
    scale = width**0.5 if is_gemma else getattr(settings, "embedding_multiplier", 1.0)
    is_tied = settings.tie_word_embeddings
    std = 0.2 / scale**0.5 if is_tied else 0.4 / scale
    tensors = {"model.embed_tokens.weight": draw.normal(settings.vocab_size, width, std=std)}
    if not is_tied:
        tensors["lm_head.weight"] = draw.normal(settings.vocab_size, width, std=0.4)
    tensors[f"model.{names.get('norm', 'norm')}.weight"] = norm(width)
    if model_type == "gemma4_text":
        inputs = settings.hidden_size_per_layer_input
        all_inputs = inputs * settings.num_hidden_layers
        further = draw.normal(settings.vocab_size, all_inputs, std=0.5)
        tensors["model.embed_tokens_per_layer.weight"] = further
        tensors["model.per_layer_model_projection.weight"] = draw.linear(all_inputs, width)
        tensors["model.per_layer_projection_norm.weight"] = norm(inputs)
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] * (
        model_type in POST_NORMS
    )
    if model_type in ONLY_POST_NORMS:
        norms = ["post_attention_layernorm", "post_feedforward_layernorm"]
    for layer in range(settings.num_hidden_layers):
        block = f"model.layers.{layer}."
        for name in norms:
            tensors[f"{block}{names.get(name, name)}.weight"] = norm(width)
        for name, into, out, has_bias in _linears(settings, layer):
            name = names.get(name) or ".".join(names.get(x, x) for x in name.split("."))
            tensors[f"{block}{name}.weight"] = draw.linear(out, into)
            if has_bias:
                tensors[f"{block}{name}.bias"] = draw.bias(out)
        if model_type == "gemma4_text":
            inputs, size = settings.hidden_size_per_layer_input, _head_size(settings, layer)
            tensors[f"{block}per_layer_input_gate.weight"] = draw.linear(inputs, width)
            tensors[f"{block}per_layer_projection.weight"] = draw.linear(width, inputs)
            tensors[f"{block}post_per_layer_input_norm.weight"] = norm(width)
            tensors[f"{block}layer_scalar"] = draw.scale(1)
            tensors[f"{block}self_attn.q_norm.weight"] = norm(size)
            if settings.kv_sharing_modes[layer] != "reuse":
                tensors[f"{block}self_attn.k_norm.weight"] = norm(size)
        if model_type == "gpt_oss":
            _interleave_experts(tensors, block, settings.num_local_experts)
            tensors[f"{block}self_attn.sinks"] = draw.normal(settings.num_attention_heads, std=2.0)
        if model_type == "qwen3_5_moe_text":
            _stack_qwen_experts(tensors, block, settings.num_experts)
        if model_type.startswith("granitemoe"):
            _stack_experts(tensors, block, settings.num_local_experts)
        if f"{block}feed_forward.gate.weight" in tensors and settings.use_expert_bias:
            bias = draw.normal(settings.num_experts, std=0.1)
            tensors[f"{block}feed_forward.expert_bias"] = bias
        for name in ("conv.conv", "linear_attn.conv1d", "mamba.conv1d"):
            if f"{block}{name}.weight" in tensors:
                tensors[f"{block}{name}.weight"] = tensors[f"{block}{name}.weight"][:, None]
        if f"{block}mamba.in_proj.weight" in tensors:
            tensors[f"{block}mamba.A_log"] = draw.normal(settings.mamba_n_heads, std=1.0)
            for name in ("dt_bias", "D"):
                tensors[f"{block}mamba.{name}"] = draw.normal(settings.mamba_n_heads, std=0.5)
            inner = settings.mamba_n_heads * settings.mamba_d_head
            if getattr(settings, "mamba_rms_norm", True):
                tensors[f"{block}mamba.norm.weight"] = draw.scale(inner)
        if f"{block}linear_attn.in_proj_a.weight" in tensors:
            count = settings.linear_num_value_heads
            tensors[f"{block}linear_attn.A_log"] = draw.normal(count, std=1.0)
            tensors[f"{block}linear_attn.dt_bias"] = draw.normal(count, std=1.0)
            values = draw.scale(settings.linear_value_head_dim)
            tensors[f"{block}linear_attn.norm.weight"] = values
        heads = settings.num_attention_heads, settings.num_key_value_heads
        if model_type in NORMED_HEADS:
            heads = 1, 1
        elif model_type not in NORMED_AS_ONE:
            continue
        if not any(".self_attn." in name for name in tensors if name.startswith(block)):
            continue
        for name, count in zip(("q_norm", "k_norm"), heads, strict=True):
            name = names.get(name, name)
            tensors[f"{block}self_attn.{name}.weight"] = norm(count * size)
    if image_model:
        old, new = "", "language_model."
        if image_model.startswith("qwen3_5"):
            old, new = "model.", "model.language_model."
        tensors = {re.sub(f"^{old}", new, name): x for name, x in tensors.items()}
        tensors["vision_tower.layers.0.mlp.up_proj.weight"] = draw.linear(4, 4)
    _save(folder, settings, tensors)
    if image_model:
        path = folder / "config.json"
        whole = {"model_type": image_model, "vision_config": _VISION}
        path.write_text(json.dumps(whole | {"text_config": json.loads(path.read_text())}))
    _save_as(folder, tensors, dtype, shards)
    return folder


_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 14,
    "image_size": 28,
}


_DELTA_LAYERS = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_LFM3_LAYERS = ["conv", "conv", "sliding_attention", "full_attention"]


def _head_size(settings: Any, layer: int) -> int:
    is_own = settings.model_type == "gemma4_text"
    return (settings.per_layer_config[layer] if is_own else settings).head_dim


def _linears(settings: Any, layer: int) -> list[tuple[str, int, int, bool]]:
    """Of a layer's projections the names, the widths before and after, and whether there is a
    bias."""
    kind, width = settings.model_type, settings.hidden_size
    inner = getattr(settings, "intermediate_size", 0)
    heads = settings.num_attention_heads, settings.num_key_value_heads
    queries, keys = (count * _head_size(settings, layer) for count in heads)
    out_bias = getattr(settings, "attention_bias", False)
    bias = out_bias or kind in BIASED
    inner_bias = getattr(settings, "mlp_bias", False)
    if kind == "phi3":
        return [
            ("self_attn.qkv_proj", width, queries + 2 * keys, False),
            ("self_attn.o_proj", queries, width, False),
            ("mlp.gate_up_proj", width, 2 * inner, False),
            ("mlp.down_proj", inner, width, False),
        ]
    mixer = [
        ("self_attn.q_proj", width, queries, bias),
        ("self_attn.k_proj", width, keys, bias),
        ("self_attn.v_proj", width, keys, bias),
        ("self_attn.o_proj", queries, width, out_bias),
    ]
    if kind == "gemma4_text":
        shares = settings.kv_sharing_modes[layer] == "reuse"
        inner *= 1 + (shares and settings.use_double_wide_mlp)
        mixer = [mixer[0], mixer[3]] if shares else mixer
    if kind == "lfm3" and settings.use_attention_gate:
        mixer.append(("self_attn.g_proj", width, settings.num_attention_heads, False))
    if kind.startswith("lfm") and settings.layer_types[layer] == "conv":
        has_bias = settings.conv_bias
        mixer = [
            ("conv.in_proj", width, 3 * width, has_bias),
            ("conv.conv", settings.conv_L_cache, width, has_bias),
            ("conv.out_proj", width, width, has_bias),
        ]
    if kind in DELTAS:
        mixer[0] = ("self_attn.q_proj", width, 2 * queries, bias)  # with gates
        if settings.layer_types[layer] == "linear_attention":
            values = settings.linear_num_value_heads * settings.linear_value_head_dim
            mixed = 2 * settings.linear_num_key_heads * settings.linear_key_head_dim + values
            mixer = [
                ("linear_attn.in_proj_qkv", width, mixed, False),
                ("linear_attn.in_proj_z", width, values, False),
                ("linear_attn.in_proj_b", width, settings.linear_num_value_heads, False),
                ("linear_attn.in_proj_a", width, settings.linear_num_value_heads, False),
                ("linear_attn.conv1d", settings.linear_conv_kernel_dim, mixed, False),
                ("linear_attn.out_proj", values, width, False),
            ]
    has_state = kind == "granitemoehybrid" and settings.layer_types[layer] == "linear_attention"
    if has_state or kind == "falcon_h1":
        values = settings.mamba_n_heads * settings.mamba_d_head
        mixed = values + 2 * settings.mamba_n_groups * settings.mamba_d_state
        out, has_bias = values + mixed + settings.mamba_n_heads, settings.mamba_proj_bias
        mixer = ([] if has_state else mixer) + [
            ("mamba.in_proj", width, out, has_bias),
            ("mamba.conv1d", settings.mamba_d_conv, mixed, settings.mamba_conv_bias),
            ("mamba.out_proj", values, width, has_bias),
        ]
    experts: list[tuple[str, int, int, bool]] = []
    at = {"mlp": inner}
    dense = getattr(settings, "mlp_only_layers", range(getattr(settings, "num_dense_layers", 0)))
    shared = getattr(settings, "shared_intermediate_size", 0)  # Granite's
    if kind == "granitemoehybrid" and not settings.num_local_experts:
        at = {"mlp": shared}
    elif kind in WITH_EXPERTS and layer not in dense:
        inner = getattr(settings, "moe_intermediate_size", inner)
        count = getattr(settings, "num_local_experts", None) or settings.num_experts
        inner_bias |= kind == "gpt_oss"
        experts = [("mlp.gate", width, count, inner_bias)]
        at = {f"mlp.experts.{number}": inner for number in range(count)}
        if shared := getattr(settings, "shared_expert_intermediate_size", shared):
            at["mlp.shared_expert"] = shared
        if kind in ("qwen2_moe", "qwen3_5_moe_text"):
            experts.append(("mlp.shared_expert_gate", width, 1, False))
    for where, inner in at.items():
        experts += [
            (f"{where}.gate_proj", width, inner, inner_bias),
            (f"{where}.up_proj", width, inner, inner_bias),
            (f"{where}.down_proj", inner, width, inner_bias),
        ]
    return mixer + experts


def _interleave_experts(tensors: dict[str, np.ndarray], block: str, count: int) -> None:
    """As GPT-OSS has them: `[experts, in, out]`; columns of gate and up take turns."""
    for leaf, own in (("weight", ""), ("bias", "_bias")):
        gate, up, down = (
            np.stack(
                [tensors.pop(f"{block}mlp.experts.{x}.{name}_proj.{leaf}").T for x in range(count)]
            )
            for name in ("gate", "up", "down")
        )
        both = np.stack([gate, up], axis=-1)
        both = both.reshape(*gate.shape[:-1], 2 * gate.shape[-1])
        tensors[f"{block}mlp.experts.gate_up_proj{own}"] = both
        tensors[f"{block}mlp.experts.down_proj{own}"] = down
        tensors[f"{block}mlp.router.{leaf}"] = tensors.pop(f"{block}mlp.gate.{leaf}")


def _stack_qwen_experts(tensors: dict[str, np.ndarray], block: str, count: int) -> None:
    """As Qwen3.5 has them: gate above up, those of all experts in one tensor."""
    gate, up, down = (
        np.stack([tensors.pop(f"{block}mlp.experts.{x}.{name}_proj.weight") for x in range(count)])
        for name in ("gate", "up", "down")
    )
    tensors[f"{block}mlp.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
    tensors[f"{block}mlp.experts.down_proj"] = down


def _stack_experts(tensors: dict[str, np.ndarray], block: str, count: int) -> None:
    """As Granite has them: gate above up in one matrix, those of all experts in one tensor."""
    whole = f"{block}mlp.shared_expert." if count else f"{block}mlp."
    at = {
        "block_sparse_moe": [f"{block}mlp.experts.{number}." for number in range(count)],
        "shared_mlp": [whole] * (f"{whole}up_proj.weight" in tensors),
    }
    for name, networks in at.items():
        if not networks:
            continue
        gate, up, down = (
            [tensors.pop(f"{where}{each}_proj.weight") for where in networks]
            for each in ("gate", "up", "down")
        )
        into, out = np.concatenate([np.stack(gate), np.stack(up)], axis=1), np.stack(down)
        if name == "shared_mlp":
            into, out = into[0], out[0]
        tensors[f"{block}{name}.input_linear.weight"] = into
        tensors[f"{block}{name}.output_linear.weight"] = out
    if count:
        router = tensors.pop(f"{block}mlp.gate.weight")
        tensors[f"{block}block_sparse_moe.router.layer.weight"] = router


def growing(context: int) -> dict[str, Callable[[Path], Path]]:
    """Makers of models that read a prompt in chunks, one of each kind of layer.

    All layers slide in Mistral's, some in Gemma 2's; in all rotary ones several heads of queries
    share keys. LFM3's has two convolutions behind one another, and gates.
    """

    def made(model_type: str, **config: Any) -> Callable[[Path], Path]:
        return lambda folder: rotary(folder, model_type, max_position_embeddings=context, **config)

    return {
        "GPT-2": lambda folder: gpt2(folder, seed=5, n_positions=context),
        "OPT": lambda folder: opt(folder, seed=6, max_position_embeddings=context),
        "Llama": made("llama", seed=3),
        "Mistral": made("mistral", sliding_window=7),
        "Gemma 2": made("gemma2", seed=2, sliding_window=6, attn_logit_softcapping=4.0),
        "Qwen3": made("qwen3", head_dim=16),
        "LFM3": made(
            "lfm3", seed=4, num_hidden_layers=4, layer_types=_LFM3_LAYERS, sliding_window=6
        ),
        "OLMoE": made("olmoe", seed=5, intermediate_size=24),
        "Falcon-H1": made("falcon_h1"),
        "Qwen3.5": made("qwen3_5_text", seed=6, num_hidden_layers=4, layer_types=_DELTA_LAYERS),
    }


def _save_as(folder: Path, tensors: dict[str, np.ndarray], dtype: str, shards: int) -> None:
    """Writes the weights again, in another dtype or in several files, as the Hub has them."""
    import ml_dtypes

    kinds = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    tensors = {name: tensor.astype(kinds[dtype]) for name, tensor in tensors.items()}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    (folder / "model.safetensors").unlink()
    placed = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        names = list(tensors)[shard::shards]
        save_file({name: tensors[name] for name in names}, folder / file, metadata={"format": "pt"})
        placed.update(dict.fromkeys(names, file))
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _made(folder: Path | str) -> Path:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _save(
    folder: Path,
    config: Any,
    tensors: dict[str, np.ndarray],
    generation: dict[str, Any] | None = None,
) -> None:
    from transformers import GenerationConfig

    # Not save_pretrained, which complains of the token suppression that Whisper's has on the Hub.
    config.to_json_file(folder / "config.json")
    values = {
        name: getattr(config, name)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        if getattr(config, name, None) is not None
    }
    GenerationConfig(**values, **(generation or {})).save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _same_token(token: str) -> dict[str, Any]:
    return {"bos_token": token, "eos_token": token, "unk_token": token}


def _add_special(tokenizer: Any, names: list[str]) -> None:
    from tokenizers import AddedToken

    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])


def _byte_level_bpe(special: list[str]) -> Any:
    """A GPT-2 style tokenizer over bytes: `special` first, then 256 bytes, then merges of TEXT."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT.splitlines(), trainer)
    return tokenizer


def _unigram(extra_ids: int) -> Any:
    """A T5 style tokenizer: pieces with `▁` for the space, `</s>` added at the end.

    The pieces are the words, pairs of letters and letters of TEXT, counted: the library's own
    trainer gives another vocabulary in every process.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    words = ["▁" + word for word in TEXT.split()]
    pairs = [word[place : place + 2] for word in words for place in range(1, len(word) - 1)]
    letters = sorted("".join(words))
    pieces = Counter(dict(Counter(pairs).most_common(80))) + Counter(words) + Counter(letters)
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    # A piece costs as much as it is rare; one piece less is always worth it.
    scored = [(piece, math.log(count) - 12.0) for piece, count in pieces.most_common()]
    tokenizer = Tokenizer(models.Unigram([*special, *scored], unk_id=2))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    # As published: numbered downwards from the end of the vocabulary.
    _add_special(tokenizer, [f"<extra_id_{index}>" for index in reversed(range(extra_ids))])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def _save_tokenizer(
    folder: Path, class_name: str, tokenizer: Any, special: dict[str, Any], **config: Any
) -> None:
    """Not by save_pretrained: Transformers 5 writes other files than those that are on the Hub."""
    tokenizer.save(str(folder / "tokenizer.json"))
    if class_name != "T5Tokenizer":
        tokenizer.model.save(str(folder))  # vocab.json and merges.txt
    for name, values in (
        ("special_tokens_map.json", special),
        ("tokenizer_config.json", {"tokenizer_class": class_name, **special, **config}),
    ):
        (folder / name).write_text(json.dumps(values, indent=2))


def _sinusoids(length: int, width: int) -> np.ndarray:
    """Whisper's fixed encoder positions, (length, width)."""
    rates = np.exp(-np.log(10_000) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(length)[:, None] * rates[None]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
