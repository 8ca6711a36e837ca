"""The bundled folders: laid out as on the Hub, small, and read by today's Transformers."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, GenerationConfig

BUNDLED = Path(__file__).resolve().parents[2] / "demo_models"
WHISPER = BUNDLED / "whisper-commands"
MAX_BYTES = 10_000_000
# Model -> a weight under PyTorch's name, and its shape in PyTorch's layout.
WEIGHTS = {
    "gpt2-stories": ("transformer.h.0.attn.c_attn.weight", [160, 480]),
    "opt-stories": ("model.decoder.layers.0.fc1.weight", [640, 160]),
    "t5-stories": ("encoder.block.0.layer.1.DenseReluDense.wi.weight", [512, 128]),
    "whisper-commands": ("model.encoder.conv1.weight", [128, 80, 3]),
}
TEXTS = ["Once upon a time", "a  b\n\tc ", "¿Qué? naïve 日本語 Ελληνικά", "🦊🏳️‍🌈", "\x00\x7f", ""]


@pytest.fixture(params=WEIGHTS)
def folder(request: pytest.FixtureRequest) -> Path:
    return BUNDLED / request.param


def test_every_bundled_model_is_checked() -> None:
    assert {file.parent.name for file in BUNDLED.glob("*/config.json")} == set(WEIGHTS)


def test_a_folder_has_the_layout_of_the_hub(folder: Path) -> None:
    for file in ("README.md", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (folder / file).is_file(), file
    assert sum(file.stat().st_size for file in folder.rglob("*")) < MAX_BYTES
    with safe_open(folder / "model.safetensors", framework="np") as weights:
        assert weights.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in set(weights.keys()), "stored once, as the embedding"
        name, shape = WEIGHTS[folder.name]
        assert weights.get_slice(name).get_shape() == shape


def test_a_configuration_is_read_as_it_is_written(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    config = AutoConfig.from_pretrained(folder)
    assert config.model_type == written["model_type"]
    assert config.architectures == written["architectures"]
    settings = GenerationConfig.from_pretrained(folder)
    assert settings.eos_token_id == AutoTokenizer.from_pretrained(folder).eos_token_id


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_the_tokenizer(folder: Path, text: str) -> None:
    fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = fast.encode(text, add_special_tokens=False).ids
    assert fast.decode(ids) == text
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded(text, add_special_tokens=False)["input_ids"] == ids
    assert len(loaded) == json.loads((folder / "config.json").read_text())["vocab_size"]


def test_the_recordings_have_texts_and_fit_the_window() -> None:
    texts = json.loads((WHISPER / "examples" / "texts.json").read_text())
    assert sorted(texts) == sorted(file.name for file in WHISPER.glob("examples/*.flac"))
    extractor = AutoProcessor.from_pretrained(WHISPER).feature_extractor
    assert extractor.nb_max_frames == 2 * AutoConfig.from_pretrained(WHISPER).max_source_positions
