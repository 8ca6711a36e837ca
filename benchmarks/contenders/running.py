"""The contenders: this engine and its peers, each in its own long-lived process.

Knows the contenders, the environment of each, and the protocol. The processes run
`benchmarks.contenders.__main__` and answer each JSON line with one, so calls of all contenders can
be interleaved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders import THREADS, Likely, Request
from benchmarks.harness import ROOT, WORK, MeasureFailed, peak_memory
from xla_backend.baselines import overlay
from xla_backend.checkpoints.kinds import EXACT, INT8

OWN_PYTHON = Path(sys.executable)
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
FLOAT32 = "float32"


@dataclass(frozen=True)
class Contender:
    """A program, with weights in one form."""

    program: str
    module: str  # its module in this package
    weights: str = FLOAT32  # the form for its module
    python: Path = PEERS_PYTHON  # the interpreter of its environment
    activations: str = EXACT  # this engine's

    @property
    def name(self) -> str:
        """Its name in tables and on the command line."""
        weights = "" if self.weights == FLOAT32 else f", {self.weights}"
        return self.program + weights + (" with int8" if self.activations != EXACT else "")


ENGINE, LIMIT = "this engine", "reading the weights"


def with_file(weights: str) -> tuple[Contender, ...]:
    """Who reads a GGUF file of this format."""
    return (
        Contender(ENGINE, "own_engine", weights, OWN_PYTHON),
        Contender(ENGINE, "own_engine", weights, OWN_PYTHON, INT8),
        Contender("llama.cpp", "llama_cpp", weights),
    )


CONTENDERS = (
    *(
        Contender(ENGINE, "own_engine", weights, OWN_PYTHON)
        for weights in (FLOAT32, "bfloat16", "int8")
    ),
    Contender(ENGINE, "own_engine", "int8", OWN_PYTHON, INT8),
    Contender(LIMIT, "memory_reader", python=OWN_PYTHON),
    Contender("compiled model.generate", "tensorflow_generate", python=OWN_PYTHON),
    Contender("PyTorch", "pytorch_generate"),
    Contender("CTranslate2", "ctranslate2_generate"),
    Contender("CTranslate2", "ctranslate2_generate", "int8"),
    Contender("ONNX Runtime", "onnx_generate"),
    Contender("keras-hub", "keras_hub_generate"),
    Contender("llama.cpp", "llama_cpp", "F16"),
    *(one for weights in ("Q8_0", "Q4_1", "Q4_K", "Q4_K_M") for one in with_file(weights)),
)


class ContenderFailed(MeasureFailed):
    """A contender ended or returned an error."""


class Running:
    """A contender's process with a loaded checkpoint."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        """Starts the process; `wait_until_ready` waits for the model.

        Args:
            folder: the checkpoint, in the Hub's layout.

        Raises:
            ContenderFailed: its packages are not installed.
        """
        self.contender = contender
        self._last_lines: deque[str] = deque(maxlen=30)
        command = [str(contender.python), "-m", "benchmarks.contenders", contender.module]
        try:
            self._process = subprocess.Popen(
                [*command, contender.weights, str(folder), str(WORK)],
                cwd=ROOT,
                env=os.environ | environment(contender),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise ContenderFailed("not installed: make bench installs it") from error
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_until_ready(self) -> dict[str, str]:
        """Waits until the model is loaded; returns the versions of its libraries.

        Raises:
            ContenderFailed: loading failed.
        """
        return self._answer()

    def generate(self, request: Request) -> tuple[float, list[int]]:
        """Seconds and new tokens of a request; the first of a kind may compile.

        Raises:
            ContenderFailed: the request failed.
        """
        answer = self._ask(asdict(request))
        return answer["seconds"], answer["tokens"]

    def likely(self, ids: Sequence[int]) -> Likely:
        """The most likely next tokens after each of these; raises as `generate` does."""
        return self._ask({"likely": list(ids)})["likely"]

    def memory(self) -> int:
        """Peak memory of its process in bytes, shared pages included."""
        return peak_memory(self._process.pid)

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, values: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(values) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it ended; _answer raises with its output
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"answer"'):
                answer = json.loads(line)["answer"]
                if "error" in answer:
                    raise ContenderFailed(answer["error"])
                return answer
        self._process.wait()
        raise ContenderFailed("it ended:\n" + "\n".join(self._last_lines))

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_lines.append(line.rstrip())


def environment(contender: Contender) -> dict[str, str]:
    """Environment variables for a contender: thread limits of all libraries, and its packages.

    Raises:
        ContenderFailed: the packages are not installed.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # The reader starts its own threads.
    threads = 1 if contender.module == "memory_reader" else THREADS
    values = dict.fromkeys(names, str(threads)) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    values |= {"HF_HUB_OFFLINE": "1", "XLA_BACKEND_STORE": "off"}
    values |= {"XLA_BACKEND_ACTIVATIONS": contender.activations}
    if contender.python == PEERS_PYTHON:
        values |= {"USE_TF": "0", "USE_TORCH": "1", "KERAS_BACKEND": "jax"}
    if contender.module == "tensorflow_generate":
        try:
            values |= overlay.environment(list(filter(None, [os.environ.get("PYTHONPATH")])))
        except overlay.BaselineMissing as error:
            raise ContenderFailed(str(error)) from error
    return values
