"""The code that does by hand what the Functions tab measures.

Knows the examples' layers as a reader would write them; a test runs the code and compares it with
what the engine builds. Must not know components.
"""

from xla_backend import FunctionRequest

_MODELS = {
    "dense": """\
model = tf.keras.Sequential([
    tf.keras.Input((10,)),
    tf.keras.layers.Dense(10, activation="relu"),
    tf.keras.layers.Dense(5, activation="softmax"),
])""",
    "convolution": """\
layers = tf.keras.layers
model = tf.keras.Sequential([
    tf.keras.Input((64, 64, 3)),
    layers.Conv2D(16, 3, activation="relu"),
    layers.MaxPooling2D(),
    layers.Conv2D(32, 3, activation="relu"),
    layers.MaxPooling2D(),
    layers.Conv2D(64, 3, activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(10, activation="softmax"),
])""",
}


def code(request: FunctionRequest) -> str:
    """A program that calls the function in the three ways, and with this project's `jit`."""
    shape = [request.batch_size, *request.example.input_shape]
    missing = request.rows - request.batch_size
    padding, argument, cut = "", "x", ""
    if missing:
        widths = ", ".join([f"[0, {missing}]", *["[0, 0]"] * (len(shape) - 1)])
        padding = (
            f"# {request.batch_size} rows become {request.rows}\npadded = tf.pad(x, [{widths}])\n"
        )
        argument, cut = "padded", f"[:{request.batch_size}]"
    return f"""\
import tensorflow as tf

{_MODELS[request.function]}
x = tf.random.normal({shape})
{padding}
# Eager: one operation after the other
model(x)

# Traced at the first call of each shape
graph = tf.function(model)
graph({argument}){cut}

# Traced, then compiled by XLA
compiled = tf.function(model, jit_compile=True)
compiled({argument}){cut}

# The same here, with an account of it
from xla_backend import jit

fast = jit(model)
call = fast({argument})
call.output{cut}
print(call.cache.value, call.timing)"""
