"""Memory of the engine's process after a Space has used all of its models.

Knows the bundled models, one of a Hub model's size, and a process's memory in /proc. Must not know
how the engine keeps them. `python -m benchmarks.space_memory` prints a line per model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.checkpoints import gpt2_124m
from xla_backend import BackendProcess, GenerationOptions
from xla_backend.checkpoints.models import BUNDLED_FOLDER, Registry
from xla_backend.process import memory

PROMPT = "Once upon a time there was a little owl"
OPTIONS = (
    GenerationOptions(max_new_tokens=96, temperature=0.7),
    GenerationOptions(max_new_tokens=96, num_beams=4),
)
"""Requests to each model: the page's default, and beam search with four beams."""


def main() -> None:
    """Uses one model after the other, and prints the process's memory after each."""
    with tempfile.TemporaryDirectory() as work:
        large = str(gpt2_124m(Path(work)))
        engine = BackendProcess(default_model=None, store="off", warm_up=None)
        try:
            engine.wait_ready()
            _print("no model", memory.resident(engine.pid))
            names = [model.name for model in Registry(hub_models=()).list()]
            for name in [*names, large]:
                model = engine.load(name)
                if model.family == "speech":
                    recording = next((BUNDLED_FOLDER / name / "examples").glob("*.flac"))
                    engine.transcribe(name, recording)
                else:
                    for options in OPTIONS:
                        engine.generate(name, PROMPT, options)
                _print(Path(name).name, memory.resident(engine.pid))
            _print("at most", memory.peak(engine.pid))
        finally:
            engine.close()


def _print(name: str, size: int | None) -> None:
    assert size is not None, "this system keeps no accounts of a process's memory"
    print(f"{name:20} {size / 1e6:8.0f} MB", flush=True)


if __name__ == "__main__":
    main()
