"""`model.generate` of Transformers' PyTorch models: eager, and compiled over a static cache."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from benchmarks.contenders import THREADS, Request, sound


class Model:
    """A PyTorch model in float32."""

    libraries = ("torch", "transformers")

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Loads it. Variant "compiled" compiles the forward pass over a static cache."""
        torch.set_num_threads(THREADS)
        config = transformers.AutoConfig.from_pretrained(folder)
        of_architecture = getattr(transformers, config.architectures[0])
        self._model = of_architecture.from_pretrained(folder, dtype=torch.float32).eval()
        self._options = {
            "pad_token_id": config.eos_token_id
            if config.pad_token_id is None
            else config.pad_token_id
        }
        self._is_speech = config.model_type == "whisper"
        if self._is_speech:
            self._features = torch.from_numpy(sound.features(str(folder)))
            self._options = {"language": sound.LANGUAGE, "task": "transcribe"}
        if variant == "compiled":
            self._options["cache_implementation"] = "static"
            self._model.forward = torch.compile(self._model.forward, dynamic=False)

    def generate(self, request: Request) -> list[int]:
        """The new tokens."""
        ids = torch.tensor([request.ids])
        inputs = (
            {"input_features": self._features}
            if self._is_speech
            else {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        )
        with torch.inference_mode():
            tokens = self._model.generate(
                **inputs,
                max_new_tokens=request.new_tokens,
                num_beams=request.num_beams,
                do_sample=False,
                **self._options,
            )[0]
        return tokens[-request.new_tokens :].tolist()

    def margins(self, request: Request) -> list[float]:
        """The most likely logit's lead over the second, at each new token of greedy search."""
        ids = torch.tensor([request.ids])
        with torch.inference_mode():
            steps = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.new_tokens,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
                **self._options,
            ).logits
        best = [step[0].topk(2).values for step in steps]
        return [float(first - second) for first, second in best]
