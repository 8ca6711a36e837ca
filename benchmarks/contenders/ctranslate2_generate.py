"""CTranslate2, the fastest peer on CPUs: its own C++ kernels, float32 or int8 weights."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ctranslate2
import numpy as np
import transformers
from ctranslate2.converters import TransformersConverter

from benchmarks.contenders import THREADS, Request, sound


class Model:
    """A converted checkpoint; the conversion is kept for the next run."""

    libraries = ("ctranslate2",)

    def __init__(self, folder: Path, work: Path, variant: str) -> None:
        """Converts if needed, and loads. The variant is the dtype of the weights."""
        config = transformers.AutoConfig.from_pretrained(folder)
        stamp = (folder / "model.safetensors").stat().st_mtime_ns
        name = hashlib.sha256(f"{folder.resolve()} {stamp} {ctranslate2.__version__}".encode())
        converted = work / f"ctranslate2-{folder.name}-{variant}-{name.hexdigest()[:12]}"
        if not (converted / "model.bin").exists():
            with _complete(folder) as complete:
                TransformersConverter(complete).convert(
                    str(converted),
                    quantization=None if variant == "float32" else variant,
                    force=True,
                )
        make, self._run = {
            "whisper": (ctranslate2.models.Whisper, self._transcribe),
            "t5": (ctranslate2.Translator, self._translate),
        }.get(config.model_type, (ctranslate2.Generator, self._continue))
        self._model = make(
            str(converted),
            device="cpu",
            compute_type=variant,
            inter_threads=1,
            intra_threads=THREADS,
        )
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        if config.model_type == "t5":  # it returns tokens as strings, some of which are no text
            tokens = json.loads((converted / "shared_vocabulary.json").read_text())
            self._ids = {token: i for i, token in enumerate(tokens)}
        if config.model_type == "whisper":
            self._features = np.ascontiguousarray(sound.features(str(folder)))

    def generate(self, request: Request) -> list[int]:
        """The new tokens."""
        return self._run(request)

    def _continue(self, request: Request) -> list[int]:
        prompt = self._tokenizer.convert_ids_to_tokens(list(request.ids))
        return self._model.generate_batch(
            [prompt],
            max_length=request.new_tokens,
            beam_size=request.num_beams,
            include_prompt_in_result=False,
        )[0].sequences_ids[0]

    def _translate(self, request: Request) -> list[int]:
        source = self._tokenizer.convert_ids_to_tokens(list(request.ids))
        best = self._model.translate_batch(
            [source], max_decoding_length=request.new_tokens, beam_size=request.num_beams
        )[0].hypotheses[0]
        return [self._ids[token] for token in best]

    def _transcribe(self, request: Request) -> list[int]:
        names = ("<|startoftranscript|>", f"<|{sound.LANGUAGE}|>", "<|transcribe|>")
        prompt = self._tokenizer.convert_tokens_to_ids([*names, "<|notimestamps|>"])
        return self._model.generate(
            ctranslate2.StorageView.from_array(self._features),
            [prompt],
            # max_length counts the prompt without its last token, and CTranslate2 reserves half of
            # it for a prompt of earlier text.
            max_length=max(2 * request.new_tokens, request.new_tokens + len(prompt) - 1),
            beam_size=request.num_beams,
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
