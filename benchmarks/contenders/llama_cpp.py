"""llama.cpp over a GGUF file: its server in this process, without HTTP or with it.

`python -m benchmarks.contenders.llama_cpp FILE SLOTS CONTEXT` prints the address at which it serves
OpenAI's protocol, and serves until it is ended.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import xllamacpp

from benchmarks.contenders import LIKELY, THREADS, Likely, Request


class Model:
    """One request at a time."""

    libraries = ("xllamacpp",)

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        self._server = server(folder / "gguf" / f"{weights}.gguf", slots=1, context=1024)

    def generate(self, request: Request) -> list[int]:
        """-1 for each new token, greedy, without cached prefixes; the server returns no ids."""
        if request.num_beams > 1:
            raise ValueError("it has no beam search")
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
        return [-1] * answer["usage"]["completion_tokens"]

    def likely(self, ids: tuple[int, ...]) -> Likely:
        """A request for each position; what precedes it is a cached prefix."""
        found = []
        for end in range(1, len(ids) + 1):
            answer = self._server.handle_completions(
                {
                    "prompt": list(ids[:end]),
                    "n_predict": 1,
                    "temperature": 0.0,
                    "logprobs": LIKELY,
                    "ignore_eos": True,  # at which it reports none; what it reports stays the same
                }
            )
            tops = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            found.append([(top["id"], top["logprob"]) for top in tops])
        return found


def server(file: Path, slots: int, context: int) -> xllamacpp.Server:
    """The server, with this number of rows and tokens per row."""
    if not file.exists():
        raise FileNotFoundError(f"there is no {file.name} of this checkpoint")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx = slots * context
    parameters.n_parallel = slots
    parameters.cont_batching = True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
    return xllamacpp.Server(parameters)


if __name__ == "__main__":
    running = server(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(running.listening_address, flush=True)
    signal.pause()
