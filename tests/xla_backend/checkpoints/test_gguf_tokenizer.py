"""Tokenizers of GGUF files against the tokenizer.json that each was made from."""

import json
from pathlib import Path

import gguf
import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests import gguf_files
from tests.checkpoints import TEXT
from xla_backend import question
from xla_backend.checkpoints import tokenization
from xla_backend.checkpoints.formats import gguf_tokenizer
from xla_backend.interface.errors import ModelUnavailable

TEXTS = (
    "Once upon a time there was a little fox.",
    "naïve café, Ünïcödé — and cafe\u0301 in two pieces",
    "日本語 and \U0001f98a\U0001f468‍\U0001f469‍\U0001f467, then العربية",
    "12345 is 3.14 times 2024's number; it's  two   spaces\n\n\tand a tab ",
    " a space first, and lines\r\n\r\nof others",
    "<|im_start|>user\nWhat is it?<|im_end|>\n<think>no <|im_start|",
    "<s>[INST] hi [/INST]</s><0x41><unk>",
    "</s> \n after it, and <s> after that",
    "",
)

# Hugging Face's files of the models say this, each in its own words.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)


def byte_level(pre: str) -> Tokenizer:
    """A trained tokenizer that splits as models of this name in GGUF files do."""
    split: list[pre_tokenizers.PreTokenizer] = {
        "smollm": [pre_tokenizers.Digits(individual_digits=True)],
        "gpt-2": [],
        "qwen2": [pre_tokenizers.Split(Regex(_QWEN2), "isolated")],
        "llama-bpe": [pre_tokenizers.Split(Regex(_LLAMA3), "isolated")],
    }[pre]
    own = pre in ("smollm", "gpt-2")
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXT.splitlines(), *TEXTS[:5]], trainer)
    # Some names have characters that no byte is spelled with.
    tokenizer.add_special_tokens([AddedToken("<｜end▁of▁text｜>", normalized=False, special=True)])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "qwen2", "llama-bpe"])
def test_byte_level_tokenizers_are_those_of_tokenizer_json(pre: str, path: Path) -> None:
    expected = byte_level(pre)
    with gguf_files.writing(path, "llama") as writer:
        gguf_files.add_byte_level(writer, expected, pre)
        writer.add_add_bos_token(False)
    tokenizer = gguf_tokenizer.load(path)
    found = tokenizer.backend_tokenizer
    assert found.get_vocab_size() == expected.get_vocab_size()
    for text in (*TEXTS, "<｜end▁of▁text｜>"):
        ids = expected.encode(text).ids
        assert found.encode(text).ids == ids, text
        assert found.decode(ids, skip_special_tokens=False) == expected.decode(
            ids, skip_special_tokens=False
        )
    # What skips special tokens skips the same.
    every = list(range(expected.get_vocab_size()))
    assert found.decode(every) == expected.decode(every)


def sentencepiece(prepend: bool, strips: str = "") -> tuple[Tokenizer, list[str], list[int]]:
    """A trained tokenizer of the kind of Llama 2 or Gemma, its tokens and llama.cpp's kinds."""
    special = ["<unk>", "<s>", "</s>"]
    runs = [] if prepend else ["▁▁", "▁▁▁"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Prepend("▁")] if prepend else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*parts, decoders.Strip(" ", 1, 0)][: 4 if prepend else 3]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=[])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(TEXT.splitlines(), trainer)
    state = json.loads(trained.to_str())["model"]
    letters = [token for token in state["vocab"] if len(token) == 1]
    merges = [tuple(merge) for merge in state["merges"]]
    if runs:
        merges = [("▁", "▁"), ("▁▁", "▁"), *merges]
    pieces = ["".join(merge) for merge in merges]
    tokens = list(dict.fromkeys([*special, *bytes_, *pieces, *letters]))
    vocabulary = {token: place for place, token in enumerate(tokens)}
    tokenizer.model = models.BPE(
        vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True, rstrip=token == strips)
            for token in special
        ]
    )
    kinds = [
        gguf.TokenType.UNKNOWN
        if token == "<unk>"
        else gguf.TokenType.CONTROL
        if token in special
        else gguf.TokenType.BYTE
        if token in bytes_
        else gguf.TokenType.USER_DEFINED
        if token in runs
        else gguf.TokenType.NORMAL
        for token in tokens
    ]
    return tokenizer, tokens, [int(kind) for kind in kinds]


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gemma4", "phi3"])
def test_sentencepiece_is_that_of_tokenizer_json(architecture: str, path: Path) -> None:
    is_gemma = architecture.startswith("gemma")
    strips = "</s>" if architecture == "phi3" else ""
    expected, tokens, kinds = sentencepiece(not is_gemma, strips)
    expected.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    with gguf_files.writing(path, architecture) as writer:
        writer.add_tokenizer_model("gemma4" if architecture == "gemma4" else "llama")
        if architecture == "gemma4":  # whose file has them
            merges = json.loads(expected.to_str())["model"]["merges"]
            writer.add_token_merges([" ".join(merge) for merge in merges])
        # llama.cpp writes runs of spaces of Gemma as they are.
        writer.add_token_list(
            [
                token.replace("▁", " ") if kind == 4 else token
                for token, kind in zip(tokens, kinds, strict=True)
            ]
        )
        writer.add_token_scores([-float(place) for place in range(len(tokens))])
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_space_prefix(not is_gemma)
        writer.add_chat_template("{{ messages[0].content }}</s>")
    tokenizer = gguf_tokenizer.load(path)
    # Who types a control token or a byte types letters.
    for typed in ("a</s>b", "<0x41>", "<s>"):
        ids = tokenization.Tokenizer.load(path).encode(question(typed))
        assert (ids.count(2), ids.count(1), tokens.index("<0x41>") in ids) == (1, 0, False)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == (
        "<s>",
        "</s>",
        "<unk>",
    )
    found = tokenizer.backend_tokenizer
    assert found.get_vocab_size() == len(tokens)
    for text in TEXTS:
        ids = expected.encode(text).ids
        assert found.encode(text).ids == ids, text
        assert found.decode(ids) == expected.decode(ids)


