"""The process of one baseline: runs a request repeatedly, and reports its times.

Knows how Transformers and this engine are called and timed. Run by `comparison`: the first message
is its job; it sends a "chunk" (stage) at each step, then a `BaselineResult` of its first call as
its "result", or an "error". From then on it answers each "call" with a "result": the seconds that
repeating the request took.

Transformers is called as in the Hugging Face documentation ("XLA integration for TensorFlow
models"), in a process that sees the overlay (see `overlay`). Only two things differ: the loading,
because Transformers 4.57 fails to read PyTorch's safetensors into TensorFlow models, and the
padding token, because "</s>" is not in GPT-2's vocabulary.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xla_backend.baselines.comparison import (
    OF_TRANSFORMERS,
    Baseline,
    BaselineJob,
    BaselineResult,
    Stage,
)
from xla_backend.checkpoints.prompts import encode_prompt
from xla_backend.child_process.channel import Channel
from xla_backend.child_process.child_side import connect, end, reporting_errors
from xla_backend.engine.importing import import_engine
from xla_backend.interface.buckets import BucketRules
from xla_backend.interface.errors import ModelUnavailable

if TYPE_CHECKING:
    from xla_backend.checkpoints.models import ModelFiles
    from xla_backend.interface.results import EngineStatus

Report = Callable[["Stage"], None]
Repeat = Callable[[], float]
"""Repeats the request; returns the seconds that it took."""


def main() -> None:
    """Runs the parent's job, then its further calls."""
    channel, job = connect()
    requests: queue.SimpleQueue[None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, requests), daemon=True).start()

    def report(stage: Stage) -> None:
        channel.send(("chunk", None, stage))

    with reporting_errors(channel):
        measure = _transformers if job.baseline in OF_TRANSFORMERS else _engine
        first, repeat = measure(job, report)
        channel.send(("result", None, first))
        while True:
            requests.get()
            channel.send(("result", None, repeat()))
    end(channel)


def _engine(job: BaselineJob, report: Report) -> tuple[BaselineResult, Repeat]:
    """This engine. Each call is a request with its exact key."""
    report("importing")
    start = time.perf_counter()
    import_engine()
    from xla_backend.engine.backend import Backend

    import_s = time.perf_counter() - start

    report("loading")
    start = time.perf_counter()
    stages: dict[str, Stage] = {"tracing": "tracing", "compiling": "compiling"}
    is_first = True

    def on_status(status: EngineStatus) -> None:
        if is_first and status.state in stages:
            report(stages[status.state])

    backend = Backend(job.registry, on_status=on_status, store=job.store)
    backend.load(job.model)
    load_s = time.perf_counter() - start

    def call() -> Any:
        return backend.generate(job.model, job.prompt, job.options.replace(exact_key=True))

    report("running")
    first = call()
    is_first = False
    result = BaselineResult(
        baseline=job.baseline,
        import_s=import_s,
        load_s=load_s,
        first_s=first.timing.total_s,
        trace_s=first.timing.trace_s,
        compile_s=first.timing.compile_s,
        wall_s=time.perf_counter() - job.started,
        prompt_tokens=first.prompt_tokens,
        padded_length=first.key.padded_length,
        tokens=tuple(token.id for token in first.tokens),
        text=first.text,
        cache=first.cache,
    )
    return result, lambda: call().timing.total_s


