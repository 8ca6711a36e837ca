"""What the first call of a key costs, and every later one: this engine against Transformers.

Knows how to run each contender in a fresh process and read what it measured. Run as

    python -m benchmarks.first_call [--models 124m gpt2-stories] [--num-beams 1 4] [--rounds 3]

Contenders, each in a process of its own, in turn (A B C D A B C D ...):

* `engine, empty store`: this engine with nothing on disk;
* `engine, filled store`: this engine where an earlier process has stored the keys, asked for in the
  reverse order;
* `compiled generate`: `tf.function(model.generate, jit_compile=True)`, as the guide writes it;
* `eager generate`: `model.generate`.

All do 32 new tokens after the same prompt padded to 16, and all must write the same tokens. The
first call is split into tracing, compiling and running; the cached time is the median of 10 more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.checkpoints import gpt2_124m

PROMPT = "Once upon"
PADDED_LENGTH, MAX_NEW_TOKENS = 16, 32
CACHED_CALLS = 10
ROOT = Path(__file__).resolve().parent.parent
CONTENDERS = ("engine, empty store", "engine, filled store", "compiled generate", "eager generate")


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["124m", "gpt2-stories"])
    parser.add_argument("--num-beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="also write the raw numbers here, as JSON")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "xla-bench")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        _measure(arguments.contender, arguments.models[0], arguments.num_beams, arguments.store)
        return
    results = []
    for model in arguments.models:
        folder = gpt2_124m(arguments.work) if model == "124m" else ROOT / "demo_models" / model
        results += _rounds(model, folder, arguments.num_beams, arguments.rounds)
    print(f"\npython -m benchmarks.first_call {' '.join(sys.argv[1:])}\n")
    print(_table(results))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


def _rounds(model: str, folder: Path, beams: list[int], rounds: int) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as kept:
        filled = Path(kept) / "filled"
        _in_a_new_process(CONTENDERS[0], folder, beams, filled)  # fills it
        for number in range(rounds):
            for contender in CONTENDERS:
                store = filled if "filled" in contender else Path(kept) / f"empty-{number}"
                order = beams[::-1] if "filled" in contender else beams
                # A fresh process for each number of beams, but for the filled store, where the
                # order of asking is part of the question.
                asked = [order] if "filled" in contender else [[n] for n in order]
                for some in asked:
                    fresh = store if "filled" in contender else Path(f"{store}-{some[0]}")
                    for row in _in_a_new_process(contender, folder, some, fresh):
                        rows.append({"model": model, "contender": contender} | row)
                        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    for num_beams in beams:
        texts = {json.dumps(row["tokens"]) for row in rows if row["num_beams"] == num_beams}
        if len(texts) != 1:
            raise SystemExit(
                f"{model}: the contenders wrote different tokens with {num_beams} beams"
            )
    return rows


def _in_a_new_process(
    contender: str, folder: Path, beams: list[int], store: Path
) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.first_call", "--contender", contender]
    command += ["--models", str(folder), "--store", str(store), "--num-beams", *map(str, beams)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _measure(contender: str, folder: str, beams: list[int], store: str) -> None:
    measure = _measure_engine if contender.startswith("engine") else _measure_transformers
    for row in measure(contender, folder, beams, store):
        print(json.dumps(row), flush=True)


def _measure_engine(contender: str, folder: str, beams: list[int], store: str):
    from xla_backend import Backend, GenerationOptions

    backend = Backend(store=store)
    backend.load(folder)
    for num_beams in beams:
        options = GenerationOptions(max_new_tokens=MAX_NEW_TOKENS, num_beams=num_beams)

        def call(options: GenerationOptions = options):
            return backend.generate(folder, PROMPT, options, exact_key=True)

        first = call()
        assert first.cache.value == ("disk" if "filled" in contender else "miss"), first.cache
        assert first.key.padded_length == PADDED_LENGTH
        cached = [call().timing.total_s for _ in range(CACHED_CALLS)]
        yield {
            "num_beams": num_beams,
            "first_s": first.timing.total_s,
            "trace_s": first.timing.trace_s,
            "compile_s": first.timing.compile_s,
            "cached_s": statistics.median(cached),
            "tokens": [token.id for token in first.tokens],
        }


def _measure_transformers(contender: str, folder: str, beams: list[int], store: str):
    import safetensors.tensorflow
    import tensorflow as tf
    from transformers import AutoConfig, AutoTokenizer, TFAutoModelForCausalLM
    from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

    config = AutoConfig.from_pretrained(folder)
    model = TFAutoModelForCausalLM.from_config(config)
    model.build_in_name_scope()
    state = safetensors.tensorflow.load_file(Path(folder) / "model.safetensors")
    load_pytorch_state_dict_in_tf2_model(model, state, tf_inputs=False, allow_missing_keys=True)
    tokenizer = AutoTokenizer.from_pretrained(
        folder, pad_token=AutoTokenizer.from_pretrained(folder).eos_token, padding_side="left"
    )
    is_compiled = contender.startswith("compiled")
    inputs = tokenizer(
        [PROMPT],
        return_tensors="tf",
        # As the guide does it: compiled, the prompt is padded, so that one trace serves many.
        **({"padding": "max_length", "max_length": PADDED_LENGTH} if is_compiled else {}),
    )
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    for num_beams in beams:
        options = {
            "max_new_tokens": MAX_NEW_TOKENS,
            "num_beams": num_beams,
            "pad_token_id": config.eos_token_id,
        }

        def generate(ids, mask, options=options):
            return model.generate(ids, attention_mask=mask, **options)

        run, trace_s = generate, 0.0
        start = time.perf_counter()
        if is_compiled:
            run = tf.function(generate, jit_compile=True).get_concrete_function(ids, mask)
            trace_s = time.perf_counter() - start
        tokens = run(ids, mask).numpy()[0, ids.shape[1] :]
        first_s = time.perf_counter() - start
        cached = []
        for _ in range(CACHED_CALLS):
            start = time.perf_counter()
            run(ids, mask).numpy()
            cached.append(time.perf_counter() - start)
        cached_s = statistics.median(cached)
        ended = [i for i, token in enumerate(tokens) if token == config.eos_token_id]
        yield {
            "num_beams": num_beams,
            "first_s": first_s,
            "trace_s": trace_s,
            "compile_s": max(0.0, first_s - trace_s - cached_s) if is_compiled else 0.0,
            "cached_s": cached_s,
            "tokens": tokens[: ended[0] + 1 if ended else None].tolist(),
        }


def _table(rows: list[dict[str, Any]]) -> str:
    cells: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["model"], row["num_beams"], row["contender"]].append(row)
    lines = [
        "| model | beams | contender | first call s | trace s | compile s | cached ms | tokens/s "
        "| first call, rival over this | cached, eager over this |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (model, num_beams, contender), measured in cells.items():

        def median(name: str, of: list[dict[str, Any]] = measured) -> float:
            return statistics.median(row[name] for row in of)

        rival = median("first_s", cells[model, num_beams, "compiled generate"])
        eager = median("cached_s", cells[model, num_beams, "eager generate"])
        speed = len(measured[0]["tokens"]) / median("cached_s")
        lines.append(
            f"| {model} | {num_beams} | {contender} | {median('first_s'):.2f} "
            f"| {median('trace_s'):.2f} | {median('compile_s'):.2f} "
            f"| {1000 * median('cached_s'):.1f} | {speed:.0f} "
            f"| {rival / median('first_s'):.1f} | {eager / median('cached_s'):.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
