"""Answers that the packaged model writes under MaskBench's schemas, at temperature 1.

An independent validator (`jsonschema`) reads each answer that ends; *cut* are those that the token
limit ended. `maskbench` says where the files are.
"""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema

from benchmarks.harness import MeasureFailed, Row, note
from xla_backend import Backend, GenerationOptions, Grammar, InvalidRequest, question
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"data": "", "files": 300, "seed": 5, "new_tokens": 256, "at_once": 8}


def measure(options: Namespace) -> Iterator[Row | str]:
    """One row."""
    files = sorted(Path(options.data).glob("*.json")) if options.data else []
    if not files:
        raise MeasureFailed("--data names no folder with MaskBench's files")
    chosen = random.Random(options.seed).sample(files, min(options.files, len(files)))
    backend = Backend()

    def outcome(number: int, file: Path) -> str:
        schema = json.loads(file.read_text(encoding="utf-8"))["schema"]
        try:
            grammar = Grammar.json_schema(schema)
            asked = GenerationOptions(
                max_new_tokens=options.new_tokens, temperature=1.0, seed=number, grammar=grammar
            )
            answer = backend.generate(PACKAGED_MODEL, question("Write an example."), asked)
        except InvalidRequest:
            return "refused"
        if answer.finish != "eos":
            return "cut"
        return _judged(schema, answer.text, file.name)

    with ThreadPoolExecutor(options.at_once) as threads:
        counted = Counter(threads.map(outcome, range(len(chosen)), chosen))
    backend.close()
    columns = ("valid", "invalid", "not judged", "cut", "refused")
    yield {"schemas": len(chosen), **{name: counted[name] for name in columns}}


def _judged(schema: Any, text: str, name: str) -> str:
    try:
        validator = jsonschema.validators.validator_for(schema)
        validator(schema).validate(json.loads(text))
    except (jsonschema.ValidationError, ValueError) as error:
        note(f"{name}: {text[:300]}: {error!s:.300}")
        return "invalid"
    except Exception as error:  # the schema is one that this validator cannot read
        note(f"{name}: {error!s:.100}")
        return "not judged"
    return "valid"
