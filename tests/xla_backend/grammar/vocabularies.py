"""Vocabularies of three kinds of tokenizers, and what an automaton says of their tokens.

Knows tokenizers. Must not know grammars' text.
"""

import functools
import random
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from tests import checkpoints, gguf_files
from xla_backend.answers.decoder import AnswerDecoder
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.grammar.automaton import NONE, START, Automaton, TokenBytes
from xla_backend.grammar.step_by_step import StepByStep

KINDS = ("byte-level", "sentencepiece", "sentencepiece with a space in front")
_PIECES = '▁{ {" ▁" ": ":▁ ", ",▁ true ▁true null 12 3.5 ▁[ ]} "] ▁the the name é ed 00 20 -0'


@functools.cache
def tokenizer(kind: str) -> tuple[Tokenizer, int]:
    if kind == "byte-level":
        return Tokenizer.load(gguf_files.smollm2()), 2
    if kind == "in channels":
        with tempfile.TemporaryDirectory() as folder:
            of = Tokenizer.load(checkpoints.in_channels(Path(folder)))
        return of, of.encode("<|return|>")[0]
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += _PIECES.split() + [chr(code) for code in range(33, 127)]
    pieces = list(dict.fromkeys(pieces))
    scored = [(piece, -1.0 / len(piece)) for piece in pieces]
    rust = tokenizers.Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    parts: list = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    spaces = normalizers.Replace(" ", "▁")
    if "in front" in kind:  # as Llama's first ones
        parts.append(decoders.Strip(" ", 1, 0))
        rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    else:
        rust.normalizer = spaces
    rust.decoder = decoders.Sequence(parts)
    names = {"unk_token": "<unk>", "eos_token": "</s>"}
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, **names)), 1


@functools.cache
def vocabulary(kind: str) -> TokenBytes:
    """The texts of its tokens."""
    of, end = tokenizer(kind)
    size = 49_152 if kind == "byte-level" else 420
    return TokenBytes(of.vocabulary_bytes(size), [end], of.drops_first_space())


def refused_at(made: Automaton | StepByStep, kind: str, text: str) -> str | None:
    """Up to where a text may be written, token by token; None where all of it, and its end."""
    of, end = tokenizer(kind)
    made, state, ids = made.for_row(), START, of.encode(text, special=False)
    for place, token in enumerate([*ids, end]):
        state = int(made.next_state[state, made.class_of_token[token]])
        if state == NONE:
            return of.decode(ids[: place + 1])
        if isinstance(made, StepByStep):
            made.follow([token])
    return None


def sampled(
    made: Automaton | StepByStep, kind: str, dice: random.Random, most: int = 3000
) -> str | None:
    """A text of random tokens that may come; None where it had no end."""
    of, end = tokenizer(kind)
    begun = of.encode("<|start|>assistant") if of.channel_tokens else []
    made, decoder, state, text = made.for_row(), AnswerDecoder(of, frozenset(), begun), START, ""
    for _ in range(most):
        classes = np.flatnonzero(made.next_state[state] != NONE)
        # Each class is as likely, so that texts end: most tokens are of a few large ones.
        chosen = dice.choice(classes.tolist())
        token = dice.choice(np.flatnonzero(made.class_of_token == chosen).tolist())
        if token == end:
            return text + decoder.push([end]) + decoder.finish()
        text += decoder.push([token])
        state = int(made.next_state[state, chosen])
        if isinstance(made, StepByStep):
            made.follow([token])
    return None
