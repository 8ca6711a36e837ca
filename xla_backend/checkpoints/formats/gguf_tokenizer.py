"""The tokenizer of a GGUF checkpoint, built as its tokenizer.json would have it.

Knows the vocabularies that llama.cpp stores, byte-level or SentencePiece, and what it leaves out:
how text is split, and merges that follow from scores.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_backend.checkpoints.architectures.table import BY_GGUF
from xla_backend.checkpoints.formats.gguf_file import GGUFFile
from xla_backend.checkpoints.transformers_import import locked_transformers
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

# llama.cpp's kinds of tokens.
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6

_LONGEST_TOKEN = 1000
"""Characters; if a file has no merges, all ways to split a token in two are tried."""

# Names in `tokenizer.ggml.pre` for GPT-2's splitting of text with each digit separate.
_DIGITS_APART = ("smollm", "refact", "starcoder", "command-r")
_AS_LLAMA3 = (
    *("llama3", "llama-v3", "llama-bpe", "smaug-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"),
)
_AS_GPT2 = ("gpt-2", "olmo", "granite-docling")


def has_chat_template(path: Path) -> bool:
    """Whether the file has a chat template."""
    return _has_chat_template(path, path.stat().st_mtime_ns)


@functools.lru_cache
def _has_chat_template(path: Path, modified: int) -> bool:
    """Cached, because lists of models ask often, and the file is long."""
    return bool(GGUFFile(path).optional("tokenizer.chat_template", str))


def control_tokens(path: Path) -> list[tuple[int, str]]:
    """The ids and names of the control tokens."""
    file = GGUFFile(path)
    tokens, kinds = file.texts("tokenizer.ggml.tokens"), file.numbers("tokenizer.ggml.token_type")
    return [
        (place, token)
        for place, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == _CONTROL
    ]


def load(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in a GGUF file, with its special tokens and its chat template."""
    file = GGUFFile(path)
    tokens = file.texts("tokenizer.ggml.tokens")
    if not tokens or len(max(tokens, key=len)) > _LONGEST_TOKEN:
        raise file.damaged("its vocabulary is missing, or has a token that is far too long")
    kinds = file.numbers("tokenizer.ggml.token_type")
    if len(kinds) not in (0, len(tokens)):
        raise file.damaged(f"it has {len(tokens)} tokens and {len(kinds)} types of tokens")
    _set_repeated_apart(tokens, kinds)
    model = file.value("tokenizer.ggml.model", str)
    pre = file.value("tokenizer.ggml.pre", str, "default")
    if model not in ("gpt2", "llama", "gemma4"):
        raise ModelUnavailable(
            f"{path} has a tokenizer of the kind {shown(model, 60)}, which is not supported. "
            "Choose another model."
        )
    try:
        if model == "gpt2":
            tokenizer = _byte_level(file, tokens, pre)
        else:
            tokenizer, tokens = _sentencepiece(file, tokens, kinds)
        names = {
            name: tokens[token_id]
            for name in ("bos", "eos", "unknown", "padding")
            if (token_id := file.optional(f"tokenizer.ggml.{name}_token_id", int)) is not None
            and 0 <= token_id < len(tokens)
        }
        described = BY_GGUF.get(file.value("general.architecture", str))
        plain = described.gguf.plain_tokens if described and described.gguf else None
        _add_tokens(tokenizer, tokens, kinds, plain if plain and model == "llama" else tokens)
        _surround(file, tokenizer, names, starts=model != "gpt2" or pre in (*_AS_LLAMA3, "tekken"))
        with locked_transformers() as transformers:
            made = transformers.PreTrainedTokenizerFast(
                tokenizer_object=tokenizer,
                bos_token=names.get("bos"),
                eos_token=names.get("eos"),
                unk_token=names.get("unknown"),
                pad_token=names.get("padding"),
                chat_template=file.optional("tokenizer.chat_template", str),
            )
        # To build one of 262,144 tokens takes 280 MB, just before weights are read.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return made
    except ModelUnavailable:
        raise
    except Exception as error:  # Rust and Transformers raise any type for a wrong vocabulary
        first_line = str(error).strip().partition("\n")[0][:200]
        raise file.damaged(f"its tokenizer cannot be built ({first_line})") from error


def _set_repeated_apart(tokens: list[str], kinds: list[int]) -> None:
    """Renames all but the last of several tokens with the same text.

    Google's own files have such tokens. llama.cpp also uses the last one.
    """
    last = {token: place for place, token in enumerate(tokens)}
    for place, token in enumerate(tokens):
        if last[token] != place:
            tokens[place] = f"<repeated {place}>"
            if kinds:
                kinds[place] = _CONTROL


