"""llama.cpp over the packaged model's GGUF, as it comes or made in another form; see `variant`."""

from __future__ import annotations

from pathlib import Path

import xllamacpp

from benchmarks.contenders import THREADS, Request


class Model:
    """llama.cpp's server in this process, without its HTTP."""

    libraries = ("xllamacpp",)

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Loads `gguf/` of the checkpoint. The variant is the form of its weights."""
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(folder / "gguf" / f"{variant}.gguf")
        parameters.n_ctx = 1024
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
        self._server = xllamacpp.Server(parameters)

    def generate(self, request: Request) -> list[int]:
        """The new tokens, greedy; nothing is kept of an earlier prompt."""
        answer = self._server.handle_completions(
            {
                "prompt": list(request.ids),
                "n_predict": request.new_tokens,
                "temperature": 0.0,
                "top_k": 1,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        return [-1] * answer["usage"]["completion_tokens"]  # which they are, it does not tell
