"""Tests of `importing`: what is left out at the start, and that it is still there."""

import subprocess
import sys

from tests.program import ROOT, python

SCRIPT = """
import gc, sys
from xla_backend.engine.importing import import_engine
import_engine()
assert {"tensorflow", "xla_backend.engine.backend"} <= set(sys.modules)
assert not {"keras", "pandas"} & set(sys.modules), "left out, and not needed"
assert gc.isenabled(), "garbage is collected again"
assert gc.get_freeze_count() > 20 * len(gc.get_objects()), "but not looked for in what was imported"
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(3)])
model.compile(optimizer="adam", loss="mse", jit_compile=True)
assert model.predict(tf.ones((4, 2)), verbose=0).shape == (4, 3)
assert type(model).__module__.startswith("keras.src"), "Keras 3, as TensorFlow ships it"
import keras.src.optimizers
import_engine()
assert sys.modules["keras.src.optimizers"], "what was there is left alone"
"""


def test_the_engine_comes_without_keras_which_works_when_it_is_asked_for() -> None:
    python(SCRIPT)


def test_importing_the_library_prints_nothing() -> None:
    command = [sys.executable, "-c", "from xla_backend import Backend"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
