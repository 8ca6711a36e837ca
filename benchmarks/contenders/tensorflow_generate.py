"""`model.generate` of Transformers' TensorFlow models, compiled with XLA as in the guide.

Needs the baseline overlay, which has those models.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import safetensors.tensorflow
import tensorflow as tf
import transformers
from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

from benchmarks.contenders import THREADS, Request


class Model:
    """A TensorFlow model with the weights of a PyTorch-format checkpoint."""

    libraries = ("tensorflow", "transformers")

    def __init__(self, folder: Path, work: Path, weights: str) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(THREADS)
        config = transformers.AutoConfig.from_pretrained(folder)
        self._model = getattr(transformers, f"TF{config.architectures[0]}")(config)
        self._model.build_in_name_scope()
        state = safetensors.tensorflow.load_file(folder / "model.safetensors")
        load_pytorch_state_dict_in_tf2_model(
            self._model, state, tf_inputs=False, allow_missing_keys=True
        )
        self._end = config.eos_token_id

    def generate(self, request: Request) -> list[int]:
        """The new tokens; the first call of a size compiles."""
        ids = tf.constant([request.ids])
        run = self._function(request.new_tokens, request.num_beams)
        return run(ids, tf.ones_like(ids)).numpy()[0, len(request.ids) :].tolist()

    @functools.cache  # noqa: B019 (lives as long as the process)
    def _function(self, new_tokens: int, num_beams: int) -> Callable[..., tf.Tensor]:
        def generate(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
            return self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=new_tokens,
                num_beams=num_beams,
                pad_token_id=self._end,
            )

        return tf.function(generate, jit_compile=True)
