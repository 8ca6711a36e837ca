"""This engine as a contender: text in, text out, as a user of the library calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders import Request, sound
from xla_backend import Backend, GenerationOptions


class Model:
    """A `Backend` with nothing stored on disk."""

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Loads the checkpoint."""
        self._folder = str(folder)
        self._backend = Backend(store="off")
        self._is_speech = self._backend.load(self._folder).family == "speech"
        self.details: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        """TensorFlow's and Transformers'."""
        import tensorflow as tf
        import transformers

        return {"tensorflow": tf.__version__, "transformers": transformers.__version__}

    def generate(self, request: Request) -> list[int]:
        """The new tokens; `details` keeps the engine's own time to the first of them."""
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
            "first_token_s": result.timing.first_token_s,
            "run_s": result.timing.run_s,
            "prompt_tokens": result.prompt_tokens,
            "padded_length": result.key.padded_length,
        }
        return [token.id for token in result.tokens]
