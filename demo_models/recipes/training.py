"""Trains a fresh model of a bundled model's shape, and writes it as a folder like that one.

Knows Transformers' TensorFlow models, Keras 2, and PyTorch's names of weights. A process that
imports this sees the baseline overlay, and so an older Transformers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xla_backend.baselines import overlay

overlay.use()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402
import transformers  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from transformers.modeling_tf_pytorch_utils import (  # noqa: E402
    TransposeType,
    convert_tf_weight_name_to_pt_weight_name,
)

BUNDLED = Path(__file__).resolve().parents[1]
EPOCH = 250  # steps between two lines of the log
HELD_OUT_BATCHES = 20
WARMUP = 300  # steps

Batch = dict[str, np.ndarray]
MakeBatch = Callable[[int], Batch]
"""The batch of a number, always the same one."""


def processor(name: str) -> Any:
    """The tokenizer of a bundled model; with the feature extractor, of one that hears."""
    return transformers.AutoProcessor.from_pretrained(BUNDLED / name)


def train(
    name: str,
    phases: Sequence[tuple[MakeBatch, int]],
    held_out: MakeBatch,
    peak_learning_rate: float,
    folder: Path,
) -> None:
    """Trains from random weights; the loss on held-out rows is printed after each epoch.

    Args:
        name: the bundled model whose configuration is taken.
        phases: rows, and for how many steps.
        held_out: rows that no phase has.
        peak_learning_rate: after a warm-up; a cosine leads from there almost to 0.
        folder: gets the new weights, and the bundled folder's other files.
    """
    tf_keras.utils.set_random_seed(1)
    config = transformers.AutoConfig.from_pretrained(BUNDLED / name)
    model = getattr(transformers, "TF" + config.architectures[0])(config)
    model.build_in_name_scope()
    rate = tf_keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=sum(steps for _, steps in phases),
        alpha=0.02,
        warmup_target=peak_learning_rate,
        warmup_steps=WARMUP,
    )
    adamw = tf_keras.optimizers.AdamW(rate, weight_decay=0.01, beta_2=0.98, global_clipnorm=1.0)
    model.compile(adamw, jit_compile=True)
    for make, steps in phases:
        epoch = min(steps, EPOCH)
        model.fit(
            batches(make, steps),
            steps_per_epoch=epoch,
            epochs=steps // epoch,
            validation_data=batches(held_out, min(epoch, HELD_OUT_BATCHES)),
            verbose=2,
        )
    documents = ("README.md", "training.json", "evaluation.json", "examples")
    ignored = shutil.ignore_patterns(*documents)
    shutil.copytree(BUNDLED / name, folder, ignore=ignored, dirs_exist_ok=True)
    path = folder / "model.safetensors"
    save_file(pytorch_weights(model), path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes it for its owner only


def batches(make: MakeBatch, count: int) -> tf.data.Dataset:
    """The batches 0 to count - 1 as Keras takes them."""
    first = make(0)

    def numbered(number: tf.Tensor) -> dict[str, tf.Tensor]:
        arrays = tf.numpy_function(
            lambda n: list(make(int(n)).values()), [number], [a.dtype for a in first.values()]
        )
        return {
            name: tf.ensure_shape(array, first[name].shape)
            for name, array in zip(first, arrays, strict=True)
        }

    return tf.data.Dataset.range(count).map(numbered, os.cpu_count()).prefetch(4)


def pytorch_weights(model: transformers.TFPreTrainedModel) -> Batch:
    """The model's weights under PyTorch's names and in PyTorch's layouts, tied ones once."""
    weights = {}
    for variable in model.weights:
        name, transpose = convert_tf_weight_name_to_pt_weight_name(
            variable.name, tf_weight_shape=variable.shape
        )
        array = variable.numpy()
        if (
            transpose is not TransposeType.NO
        ):  # a convolution: (kernel, in, out) to (out, in, kernel)
            array = array.T
        if name.endswith(".bias"):
            array = array.reshape(-1)  # GPT-2's are (1, n) in TensorFlow
        weights[name] = np.ascontiguousarray(array)
    return weights
