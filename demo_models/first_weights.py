"""Weights that a model starts with, so that it keeps names from the first steps on.

Knows: what a storyteller must look back for, and how an attention head looks and copies.
Must not know: rows, schedules, optimizers.

A small model that starts at random needs tens of millions of tokens before it finds out that a
name in a story is the name from before. Everything it needs for that can be put in place: words of
one kind (girls' names, objects, ...) share a direction, one head for each kind looks for that
direction, and what a head reads it writes back, which makes the word itself likelier. Where those
heads look stays as it is set here: left to training, they soon look at the last words instead,
which pays sooner. All other weights are trained on.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
from tokenizers import Tokenizer
from transformers import TFGPT2LMHeadModel, TFT5ForConditionalGeneration

from demo_models import story_words as world

TOKEN_SCALE = 0.06  # standard deviation of a token's own part
KIND_SCALE = 0.6  # length of the direction that words of one kind share
POSITION_SCALE = 0.05
LOOK_SCALE = 2.1  # of query and key: the words looked for get 95% of the attention
COPY_SCALE = 0.3
LOOKING_LAYER = 0  # where a word is still only itself
SMALL_WORDS = {"the", "a", "an", "to", "of", "in", "on", "from", "at", "one", "with", "up"}


def kept_words(tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of the words that stories keep, one list for each head that looks for them."""
    things = [*world.FOODS, *world.PLANTS, *world.SIGHTS, *(skill[0] for skill in world.SKILLS)]
    topics = " ".join(things)
    groups = [
        world.GIRL_NAMES,
        world.BOY_NAMES,
        [*world.ANIMALS, *world.PEOPLE, *world.GIRLS, *world.BOYS, *world.MAGICAL],
        [noun for noun, _ in world.OBJECTS],
        [word for word in topics.split() if word not in SMALL_WORDS],
    ]
    found: set[int] = set()
    lists = []
    for group in groups:
        encoded = [tokenizer.encode(f" {word}", add_special_tokens=False).ids for word in group]
        whole = {ids[0] for ids in encoded if len(ids) == 1} - found
        found |= whole
        lists.append(sorted(whole))
    return lists


def orthogonal(rng: np.random.Generator, width: int) -> np.ndarray:
    """A random (width, width) rotation."""
    return np.linalg.qr(rng.normal(size=(width, width)))[0].astype(np.float32)


