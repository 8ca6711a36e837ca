"""Prompt lookup: drafts of the next tokens, taken from where the last ones occurred before.

Saxena's prompt lookup decoding, Hugging Face's `prompt_lookup_num_tokens`. Knows the tokens of a
prompt and its text, and how often drafts were right lately. Must not know models or logits: whether
a draft is right, the decoding loop finds out. All of it runs on the device. Axes: see
`families.blocks`, with B = K = 1; T drafts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

LONGEST, SHORTEST = 3, 2
"""Tokens that must have occurred before; of all places, one with the longest match is taken."""
NO_TOKEN = -1
FIRST_HIT_RATE = 0.5
"""Before anything is known of a text: its first draft is verified."""
MIN_HIT_RATE = 0.5
"""From this rate on drafts are verified. A pass of four rows takes half as long again as one row,
so half a further token must come of it on average; beside other programs it takes longer."""
WEIGHT = 0.2
"""That of the latest draft in the hit rate."""


class Lookup(NamedTuple):
    """What finds drafts, and what became of them.

    Attributes:
        prompt: `[S]` int32, the prompt's tokens, behind `NO_TOKEN`s.
        hit_rate: scalar, how often the first draft was the next token lately, verified or not.
        rows: `[N]` int32, of each new token its row in the pass that brought it: above 0 it was
            one more that a right draft had made possible.
    """

    prompt: tf.Tensor
    hit_rate: tf.Tensor
    rows: tf.Tensor

    @classmethod
    def initial(cls, padded_length: int, max_new_tokens: int) -> Lookup:
        """Of no prompt yet."""
        return cls(
            prompt=tf.fill([padded_length], NO_TOKEN),
            hit_rate=tf.constant(FIRST_HIT_RATE),
            rows=tf.zeros([max_new_tokens], tf.int32),
        )

    def of(self, token_ids: list[int]) -> Lookup:
        """The same of a prompt, of at most S tokens."""
        prompt = np.full(self.prompt.shape, NO_TOKEN, np.int32)
        prompt[len(prompt) - len(token_ids) :] = token_ids
        return self._replace(prompt=tf.constant(prompt))


class Drafts(NamedTuple):
    """What may come next.

    Attributes:
        tokens: `[T]` int32. is_found: scalar bool, whether they mean anything.
        verified: scalar int32, how many of them are worth a pass with more rows: all or none.
    """

    tokens: tf.Tensor
    is_found: tf.Tensor
    verified: tf.Tensor


def find(lookup: Lookup, new_tokens: tf.Tensor, count: tf.Tensor, num_drafts: int) -> Drafts:
    """Looks for the last tokens in what is before them.

    Args:
        lookup: the prompt, and the hit rate so far.
        new_tokens: `[N]` int32, of which `count` are written.
        count: scalar int32.
        num_drafts: T.
    """
    text = tf.concat([lookup.prompt, new_tokens], axis=0)
    last = tf.shape(lookup.prompt)[0] + count - 1
    places = tf.range(tf.shape(text)[0])
    # How many tokens up to each place are those at the end of the text.
    alike = tf.zeros_like(text)
    for back in reversed(range(LONGEST)):
        before = tf.concat([tf.fill([back], NO_TOKEN), text[: tf.shape(text)[0] - back]], axis=0)
        alike = tf.where(tf.equal(before, tf.gather(text, last - back)), 1 + alike, 0)
    # The latest of the longest, among those that all drafts follow.
    size = tf.shape(text)[0]
    is_match = (alike >= SHORTEST) & (places <= last - num_drafts)
    best = tf.reduce_max(tf.where(is_match, alike * size + places, 0))
    is_found = best > 0
    tokens = tf.gather(text, best % size + 1 + tf.range(num_drafts))
    is_worth = is_found & (lookup.hit_rate >= MIN_HIT_RATE)
    return Drafts(tokens, is_found, tf.where(is_worth, num_drafts, 0))


def hit_rate(lookup: Lookup, drafts: Drafts, token: tf.Tensor) -> tf.Tensor:
    """The hit rate with a further token, the one after which the drafts were looked for."""
    is_hit = tf.cast(tf.equal(drafts.tokens[0], token), tf.float32)
    changed = lookup.hit_rate + WEIGHT * (is_hit - lookup.hit_rate)
    return tf.where(drafts.is_found, changed, lookup.hit_rate)
