"""Model folders as on the Hugging Face Hub: written from a trained TensorFlow model, and read back.

Knows: PyTorch's names and layouts of weights, and which files belong in a model folder.
Must not know: how a model was trained or what its text is about.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, TFPreTrainedModel
from transformers.modeling_tf_pytorch_utils import (
    TransposeType,
    convert_tf_weight_name_to_pt_weight_name,
    load_pytorch_state_dict_in_tf2_model,
)

from demo_models.folders import MAX_BYTES


def pytorch_weights(model: TFPreTrainedModel) -> dict[str, np.ndarray]:
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
            array = array.reshape(-1)  # GPT-2's TensorFlow biases are (1, n)
        weights[name] = np.ascontiguousarray(array)
    return weights


def save_weights(model: TFPreTrainedModel, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    path = folder / "model.safetensors"
    save_file(pytorch_weights(model), path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes it for its owner only
    if path.stat().st_size >= MAX_BYTES:
        raise ValueError(f"{path} is {path.stat().st_size} bytes; the limit is {MAX_BYTES}")


def load_weights(model: TFPreTrainedModel, weights: dict[str, np.ndarray]) -> None:
    """Put weights under PyTorch's names into a TensorFlow model; every one must find its place."""
    tensors = {name: tf.constant(array) for name, array in weights.items()}
    load_pytorch_state_dict_in_tf2_model(model, tensors, tf_inputs=False, allow_missing_keys=True)


def load_model(folder: Path) -> TFPreTrainedModel:
    """The model of a folder, through the loader that works with PyTorch-format weights."""
    import transformers

    config = AutoConfig.from_pretrained(folder)
    model = getattr(transformers, "TF" + config.architectures[0])(config)
    model.build_in_name_scope()
    load_weights(model, load_file(folder / "model.safetensors"))
    model.generation_config = type(model.generation_config).from_pretrained(folder)
    return model
