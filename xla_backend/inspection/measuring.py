"""`measure`: runs a function with XLA's profiler and without, to see where a token's time goes.

Knows TensorFlow's profiler, which XLA tells when each kernel begins and ends. Must not know how
kernels are described (`reading`), nor who asks.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import tensorflow as tf

from xla_backend.compilation.compiler import Compiler
from xla_backend.compilation.store import Store
from xla_backend.inspection import layer_ways, machine_limits
from xla_backend.inspection.hlo import reading
from xla_backend.inspection.jobs import MeasureJob
from xla_backend.inspection.measurement import Measurement
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.model import sampling
from xla_backend.model.decoding import State
from xla_backend.model.engine import Engine
from xla_backend.model.families.model import Model
from xla_backend.model.functions import KeyFunctions

ROUNDS = 3
"""Calls without the profiler before it and after it."""


def measure(job: MeasureJob) -> Measurement:
    """Measures; takes some seconds, most of them to load the model.

    Raises:
        InvalidRequest: the store does not hold the functions.
        ModelUnavailable: the model cannot be loaded.
    """
    start = time.perf_counter()
    store = Store(job.store)
    _, inside = reading.read(store, job.identity, job.key)
    engine = Engine(job.registry.locate(job.model), Compiler(store))
    functions = engine.functions.build(job.key, lambda step: None).function
    model = engine.functions.model
    _decode(model, functions, job.key)  # first runs take longer
    before = [_decode(model, functions, job.key) for _ in range(ROUNDS)]
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(
            folder,
            # XLA tells of kernels from level 2 on; Python's own calls only take time.
            tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0),
        )
        try:
            profiled = _decode(model, functions, job.key)
        finally:
            tf.profiler.experimental.stop()
        kernel_s = _kernels(Path(folder), {kernel.name for kernel in inside.kernels}, profiled[1])
    after = [_decode(model, functions, job.key) for _ in range(ROUNDS)]
    times = [seconds / tokens for seconds, tokens, _ in before + after]
    return Measurement(
        token_s=min(times),  # whatever else ran only made others longer
        profiled_token_s=profiled[0] / profiled[1],
        kernel_s=kernel_s,
        prefill_s=min(prefill_s for _, _, prefill_s in before + after),
        limits=machine_limits.measure(job.store),
        ways=layer_ways.compare(engine, job.key, inside, kernel_s),
        load=os.getloadavg()[0],
        took_s=time.perf_counter() - start,
    )


def _decode(model: Model, functions: KeyFunctions, key: CacheKey) -> tuple[float, int, float]:
    """Seconds of all tokens after the first, how many they were, and the seconds of prefill."""
    options = sampling.pack(
        [GenerationOptions(num_beams=key.num_beams, max_new_tokens=key.max_new_tokens)],
        model.vocabulary_size,
    )

    def advance(state: State, steps: int) -> State:
        after = functions.decode(tf.constant(steps), *options, prefilled, state)
        after.count.numpy()
        return after._replace(done=tf.zeros_like(after.done))  # what ends a text goes on here

    start = time.perf_counter()
    prefilled = functions.prefill(tf.constant(True), *model.example(key.padded_length))
    state = advance(functions.state, 1)
    prefill_s = time.perf_counter() - start
    start = time.perf_counter()
    while (left := key.max_new_tokens - int(state.count.numpy())) > 0:
        state = advance(state, left)
    return time.perf_counter() - start, key.max_new_tokens - 1, prefill_s


def _kernels(folder: Path, names: Collection[str], tokens: int) -> dict[str, float]:
    """Seconds of each kernel of a token.

    Whatever stops a kernel once, the system or another program, must not count for all: of each,
    the median of its runs counts.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (file,) = folder.rglob("*.xplane.pb")
    runs: defaultdict[str, list[float]] = defaultdict(list)
    for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
        wanted = {id: of.name for id, of in plane.event_metadata.items() if of.name in names}
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in wanted:
                    runs[wanted[event.metadata_id]].append(event.duration_ps / 1e12)
    return {
        name: statistics.median(seconds) * max(1, round(len(seconds) / tokens))
        for name, seconds in runs.items()
    }
