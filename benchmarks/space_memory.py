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
            print(f"{'no model':20} {megabytes(engine.pid):8.0f} MB")
            names = [model.name for model in Registry(hub_models=()).list()]
            for name in [*names, large]:
                model = engine.load(name)
                if model.family == "speech":
                    recording = next((BUNDLED_FOLDER / name / "examples").glob("*.flac"))
                    engine.transcribe(name, recording)
                else:
                    for options in OPTIONS:
                        engine.generate(name, PROMPT, options)
                print(f"{Path(name).name:20} {megabytes(engine.pid):8.0f} MB", flush=True)
            print(f"{'at most':20} {megabytes(engine.pid, 'VmHWM'):8.0f} MB")
        finally:
            engine.close()


def megabytes(pid: int, of: str = "VmRSS") -> float:
    """Resident memory now, or with VmHWM its peak, in 10^6 bytes; Linux only."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{of}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError(f"/proc/{pid}/status has no {of}")


if __name__ == "__main__":
    main()
