"""`model.generate` of Transformers' PyTorch models, eager."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from benchmarks.contenders import LIKELY, THREADS, Likely, Request


class Model:
    """A PyTorch model in float32."""

    libraries = ("torch", "transformers")

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        torch.set_num_threads(THREADS)
        config = transformers.AutoConfig.from_pretrained(folder)
        architecture = getattr(transformers, config.architectures[0])
        self._model = architecture.from_pretrained(folder, dtype=torch.float32).eval()
        self._end = config.eos_token_id

    def generate(self, request: Request) -> list[int]:
        """The new tokens."""
        ids = torch.tensor([request.ids])
        with torch.inference_mode():
            tokens = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.new_tokens,
                num_beams=request.num_beams,
                do_sample=False,
                pad_token_id=self._end,
            )[0]
        return tokens[len(request.ids) :].tolist()

    def likely(self, ids: tuple[int, ...]) -> Likely:
        """One pass over all positions."""
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([ids])).logits[0]
            best = torch.log_softmax(logits.double(), dim=-1).topk(LIKELY)
        return [
            list(zip(tokens, logprobs, strict=True))
            for tokens, logprobs in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
