"""Tests of `xla_backend.startup`: what is left out at the start, and that it is still there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
from xla_backend.startup import import_tensorflow
import_tensorflow()
import tensorflow as tf
assert not {"tf_keras", "keras", "pandas"} & set(sys.modules), "left out"
import xla_backend.backend
assert not {"tf_keras", "keras", "pandas"} & set(sys.modules), "and not needed by the engine"
model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
model.compile(optimizer="adam", loss="mse", jit_compile=True)
assert model.predict(tf.ones((4, 2)), verbose=0).shape == (4, 3)
assert type(model).__module__.startswith("tf_keras"), "Keras 2, which Transformers needs"
import tf_keras.src.optimizers
import_tensorflow()
assert sys.modules["tf_keras.src.optimizers"], "what was there is left alone"
"""


def test_tensorflow_comes_without_keras_which_works_when_it_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
