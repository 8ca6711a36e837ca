"""The shipped tokenizers: without loss, the same through both libraries, short for stories."""

import pytest
from tokenizers import Tokenizer

from demo_models.folders import MODELS_FOLDER, load_tokenizer
from demo_models.stories import tell
from demo_models.tokenization import (
    SPECIAL_TOKENS,
    VOCABULARY_SIZE,
    save_tokenizer,
    train_tokenizer,
)

TEXTS = [
    "Once upon a time",
    "a  b\n\tc ",
    "¿Qué? naïve Straße 日本語 Ελληνικά",
    "🦊🏳️‍🌈 emoji",
    "\x00\x7f control",
    "",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Model -> a folder with its tokenizer, made here as training makes it."""
    root = tmp_path_factory.mktemp("tokenizers")
    for name in SPECIAL_TOKENS:
        save_tokenizer(train_tokenizer(name), name, root / name)
    return {name: root / name for name in SPECIAL_TOKENS}


@pytest.fixture(params=SPECIAL_TOKENS)
def name(request):
    return request.param


def test_the_shipped_tokenizer_is_the_one_that_training_makes(name, folders):
    shipped = (MODELS_FOLDER / name / "tokenizer.json").read_text()
    assert shipped == (folders[name] / "tokenizer.json").read_text()


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives(name, folders, text):
    tokenizer = Tokenizer.from_file(str(folders[name] / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_both_libraries_agree(name, folders):
    fast = Tokenizer.from_file(str(folders[name] / "tokenizer.json"))
    auto = load_tokenizer(folders[name])
    for text in TEXTS:
        assert auto(text)["input_ids"] == fast.encode(text).ids
    assert len(auto) == VOCABULARY_SIZE


def test_special_tokens(name, folders):
    auto = load_tokenizer(folders[name])
    assert auto.pad_token_id == 0
    assert auto.eos_token_id == (0 if name == "gpt2-stories" else 1)
    ends = auto("Pip")["input_ids"][-1] == auto.eos_token_id
    assert ends == (name == "t5-stories"), "only T5's tokenizer appends the end token"


def test_a_story_is_short(name, folders):
    tokenizer = load_tokenizer(folders[name])
    lengths = sorted(len(tokenizer.encode(tell(seed).text)) for seed in range(200))
    assert 80 <= lengths[100] <= 130


def test_a_name_is_the_same_token_wherever_t5_reads_it(folders):
    tokenizer = Tokenizer.from_file(str(folders["t5-stories"] / "tokenizer.json"))
    assert tokenizer.encode("Tilly").ids[0] in tokenizer.encode("a fox named Tilly").ids
