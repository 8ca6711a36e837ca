"""The parts of every transformer here: projections, norms, attention, the KV cache.

Knows tensors and which layouts are quick with XLA on a CPU. Axes in shapes:

    B  batch: one text
    K  beams of each text
    S  positions of the prompt or of the encoder's input; Q of the queries, if they are others
    N  new tokens that the KV cache has room for
    H  heads
    D  head size
    E  model width
    V  vocabulary
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from transformers import PretrainedConfig

from xla_backend.checkpoints import kinds
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.kernels.graph.kv_operations import PLAIN, Softmax
from xla_backend.kernels.graph.matrix import Matrix, Stacked
from xla_backend.kernels.matmul.blocks import Blocks, Weights, rounded, stacked
from xla_backend.model.families.kernels import KERNELS, Kernels
from xla_backend.model.large_pages import LargePages
from xla_backend.model.saved_weights import SavedWeights

MASKED = -1e9
"""The bias of a masked position: finite, so that softmax over masked positions alone is not NaN."""

HALVED_FROM = 256
"""From this number of positions on, `attend_causally` works in halves."""
PIECES_FROM = 1025
"""From this number of positions on, it works in pieces."""
PIECE = 256
"""Positions of a piece: for 32 heads and 8,192 keys, scores of 268 MB."""


class Linear(NamedTuple):
    """A projection."""

    matrix: Matrix | Stacked
    bias: tf.Variable | None

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Projects the last axis: `[..., in] -> [..., out]`."""
        y = self.matrix.multiply(x)
        return y if self.bias is None else y + self.bias


class Norm(NamedTuple):
    """Layer normalisation; without a bias, T5's root-mean-square form (no mean subtracted)."""

    scale: tf.Variable | float
    bias: tf.Variable | None
    epsilon: float

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        if self.bias is None:
            return x * tf.math.rsqrt(_mean(tf.square(x)) + self.epsilon) * self.scale
        x = x - _mean(x)
        return x * tf.math.rsqrt(_mean(tf.square(x)) + self.epsilon) * self.scale + self.bias


