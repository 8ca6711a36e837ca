"""The process that tries two calls: answers one question and ends.

Knows how question and answer are sent, and which model's `generate` is used. Must not know what is
tried. Run by `doctor`; the first message is the question.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xla_backend.checkpoints.models import Registry
from xla_backend.child_process.child_side import connect, end, reporting_errors

MODEL = "gpt2-stories"


def main() -> None:
    """Answers the question that the parent sends."""
    channel, (question, registry, dumps) = connect()
    os.nice(10)  # the engine goes first
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_dump_to={dumps} --xla_dump_hlo_as_text=true"
    with reporting_errors(channel):
        from xla_backend.retracing.trying import find

        channel.send(("result", None, find(question, Path(dumps), lambda: _generate(registry))))
    end(channel)


def _generate(registry: Registry) -> Callable[..., Any]:
    from xla_backend.baselines.baseline_process import load_model

    model = load_model(registry.locate(MODEL))
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = model.generation_config.eos_token_id
    return model.generate


if __name__ == "__main__":
    main()
