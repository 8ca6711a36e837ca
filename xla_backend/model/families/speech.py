"""Speech models: Whisper.

Knows their checkpoints, the convolutions over a log-mel spectrogram and the learned positions.
`padded_length` is the number of mel frames (10 ms each) in the window that the model takes. There
is only one such size, so no size of its functions is open. The decoder prompt (start, language,
task, no timestamps) is an argument, so that all languages run the same compiled function. Axes: see
`blocks` and `stacks`; M mel bands, F = 2 S mel frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from transformers import WhisperConfig

from xla_backend.checkpoints.speech_input import SpeechPrompt
from xla_backend.kernels.graph.matrix import Matrix
from xla_backend.model.families import blocks
from xla_backend.model.families.blocks import (
    MASKED,
    FeedForward,
    KeysValues,
    Linear,
    Norm,
    WeightReader,
)
from xla_backend.model.families.model import Prefilled
from xla_backend.model.families.stacks import (
    DecoderLayer,
    DecoderStack,
    EncoderLayer,
    EncoderStack,
    StackContext,
)


class SpeechContext(NamedTuple):
    """What a step needs, and the logits of the language tokens.

    Attributes:
        language_logits: `[B, V]`, after the start token alone.
    """

    stack: StackContext
    language_logits: tf.Tensor


@dataclass(frozen=True)
class Speech:
    """A Whisper model over its weights.

    Attributes:
        convolutions: over three neighbouring frames each, as projections of the three concatenated.
        encoder_positions: `[S, E]`. decoder_positions: `[context_length, E]`.
        embedding: `[E, V]`, token embeddings and also the head.
        prompt_length: L, the number of tokens in the decoder prompt.
    """

    convolutions: tuple[Linear, Linear]
    encoder_positions: tf.Variable
    encoder: EncoderStack
    decoder: DecoderStack
    decoder_positions: tf.Variable
    embedding: Matrix
    mel_bands: int
    prompt_length: int
    context_length: int
    variables: Mapping[str, tf.Variable]

    @property
    def vocabulary_size(self) -> int:
        return self.embedding.shape[1]

    @property
    def frames(self) -> int:
        """F, the number of mel frames in the window."""
        return 2 * self.encoder_positions.shape[0]

    def input_specs(self) -> list[tf.TensorSpec]:
        """The spectrogram `[F, M]` and the decoder prompt `[L]` int32."""
        return [
            tf.TensorSpec([self.frames, self.mel_bands], tf.float32),
            tf.TensorSpec([self.prompt_length], tf.int32),
        ]

    def encode(self, prompt: SpeechPrompt, padded_length: int) -> list[tf.Tensor]:
        """The window without further padding: its features have the padded length already."""
        return [tf.constant(prompt.features), tf.constant(prompt.decoder_prompt, tf.int32)]

    def example(self, padded_length: int) -> list[tf.Tensor]:
        return [tf.zeros(spec.shape, spec.dtype) for spec in self.input_specs()]

    def prefilled_structure(self) -> Prefilled:
        return Prefilled(0, 0, SpeechContext(self.decoder.context_structure(), 0))

    def prefill(self, features: tf.Tensor, decoder_prompt: tf.Tensor) -> Prefilled:
        first, second = self.convolutions
        x = blocks.gelu_exact(first(_with_neighbours(features, stride=1)))
        x = blocks.gelu_exact(second(_with_neighbours(x, stride=2)))
        # Silence at the end of a window is not masked: the model was trained with it.
        encoded = self.encoder(x + self.encoder_positions, 0.0)
        cross_bias = tf.zeros([1, self.encoder_positions.shape[0]])

        slots = np.arange(self.prompt_length)
        causal = np.where(slots[None, :] <= slots[:, None], 0.0, MASKED).astype(np.float32)
        x = self.embedding.columns(decoder_prompt) + self.decoder_positions[: len(slots)]
        x, context = self.decoder.prefill(x, causal, encoded, cross_bias)
        seen = blocks.occurring(decoder_prompt, slots >= 0, self.vocabulary_size)
        # The decoder is causal: the first position does not depend on the language in the prompt.
        language_logits, logits = tf.split(self._logits(tf.gather(x, [0, len(slots) - 1])), 2)
        return Prefilled(logits, seen, SpeechContext(context, language_logits))

    def step(
        self,
        token_ids: tf.Tensor,
        index: tf.Tensor,
        context: SpeechContext,
        kv_cache: list[KeysValues],
        kv_cache_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[KeysValues]]:
        x = self.embedding.columns(token_ids)
        x += tf.gather(self.decoder_positions, self.prompt_length + index)
        x, current = self.decoder.step(x, context.stack, kv_cache, 0.0, kv_cache_bias, 0.0)
        return self._logits(x), current

    def empty_kv_cache(self, num_beams: int, length: int) -> list[KeysValues]:
        return self.decoder.empty_kv_cache(num_beams, length)

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        return self.embedding.multiply(x)


def _with_neighbours(x: tf.Tensor, stride: int) -> tf.Tensor:
    """Concatenates every `stride`th frame with its neighbours: `[F, C] -> [F / stride, 3 * C]`.

    A convolution over three frames is then one projection, which runs on all cores.
    """
    frames = x.shape[0]
    padded = tf.pad(x, [[1, 1], [0, 0]])
    return tf.concat([padded[i : i + frames : stride] for i in range(3)], axis=-1)


def from_whisper(config: WhisperConfig, read: WeightReader, prompt_length: int) -> Speech:
    def norm(name: str) -> Norm:
        return Norm(read.variable(f"{name}.weight"), read.variable(f"{name}.bias"), 1e-5)

    def feed_forward(at: str) -> FeedForward:
        return FeedForward(
            up=read.linears([f"{at}.fc1"]),
            down=read.linears([f"{at}.fc2"]),
            activation=blocks.activation(config.activation_function),
        )

    def encoder_layer(at: str) -> EncoderLayer:
        return EncoderLayer(
            attention_norm=norm(f"{at}.self_attn_layer_norm"),
            qkv=read.linears([f"{at}.self_attn.{x}_proj" for x in "qkv"]),
            attention_out=read.linears([f"{at}.self_attn.out_proj"]),
            feed_forward_norm=norm(f"{at}.final_layer_norm"),
            feed_forward=feed_forward(at),
        )

    def decoder_layer(at: str) -> DecoderLayer:
        return DecoderLayer(
            *encoder_layer(at),
            cross_norm=norm(f"{at}.encoder_attn_layer_norm"),
            cross_query=read.linears([f"{at}.encoder_attn.q_proj"]),
            cross_keys_values=read.linears([f"{at}.encoder_attn.{x}_proj" for x in "kv"]),
            cross_out=read.linears([f"{at}.encoder_attn.out_proj"]),
        )

    encoder, decoder = "model.encoder", "model.decoder"
    return Speech(
        convolutions=(read.convolution(f"{encoder}.conv1"), read.convolution(f"{encoder}.conv2")),
        encoder_positions=read.variable(f"{encoder}.embed_positions.weight"),
        encoder=EncoderStack(
            layers=tuple(
                encoder_layer(f"{encoder}.layers.{i}") for i in range(config.encoder_layers)
            ),
            heads=config.encoder_attention_heads,
            score_scale=(config.d_model // config.encoder_attention_heads) ** -0.5,
            final_norm=norm(f"{encoder}.layer_norm"),
        ),
        decoder=DecoderStack(
            layers=tuple(
                decoder_layer(f"{decoder}.layers.{i}") for i in range(config.decoder_layers)
            ),
            heads=config.decoder_attention_heads,
            score_scale=(config.d_model // config.decoder_attention_heads) ** -0.5,
            final_norm=norm(f"{decoder}.layer_norm"),
        ),
        decoder_positions=read.variable(f"{decoder}.embed_positions.weight"),
        embedding=read.matrix(f"{decoder}.embed_tokens.weight"),
        mel_bands=config.num_mel_bins,
        prompt_length=prompt_length,
        context_length=config.max_target_positions,
        variables=read.variables,
    )
