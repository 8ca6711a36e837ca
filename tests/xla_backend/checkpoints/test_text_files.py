"""A model whose text files begin with an encoding mark is the model without."""

import json
import shutil
from pathlib import Path

import pytest

from xla_backend.checkpoints.models import BUNDLED_FOLDER, Registry
from xla_backend.checkpoints.speech_input import SpeechInput
from xla_backend.checkpoints.tokenization import Tokenizer

ENCODINGS = ("utf-8-sig", "utf-16", "utf-32")
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


def copied(name: str, to: Path, encoding: str) -> Path:
    """A bundled model with a chat template and recommended sampling, its texts in an encoding."""
    folder = to / encoding / name
    shutil.copytree(BUNDLED_FOLDER / name, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    values = json.loads((folder / "generation_config.json").read_text())
    values |= {"do_sample": True, "temperature": 0.6}
    (folder / "generation_config.json").write_text(json.dumps(values))
    for path in folder.iterdir():
        if path.suffix in (".json", ".jinja", ".txt", ".md"):
            path.write_text(path.read_text("utf-8"), encoding=encoding)
    return folder


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_model_with_marks_is_that_model(encoding: str, tmp_path: Path) -> None:
    found = []
    for own in ("utf-8", encoding):
        folder = copied("gpt2-stories", tmp_path, own)
        files = Registry(bundled_folder=folder.parent).locate("gpt2-stories")
        tokenizer = Tokenizer.load(folder)
        found.append((files.info, tokenizer.encode("Once upon a time"), tokenizer.chat_template))
    assert found[0] == found[1]
    assert found[0][0].sampling == {"temperature": 0.6}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_speech_model_with_marks_is_read(encoding: str, tmp_path: Path) -> None:
    folder = copied("whisper-commands", tmp_path, encoding)
    files = Registry().locate(str(folder))
    assert SpeechInput.load(folder, files.generation_config, files.config)
