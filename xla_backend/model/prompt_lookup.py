"""Prompt lookup: drafts of the next tokens, taken from where the last ones occurred before.

Saxena's prompt lookup decoding, Hugging Face's `prompt_lookup_num_tokens`. Knows the tokens of a
prompt and its text, and the hit rate of drafts. Must not know models or logits: the decoding loop
verifies drafts. All of it runs on the device. Axes: see `families.blocks`, with B = K = 1; T
drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xla_backend.model.families.blocks import dynamic_update_slice

LONGEST, SHORTEST = 3, 2
"""Lengths of a match, in tokens; the longest match is used."""
NO_TOKEN = -1
FIRST_HIT_RATE = 0.5
"""The hit rate of a new text: its first draft is verified."""
MIN_HIT_RATE = 0.5
"""Hit rate from which drafts are verified. A pass of four rows takes 1.5 times as long as one row,
so it must give half a further token on average; next to other programs it takes longer."""
WEIGHT = 0.2
"""Weight of the latest draft in the hit rate (EMA)."""


class Lookup(NamedTuple):
    """Finds drafts, and records how often they were right.

    Attributes:
        text: `[S]` int32, the tokens of the prompt and those that were generated, then `NO_TOKEN`s.
        length: scalar int32, their number.
        hit_rate: scalar, how often the first draft was the next token lately, verified or not.
    """

    text: tf.Tensor
    length: tf.Tensor
    hit_rate: tf.Tensor

    @classmethod
    def of(cls, token_ids: Sequence[int], context_length: int) -> Lookup:
        """A lookup that holds a prompt, with room for S tokens."""
        text = np.full([context_length], NO_TOKEN, np.int32)
        text[: len(token_ids)] = token_ids
        return cls(tf.constant(text), tf.constant(len(token_ids)), tf.constant(FIRST_HIT_RATE))

    def with_token(self, token: tf.Tensor) -> Lookup:
        """The lookup after one more token, `[1]`."""
        text = dynamic_update_slice(self.text, token, self.length[None])
        return self._replace(text=text, length=self.length + 1)


class Drafts(NamedTuple):
    """Draft tokens.

    Attributes:
        tokens: `[T]` int32. is_found: scalar bool, whether there was a match.
        verified: scalar int32, how many of them to verify: all or none.
    """

    tokens: tf.Tensor
    is_found: tf.Tensor
    verified: tf.Tensor


def find(lookup: Lookup, num_drafts: int) -> Drafts:
    """Looks for an earlier occurrence of the last tokens; `num_drafts` is T."""
    text, last = lookup.text, lookup.length - 1
    places = tf.range(tf.shape(text)[0])
    # For each position, how many tokens before it equal those at the end of the text.
    alike = tf.zeros_like(text)
    for back in reversed(range(LONGEST)):
        before = tf.concat([tf.fill([back], NO_TOKEN), text[: tf.shape(text)[0] - back]], axis=0)
        token = tf.gather(text, tf.maximum(last - back, 0))
        alike = tf.where(tf.equal(before, token) & (back <= last), 1 + alike, 0)
    # The latest of the longest matches that are followed by enough tokens for all drafts.
    size = tf.shape(text)[0]
    is_match = (alike >= SHORTEST) & (places <= last - num_drafts)
    best = tf.reduce_max(tf.where(is_match, alike * size + places, 0))
    is_found = best > 0
    tokens = tf.gather(text, best % size + 1 + tf.range(num_drafts))
    is_worth = is_found & (lookup.hit_rate >= MIN_HIT_RATE)
    return Drafts(tokens, is_found, tf.where(is_worth, num_drafts, 0))


def with_hit(lookup: Lookup, drafts: Drafts, token: tf.Tensor) -> Lookup:
    """The lookup with its hit rate updated by the token that the first draft had predicted."""
    is_hit = tf.cast(tf.equal(drafts.tokens[0], token), tf.float32)
    changed = lookup.hit_rate + WEIGHT * (is_hit - lookup.hit_rate)
    return lookup._replace(hit_rate=tf.where(drafts.is_found, changed, lookup.hit_rate))
