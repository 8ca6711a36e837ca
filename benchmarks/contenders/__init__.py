"""The contenders: this engine and its peers, each alive in a process of its own.

Knows which there are, which environment each runs in, and how to talk to one. Must not know what is
measured. The processes run `python -m benchmarks.contenders NAME FOLDER` (see `__main__`) and
answer one JSON line for each that they read, so that calls of all can be interleaved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THREADS = 2
"""For everyone: as many as the free hardware that the page is meant for has cores."""

PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
OWN_PYTHON = Path(sys.executable)


@dataclass(frozen=True)
class Contender:
    """Who takes part.

    Attributes:
        name: as the tables call it.
        module: the module of this package that drives it.
        python: the interpreter of its environment.
        is_float32: whether its greedy tokens must be the engine's.
        variant: passed on to the module: which of its ways to run.
    """

    name: str
    module: str
    python: Path
    is_float32: bool = True
    variant: str = ""


ENGINE = "this engine"
LIMIT = "reading the weights"
COMPILED_GENERATE = "compiled model.generate"
EAGER_GENERATE = "eager model.generate"
PYTORCH = "PyTorch eager"
PYTORCH_COMPILED = "PyTorch compiled"
CTRANSLATE2 = "CTranslate2"
CTRANSLATE2_INT8 = "CTranslate2 int8"
ONNX_RUNTIME = "ONNX Runtime"
KERAS_HUB = "keras-hub"

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(ENGINE, "own_engine", OWN_PYTHON),
        Contender(LIMIT, "memory_reader", OWN_PYTHON),
        Contender(COMPILED_GENERATE, "tensorflow_generate", OWN_PYTHON, variant="compiled"),
        Contender(EAGER_GENERATE, "tensorflow_generate", OWN_PYTHON, variant="eager"),
        Contender(PYTORCH, "pytorch_generate", PEERS_PYTHON, variant="eager"),
        Contender(PYTORCH_COMPILED, "pytorch_generate", PEERS_PYTHON, variant="compiled"),
        Contender(CTRANSLATE2, "ctranslate2_generate", PEERS_PYTHON, variant="float32"),
        Contender(
            CTRANSLATE2_INT8, "ctranslate2_generate", PEERS_PYTHON, is_float32=False, variant="int8"
        ),
        Contender(ONNX_RUNTIME, "onnx_generate", PEERS_PYTHON),
        Contender(KERAS_HUB, "keras_hub_generate", PEERS_PYTHON),
    )
}


@dataclass(frozen=True)
class Request:
    """One generation, the same for everyone.

    Attributes:
        prompt, ids: the prompt as text and as tokens; a contender reads either. Empty for speech
            models, which all hear `speech()`.
        new_tokens: how many follow. No text may end earlier.
        num_beams: 1 is greedy search, or sampling where temperature is above 0.
        temperature, top_k, top_p: of sampling; the engine alone is asked for it.
        stream: the engine alone: read piece by piece, not whole.
    """

    prompt: str
    ids: tuple[int, ...]
    new_tokens: int
    num_beams: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    stream: bool = False


class ContenderFailed(Exception):
    """A contender ended, or answered with an error."""


class Running:
    """A contender's process with a checkpoint loaded."""

    def __init__(self, contender: Contender, folder: Path, work: Path) -> None:
        """Starts it; `wait_until_ready` waits for the model.

        Args:
            contender: who.
            folder: the checkpoint, in the Hub's layout.
            work: where it may keep converted checkpoints.
        """
        self.contender = contender
        self._said: deque[str] = deque(maxlen=30)
        command = [str(contender.python), "-m", "benchmarks.contenders"]
        command += [contender.module, contender.variant, str(folder), str(work)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | _environment(contender),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_until_ready(self) -> dict[str, Any]:
        """Waits until the model is loaded; returns the versions of its libraries.

        Raises:
            ContenderFailed: it could not load.
        """
        return self._answer()

    def prepare(self, request: Request) -> float:
        """Runs a request once, with all tracing and compiling; returns the seconds it took.

        Raises:
            ContenderFailed: it could not.
        """
        return self._ask("prepare", request)["seconds"]

    def generate(self, request: Request) -> dict[str, Any]:
        """Runs a request: `seconds`, `tokens`, and from some contenders more.

        Raises:
            ContenderFailed: it could not.
        """
        return self._ask("generate", request)

    @property
    def process_id(self) -> int:
        """The process's."""
        return self._process.pid

    def memory(self) -> int:
        """Bytes of memory that its process holds now (resident, shared pages included)."""
        return self._ask("memory")["bytes"]

    def margins(self, request: Request, places: int) -> list[float]:
        """How far the likeliest logit leads at each of the first `places`; PyTorch only."""
        return self._ask("margins", request)["margins"][:places]

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, do: str, request: Request | None = None) -> dict[str, Any]:
        question = {"do": do} | ({"request": asdict(request)} if request else {})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it ended; why is in what it said
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"answer"'):
                answer = json.loads(line)["answer"]
                if "error" in answer:
                    raise ContenderFailed(f"{self.contender.name}: {answer['error']}")
                return answer
        self._process.wait()
        raise ContenderFailed(f"{self.contender.name} ended:\n" + "\n".join(self._said))

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.rstrip())


def _environment(contender: Contender) -> dict[str, str]:
    """Two threads for every library, by the name that each knows."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    values = dict.fromkeys(names, str(THREADS)) | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
        "XLA_BACKEND_STORE": "off",
    }
    if contender.python == PEERS_PYTHON:
        values |= {"USE_TF": "0", "USE_TORCH": "1", "KERAS_BACKEND": "jax"}
    else:
        values["TF_USE_LEGACY_KERAS"] = "1"  # keras-hub cannot have it
    if contender.module == "memory_reader":
        values["OPENBLAS_NUM_THREADS"] = "1"  # it has threads of its own
    return values
