"""The parts that every transformer here is built of: projections, norms, attention, cached keys.

Knows tensors and how XLA on a CPU likes them laid out. Must not know architectures, checkpoints or
decoding. Axes in shapes: B texts decoded side by side, R rows of each (beams), P prompt or encoder
positions, N slots for new tokens, H heads, D head size, E model width, V vocabulary.

Rows stand in the order `[R, B]`. So the heads of all texts stand side by side in each row, and to
attention a further text is nothing but further heads: G = B * H of them, the first H the first
text's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from transformers import PretrainedConfig

from xla_backend.errors import ModelUnavailable
from xla_backend.large_pages import LargePages

# Finite, so that a row with every position masked gives a uniform distribution instead of NaN.
MASKED = -1e9

_PARTS = 8
"""Into how many a row is cut: 2 to 16 are equally quick on two cores."""
_CUT_FROM = 2**20
"""Bytes of the smallest kernel along which rows are cut."""
_FEW = 4
"""Up to how many rows are cut: beyond, XLA's own product is quicker."""
_LINES = 16
"""Of the kernel, in each part of few rows. LLVM still unrolls a loop over so many."""

_HALVED_FROM = 256
"""Of how many positions halves attend apart."""


class Linear(NamedTuple):
    """A projection. `kernel` is `[in, out]`: measured with XLA on CPUs, several rows then cost
    hardly more than one, where `[out, in]` doubles the time at two rows."""

    kernel: tf.Variable
    bias: tf.Variable | None

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Projects the last axis: `[..., in] -> [..., out]`."""
        y = project(x, self.kernel)
        return y if self.bias is None else y + self.bias


class Norm(NamedTuple):
    """Layer normalisation; without a bias, T5's root-mean-square form (no mean subtracted)."""

    scale: tf.Variable
    bias: tf.Variable | None
    epsilon: float

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Normalises the last axis."""
        if self.bias is None:
            return x * tf.math.rsqrt(_mean(tf.square(x)) + self.epsilon) * self.scale
        x = x - _mean(x)
        return x * tf.math.rsqrt(_mean(tf.square(x)) + self.epsilon) * self.scale + self.bias


def _mean(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(x, axis=-1, keepdims=True)


class KeysValues(NamedTuple):
    """Keys and values of one attention layer.

    `[G, P, D]` where all rows of a text share them (a prompt, an encoder's output), `[G, N, R, D]`
    for new tokens, `[R, G, D]` for one token a row.
    """

    keys: tf.Tensor
    values: tf.Tensor


class FeedForward(NamedTuple):
    """Two projections with a non-linearity between them.

    Where gated, `up` yields two halves: the second, as it is, is what the first lets through.
    """

    up: Linear
    down: Linear
    activation: Callable[[tf.Tensor], tf.Tensor]
    is_gated: bool = False

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """`[..., E] -> [..., E]`."""
        y = self.up(x)
        if self.is_gated:
            y, let_through = tf.split(y, 2, axis=-1)
            return self.down(self.activation(y) * let_through)
        return self.down(self.activation(y))


def project(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """`[..., in] x [in, out] -> [..., out]`, in the way that reads the kernel quickest.

    One row and few rows are cut along `in`, which leaves each part of the kernel where it lies, and
    the partial sums are added. Small kernels come from the cache, and stay whole.
    """
    inputs, outputs = kernel.shape
    rows = x.shape[:-1].num_elements()
    if 4 * inputs * outputs >= _CUT_FROM:
        if rows == 1:
            return tf.reshape(_project_one(x, kernel), [*x.shape[:-1], outputs])
        if rows in range(2, _FEW + 1) and inputs % _LINES == 0:
            few = _project_few(tf.reshape(x, [rows, inputs]), kernel)
            return tf.reshape(few, [*x.shape[:-1], outputs])
    return tf.matmul(x, kernel)


def _project_one(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """One row by all cores: `[out]`.

    For one row XLA writes the loop itself, as code for one core, which reads weights at five sixths
    of the speed of two. Of a batch of products it lets every core take some: a token of GPT-2 124M
    takes an eighth less time.
    """
    inputs, outputs = kernel.shape
    parts = math.gcd(inputs, _PARTS)
    x = tf.reshape(x, [parts, 1, inputs // parts])
    return tf.reduce_sum(x @ tf.reshape(kernel, [parts, inputs // parts, outputs]), axis=0)


def _project_few(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Few rows, `[rows, in]`, with one look at each line of the kernel: `[rows, out]`.

    XLA's own product of several rows goes down strips of 64 columns, and weights then come from
    memory at half the speed that one row has. As sums of all rows over a few lines at a time it
    becomes a loop along the lines: a token of GPT-2 124M with 4 beams takes 31 ms instead of 44 on
    an Intel Xeon, 37 instead of 47 on an AMD EPYC.
    """
    rows, inputs = x.shape
    parts = inputs // _LINES
    # Divided by one, each row by its own, which only the run can know. What is cheap XLA computes
    # anew where it is used, here for every number in the kernel, and then the loop over the lines
    # is no longer unrolled, nor the one along them vectorised. A division is too dear for that.
    x /= 1.0 + 0.0 * x[:, :1]
    lines = tf.reshape(kernel, [parts, _LINES, kernel.shape[1]])
    products = [row * lines for row in tf.unstack(tf.reshape(x, [rows, parts, _LINES, 1]))]
    sums = xla.variadic_reduce(
        products, [tf.constant(0.0)] * rows, dimensions_to_reduce=[1], reducer=_adder(rows)
    )
    return tf.stack([tf.reduce_sum(part, axis=0) for part in sums])


@functools.cache
def _adder(count: int) -> Any:
    """The function of two times so many numbers that adds the second half to the first."""

    def add(*both: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(a + b for a, b in zip(both[:count], both[count:], strict=True))

    number = tf.TensorSpec([], tf.float32)
    with tf.init_scope():
        return tf.function(add, autograph=False).get_concrete_function(*[number] * (2 * count))


def embed(embedding: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """Columns of `[E, V]` for token ids `[positions]`: `[positions, E]`."""
    return tf.transpose(tf.gather(embedding, token_ids, axis=1))


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """`[positions, H * D] -> [H, positions, D]`."""
    positions = tf.shape(x)[0]
    return tf.transpose(tf.reshape(x, [positions, heads, x.shape[-1] // heads]), [1, 0, 2])


def for_each_head(bias: tf.Tensor, heads: int) -> tf.Tensor:
    """What hides keys from texts, for their heads: `[..., B, K]` to broadcastable `[..., G, K]`."""
    return bias if bias.shape[-2] == 1 else tf.repeat(bias, heads, axis=-2)


def for_each_text(bias: tf.Tensor, texts: int) -> tf.Tensor:
    """A bias of heads, `[H, K]`, that all texts share: `[G, K]`."""
    return bias if texts == 1 else tf.tile(bias, [texts, 1])


def texts_first(x: tf.Tensor, texts: int) -> tf.Tensor:
    """Rows in the order `[R, B]` brought into the order `[B, R]`: `[R * B, E] -> [B * R, E]`."""
    rows, width = x.shape[0] // texts, x.shape[1]
    if 1 in (rows, texts):
        return x
    return tf.reshape(_rows_first(tf.reshape(x, [rows, texts, width])), x.shape)


def attend_all(q: tf.Tensor, shared: KeysValues, bias: tf.Tensor) -> tf.Tensor:
    """Attention of many positions at once.

    Args:
        q: queries, scaled, `[H, Q, D]`.
        shared: keys and values `[H, P, D]`.
        bias: added to the scores, broadcastable to `[H, Q, P]`; `MASKED` hides a position.

    Returns:
        `[Q, H * D]`.
    """
    scores = tf.matmul(q, shared.keys, transpose_b=True) + bias
    weights = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
    # Softmax's division comes last: of D numbers a position instead of P.
    mixed = tf.matmul(weights, shared.values) / tf.reduce_sum(weights, axis=-1, keepdims=True)
    mixed = tf.transpose(mixed, [1, 0, 2])
    return tf.reshape(mixed, [tf.shape(q)[1], q.shape[0] * q.shape[2]])


def attend_causally(q: tf.Tensor, shared: KeysValues, bias: tf.Tensor) -> tf.Tensor:
    """`attend_all` where no position looks at a later one, `[H, P, D]` at `[H, P, D]`.

    The first half of many positions is spared the keys of the second: a quarter of all scores. More
    parts than two save more scores, but take longer to compile, and the products grow too small.
    """
    length = tf.shape(q)[1]

    def whole() -> tf.Tensor:
        return attend_all(q, shared, bias)

    def in_halves() -> tf.Tensor:
        middle = length // 2
        before = KeysValues(shared.keys[:, :middle], shared.values[:, :middle])
        first = attend_all(q[:, :middle], before, bias[:middle, :middle])
        return tf.concat([first, attend_all(q[:, middle:], shared, bias[middle:])], axis=0)

    # A size is known when XLA compiles: it takes the one branch, and never sees the other.
    mixed = tf.switch_case(tf.cast(length >= _HALVED_FROM, tf.int32), [whole, in_halves])
    return tf.ensure_shape(mixed, [None, q.shape[0] * q.shape[2]])


def attend_shared(q: tf.Tensor, shared: KeysValues, bias: tf.Tensor) -> tf.Tensor:
    """Attention of one query a row over positions that all rows share (cross-attention).

    Args:
        q: queries, scaled, `[R, G, D]`.
        shared: keys and values `[G, P, D]`.
        bias: broadcastable to `[R, G, P]`.

    Returns:
        `[R, G, D]`.
    """
    weights = tf.nn.softmax(_scores_of_shared(q, shared.keys) + bias)
    return _mix_shared(weights, shared.values)


def attend_prompt_and_new(
    q: tf.Tensor,
    prompt: KeysValues,
    prompt_bias: tf.Tensor | float,
    new: KeysValues,
    new_bias: tf.Tensor,
    own: KeysValues,
    own_bias: tf.Tensor | float = 0.0,
) -> tf.Tensor:
    """Attention of one query a row over the prompt, the new tokens before it, and itself.

    Every row looks at the keys of all rows of its text, and `new_bias` hides those that are not of
    its beam. So beams that change places move nothing but the bias: keys and values of new tokens
    stay where they were written, as those of the prompt do. (Reordering them would read and write
    all of them at every step, which costs more than the further scores.)

    The token's own key and value come apart, and `new` is only read here: written into it first,
    it would be copied whole at every step, because XLA cannot write in place across a branch.

    Args:
        q: queries, scaled, `[R, G, D]`.
        prompt: keys and values `[G, P, D]`.
        prompt_bias: broadcastable to `[R, G, P]`.
        new: keys and values `[G, N, R, D]`.
        new_bias: broadcastable to `[R, G, N * R]`.
        own: key and value of the token itself, `[R, G, D]`.
        own_bias: broadcastable to `[R, G, 1]`.

    Returns:
        `[R, G, D]`.
    """
    _, groups, size = q.shape
    new = KeysValues(*(tf.reshape(x, [groups, -1, size]) for x in new))
    scores = [
        tf.reduce_sum(q * own.keys, axis=-1, keepdims=True) + own_bias,
        _scores_of_shared(q, prompt.keys) + prompt_bias,
        _scores_of_shared(q, new.keys) + new_bias,
    ]
    weights = tf.nn.softmax(tf.concat(scores, axis=-1))
    first_new = 1 + tf.shape(prompt.keys)[1]
    mixed = weights[..., :1] * own.values
    mixed += _mix_shared(weights[..., 1:first_new], prompt.values)
    return mixed + _mix_shared(weights[..., first_new:], new.values)


def _scores_of_shared(q: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """`[R, G, D]` and `[G, P, D]` to `[R, G, P]`."""
    return _rows_first(tf.matmul(_rows_first(q), keys, transpose_b=True))


def _mix_shared(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`[R, G, P]` and `[G, P, D]` to `[R, G, D]`."""
    return _rows_first(tf.matmul(_rows_first(weights), values))


def _rows_first(x: tf.Tensor) -> tf.Tensor:
    """Swaps rows and heads, both ways."""
    return tf.transpose(x, [1, 0, 2])


def write_slot(filled: tf.Tensor, own: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
    """Writes one token a row, `[R, G, D]`, into slot `slot` of `[G, N, R, D]`.

    A slot before the first one is the first, as XLA has it.
    """
    own = tf.expand_dims(_rows_first(own), 1)
    return dynamic_update_slice(filled, own, tf.stack([0, slot, 0, 0]))


def occurring(token_ids: tf.Tensor, counts: tf.Tensor, vocabulary_size: int) -> tf.Tensor:
    """Which tokens occur, `[1, V]` bool, among ids `[P]` where `counts` `[P]` is true."""
    times = tf.math.unsorted_segment_sum(tf.cast(counts, tf.int32), token_ids, vocabulary_size)
    return (times > 0)[None, :]


def dynamic_update_slice(target: tf.Tensor, update: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """XLA's in-place slice update; `tensor_scatter_nd_update` would become a slow scatter.

    Args:
        target: is copied only where XLA must.
        update: of the same rank, no size greater.
        start: `[rank]` int32, where its first element goes.
    """
    return xla.dynamic_update_slice(target, update, start)


def gelu_exact(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit through the error function, not by approximation."""
    return tf.nn.gelu(x, approximate=False)


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """Its approximation (GPT-2's `gelu_new`, arXiv:1606.08415)."""
    return tf.nn.gelu(x, approximate=True)


# Names as in Hugging Face configurations.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": gelu_exact,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.nn.tanh,
}


def activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """The non-linearity that a configuration names.

    Raises:
        ModelUnavailable: it is not one that is known here.
    """
    if name not in ACTIVATIONS:
        raise ModelUnavailable(
            f"the model's config.json names the activation {name!r}; known are "
            f"{', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


class Repeated:
    """A part of a model that is there several times, as its layers are, traced only once.

    TensorFlow and XLA are given one function and a call of it for each layer, instead of every
    operation of every layer: tracing takes half as long, and so does turning the graph into XLA's
    form, which restoring a function from disk pays too. XLA puts the function in the place of the
    calls before it optimises, so nothing changes about how it runs.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Takes a function of a layer, a nest with variables in it, and of nests of tensors."""
        self._function = function
        self._traced: dict[Any, Callable[..., Any]] = {}

    def __call__(self, layer: Any, *arguments: Any) -> Any:
        """What the function returns for this layer; a nest of tensors."""
        leaves = tf.nest.flatten(layer)
        # As tensors: a variable would make each layer a function of its own.
        weights = [tf.convert_to_tensor(x) for x in leaves if isinstance(x, tf.Variable)]
        # Scales, activations, and what is not there: layers that differ in these are traced apart.
        form = tuple(_WEIGHT if isinstance(x, tf.Variable) else x for x in leaves)
        if form not in self._traced:

            def run(weights: list[tf.Tensor], *arguments: Any) -> Any:
                given = iter(weights)
                here = [next(given) if x is _WEIGHT else x for x in form]
                return self._function(tf.nest.pack_sequence_as(layer, here), *arguments)

            self._traced[form] = tf.function(
                run, autograph=False, experimental_attributes={"_noinline": True}
            )
        return self._traced[form](weights, *arguments)


_WEIGHT = object()
"""Stands where a layer has a weight."""


class WeightReader:
    """Turns a checkpoint's arrays into variables, by their PyTorch-format names.

    Every method raises `ModelUnavailable` when the checkpoint has no such array.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays
        self._memory = LargePages()
        self.variables: dict[str, tf.Variable] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str) -> np.ndarray:
        """The array as the checkpoint has it."""
        if name not in self._arrays:
            raise ModelUnavailable(
                f"the checkpoint has no weight called {name}: it is incomplete, or of another "
                "architecture than its config.json says."
            )
        return self._arrays[name]

    def variable(self, name: str) -> tf.Variable:
        """The array as a variable."""
        return self._keep(name, self.array(name))

    def transposed(self, name: str) -> tf.Variable:
        """A matrix as a variable, `[out, in]` in the checkpoint and `[in, out]` here."""
        return self._keep(name, self.array(name).T)

    def linears(self, names: Sequence[str]) -> Linear:
        """Projections of one input side by side as one, each `[out, in]` in the checkpoint.

        Where only some have a bias (Whisper's keys have none), the others' is zero.
        """
        kernels = [self.array(f"{name}.weight") for name in names]
        label = names[0] if len(names) == 1 else "+".join(names)
        kernel = self._keep(f"{label}.weight", np.concatenate(kernels).T)
        if not any(f"{name}.bias" in self for name in names):
            return Linear(kernel, None)
        biases = [
            self.array(f"{name}.bias")
            if f"{name}.bias" in self
            else np.zeros(len(weight), weight.dtype)
            for name, weight in zip(names, kernels, strict=True)
        ]
        return Linear(kernel, self._keep(f"{label}.bias", np.concatenate(biases)))

    def convolution(self, name: str) -> Linear:
        """A convolution over K neighbours as one projection of them side by side.

        `[out, in, K]` in the checkpoint, `[K * in, out]` here.
        """
        array = self.array(f"{name}.weight")
        kernel = self._keep(f"{name}.weight", array.transpose(2, 1, 0).reshape(-1, len(array)))
        return Linear(kernel, self.variable(f"{name}.bias"))

    def head(self, config: PretrainedConfig, embedding: tf.Variable) -> tf.Variable:
        """The language model head `[E, V]`: the embedding itself when the two are tied."""
        if config.tie_word_embeddings or "lm_head.weight" not in self:
            return embedding
        return self.transposed("lm_head.weight")

    def _keep(self, name: str, array: np.ndarray) -> tf.Variable:
        kept = self._memory.empty(array.shape)
        np.copyto(kept, array)
        # As DLPack, because then TensorFlow uses this memory instead of copying it into its own.
        tensor = tf.experimental.dlpack.from_dlpack(kept.__dlpack__())
        self.variables[name] = tf.Variable(tensor, trainable=False)
        return self.variables[name]