def _mean(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(x, axis=-1, keepdims=True)


class KeysValues(NamedTuple):
    """Keys and values of one attention layer.

    `[H, S, D]` of a prompt or an encoder's output, which all beams share; `[H, N, K, D]` of new
    tokens, the KV cache; `[K, H, D]` of the current token of each beam.
    """

    keys: tf.Tensor
    values: tf.Tensor


class FeedForward(NamedTuple):
    """Two projections with a non-linearity between them.

    If gated, `up` yields two halves: the first, after the non-linearity, gates the second.
    """

    up: Linear
    down: Linear
    activation: Callable[[tf.Tensor], tf.Tensor]
    is_gated: bool = False

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """`[..., E] -> [..., E]`."""
        y = self.up(x)
        if self.is_gated:
            gate, y = tf.split(y, 2, axis=-1)
            return self.down(self.activation(gate) * y)
        return self.down(self.activation(y))


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """`[positions, H * D] -> [H, positions, D]`."""
    positions = tf.shape(x)[0]
    return tf.transpose(tf.reshape(x, [positions, heads, x.shape[-1] // heads]), [1, 0, 2])


def attend_all(
    q: tf.Tensor, kv: KeysValues, bias: tf.Tensor, softmax: Softmax = PLAIN
) -> tf.Tensor:
    """Attention of many positions at once: `[Q, H * D]`.

    Args:
        q: queries, scaled, `[H, Q, D]`.
        kv: keys and values `[H, S, D]`, or fewer heads of them, each for several neighbouring heads
            of queries (arXiv:2305.13245).
        bias: added to the scores, broadcastable to `[H, Q, S]`; `MASKED` hides a position.
    """
    heads, kv_heads, size = q.shape[0], kv.keys.shape[0], q.shape[2]
    queries, length = tf.shape(q)[1], tf.shape(kv.keys)[1]

    # The queries of heads that share keys are further rows of one product.
    def share(x: tf.Tensor, last: tf.Tensor | int) -> tf.Tensor:
        return x if heads == kv_heads else tf.reshape(x, [kv_heads, -1, last])

    def split(x: tf.Tensor, last: tf.Tensor | int) -> tf.Tensor:
        return x if heads == kv_heads else tf.reshape(x, [heads, queries, last])

    scores = split(tf.matmul(share(q, size), kv.keys, transpose_b=True), length)
    scores, sinks = soft_cap(scores, softmax.cap) + bias, softmax.sinks
    highest = tf.reduce_max(scores, axis=-1, keepdims=True)
    if sinks is not None:
        highest = tf.maximum(highest, sinks[:, None, None])
    weights = tf.exp(scores - highest)
    total = tf.reduce_sum(weights, axis=-1, keepdims=True)
    if sinks is not None:
        total += tf.exp(sinks[:, None, None] - highest)
    # Softmax's division comes last, where it divides D numbers a query instead of S.
    attended = split(tf.matmul(share(weights, length), kv.values), size)
    attended /= total
    return tf.reshape(tf.transpose(attended, [1, 0, 2]), [queries, heads * size])


class CausalMask(NamedTuple):
    """The causal mask of a prompt: no position sees later ones or padding.

    Attributes:
        padding: the number of padding slots on the left, int32.
        window: how many positions each sees, itself included; None: all before it.
    """

    padding: tf.Tensor
    window: int | None = None

    def without_padding(self, x: tf.Tensor) -> tf.Tensor:
        """`[S, ...]` with zeros in place of padding, which is NaN: see `padded`."""
        is_token = tf.range(tf.shape(x)[0]) >= self.padding
        return tf.where(tf.reshape(is_token, [-1] + [1] * (x.shape.rank - 1)), x, 0.0)

    def bias(self, queries: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """The bias of scores, `[Q, S]`, of queries at the positions `[Q]` and the first S keys."""
        keys = tf.range(length)
        distances = queries[:, None] - keys
        is_visible = (distances >= 0) & (keys >= self.padding)
        if self.window is not None:
            is_visible &= distances < self.window
        return tf.where(is_visible, 0.0, MASKED)


def attend_causally(
    q: tf.Tensor, kv: KeysValues, mask: CausalMask, softmax: Softmax = PLAIN
) -> tf.Tensor:
    """Causal `attend_all`, with `[H, S, D]` queries and keys.

    From some length on, the first half of the positions skips the keys of the second half, a
    quarter of all scores. More parts than two would skip more scores, but take longer to compile
    and make the products too small. From a greater length on, each half goes piece by piece: a
    loop, so that all scores, which grow with the square of the length, never exist at once.
    """
    length = tf.shape(q)[1]
    middle = length // 2

    def attend(first: tf.Tensor | int, last: tf.Tensor) -> tf.Tensor:
        """Of the positions from the first up to the last, which is the number of keys."""
        keys_values = KeysValues(kv.keys[:, :last], kv.values[:, :last])
        bias = mask.bias(tf.range(first, last), last)
        return attend_all(q[:, first:last], keys_values, bias, softmax)

    def attend_in_chunks(first: tf.Tensor | int, last: tf.Tensor) -> tf.Tensor:
        keys_values = KeysValues(kv.keys[:, :last], kv.values[:, :last])
        pieces = -(-(last - first) // PIECE)
        # The last piece may exceed the last position; the rest is dropped.
        rest = tf.zeros([q.shape[0], PIECE, q.shape[2]])
        queries = tf.concat([q[:, first:last], rest], axis=1)

        def piece(place: tf.Tensor) -> tf.Tensor:
            begin = place * PIECE
            own = tf.slice(queries, [0, begin, 0], [q.shape[0], PIECE, q.shape[2]])
            bias = mask.bias(first + begin + tf.range(PIECE), last)
            return attend_all(own, keys_values, bias, softmax)

        attended = tf.map_fn(piece, tf.range(pieces), fn_output_signature=tf.float32)
        return tf.reshape(attended, [-1, q.shape[0] * q.shape[2]])[: last - first]

    def in_halves(part: Callable[[tf.Tensor | int, tf.Tensor], tf.Tensor]) -> tf.Tensor:
        return tf.concat([part(0, middle), part(middle, length)], axis=0)

    # XLA knows the length when it compiles, and compiles only one of the branches.
    attended = tf.switch_case(
        tf.cast(length >= HALVED_FROM, tf.int32) + tf.cast(length >= PIECES_FROM, tf.int32),
        [lambda: attend(0, length), lambda: in_halves(attend), lambda: in_halves(attend_in_chunks)],
    )
    return tf.ensure_shape(attended, [None, q.shape[0] * q.shape[2]])


def row(x: tf.Tensor, place: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """One row, as an axis of length 1.

    A slice would do, but TensorFlow compiles a slice again for each place where it starts.
    """
    return tf.gather(x, place[None], axis=axis)


def attend_cross(q: tf.Tensor, cross: KeysValues, bias: tf.Tensor) -> tf.Tensor:
    """Cross-attention of one query a beam: `[K, H, D]`.

    Args:
        q: queries, scaled, `[K, H, D]`.
        cross: keys and values `[H, S, D]` of the encoder's output.
        bias: broadcastable to `[K, H, S]`.
    """
    weights = tf.nn.softmax(_scores(q, cross.keys) + bias)
    return _weighted_sum(weights, cross.values)


def attend_step(
    q: tf.Tensor,
    prompt: KeysValues,
    prompt_bias: tf.Tensor | float,
    kv_cache: KeysValues,
    kv_cache_bias: tf.Tensor,
    current: KeysValues,
    current_bias: tf.Tensor | float = 0.0,
    softmax: Softmax = PLAIN,
) -> tf.Tensor:
    """Self-attention of one query a beam over the prompt, the new tokens before it, and itself.

    Every beam computes scores for the new tokens of all beams of its text, and `kv_cache_bias`
    hides those that are not its own. So when beams change places, only the bias changes: the KV
    cache stays where it was written. (Reordering it would read and write all of it at every step,
    which costs more than the additional scores.)

    The keys and values of the current token come separately, and `kv_cache` is only read here. If
    they were written into it first, it would be copied whole at every step, because XLA cannot
    write in place across a branch.

    Args:
        q: queries, scaled, `[K, H, D]`.
        prompt: keys and values `[H, S, D]`.
        prompt_bias: broadcastable to `[K, H, S]`.
        kv_cache: keys and values `[H, N, K, D]`.
        kv_cache_bias: broadcastable to `[K, H, N * K]`.
        current: keys and values of the current tokens, `[K, H, D]`.
        current_bias: broadcastable to `[K, H, 1]`.
        softmax: with sinks `[K, H, 1]`.

    Returns:
        `[K, H, D]`.
    """
    _, groups, size = q.shape
    cached = KeysValues(*(tf.reshape(x, [groups, -1, size]) for x in kv_cache))
    of_current = tf.reduce_sum(q * current.keys, axis=-1, keepdims=True)
    scores = [
        soft_cap(of_current, softmax.cap) + current_bias,
        soft_cap(_scores(q, prompt.keys), softmax.cap) + prompt_bias,
        soft_cap(_scores(q, cached.keys), softmax.cap) + kv_cache_bias,
    ]
    if softmax.sinks is not None:
        scores.append(softmax.sinks)
    weights = tf.nn.softmax(tf.concat(scores, axis=-1))
    if softmax.sinks is not None:
        weights = weights[..., :-1]
    first_cached = 1 + tf.shape(prompt.keys)[1]
    attended = weights[..., :1] * current.values
    attended += _weighted_sum(weights[..., 1:first_cached], prompt.values)
    return attended + _weighted_sum(weights[..., first_cached:], cached.values)


def _scores(q: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """`[K, H, D]` and `[H, S, D]` to `[K, H, S]`."""
    return swap(tf.matmul(swap(q), keys, transpose_b=True))


def _weighted_sum(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`[K, H, S]` and `[H, S, D]` to `[K, H, D]`."""
    return swap(tf.matmul(swap(weights), values))


def swap(x: tf.Tensor) -> tf.Tensor:
    """Swaps the first two of three axes."""
    return tf.transpose(x, [1, 0, 2])


def write_kv_cache(kv_cache: tf.Tensor, current: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Writes the current keys or values `[K, H, D]` into place `index` of axis N in `[H, N, K, D]`.

    XLA takes a negative index as 0.
    """
    current = tf.expand_dims(swap(current), 1)
    return dynamic_update_slice(kv_cache, current, tf.stack([0, index, 0, 0]))


def occurring(token_ids: tf.Tensor, counts: tf.Tensor, vocabulary_size: int) -> tf.Tensor:
    """Which tokens occur among the ids `[S]` where `counts`, `[S]` bool, is true: `[1, V]` bool."""
    times = tf.math.unsorted_segment_sum(tf.cast(counts, tf.int32), token_ids, vocabulary_size)
    return (times > 0)[None, :]


def dynamic_update_slice(target: tf.Tensor, update: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """XLA's in-place slice update; `tensor_scatter_nd_update` would become a slow scatter.

    Args:
        target: copied only if XLA must.
        update: of the same rank, and no larger on any axis.
        start: `[rank]` int32, where the first element of `update` goes.
    """
    return xla.dynamic_update_slice(target, update, start)


def soft_cap(x: tf.Tensor, cap: float | None) -> tf.Tensor:
    """`cap * tanh(x / cap)` (Gemma 2, arXiv:2408.00118); None changes nothing."""
    return x if cap is None else cap * tf.tanh(x / cap)


def rotate(x: tf.Tensor, cosines: tf.Tensor, sines: tf.Tensor) -> tf.Tensor:
    """Rotary positions (RoFormer, arXiv:2104.09864), with halves of a head as pairs.

    Args:
        x: `[..., D]`.
        cosines, sines: of each pair's angle, broadcastable to `[..., pairs]`. Numbers that are in
            no pair, the last ones, stay.
    """
    pairs = cosines.shape[-1]
    more = x.shape[-1] - 2 * pairs
    first, second, *rest = tf.split(x, [pairs, pairs, more] if more else 2, axis=-1)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    return tf.concat([*turned, *rest], axis=-1)


def gelu_exact(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit, exact, with the error function."""
    return tf.nn.gelu(x, approximate=False)


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit, approximate (GPT-2's `gelu_new`, arXiv:1606.08415)."""
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
    """The non-linearity that a configuration names."""
    if name not in ACTIVATIONS:
        raise ModelUnavailable(
            f"the model's config.json names the activation {name!r}; known are "
            f"{', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


class Repeated:
    """A part that a model has several times, such as a layer, and that is traced only once.

    TensorFlow and XLA get one function and a call of it for each layer, instead of the operations
    of every layer. This halves the time of tracing and of converting the graph to HLO. XLA inlines
    the calls before it optimizes, so the compiled code is the same.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """`function` takes a layer (a nest with variables in it) and nests of tensors."""
        self._function = function
        self._traced: dict[Any, Callable[..., Any]] = {}

    def __call__(self, layer: Any, *arguments: Any) -> Any:
        leaves = tf.nest.flatten(layer)
        # As tensors, because each variable would be traced into a function of its own.
        weights = [tf.convert_to_tensor(x) for x in leaves if isinstance(x, tf.Variable)]
        # Layers with other scales, activations or missing weights are traced separately.
        form = tuple(_WEIGHT if isinstance(x, tf.Variable) else x for x in leaves)
        if form not in self._traced:

            def run(weights: list[tf.Tensor], *arguments: Any) -> Any:
                remaining = iter(weights)
                leaves = [next(remaining) if x is _WEIGHT else x for x in form]
                return self._function(tf.nest.pack_sequence_as(layer, leaves), *arguments)

            self._traced[form] = tf.function(
                run, autograph=False, experimental_attributes={"_noinline": True}
            )
        return self._traced[form](weights, *arguments)


def _dequantized(weights: Weights) -> np.ndarray:
    if isinstance(weights, Blocks):
        return weights.dequantized()
    return weights.astype(np.float32, copy=False)


_WEIGHT = object()
"""Marks the places of weights in a layer's form."""


_Names = ParamSpec("_Names")
_Made = TypeVar("_Made")


def _saved(
    make: Callable[Concatenate[WeightReader, _Names], _Made],
) -> Callable[Concatenate[WeightReader, _Names], _Made]:
    """For a method of the reader: saved weights have what it made of a name at the first load."""

    @functools.wraps(make)
    def find(self: WeightReader, *names: _Names.args, **more: _Names.kwargs) -> _Made:
        key = f"{make.__name__} {names[0]}"
        if self.saved is not None:
            return cast("_Made", self._rebuilt(self.made[key]))
        made = make(self, *names, **more)
        self.made[key] = self._described(made)
        return made

    return find


class WeightReader:
    """Turns the arrays of a checkpoint into variables, by their PyTorch-format names.

    An array is removed, so that its memory is freed once its variable is made. Every method raises
    `ModelUnavailable` when the checkpoint has no such array.

    Attributes:
        saved: what is read instead of arrays; None without any.
        variables: by name. memory: of each. bytes: what all take.
        made: by method and name, what became of arrays, as JSON.
        rounded_bits: see `ModelInfo`.
    """

    def __init__(
        self,
        arrays: MutableMapping[str, Weights],
        kind: str = kinds.AUTO,
        in_eight_bits: bool = False,
        saved: SavedWeights | None = None,
        kernels: Kernels = KERNELS[kinds.OWN],
    ) -> None:
        """Reads nothing yet.

        Args:
            arrays: see `checkpoints.weights.read_weights`.
            saved: of an earlier load with this kind; `arrays` are not read then.
        """
        self._arrays = arrays
        self.saved = saved
        self.kernels = kernels
        self._kind = kind
        self._in_eight_bits = in_eight_bits
        self._pages = LargePages()
        self.bytes = 0
        self.rounded_bits: int | None = None if saved is None else saved.facts["rounded_bits"]
        self.variables: dict[str, tf.Variable] = {}
        self.memory: dict[str, np.ndarray] = {}
        self.made: dict[str, Any] = {} if saved is None else saved.facts["made"]

    def __contains__(self, name: str) -> bool:
        return name in (self._arrays if self.saved is None else self.saved.arrays)

    def array(self, name: str) -> np.ndarray:
        """The array in float32, once."""
        return _dequantized(self._take(name))

    @_saved
    def variable(self, name: str, offset: float = 0.0) -> tf.Variable:
        return self._add(name, self.array(name) + offset if offset else self.array(name))

    @_saved
    def exponential(self, name: str) -> tf.Variable:
        return self._add(name, np.exp(self.array(name)))

    @_saved
    def transposed(self, name: str) -> tf.Variable:
        return self._add(name, self.array(name).T)

    @_saved
    def matrix(self, name: str) -> Matrix:
        """A matrix, `[out, in]` in the checkpoint."""
        return self._matrix(name, self._take(name))

    @_saved
    def linears(self, names: Sequence[str]) -> Linear:
        """Concatenates projections of one input, each `[out, in]` in the checkpoint, into one.

        If only some have a bias (Whisper's keys have none), the others get zeros.
        """
        parts = [self._take(f"{name}.weight") for name in names]
        sizes = [len(part) for part in parts]
        label = names[0] if len(names) == 1 else "+".join(names)
        matrices = [
            self._matrix(f"{label}.weight.{place}" if place else f"{label}.weight", part)
            for place, part in enumerate(stacked(parts))
        ]
        matrix = matrices[0] if len(matrices) == 1 else Stacked(tuple(matrices))
        if not any(f"{name}.bias" in self for name in names):
            return Linear(matrix, None)
        biases = [
            self.array(f"{name}.bias") if f"{name}.bias" in self else np.zeros(size, np.float32)
            for name, size in zip(names, sizes, strict=True)
        ]
        return Linear(matrix, self._add(f"{label}.bias", np.concatenate(biases)))

    @_saved
    def parts(self, names: Sequence[str]) -> Matrix:
        """Matrices of one shape, of which products take one at a time."""
        stack = stacked([self._take(name) for name in names])
        whole = stack[0]
        if len(stack) > 1:  # of several formats
            whole = np.concatenate([_dequantized(part) for part in stack])
        return self._matrix(names[0], whole, len(names))

    @_saved
    def stack(self, names: Sequence[str]) -> tf.Variable:
        """Arrays of one shape as one variable, with an axis before theirs."""
        return self._add(names[0], np.stack([self.array(name) for name in names]))

    @_saved
    def convolution(self, name: str) -> Linear:
        """A convolution over neighbours as one projection of all of them, concatenated.

        `[out, in, width]` in the checkpoint; the matrix is `[width * in, out]`.
        """
        array = self.array(f"{name}.weight")
        matrix = self._matrix(f"{name}.weight", array.transpose(0, 2, 1).reshape(len(array), -1))
        return Linear(matrix, self.variable(f"{name}.bias"))

    @_saved
    def conv1d(self, name: str) -> Linear:
        """A projection of GPT-2's, `[in, out]` in the checkpoint."""
        weights = self._take(f"{name}.weight")
        assert isinstance(weights, np.ndarray)
        return Linear(self._matrix(f"{name}.weight", weights.T), self.variable(f"{name}.bias"))

    def head(self, config: PretrainedConfig, embedding: Matrix) -> Matrix:
        """The language model head `[E, V]`, which is the embedding if the two are tied."""
        if config.tie_word_embeddings or "lm_head.weight" not in self:
            return embedding
        return self.matrix("lm_head.weight")

    def matrices(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for name, form in _formats(list(self.made.values())):
            of_all = found.setdefault(_shared_name(name), {})
            of_all[form] = of_all.get(form, 0) + self.memory[name].nbytes
        return found

    def _take(self, name: str) -> Weights:
        if name not in self._arrays:
            raise ModelUnavailable(
                f"the checkpoint has no weight called {name}: it is incomplete, or of another "
                "architecture than its config.json says."
            )
        return self._arrays.pop(name)

    def _matrix(self, name: str, weights: Weights, matrices: int | None = None) -> Matrix:
        save = functools.partial(self._written, name)
        form = self._in_eight_bits, self.kernels.multiplies, matrices
        return Matrix.of(self._in_kind(weights), save, *form)

    def _in_kind(self, weights: Weights) -> Weights:
        """A matrix in the format chosen for matrices."""
        # Rounding what stays float32 would only lose precision.
        if isinstance(weights, np.ndarray) and self.kernels.multiplies(weights):
            if self._kind == kinds.BFLOAT16 and weights.dtype.itemsize > 2:
                weights, self.rounded_bits = weights.astype(ml_dtypes.bfloat16), 16
            if self._kind == kinds.INT8:
                weights, self.rounded_bits = rounded(weights), 8
        return weights

    def _add(self, name: str, array: np.ndarray) -> tf.Variable:
        return self._written(name, array.shape, array.dtype, lambda to: np.copyto(to, array))

    def _written(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        write: Callable[[np.ndarray], None],
    ) -> tf.Variable:
        array = self._pages.empty(shape, dtype)
        write(array)
        return self._over(name, array)

    def _over(self, name: str, array: np.ndarray) -> tf.Variable:
        self.memory[name] = array
        self.bytes += array.nbytes
        # Through DLPack, so that TensorFlow uses this memory instead of copying it into its own.
        tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        self.variables[name] = tf.Variable(tensor, trainable=False)
        return self.variables[name]

    def _described(self, made: Any) -> Any:
        """A nest of weights as JSON, with the names of its variables."""
        if isinstance(made, tf.Variable):
            return {"name": next(x for x, own in self.variables.items() if own is made)}
        if isinstance(made, tuple):
            fields = made if isinstance(made, Linear | Matrix) else made[0]
            return [type(made).__name__, *map(self._described, fields)]
        return made

    def _rebuilt(self, described: Any) -> Any:
        """The nest that was described, over the saved arrays."""
        if isinstance(described, dict):
            assert self.saved is not None, "is where it was described"
            name = described["name"]
            return self._over(name, self.saved.arrays[name])
        if not isinstance(described, list):
            return described
        kind, *fields = described[0], *map(self._rebuilt, described[1:])
        if kind == "Stacked":
            return Stacked(tuple(fields))
        if kind == "Linear":
            return Linear(*fields)
        return Matrix(*fields).prepared(self._in_eight_bits)


def _formats(described: Any) -> Iterator[tuple[str, str]]:
    """The variable and the format of each matrix in a nest as JSON."""
    if isinstance(described, list):
        if described[0] == "Matrix":
            yield described[1]["name"], described[2] or "float32"
        else:
            for each in described:
                yield from _formats(each)


def _shared_name(name: str) -> str:
    """A matrix's name without its layer: `self_attn.q_proj+k_proj+v_proj`."""
    parts = [
        [level for level in part.split(".") if not level.isdigit() and level != "weight"]
        for part in name.split("+")
    ]
    return "+".join([".".join(parts[0][-2:]), *(part[-1] for part in parts[1:])])
