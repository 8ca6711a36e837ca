"""The oracle: Transformers' own TensorFlow models, which answer from a process of their own.

Knows the overlay that has them, how one process serves a whole test run, and what can be asked of
it. Must not know the engine under test. As a program (`python -m tests.oracle ADDRESS`) it is that
process, which is light until it is asked something.

The engine is tested as shipped, and what is shipped has no such models: see `overlay`.
Whoever is given an object of a class below holds a proxy: its methods run in the process. Arrays
and plain values travel, and so do exceptions. The object lives there for as long as its proxy here.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_backend.baselines import overlay

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).resolve().parents[1]
_ADDRESS = "XLA_BACKEND_TEST_ORACLE"
"""The environment variable by which the processes of a test run find the oracle: a Unix socket."""
_KEY = b"the socket's folder is private"
_lock = threading.Lock()


def start(folder: str) -> Callable[[], object]:
    """Starts the process, if the overlay is installed; the test run's first process calls it.

    Args:
        folder: where its socket goes.

    Returns:
        What ends it. It also ends when this process does, however that happens.
    """
    os.environ[_ADDRESS] = address = f"{folder}/oracle"
    if not overlay.is_installed():
        return lambda: None
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.oracle", address],
        cwd=ROOT,
        env=os.environ | overlay.environment([]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()  # it listens
    return process.communicate


def load_oracle(folder: Path | str) -> Oracle:
    """Transformers' own TensorFlow model of a folder that `checkpoints` wrote.

    Raises:
        BaselineMissing: the overlay is not installed.
        RemoteError: the model cannot be loaded, or does not fit the file; with the traceback.
    """
    return _process().Oracle(str(folder))


def load_oracle_tokenizer(folder: Path | str) -> OracleTokenizer:
    """Transformers' own tokenizer of a folder.

    Raises:
        BaselineMissing: the overlay is not installed.
    """
    return _process().OracleTokenizer(str(folder))


@functools.cache
def formulas() -> Formulas:
    """What Transformers computes without a model.

    Raises:
        BaselineMissing: the overlay is not installed.
    """
    return _process().Formulas()


@functools.cache
def _process() -> Any:
    overlay.check_installed()
    process = _Process(os.environ[_ADDRESS], _KEY)
    process.connect()
    return process


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """One request at a time: Transformers imports parts of itself as it goes, which no two threads
    may do at once."""

    @functools.wraps(method)
    def locked(*args: Any, **options: Any) -> Any:
        with _lock:
            return method(*args, **options)

    return locked


class Oracle:
    """A model, whose generation config is at each call what the folder says then."""

    @_alone
    def __init__(self, folder: str) -> None:
        """Loads it.

        Raises:
            AssertionError: a tensor of the file found no variable, or a variable no tensor.
        """
        import transformers
        from safetensors.numpy import load_file
        from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

        self._folder = folder
        config = transformers.AutoConfig.from_pretrained(folder)
        self._model = getattr(transformers, "TF" + config.architectures[0])(config)
        self._model.build_in_name_scope()
        tensors = {
            name: tensor
            for name, tensor in load_file(Path(folder) / "model.safetensors").items()
            if not name.endswith(".attn.bias")
        }
        _, info = load_pytorch_state_dict_in_tf2_model(
            self._model,
            tensors,
            tf_inputs=False,
            allow_missing_keys=True,
            output_loading_info=True,
            skip_logger_warnings=True,
        )
        assert not info["unexpected_keys"], info["unexpected_keys"]
        assert not info["missing_keys"], info["missing_keys"]

    @_alone
    def generate(
        self,
        inputs: dict[str, np.ndarray],
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        stop_token_ids: Sequence[int] = (),
        min_new_tokens: int = 0,
        ignore_eos: bool = False,
        **options: Any,
    ) -> np.ndarray:
        """Eager `model.generate`: texts with their start, (rows, length) int32.

        Args:
            inputs: what it reads, by argument.
            presence_penalty, frequency_penalty, logit_bias, min_new_tokens: by OpenAI's and
                PyTorch's definition, which TensorFlow's classes have not: a logits processor of
                ours behind theirs.
            stop_token_ids, ignore_eos: as its `eos_token_id`.
            **options: as of `model.generate`.
        """
        import numpy as np
        from transformers import GenerationConfig

        start = 1 if self._model.config.is_encoder_decoder else inputs["input_ids"].shape[1]

        def penalized(ids: Any, scores: Any, length: int) -> Any:
            scores = scores.numpy().copy()
            for row, generated in zip(scores, ids.numpy()[:, start:length], strict=True):
                for token in np.unique(generated):
                    row[token] -= presence_penalty
                    row[token] -= frequency_penalty * (generated == token).sum()
                for token, bias in (logit_bias or {}).items():
                    row[token] += bias
                if length < start + min_new_tokens:
                    row[config.eos_token_id or []] = -np.inf
            return scores

        if presence_penalty or frequency_penalty or logit_bias or min_new_tokens:
            options["logits_processor"] = [penalized]
        config = GenerationConfig.from_pretrained(self._folder)
        own = [] if ignore_eos else np.atleast_1d(config.eos_token_id).tolist()
        config.eos_token_id = [*own, *stop_token_ids] or None
        self._model.generation_config = config
        return self._model.generate(**_tensors(inputs), **options).numpy()

    @_alone
    def logits(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """The logits after each token, (rows, length, vocabulary) float32, without a cache."""
        return self._model(**_tensors(inputs)).logits.numpy()

    @_alone
    def weights(self) -> dict[str, np.ndarray]:
        """What its variables hold, under PyTorch names, by Transformers' own conversion."""
        import numpy as np
        from transformers.modeling_tf_pytorch_utils import (
            apply_transpose,
            convert_tf_weight_name_to_pt_weight_name,
        )

        found = {}
        for variable in self._model.weights:
            name, transpose = convert_tf_weight_name_to_pt_weight_name(
                variable.name, tf_weight_shape=variable.shape
            )
            found[name] = np.asarray(apply_transpose(transpose, variable.numpy(), pt_to_tf=False))
        return found

    @_alone
    def save_pretrained(self, folder: str, **options: Any) -> None:
        """Saves it in TensorFlow's formats."""
        self._model.save_pretrained(folder, **options)