def test_a_beginning_is_added_where_the_file_says_so_or_llama_cpp_would(tmp_path: Path) -> None:
    expected = byte_level("llama-bpe")
    starts = {}
    for pre, says in (("falcon-h1", None), ("llama-bpe", False), ("gpt-2", None), ("gpt-2", True)):
        path = tmp_path / "model.gguf"
        path.unlink(missing_ok=True)
        with gguf_files.writing(path, "llama") as writer:
            gguf_files.add_byte_level(writer, expected, pre)
            writer.add_bos_token_id(0)
            if says is not None:
                writer.add_add_bos_token(says)
        ids = tokenization.Tokenizer.load(path).encode("the fox")
        starts[pre, says] = ids[0] == 0
    assert starts == {
        ("falcon-h1", None): True,
        ("llama-bpe", False): False,
        ("gpt-2", None): False,
        ("gpt-2", True): True,
    }


def test_an_unknown_way_to_split_text_is_named(path: Path) -> None:
    with gguf_files.writing(path, "llama") as writer:
        gguf_files.add_byte_level(writer, byte_level("gpt-2"), "of-tomorrow")
    with pytest.raises(ModelUnavailable, match=r"'of-tomorrow'\. Convert the model again"):
        tokenization.Tokenizer.load(path)


@pytest.mark.parametrize(
    ("tokens", "merges", "message"),
    [
        (["a", "b" * 2000], [], "far too long"),
        (["a", "b"], ["a"], "two tokens into a third"),
        (["a", "b"], ["a b"], "two tokens into a third"),
        (["a", "b"], ["a c"], "two tokens into a third"),
    ],
)
def test_a_vocabulary_that_cannot_be_right_is_damaged(
    tokens: list[str], merges: list[str], message: str, path: Path
) -> None:
    with gguf_files.writing(path, "llama") as writer:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_merges(merges or ["a b"])
    with pytest.raises(ModelUnavailable, match=message):
        tokenization.Tokenizer.load(path)


def test_of_tokens_that_are_written_alike_the_last_is_read(path: Path) -> None:
    with gguf_files.writing(path, "llama") as writer:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["a", "b", "a", "ab"])
        writer.add_token_types([1, 1, 1, 1])
        writer.add_token_merges(["a b"])
    tokenizer = tokenization.Tokenizer.load(path)
    assert tokenizer.encode("aab") == [2, 3]
    assert tokenizer.decode([2, 0, 3]) == "aab"


# The model in the box


def test_smollm2_reads_a_conversation() -> None:
    tokenizer = gguf_tokenizer.load(gguf_files.smollm2())
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = tokenization.Tokenizer(tokenizer).encode(prompt)
    # As the model's own tokenizer.json has them: the turns are tokens of their own.
    system = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018]
    system += [411, 407, 19712, 8182, 2, 198, 1, 4093, 198]
    assert ids[: len(system)] == system
    pieces = [tokenizer.backend_tokenizer.id_to_token(token) for token in ids[len(system) :]]
    question = "What Ġis Ġthe Ġcapital Ġof ĠFrance ?".split()
    assert pieces == [*question, "<|im_end|>", "Ċ", "<|im_start|>", "ass", "istant", "Ċ"]
    assert tokenization.Tokenizer(tokenizer).encode("2024") == [34, 32, 34, 36]
