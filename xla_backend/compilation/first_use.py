"""First use: the work that TensorFlow and XLA do once per process, done before the first request.

Knows that the first trace, compilation and nest of tensors in a process are slow for any function.
Measured on two cores: the first call is about 0.3 s faster, and the work is done while a model
loads.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from xla_backend.compilation import xla_folder
from xla_backend.compilation.traced_function import TracedFunction

_NAME = "xla_backend_first_use"


@functools.cache
def initialize_xla() -> None:
    """Traces, compiles and runs a tiny function; a second call does nothing."""
    matrix = tf.Variable(tf.eye(2))

    def function(steps: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        def one(step: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.nn.softmax(tf.matmul(x, matrix))
            best = tf.gather(y, tf.math.top_k(y[:, 0], 2)[1])
            return step + 1, tf.cond(step > 0, lambda: best, lambda: x)

        return tf.while_loop(lambda step, _: step < steps, one, (0, x))[1]

    ready = TracedFunction(
        name=_NAME,
        function=function,
        specs=[tf.TensorSpec([], tf.int32), tf.TensorSpec([2, 2], tf.float32)],
        variables={"matrix": matrix},
        structure=0,
    )
    ready.trace()
    ready(tf.constant(1), tf.eye(2))
    if xla_folder.is_ready():
        xla_folder.collect(_NAME)  # nothing will load this code