class OracleTokenizer:
    """A tokenizer."""

    @_alone
    def __init__(self, folder: str) -> None:
        """Loads it."""
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    @_alone
    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the tokens that the model expects around it."""
        return self._tokenizer(text).input_ids

    @_alone
    def decode(self, ids: list[int]) -> str:
        """The text of ids, without special tokens."""
        return self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


class Formulas:
    """What Transformers computes without a model."""

    @_alone
    def version(self) -> str:
        """Transformers' own."""
        import transformers

        return transformers.__version__

    @_alone
    def filtered(
        self, scores: np.ndarray, temperature: float, top_k: int, top_p: float
    ) -> np.ndarray:
        """Logits (rows, vocabulary) float32 after the warpers, in `generate`'s order."""
        import tensorflow as tf
        from transformers import generation

        result = generation.TFTemperatureLogitsWarper(temperature)(None, tf.constant(scores), 0)
        if top_k:
            result = generation.TFTopKLogitsWarper(top_k)(None, result, 0)
        if top_p < 1.0:
            result = generation.TFTopPLogitsWarper(top_p)(None, result, 0)
        return result.numpy()

    @_alone
    def penalized(self, scores: np.ndarray, prompt: np.ndarray, penalty: float) -> np.ndarray:
        """Logits (rows, vocabulary) float32, the prompt's tokens (rows, length) penalised."""
        import tensorflow as tf
        from transformers.generation import TFRepetitionPenaltyLogitsProcessor

        processor = TFRepetitionPenaltyLogitsProcessor(penalty)
        ids = tf.constant(prompt, tf.int32)
        return processor(ids, tf.constant(scores), prompt.shape[1]).numpy()

    @_alone
    def distance_buckets(
        self, offsets: np.ndarray, is_bidirectional: bool, buckets: int, most: int
    ) -> np.ndarray:
        """T5's bucket of each offset, (n,) int32."""
        import tensorflow as tf
        from transformers.models.t5.modeling_tf_t5 import TFT5Attention

        theirs = TFT5Attention._relative_position_bucket  # noqa: SLF001 (the formula itself)
        return theirs(tf.constant(offsets), is_bidirectional, buckets, most).numpy()


def _tensors(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    import tensorflow as tf

    return {name: tf.constant(array) for name, array in inputs.items()}


class _Process(BaseManager):
    """The process, as those see it that ask."""


_Process.register("Oracle", Oracle)
_Process.register("OracleTokenizer", OracleTokenizer)
_Process.register("Formulas", Formulas)


def main() -> None:
    """Answers until nobody holds its input open."""
    server = _Process(sys.argv[1], _KEY).get_server()
    print("listening", flush=True)
    nobody = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what goes wrong from here on is told as an exception
        os.dup2(nobody, stream.fileno())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # whatever is being answered


if __name__ == "__main__":
    main()
