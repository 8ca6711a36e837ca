"""Modern small models at their real sizes, with random weights: what a token takes.

    python -m benchmarks.real_sizes [--sizes NAME,NAME] [--rounds 5]

For each size: the first call, a prompt of 400 tokens, and a token when greedy, sampled and with a
repetition penalty, called in turn; beside them the time that reading the weights takes. Knows the
published configurations. The checkpoints are built in a temporary folder, without a network.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from benchmarks import machine
from benchmarks.checkpoints import save_tokenizer
from benchmarks.contenders import Request, memory_reader
from xla_backend import Backend, GenerationOptions
from xla_backend.checkpoints import rotary_form

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
}
PROMPT = "x" * 400  # of the byte-level tokenizer: a token each
NEW_TOKENS = 32
WAYS = {
    "greedy": GenerationOptions(max_new_tokens=NEW_TOKENS),
    "sampled": GenerationOptions(
        max_new_tokens=NEW_TOKENS, temperature=0.8, top_k=50, top_p=0.95, seed=1
    ),
    "penalty": GenerationOptions(max_new_tokens=NEW_TOKENS, repetition_penalty=1.2),
}


def build(name: str, folder: Path) -> Path:
    """Writes a checkpoint of that size in bfloat16."""
    from transformers import AutoConfig

    values = dict(SIZES[name])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    made = folder / name
    made.mkdir()
    save_tokenizer(made, config.vocab_size)
    config.architectures = [f"{type(config).__name__.removesuffix('Config')}ForCausalLM"]
    config.eos_token_id = config.vocab_size - 1
    config.save_pretrained(made)
    draw = np.random.default_rng(0)
    tensors = {
        tensor: (0.02 * draw.standard_normal(shape, np.float32)).astype(ml_dtypes.bfloat16)
        for tensor, shape in rotary_form.shapes(config)
    }
    save_file(tensors, made / "model.safetensors")
    return made


def measure(name: str, folder: Path, rounds: int) -> str:
    """One line of the table."""
    model = str(build(name, folder))
    reader = memory_reader.Model(Path(model), folder, "")
    backend = Backend(store="off")
    try:
        first = backend.generate(model, PROMPT, WAYS["greedy"])
        tokens: dict[str, list[float]] = {way: [] for way in WAYS}
        prefill: list[float] = []
        reading: list[float] = []
        for _ in range(rounds):
            for way, options in WAYS.items():
                result = backend.generate(model, PROMPT, options)
                assert result.new_tokens == NEW_TOKENS and result.tpot_s is not None
                tokens[way].append(result.tpot_s)
                prefill.append(result.timing.prefill_s)
            begin = time.perf_counter()
            reader.generate(Request(prompt="", ids=(0,), new_tokens=8))
            reading.append((time.perf_counter() - begin) / 8)
    finally:
        backend.close()
    greedy = statistics.median(tokens["greedy"])

    def over_greedy(way: str) -> float:
        return statistics.median(
            mine / own for mine, own in zip(tokens[way], tokens["greedy"], strict=True)
        )

    over_reading = statistics.median(
        mine / own for mine, own in zip(tokens["greedy"], reading, strict=True)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"| {name} | {first.timing.total_s:.1f} s | {statistics.median(prefill) * 1000:.0f} ms "
        f"| {greedy * 1000:.1f} ms | {over_reading:.2f} | {over_greedy('sampled'):.2f} "
        f"| {over_greedy('penalty'):.2f} | {reader.details['bytes'] / 2**30:.2f} | {peak:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine.description())
    print(
        "| size | first call | prompt of 400 | a token, greedy | over reading the weights "
        "| sampled over greedy | penalty over greedy | weights, GiB | peak so far, GiB |"
    )
    print("| --- " * 9 + "|")
    for name in arguments.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(measure(name, Path(folder), arguments.rounds), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
