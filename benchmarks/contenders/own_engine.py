"""This engine as a contender: from text to text, as users of the library call it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.contenders import Request, sound
from xla_backend import Backend, GenerationOptions
from xla_backend.products import kinds


class Model:
    """A `Backend` without a store."""

    libraries = ("tensorflow",)  # not Transformers, whose version is the baseline's

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Loads the checkpoint. The variant is the kind of its weights, or names a GGUF of it."""
        gguf = folder / "gguf" / f"{variant}.gguf"
        os.environ[kinds.VARIABLE] = kinds.AUTO if gguf.exists() else variant
        self._folder = str(gguf if gguf.exists() else folder)
        self._backend = Backend(store="off")
        self._is_speech = self._backend.load(self._folder).family == "speech"
        self.details: dict[str, Any] = {}

    def generate(self, request: Request) -> list[int]:
        """The new tokens; `details` has the engine's own times."""
        options = GenerationOptions(
            max_new_tokens=request.new_tokens,
            num_beams=request.num_beams,
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
        )
        if self._is_speech:
            result = self._backend.transcribe(
                self._folder, (sound.RATE, sound.samples()), options, language=sound.LANGUAGE
            )
        elif request.stream:
            stream = self._backend.stream(self._folder, request.prompt, options, exact_key=True)
            for _ in stream:
                pass
            result = stream.result
        else:
            result = self._backend.generate(self._folder, request.prompt, options, exact_key=True)
        self.details = {
            "first_token_s": result.timing.prefill_s,
            "run_s": result.timing.run_s,
            "prompt_tokens": result.prompt_tokens,
            "padded_length": result.key.padded_length,
        }
        return [token.id for token in result.tokens]
