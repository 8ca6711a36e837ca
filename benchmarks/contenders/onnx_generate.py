"""ONNX Runtime with optimum: the exported model, driven by Transformers' `generate`."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForCausalLM

from benchmarks.contenders import THREADS, pytorch_generate


class Model(pytorch_generate.Model):
    """An exported checkpoint; the export is cached for the next run."""

    libraries = ("onnxruntime", "transformers")

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        exported = work / f"onnx-{folder.name}"
        if not (exported / "model.onnx").exists():
            ORTModelForCausalLM.from_pretrained(folder, export=True).save_pretrained(exported)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        self._model = ORTModelForCausalLM.from_pretrained(exported, session_options=options)
        self._end = self._model.config.eos_token_id
        torch.set_num_threads(THREADS)
