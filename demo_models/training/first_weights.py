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

import math

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
CONTEXT_TOKEN = "Ġcontext"  # between a question and its story
CONTEXT_SCALE = 6.0
READER_ASK_SCALE = 0.8  # of a constant query in the encoder
READER_LOOK_SCALE = 0.6  # of queries and keys in the decoder
SAME_WORD_SCALE = 1.0  # equal words look at each other
QUESTION_SCALE = 0.75  # and a little more at those of the question
KEPT_WORDS_ONLY = 0.6
MARK_SCALE = 1.2
NEAR_SCALE = 0.7  # how much of a mark the word beside it takes over
NEIGHBOUR_BIAS = 8.0
NEVER_BIAS = -20.0
BEFORE, AFTER = 1, 17  # T5's buckets of the relative positions -1 and +1
SAME_HEAD, BEFORE_HEAD, AFTER_HEAD, AHEAD_HEAD = range(4)  # T5's layers share the position biases
QUESTION_LAYER, SAME_LAYER = 0, 1  # of the encoder; the layers after them spread what was found
FOUND_LAYER = 1  # of the decoder


def start_reader(model: TFT5ForConditionalGeneration, tokenizer: Tokenizer) -> None:
    """Set a fresh T5's weights to those of a model that can look things up.

    In the encoder, the words of the question mark themselves: they are those that see "context"
    ahead. A word of the story that sees the same word in the question marks itself as asked for,
    and the words around it as near to it. In the decoder, heads look for names, kinds, things and
    the question, then for names and kinds near to what is asked, and far from it. What they find,
    they bring.
    """
    rng = np.random.default_rng(1)
    width, heads = model.config.d_model, model.config.num_heads
    size = width // heads
    girls, boys, kinds, objects, topics = kept_words(tokenizer)
    groups = [[*girls, *boys], kinds, [*objects, *topics]]
    common, context, question, asked, near, *rest = orthogonal(rng, width)
    directions, own = rest[: len(groups)], np.array(rest[len(groups) :])

    # A word's own part leaves the directions above to the marks.
    tokens = model.shared.embeddings.numpy() @ own.T @ own * math.sqrt(width / len(own))
    tokens += READER_COMMON_SCALE * common
    tokens[tokenizer.token_to_id(CONTEXT_TOKEN)] += CONTEXT_SCALE * context
    for direction, ids in zip(directions, groups, strict=True):
        tokens[ids] += READER_KIND_SCALE * direction
    model.shared.embeddings.assign(tokens)

    first = model.encoder.block[0].layer[0].SelfAttention
    bias = 0.3 * first.relative_attention_bias.numpy()  # (buckets, heads), for all layers
    bias[BEFORE, BEFORE_HEAD] = bias[AFTER, AFTER_HEAD] = NEIGHBOUR_BIAS
    bias[BEFORE:AFTER, AHEAD_HEAD] = NEVER_BIAS
    first.relative_attention_bias.assign(bias)

    for i, block in enumerate(model.encoder.block):
        attention = _Attention(block.layer[0].SelfAttention, size, rng)
        if i == QUESTION_LAYER:
            attention.look(AHEAD_HEAD, READER_ASK_SCALE * common, READER_ASK_SCALE * context)
            attention.bring(AHEAD_HEAD, 0, context, MARK_SCALE * question)
        elif i == SAME_LAYER:
            words = SAME_WORD_SCALE * own.T @ orthogonal(rng, len(own))[:, :size]
            attention.look_for_same(SAME_HEAD, words)
            # Names, kinds and things prefer the question; "was" and "the" rather stay away from it.
            asking = READER_ASK_SCALE * (sum(directions) - KEPT_WORDS_ONLY * common)
            attention.look(SAME_HEAD, asking, QUESTION_SCALE * question)
            attention.bring(SAME_HEAD, 0, question, MARK_SCALE * asked)
        else:
            for head in (BEFORE_HEAD, AFTER_HEAD):
                attention.bring(head, 0, asked, NEAR_SCALE * near)
                attention.bring(head, 1, near, NEAR_SCALE * near)
        attention.assign(is_fixed=i in (QUESTION_LAYER, SAME_LAYER))
        _silence(block)

    names, kind, thing = directions
    looks = {
        LOOKING_LAYER: [names, question, kind, thing],
        FOUND_LAYER: [
            names + near / 2 - question,
            kind + near / 2 - question,
            names - near / 2,
            kind - near / 2,
        ],
    }
    for i, block in enumerate(model.decoder.block):
        _Attention(block.layer[0].SelfAttention, size, rng).assign()
        attention = _Attention(block.layer[1].EncDecAttention, size, rng)
        for head, wanted in enumerate(looks.get(i, [])):
            attention.look(head, READER_LOOK_SCALE * common, READER_LOOK_SCALE * wanted)
        attention.assign(is_fixed=i == LOOKING_LAYER)
        _silence(block)


class _Attention:
    """The kernels of a T5 attention while they are set: every head copies, none looks yet."""

    def __init__(self, layer: object, size: int, rng: np.random.Generator):
        self.layer, self.size = layer, size
        self.queries, self.keys = 0.3 * layer.q.kernel.numpy(), 0.3 * layer.k.kernel.numpy()
        self.values = orthogonal(rng, len(self.queries))
        self.outputs = COPY_SCALE * self.values.T

    def look(self, head: int, query: np.ndarray, key: np.ndarray) -> None:
        """Let a head give its attention to words with `key`, as much as its own has of `query`."""
        self.queries[:, head * self.size] = query
        self.keys[:, head * self.size] = key

    def look_for_same(self, head: int, words: np.ndarray) -> None:
        """Let a head give its attention to words that `words` turns into the same numbers."""
        columns = slice(head * self.size, (head + 1) * self.size)
        self.queries[:, columns] = self.keys[:, columns] = words

    def bring(self, head: int, column: int, source: np.ndarray, target: np.ndarray) -> None:
        """Let a head write `target` as much as what it looks at has of `source`."""
        self.values[:, head * self.size + column] = source
        self.outputs[head * self.size + column] = target

    def assign(self, is_fixed: bool = False) -> None:
        """Set the layer's kernels; a fixed one looks where it looks now for all of training."""
        self.layer.q.kernel.assign(self.queries)
        self.layer.k.kernel.assign(self.keys)
        self.layer.v.kernel.assign(self.values)
        self.layer.o.kernel.assign(self.outputs)
        if is_fixed:
            self.layer.q.trainable = self.layer.k.trainable = False


def _silence(block: object) -> None:
    """Let a block's last part add nothing until it has learned something."""
    kernel = block.layer[-1].DenseReluDense.wo.kernel
    kernel.assign(np.zeros(kernel.shape, np.float32))
