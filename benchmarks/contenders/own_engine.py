"""This engine as a contender: from tokens to text, as users of the library call it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders import LIKELY, Likely, Request
from xla_backend import Backend, GenerationOptions, TokenIds
from xla_backend.checkpoints.models import Registry


class Model:
    """A `Backend` without a store."""

    libraries = ("tensorflow",)  # not Transformers, whose version is the baseline's

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        """Loads the checkpoint, or its GGUF file if the weights are named like one."""
        gguf = folder / "gguf" / f"{weights}.gguf"
        self._model = str(gguf if gguf.exists() else folder)
        self._backend = Backend(Registry(weights="auto" if gguf.exists() else weights), store="off")
        self._backend.load(self._model)

    def generate(self, request: Request) -> list[int]:
        """The new tokens."""
        options = GenerationOptions(
            max_new_tokens=request.new_tokens,
            num_beams=request.num_beams,
            ignore_eos=True,
            exact_key=True,
        )
        prompt = TokenIds(tuple(request.ids))
        result = self._backend.generate(self._model, prompt, options)
        return [token.id for token in result.tokens]

    def likely(self, ids: tuple[int, ...]) -> Likely:
        """A row for each position."""
        options, prompt = GenerationOptions(max_new_tokens=1), TokenIds(ids)
        result = self._backend.generate(self._model, prompt, options, with_prompt_logprobs=True)
        places = [*result.prompt_logprobs[1:], result.tokens[0]]
        return [[(top.id, top.logprob) for top in each.top_logprobs[:LIKELY]] for each in places]