def _transformers(job: BaselineJob, report: Report) -> tuple[BaselineResult, Repeat]:
    report("importing")
    start = time.perf_counter()
    import tensorflow as tf
    from transformers import AutoTokenizer

    import_s = time.perf_counter() - start

    report("loading")
    start = time.perf_counter()
    files = job.registry.locate(job.model)
    is_decoder_only = files.info.family == "decoder-only"
    prompt_tokens, padded_length = _lengths(job, files)
    model = load_model(files)
    tokenizer: Any = AutoTokenizer.from_pretrained(
        str(files.folder),
        local_files_only=True,
        # New tokens must follow the prompt directly; with an encoder they need not.
        padding_side="left" if is_decoder_only else "right",
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = tokenizer.pad_token_id
    load_s = time.perf_counter() - start

    is_compiled = job.baseline is Baseline.GUIDE
    padding = {"pad_to_multiple_of": padded_length, "padding": True} if is_compiled else {}
    options = {
        "max_new_tokens": job.options.max_new_tokens,
        "num_beams": job.options.num_beams,
        "do_sample": False,
        "repetition_penalty": job.options.repetition_penalty,
        "length_penalty": job.options.length_penalty,
        "early_stopping": job.options.early_stopping,
    }
    generate = tf.function(model.generate, jit_compile=True) if is_compiled else model.generate

    def tokenize() -> Any:
        # A tokenizer without its own class adds token types, and GPT-2 then adds a word's embedding
        # to every position.
        return tokenizer([job.prompt], return_tensors="tf", return_token_type_ids=False, **padding)

    def answer(inputs: Any) -> tuple[list[int], str]:
        written = generate(**inputs, **options).numpy()[0].tolist()
        # A decoder-only model repeats the prompt; T5 begins with a start token.
        new = written[inputs["input_ids"].shape[1] if is_decoder_only else 1 :]
        return _without_end(new, model), tokenizer.decode(new, skip_special_tokens=True)

    trace_s = 0.0
    report("tracing" if is_compiled else "running")
    start = time.perf_counter()
    inputs = tokenize()
    if is_compiled:
        # The call below would do the same; done here, so that it can be timed separately.
        tracing = time.perf_counter()
        generate.get_concrete_function(**inputs, **options)
        trace_s = time.perf_counter() - tracing
        report("compiling")
    tokens, text = answer(inputs)
    first_s = time.perf_counter() - start

    def repeat() -> float:
        start = time.perf_counter()
        answer(tokenize())
        return time.perf_counter() - start

    result = BaselineResult(
        baseline=job.baseline,
        import_s=import_s,
        load_s=load_s,
        first_s=first_s,
        trace_s=trace_s,
        compile_s=first_s - trace_s if is_compiled else 0.0,
        wall_s=time.perf_counter() - job.started,
        prompt_tokens=prompt_tokens,
        padded_length=padded_length if is_compiled else prompt_tokens,
        tokens=tuple(tokens),
        text=text,
        cache=None,
    )
    return result, repeat


def _lengths(job: BaselineJob, files: ModelFiles) -> tuple[int, int]:
    """The prompt's tokens, and the slots that this engine would pad them to."""
    from xla_backend.checkpoints.tokenization import Tokenizer

    tokenizer = Tokenizer.load(files.folder)
    tokens = len(encode_prompt(tokenizer, job.prompt, files.info))
    key = BucketRules().key_for(
        tokens, job.options.num_beams, job.options.max_new_tokens, files.info.context_length
    )
    return tokens, key.padded_length


def load_model(files: ModelFiles) -> Any:
    """Transformers' TensorFlow model.

    Raises:
        ModelUnavailable: weights that the architecture needs are missing.
    """
    # The overlay's version, which is older than the one that mypy reads.
    from transformers import GenerationConfig, TFAutoModelForCausalLM, TFAutoModelForSeq2SeqLM  # type: ignore[attr-defined]
    from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

    from xla_backend.checkpoints.weights import read_weights

    of_family = {"decoder-only": TFAutoModelForCausalLM, "encoder-decoder": TFAutoModelForSeq2SeqLM}
    model = of_family[files.info.family].from_config(files.config)
    model.build_in_name_scope()
    _, loading_info = load_pytorch_state_dict_in_tf2_model(
        model,
        read_weights(files.folder),
        tf_inputs=False,
        allow_missing_keys=True,
        output_loading_info=True,
        skip_logger_warnings=True,
    )
    if loading_info["missing_keys"]:
        raise ModelUnavailable(
            f"Transformers finds no weights for {', '.join(loading_info['missing_keys'][:3])} in "
            f"{files.folder}."
        )
    if (files.folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(files.folder))
    return model


def _without_end(ids: list[int], model: Any) -> list[int]:
    """The new tokens up to the first end token; Transformers pads the rest."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    stops = [place for place, token in enumerate(ids) if token in ends]
    return ids[: stops[0] + 1] if stops else ids


def _listen(channel: Channel, requests: queue.SimpleQueue[None]) -> None:
    """Passes on the parent's calls; ends this process at once when the parent ends."""
    try:
        while True:
            channel.receive()
            requests.put(None)
    except (EOFError, OSError):
        end(channel, 1)


if __name__ == "__main__":
    main()
