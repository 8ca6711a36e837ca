"""lm-evaluation-harness, unchanged: log-likelihoods of a text, and school mathematics.

Its `local-completions` sends requests to `/v1/completions` of this engine and of llama.cpp, which
read one GGUF file; its `hf` runs PyTorch in float32 over the same numbers. `--text` is a text
(WikiText-2's test file), whose first paragraphs are scored, `--questions` GSM8K's test file: the
harness's own task with 5 examples of the same file. `numbers` and `same_text` say where both are.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import checkpoints
from benchmarks.contenders import THREADS
from benchmarks.contenders.running import PEERS_PYTHON
from benchmarks.harness import MeasureFailed, Row, note
from benchmarks.measures.numbers import dequantized
from benchmarks.servers import llama_cpp, settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"text": "", "questions": "", "paragraphs": 100, "problems": 50}
CONTEXT = 2048
AT_ONCE = 4
LEAST_WORDS = 40
"""Of a paragraph."""
ENGINE, PEER, REFERENCE = "this engine", "llama.cpp", "PyTorch"


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each task and program."""
    if not (options.text and options.questions):
        raise MeasureFailed("name a text and questions: --text test.txt --questions test.jsonl")
    tokenizer = checkpoints.folder(PACKAGED_MODEL)
    file = tokenizer / "gguf" / "Q4_1.gguf"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tasks = _write_tasks(folder, options)
        with this_app("--models", PACKAGED_MODEL) as url:
            settle(url)
            yield from _rows(ENGINE, folder, tasks, _chosen(url, tokenizer))
        with llama_cpp(file, AT_ONCE, CONTEXT) as url:
            if url:
                yield from _rows(PEER, folder, tasks, _chosen(url, tokenizer))
        own = f"pretrained={dequantized(file)},tokenizer={tokenizer},dtype=float32"
        how = ["--model", "hf", "--device", "cpu", "--model_args", f"{own},max_length={CONTEXT}"]
        yield from _rows(REFERENCE, folder, tasks, how)
    yield f"{options.paragraphs} paragraphs, {options.problems} problems; {file.stem}, greedy."


def _chosen(url: str, tokenizer: Path) -> list[str]:
    given = {
        "base_url": f"{url}/v1/completions",
        "model": PACKAGED_MODEL,
        "tokenizer": tokenizer,
        "tokenizer_backend": "huggingface",
        "max_length": CONTEXT,
        "num_concurrent": AT_ONCE,
    }
    arguments = ",".join(f"{name}={value}" for name, value in given.items())
    return ["--model", "local-completions", "--model_args", arguments]


def _write_tasks(folder: Path, options: Namespace) -> dict[str, int]:
    """Writes the harness's descriptions of the tasks; returns how many documents each has."""
    lines = Path(options.text).read_text(encoding="utf-8").splitlines()
    texts = [line.strip() for line in lines if len(line.split()) >= LEAST_WORDS]
    documents = [json.dumps({"text": text}) for text in texts[: options.paragraphs]]
    (folder / "paragraphs.jsonl").write_text("\n".join(documents), encoding="utf-8")
    found = subprocess.run(
        [PEERS_PYTHON, "-c", "import lm_eval; print(*lm_eval.__path__)"],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise MeasureFailed("lm-evaluation-harness is not installed here: make bench installs it.")
    theirs = Path(found.stdout.strip()) / "tasks/gsm8k/gsm8k.yaml"
    problems = {
        "include": str(theirs),
        **_local("problems", Path(options.questions).resolve()),
        "training_split": None,
        "fewshot_split": "test",
    }
    paragraphs = {
        **_local("paragraphs", folder / "paragraphs.jsonl"),
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
    }
    for task in (problems, paragraphs):  # JSON is YAML
        (folder / f"{task['task']}.yaml").write_text(json.dumps(task))
    return {"paragraphs": options.paragraphs, "problems": options.problems}


def _local(task: str, file: Path) -> dict[str, Any]:
    files = {"data_files": {"test": str(file)}}
    return {
        "task": task,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": files,
        "test_split": "test",
    }


def _rows(program: str, folder: Path, tasks: dict[str, int], how: list[str]) -> Iterator[Row]:
    for task, count in tasks.items():
        if not count:
            continue
        note(f"  {program}: {task}")
        command = [PEERS_PYTHON, "-m", "lm_eval", *how, "--tasks", task, "--limit", count]
        command += [
            "--include_path",
            folder,
            "--output_path",
            folder / "results",
            "--batch_size",
            1,
        ]
        run = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            check=False,
            env=_environment(folder),
        )
        written = sorted((folder / "results").rglob("results_*.json"))
        if run.returncode or not written:
            errors = [line for line in run.stderr.splitlines() if "Error" in line]
            said = "".join(errors[-1:])[:90]
            yield {"program": program, "task": task, "metric": "fails", "value": said}
            continue
        results = json.loads(written[-1].read_text())["results"][task]
        for each in written:
            each.unlink()
        for name, value in results.items():
            metric, _, of = name.partition(",")
            if isinstance(value, float) and "stderr" not in metric:
                shown = metric if of in ("", "none") else f"{metric}, {of}"
                yield {"program": program, "task": task, "metric": shown, "value": f"{value:.4f}"}


def _environment(folder: Path) -> dict[str, str]:
    fixed = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache"), "USE_TF": "0"}
    return os.environ | fixed | {"OMP_NUM_THREADS": str(THREADS)}
