"""The shipped tokenizers: without loss, the same through both libraries, short for stories."""

import pytest
from tokenizers import Tokenizer

from demo_models.checkpoint import MODELS_FOLDER, load_tokenizer
from demo_models.stories import tell
from demo_models.tokenization import SPECIAL_TOKENS, VOCABULARY_SIZE

TEXTS = [
    "Once upon a time",
    "a  b\n\tc ",
    "¿Qué? naïve Straße 日本語 Ελληνικά",
    "🦊🏳️‍🌈 emoji",
    "\x00\x7f control",
    "",
]


@pytest.fixture(params=SPECIAL_TOKENS)
def name(request):
    return request.param


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives(name, text):
    tokenizer = Tokenizer.from_file(str(MODELS_FOLDER / name / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_both_libraries_agree(name):
    fast = Tokenizer.from_file(str(MODELS_FOLDER / name / "tokenizer.json"))
    auto = load_tokenizer(MODELS_FOLDER / name)
    for text in TEXTS:
        assert auto(text)["input_ids"] == fast.encode(text).ids
    assert len(auto) == VOCABULARY_SIZE


def test_special_tokens(name):
    auto = load_tokenizer(MODELS_FOLDER / name)
    assert auto.pad_token_id == 0
    assert auto.eos_token_id == (0 if name == "gpt2-stories" else 1)
    ends = auto("Pip")["input_ids"][-1] == auto.eos_token_id
    assert ends == (name == "t5-stories"), "only T5's tokenizer appends the end token"


def test_a_story_is_short(name):
    tokenizer = load_tokenizer(MODELS_FOLDER / name)
    lengths = sorted(len(tokenizer.encode(tell(seed).text)) for seed in range(200))
    assert 80 <= lengths[100] <= 130


def test_a_name_is_the_same_token_wherever_t5_reads_it():
    tokenizer = Tokenizer.from_file(str(MODELS_FOLDER / "t5-stories" / "tokenizer.json"))
    assert tokenizer.encode("Tilly").ids[0] in tokenizer.encode("a fox named Tilly").ids
