"""The contenders: this engine and its peers, each in its own long-lived process.

Knows the contenders, the environment of each, and the protocol. Must not know what is measured.
The processes run `benchmarks.contenders.__main__` and answer each JSON line with one, so calls of
all contenders can be interleaved.
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

from xla_backend.process import memory

ROOT = Path(__file__).resolve().parents[2]
THREADS = 2
"""Threads of every contender: the cores of the free hardware that the page is meant for."""

PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
OWN_PYTHON = Path(sys.executable)


@dataclass(frozen=True)
class Contender:
    """A contender.

    Attributes:
        name: in the tables.
        module: its module in this package.
        python: the interpreter of its environment.
        is_float32: whether its greedy tokens must equal the engine's.
        variant: tells the module how to run it.
    """

    name: str
    module: str
    python: Path
    is_float32: bool = True
    variant: str = ""


ENGINE = "this engine"
NARROW = {kind: f"this engine {kind}" for kind in ("bfloat16", "int8", "Q4_1", "Q8_0")}
"""The engine with narrow weights: rounded, or the blocks of the packaged model's GGUF."""
LIMIT = "reading the weights"
COMPILED_GENERATE = "compiled model.generate"
EAGER_GENERATE = "eager model.generate"
PYTORCH = "PyTorch eager"
PYTORCH_COMPILED = "PyTorch compiled"
CTRANSLATE2 = "CTranslate2"
CTRANSLATE2_INT8 = "CTranslate2 int8"
ONNX_RUNTIME = "ONNX Runtime"
KERAS_HUB = "keras-hub"
LLAMA_CPP = {kind: f"llama.cpp {kind}" for kind in ("Q4_1", "Q8_0", "F16")}

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(ENGINE, "own_engine", OWN_PYTHON, variant="float32"),
        *(
            Contender(name, "own_engine", OWN_PYTHON, is_float32=False, variant=kind)
            for kind, name in NARROW.items()
        ),
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
        *(
            Contender(name, "llama_cpp_generate", PEERS_PYTHON, is_float32=False, variant=kind)
            for kind, name in LLAMA_CPP.items()
        ),
    )
}


@dataclass(frozen=True)
class Request:
    """One generation, the same for all contenders.

    Attributes:
        prompt, ids: the prompt as text and as tokens; a contender reads one of them. Empty for
            speech models, which all get `sound.samples()`.
        new_tokens: number of new tokens. No text may end earlier.
        num_beams: 1 is greedy search, or sampling if temperature is above 0.
        temperature, top_k, top_p: of sampling; only for the engine.
        stream: read the text in chunks; only for the engine.
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
    """A contender ended or returned an error."""


class Running:
    """A contender's process with a loaded checkpoint."""

    def __init__(self, contender: Contender, folder: Path, work: Path) -> None:
        """Starts the process; `wait_until_ready` waits for the model.

        Args:
            contender: which one.
            folder: the checkpoint, in the Hub's layout.
            work: folder for converted checkpoints.

        Raises:
            ContenderFailed: it needs the baseline overlay, which is not installed.
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
            ContenderFailed: loading failed.
        """
        return self._answer()

    def prepare(self, request: Request) -> float:
        """Runs a request once, tracing and compiling included; returns its seconds.

        Raises:
            ContenderFailed: the request failed.
        """
        return self._ask("prepare", request)["seconds"]

    def generate(self, request: Request) -> dict[str, Any]:
        """Runs a request; returns `seconds`, `tokens`, and more for some contenders.

        Raises:
            ContenderFailed: the request failed.
        """
        return self._ask("generate", request)

    @property
    def process_id(self) -> int:
        """The process's id."""
        return self._process.pid

    def memory(self) -> int:
        """Resident memory of its process in bytes, shared pages included."""
        return memory.resident(self.process_id) or 0

    def margins(self, request: Request, places: int) -> list[float]:
        """The most likely logit's lead at each of the first `places` tokens; only for PyTorch."""
        return self._ask("margins", request)["margins"][:places]

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, do: str, request: Request) -> dict[str, Any]:
        question = {"do": do, "request": asdict(request)}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
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
                    raise ContenderFailed(f"{self.contender.name}: {answer['error']}")
                return answer
        self._process.wait()
        raise ContenderFailed(f"{self.contender.name} ended:\n" + "\n".join(self._said))

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.rstrip())


def _environment(contender: Contender) -> dict[str, str]:
    """Environment variables for a contender: thread limits of all libraries, and its packages.

    Raises:
        ContenderFailed: the packages are not installed.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    values = dict.fromkeys(names, str(THREADS)) | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
        "XLA_BACKEND_STORE": "off",
    }
    if contender.python == PEERS_PYTHON:
        values |= {"USE_TF": "0", "USE_TORCH": "1", "KERAS_BACKEND": "jax"}
    if contender.module == "tensorflow_generate":
        values |= _baseline_environment()
    if contender.module == "memory_reader":
        values["OPENBLAS_NUM_THREADS"] = "1"  # it starts its own threads
    return values


def _baseline_environment() -> dict[str, str]:
    """Environment variables for Transformers' TensorFlow models, which the overlay has."""
    # Not at the top: the peers' processes import this module, too.
    from xla_backend.baselines import overlay

    try:
        return overlay.environment(list(filter(None, [os.environ.get("PYTHONPATH")])))
    except overlay.BaselineMissing as error:
        raise ContenderFailed(str(error)) from error