def _byte_level(file: GGUFFile, tokens: list[str], pre: str) -> tokenizers.Tokenizer:
    """A byte-level vocabulary, as of GPT-2 and most later models."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    with locked_transformers():
        from transformers.integrations.gguf import gguf_tokenizer_mapping

    splits = gguf_tokenizer_mapping.GGUF_PRE_TOKENIZER_SPLITS
    steps: list[Any]
    if pre in splits:
        steps = [pre_tokenizers.Split(Regex(splits[pre]), "isolated")]
    elif pre in (*_DIGITS_APART, *_AS_GPT2):
        steps = [pre_tokenizers.Digits(individual_digits=True)] if pre in _DIGITS_APART else []
    else:
        raise ModelUnavailable(
            f"{file.path} splits text in a way that is not supported: {shown(pre, 60)}. Convert "
            "the model again with a current llama.cpp, or choose another one."
        )
    vocabulary = {token: place for place, token in enumerate(tokens)}
    merges = [merge.partition(" ")[::2] for merge in file.texts("tokenizer.ggml.merges")]
    # Rust would panic, which is not an ordinary exception in Python.
    if not all(a and b and {a, b, a + b} <= vocabulary.keys() for a, b in merges):
        raise file.damaged("a merge of its vocabulary does not join two tokens into a third")
    # Llama 3 uses a word that is a token, even if no merges lead to it.
    whole = pre in (*_AS_LLAMA3, "tekken")
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=whole))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in splits))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(
    file: GGUFFile, tokens: list[str], kinds: list[int]
) -> tuple[tokenizers.Tokenizer, list[str]]:
    """A SentencePiece vocabulary with byte fallback (Llama 2, Mistral, Gemma), and its tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    with locked_transformers():
        from transformers.tokenization_utils_base import generate_merges

    is_gemma = file.value("general.architecture", str).startswith("gemma")
    if is_gemma:  # runs of spaces are stored as spaces, but looked up as ▁
        tokens = ["▁" * len(token) if not token.strip(" ") else token for token in tokens]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    scores = file.numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise file.damaged(f"it has {len(tokens)} tokens and {len(scores)} scores")
    if is_gemma:  # its merges follow the places of tokens, not their scores
        scores = [-place for place in range(len(tokens))]
    # No text becomes a control token or a byte: otherwise a message could contain an end of turn.
    spelt = {
        token: vocabulary[token]
        for token, kind in itertools.zip_longest(tokens, kinds)
        if kind not in (_UNKNOWN, _CONTROL, _BYTE)
    }
    merges = [merge.partition(" ")[::2] for merge in file.texts("tokenizer.ggml.merges")]
    merges = [(a, b) for a, b in merges if a and b and {a, b, a + b} <= spelt.keys()]
    merges = merges or generate_merges(spelt, dict(zip(tokens, scores, strict=True)))
    unknown = file.optional("tokenizer.ggml.unknown_token_id", int)
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            merges,
            unk_token=tokens[unknown] if unknown is not None and unknown < len(tokens) else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    starts_with_space = file.value("tokenizer.ggml.add_space_prefix", bool, not is_gemma)
    normalizer: list[Any] = [normalizers.Prepend("▁")] if starts_with_space else []
    tokenizer.normalizer = normalizers.Sequence([*normalizer, normalizers.Replace(" ", "▁")])
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if starts_with_space:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer, tokens


def _add_tokens(
    tokenizer: tokenizers.Tokenizer, tokens: list[str], kinds: list[int], plain: Collection[str]
) -> None:
    """Marks the tokens that are found in a text before it is split.

    All but the plain ones also take the spaces and line ends after them.
    """
    from tokenizers import AddedToken

    plain = frozenset(plain)
    tokenizer.add_tokens(
        [
            AddedToken(
                token, normalized=False, special=kind != _USER_DEFINED, rstrip=token not in plain
            )
            for token, kind in zip(tokens, kinds, strict=False)
            # Runs of ▁ are in the text only after normalisation.
            if kind in (_UNKNOWN, _CONTROL) or (kind == _USER_DEFINED and token.strip("▁"))
        ]
    )


def _surround(
    file: GGUFFile, tokenizer: tokenizers.Tokenizer, names: dict[str, str], starts: bool
) -> None:
    """Sets which special tokens are added around a prompt.

    Args:
        starts: whether the beginning of text is added if the file does not say.
    """
    from tokenizers import processors

    around = {
        "bos": file.value("tokenizer.ggml.add_bos_token", bool, starts),
        "eos": file.value("tokenizer.ggml.add_eos_token", bool, False),
    }
    bos, eos = ([names[name]] if around[name] and name in names else [] for name in ("bos", "eos"))
    if bos or eos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*bos, "$A", *eos],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in {*bos, *eos}],
        )
