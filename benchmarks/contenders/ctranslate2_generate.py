"""CTranslate2, the fastest peer on CPUs: its own C++ kernels, float32 or int8 weights."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ctranslate2
import transformers
from ctranslate2.converters import TransformersConverter

from benchmarks.contenders import THREADS, Request


class Model:
    """A converted checkpoint; the conversion is cached for the next run."""

    libraries = ("ctranslate2",)

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        stamp = (folder / "model.safetensors").stat().st_mtime_ns
        converted = work / f"ctranslate2-{ctranslate2.__version__}-{folder.name}-{weights}-{stamp}"
        if not (converted / "model.bin").exists():
            with _complete(folder) as complete:
                TransformersConverter(complete).convert(
                    str(converted),
                    quantization=None if weights == "float32" else weights,
                    force=True,
                )
        self._model = ctranslate2.Generator(
            str(converted),
            device="cpu",
            compute_type=weights,
            inter_threads=1,
            intra_threads=THREADS,
        )
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def generate(self, request: Request) -> list[int]:
        """The new tokens."""
        prompt = self._tokenizer.convert_ids_to_tokens(list(request.ids))
        return self._model.generate_batch(
            [prompt],
            max_length=request.new_tokens,
            beam_size=request.num_beams,
            include_prompt_in_result=False,
        )[0].sequences_ids[0]


@contextmanager
def _complete(folder: Path) -> Iterator[str]:
    """The folder, or a copy whose tokenizer has all special tokens that the converter needs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    missing = [
        name for name in ("bos_token", "unk_token") if getattr(tokenizer, name, None) is None
    ]
    if not missing:
        yield str(folder)
        return
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        tokenizer.add_special_tokens(dict.fromkeys(missing, tokenizer.eos_token))
        tokenizer.save_pretrained(copy)
        yield copy
