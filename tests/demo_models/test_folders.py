"""The folders that ship: laid out as on the Hub, small, and read by today's Transformers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
)

from demo_models.folders import MAX_BYTES, MODELS_FOLDER
from demo_models.tokenization import SPECIAL_TOKENS
from xla_backend.baselines import overlay

FOLDERS = sorted(file.parent for file in MODELS_FOLDER.glob("*/config.json"))
WHISPER = MODELS_FOLDER / "whisper-commands"


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
def test_folder_has_the_layout_of_the_hub(name):
    folder = MODELS_FOLDER / name
    for file in (
        "README.md",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        assert (folder / file).is_file(), file
    path = folder / "model.safetensors"
    assert path.stat().st_size < MAX_BYTES
    with safe_open(path, framework="np") as weights:
        assert weights.metadata() == {"format": "pt"}
        names = set(weights.keys())
    assert "lm_head.weight" not in names, "the tied head is stored once, as the embedding"
    embedding = {
        "gpt2-stories": "transformer.wte.weight",
        "opt-stories": "model.decoder.embed_tokens.weight",
        "t5-stories": "shared.weight",
    }[name]
    assert embedding in names
    assert not any(re.search(r":0|kernel|gamma|beta", weight) for weight in names)


def test_whisper_commands_is_small_and_complete():
    assert sum(f.stat().st_size for f in WHISPER.rglob("*") if f.is_file()) < MAX_BYTES
    for name in ("config.json", "generation_config.json", "preprocessor_config.json", "README.md"):
        assert (WHISPER / name).exists()
    with safe_open(WHISPER / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert "model.encoder.conv1.weight" in file.keys()  # noqa: SIM118
        assert file.get_slice("model.encoder.conv1.weight").get_shape() == [128, 80, 3]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_configurations_are_read_as_they_are_written(folder):
    written = json.loads((folder / "config.json").read_text())
    config = AutoConfig.from_pretrained(folder)
    assert (config.model_type, config.architectures) == (
        written["model_type"],
        written["architectures"],
    )
    settings = GenerationConfig.from_pretrained(folder)
    assert settings.eos_token_id == AutoTokenizer.from_pretrained(folder).eos_token_id


def test_the_folder_loads_as_the_libraries_load_it():
    processor = AutoProcessor.from_pretrained(WHISPER)
    assert type(processor).__name__ == "WhisperProcessor"
    extractor = AutoFeatureExtractor.from_pretrained(WHISPER)
    config = AutoConfig.from_pretrained(WHISPER)
    assert extractor.nb_max_frames == 2 * config.max_source_positions
    text = " set a timer for seventeen minutes"
    loaded = AutoTokenizer.from_pretrained(WHISPER)
    assert loaded.decode(loaded(text).input_ids, skip_special_tokens=True) == text


def test_all_but_training_does_without_tensorflow_and_the_overlay():
    modules = sorted(
        f"demo_models.{path.stem}" for path in MODELS_FOLDER.glob("*.py") if path.stem != "__init__"
    )
    assert "demo_models.stories" in modules
    script = (
        f"import sys, {', '.join(modules)}\n"
        "assert 'tensorflow' not in sys.modules\n"
        f"assert {str(overlay.folder())!r} not in sys.path\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=MODELS_FOLDER.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_without_the_overlay_training_says_what_installs_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "demo_models.training.train", "gpt2-stories"],
        cwd=MODELS_FOLDER.parent,
        env={**os.environ, overlay.FOLDER_VARIABLE: str(tmp_path / "nothing")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"Run: {overlay.COMMAND}")