def sinusoids(positions: int, width: int) -> np.ndarray:
    """A (positions, width) table of sines and cosines of falling frequency.

    Trained from there, "the token before" is one and the same turn at every position.
    """
    frequencies = 10_000.0 ** -(np.arange(width // 2) / (width // 2))
    angles = np.arange(positions)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def start_storyteller(model: TFGPT2LMHeadModel, tokenizer: Tokenizer) -> None:
    """Set a fresh GPT-2's weights to those of a model that looks back."""
    rng = np.random.default_rng(1)
    width, heads = model.config.n_embd, model.config.n_head
    size = width // heads
    groups = kept_words(tokenizer)
    if len(groups) != heads:
        raise ValueError(f"{len(groups)} kinds of words need as many heads, not {heads}")

    kinds = orthogonal(rng, width)[:heads]
    tokens = rng.normal(0.0, TOKEN_SCALE, (model.config.vocab_size, width)).astype(np.float32)
    for kind, ids in zip(kinds, groups, strict=True):
        tokens[ids] += KIND_SCALE * kind
    model.transformer.wte.embeddings.assign(tokens)
    model.transformer.wpe.embeddings.assign(
        POSITION_SCALE * sinusoids(model.config.n_positions, width)
    )
    for i, block in enumerate(model.transformer.h):
        attend = block.attn.c_attn.weight.numpy()  # (width, 3 * width): query, key, value
        values = orthogonal(rng, width)
        attend[:, 2 * width :] = values
        if i == LOOKING_LAYER:
            attend[:, : 2 * width] *= 0.3
            bias = np.zeros(block.attn.c_attn.bias.shape, np.float32)
            for head, kind in enumerate(kinds):
                attend[:, width + head * size] = LOOK_SCALE * kind  # key: is it of this kind?
                bias[..., head * size] = LOOK_SCALE  # query: always asks for it
            block.attn.c_attn.bias.assign(bias)
            block.attn.c_attn.trainable = False
        block.attn.c_attn.weight.assign(attend)
        block.attn.c_proj.weight.assign(COPY_SCALE * values.T)
        # Nothing drowns out the words themselves until it has been learned.
        block.mlp.c_proj.weight.assign(np.zeros(block.mlp.c_proj.weight.shape, np.float32))


# --- T5: token embeddings are of unit variance, and no layer has a bias ---------------------------

READER_COMMON_SCALE = 4.0  # length of the direction that all tokens share, for constant queries
READER_KIND_SCALE = 5.0
READER_LOOK_SCALE = 0.6
SAME_WORD_SCALE = 0.5  # equal words look at each other
SAME_WORD_LAYERS = (1, 3)  # of the encoder, after neighbours have been read
NEIGHBOUR_BIAS = 5.0
BEFORE, AFTER = 1, 17  # T5's buckets of the relative positions -1 and +1


def start_reader(model: TFT5ForConditionalGeneration, tokenizer: Tokenizer) -> None:
    """Set a fresh T5's weights to those of a model that can look things up.

    In the encoder, heads read the words before and after, and equal words look at each other, so
    that a question finds the sentences that speak of it. In the decoder, four heads look for names,
    kinds and things; what the encoder marks as one of these, they bring.
    """
    rng = np.random.default_rng(1)
    width, heads = model.config.d_model, model.config.num_heads
    size = width // heads
    girls, boys, kinds, objects, topics = kept_words(tokenizer)
    groups = [girls, boys, kinds, [*objects, *topics]]
    common, *directions = orthogonal(rng, width)[: heads + 1]
    tokens = model.shared.embeddings.numpy() + READER_COMMON_SCALE * common
    for direction, ids in zip(directions, groups, strict=True):
        tokens[ids] += READER_KIND_SCALE * direction
    model.shared.embeddings.assign(tokens)

    first = model.encoder.block[0].layer[0].SelfAttention
    bias = first.relative_attention_bias.numpy()  # (buckets, heads), for all layers
    bias[BEFORE, 1] = bias[AFTER, 2] = NEIGHBOUR_BIAS
    first.relative_attention_bias.assign(bias)
    for i, block in enumerate(model.encoder.block):
        attention = block.layer[0].SelfAttention
        _copy_values(attention, orthogonal(rng, width))
        if i in SAME_WORD_LAYERS:
            weights = 0.1 * attention.q.kernel.numpy()
            weights[:, :size] = SAME_WORD_SCALE * orthogonal(rng, width)[:, :size]
            _fix_look(attention, weights, weights)
        _silence(block)
    for i, block in enumerate(model.decoder.block):
        _copy_values(block.layer[0].SelfAttention, orthogonal(rng, width))
        attention = block.layer[1].EncDecAttention
        _copy_values(attention, orthogonal(rng, width))
        if i == LOOKING_LAYER:
            queries = 0.3 * attention.q.kernel.numpy()
            keys = 0.3 * attention.k.kernel.numpy()
            for head, direction in enumerate(directions):
                queries[:, head * size] = READER_LOOK_SCALE * common
                keys[:, head * size] = READER_LOOK_SCALE * direction
            _fix_look(attention, queries, keys)
        _silence(block)


def _copy_values(attention: object, values: np.ndarray) -> None:
    attention.v.kernel.assign(values)
    attention.o.kernel.assign(COPY_SCALE * values.T)


def _fix_look(attention: object, queries: np.ndarray, keys: np.ndarray) -> None:
    attention.q.kernel.assign(queries)
    attention.k.kernel.assign(keys)
    attention.q.trainable = attention.k.trainable = False


def _silence(block: object) -> None:
    """Let a block's last part add nothing until it has learned something."""
    kernel = block.layer[-1].DenseReluDense.wo.kernel
    kernel.assign(np.zeros(kernel.shape, np.float32))
