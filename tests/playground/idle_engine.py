"""An engine that lists models and does nothing, for tests of what the page is built of."""

from __future__ import annotations

from typing import Any

from xla_backend import EngineStatus, ModelInfo


class IdleEngine:
    """Lists models and does nothing."""

    status = EngineStatus("starting")

    def models(self) -> list[ModelInfo]:
        return [
            ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories."),
            ModelInfo("openai/whisper-tiny", "speech", "hub", "Writes down speech."),
            ModelInfo("openai-community/gpt2", "decoder-only", "hub", "GPT-2."),
            ModelInfo("t5-stories", "encoder-decoder", "bundled", "Answers."),
        ]

    def entries(self) -> list[Any]:
        return []

    def warming(self) -> list[Any]:
        return []

    def kept_shapes(self) -> list[Any]:
        return []
