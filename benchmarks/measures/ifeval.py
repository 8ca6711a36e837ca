"""IFEval: instructions that a program can check, followed in answers at `/v1/chat/completions`.

`--prompts` is IFEval's file of prompts (Apache-2.0; `instruction_following_eval/data/
input_data.jsonl` of the public repository google-research/google-research). The package
`if-verifiable` has its checkers, unchanged; prompts whose checkers count sentences are left out,
because these need data that no package has. Answers are greedy. *Strict* counts prompts of whose
instructions all are followed, *instructions* each instruction.
"""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.checkpoints import packaged_file
from benchmarks.client import Client
from benchmarks.contenders.running import PEERS_PYTHON
from benchmarks.harness import MeasureFailed, Row, note
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp, settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"prompts": "", "answers": 100, "new_tokens": 384}
CONTEXT, AT_ONCE = 2048, 4
NEED_DATA = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
CHECK = """
import json, sys
from if_verifiable.common import evaluate_instructions
from if_verifiable.ifeval import INSTRUCTION_DICT
for answer in json.load(sys.stdin):
    found, _ = evaluate_instructions(**answer, instruction_registry=INSTRUCTION_DICT)
    followed = [each.strict_pass for each in found] or [False]  # of an empty answer there is none
    print(json.dumps(followed))
"""
"""Reads answers with their instructions; writes which of these are followed, a line for each."""


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each program."""
    if not options.prompts:
        raise MeasureFailed("name the prompts: --prompts instruction_following_eval/data/...")
    lines = Path(options.prompts).read_text(encoding="utf-8").splitlines()
    prompts = [
        prompt
        for prompt in map(json.loads, lines)
        if not NEED_DATA & {*prompt["instruction_id_list"]}
    ][: options.answers]
    with this_app("--models", PACKAGED_MODEL) as url:
        settle(url)
        yield _row("this engine", url, prompts, options.new_tokens)
    with llama_cpp(packaged_file(), AT_ONCE, CONTEXT) as url:
        yield _row("llama.cpp", url, prompts, options.new_tokens) if url else LLAMA_CPP_MISSING


def _row(program: str, url: str, prompts: list[dict[str, Any]], new_tokens: int) -> Row:
    note(f"  {program}")
    client = Client(url, PACKAGED_MODEL)

    def answer(prompt: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "user", "content": prompt["prompt"]}
        return {
            "response": client.chat([message], max_tokens=new_tokens, temperature=0.0).text,
            "prompt": prompt["prompt"],
            "instruction_id_list": prompt["instruction_id_list"],
            "kwargs_list": prompt["kwargs"],
        }

    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = list(threads.map(answer, prompts))
    checked = subprocess.run(
        [PEERS_PYTHON, "-c", CHECK],
        input=json.dumps(answers),
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode:
        raise MeasureFailed(f"if-verifiable failed: {checked.stderr.strip().splitlines()[-1]}")
    followed = [json.loads(line) for line in checked.stdout.splitlines()]
    each = [one for found in followed for one in found]
    return {
        "program": program,
        "prompts": len(followed),
        "strict": sum(all(found) for found in followed) / len(followed),
        "instructions": sum(each) / len(each),
    }
