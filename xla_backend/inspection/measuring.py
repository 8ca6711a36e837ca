"""`measure`: runs a function with and without XLA's profiler, to see where a token's time goes, and
this machine at its best; `make`: compiles what is not in the store.

Knows TensorFlow's profiler, which records the start and end of each kernel, and the file next to
the store with the machine's limits; `reading` describes the kernels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import tensorflow as tf

from xla_backend.checkpoints.models import Registry
from xla_backend.compilation.compiler import Compiler
from xla_backend.compilation.store import Store, write_whole
from xla_backend.engine.backend import Backend
from xla_backend.inspection import layer_ways
from xla_backend.inspection.hlo import reading
from xla_backend.inspection.measurement import LIMITS_FILE, MachineLimits, Measurement
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.model import sampling
from xla_backend.model.decoding import State
from xla_backend.model.families.model import Model
from xla_backend.model.functions import KeyFunctions, PaddedFunctions
from xla_backend.model.loaded_model import LoadedModel

READ_BYTES = 256 * 2**20
"""Larger than any cache."""
WIDTH = 1536
"""Rows and columns of the matrices."""
REPEATS = 5


def make(store: Path, model: str, registry: Registry, key: CacheKey) -> None:
    """Compiles a key's functions into the store."""
    with contextlib.closing(Backend(registry, store=store)) as backend:
        backend.load(model)
        backend.warm(model, [key])


def measure(
    folder: Path, model: str, registry: Registry, identity: str, key: CacheKey
) -> Measurement:
    """Measures; takes some seconds, mostly to load the model."""
    start = time.perf_counter()
    store = Store(folder)
    _, inside = reading.read(store, identity, key)
    loaded = LoadedModel(registry.locate(model), Compiler(store))
    functions = loaded.functions.build(key, lambda step: None).function
    run = _Run(loaded.functions.decoder.model, functions, key)
    run.token_s()  # first runs take longer
    before = run.token_s()
    with tempfile.TemporaryDirectory() as profile:
        tf.profiler.experimental.start(
            profile,
            # XLA records kernels from level 2 on; tracing Python calls only takes time.
            tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0),
        )
        try:
            run.all_tokens()
        finally:
            tf.profiler.experimental.stop()
        names = {kernel.name for kernel in inside.kernels}
        profiled_token_s, kernel_s = _kernels(Path(profile), names, key.max_new_tokens - 1)
    after = run.token_s()
    return Measurement(
        token_s=min(before, after),
        profiled_token_s=profiled_token_s,
        kernel_s=kernel_s,
        prefill_s=run.prefill_s,
        limits=machine_limits(folder),
        ways=layer_ways.compare(loaded, key, inside, kernel_s),
        load=os.getloadavg()[0],
        took_s=time.perf_counter() - start,
        matrices=loaded.info.matrices,
    )


class _Run:
    """A prompt, and the repeated run of the tokens after it.

    Attributes:
        prefill_s: seconds of the prompt.
    """

    def __init__(self, model: Model, functions: KeyFunctions, key: CacheKey) -> None:
        self._options = sampling.pack(
            [GenerationOptions(num_beams=key.num_beams, max_new_tokens=key.max_new_tokens)],
            model.vocabulary_size,
        )
        prompt = [tf.constant(True), *model.example(key.padded_length)]
        assert isinstance(functions, PaddedFunctions), (
            "only functions of padded prompts are inspected"
        )
        self._decode, self._tokens = functions.decode, key.max_new_tokens - 1
        functions.prefill(*prompt).logits.numpy()  # a first run takes longer
        start = time.perf_counter()
        self._prefilled = functions.prefill(*prompt)
        self._prefilled.logits.numpy()
        self.prefill_s = time.perf_counter() - start
        self._first = self._advance(functions.state, 1)

    def token_s(self) -> float:
        """Seconds of a token: the median call with one token minus that with none.

        Medians of short calls, because other programs interrupt long ones.
        """
        one, none = [], []
        state = self._first
        for _ in range(self._tokens):
            start = time.perf_counter()
            self._advance(state, 0)
            between = time.perf_counter()
            state = self._advance(state, 1)
            one.append(time.perf_counter() - between)
            none.append(between - start)
        return max(statistics.median(one) - statistics.median(none), 1e-9)

    def all_tokens(self) -> None:
        """Generates all tokens, in as few calls as the text's ends allow."""
        state = self._first
        while (left := self._tokens + 1 - int(state.count.numpy())) > 0:
            state = self._advance(state, left)

    def _advance(self, state: State, steps: int) -> State:
        after = self._decode(tf.constant(steps), *self._options, self._prefilled, state)
        after.count.numpy()
        return after._replace(done=tf.zeros_like(after.done))  # the text goes on after its end


def _kernels(folder: Path, names: Collection[str], tokens: int) -> tuple[float, dict[str, float]]:
    """Seconds of a token and of each of its kernels, from the profiler.

    For each kernel the median of its runs counts, because the system or other programs interrupt
    some.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (file,) = folder.rglob("*.xplane.pb")
    runs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
        kernels = {id: of.name for id, of in plane.event_metadata.items() if of.name in names}
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in kernels:
                    began = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                    runs[kernels[event.metadata_id]].append((began, event.duration_ps / 1e12))
    kernel_s = {
        name: statistics.median(seconds for _, seconds in found)
        * max(1, round(len(found) / tokens))
        for name, found in runs.items()
    }
    # From one run of the longest kernel to the next is one token.
    longest = max(kernel_s, key=kernel_s.__getitem__)
    starts = sorted(began for began, _ in runs[longest])
    rounds = [later - earlier for earlier, later in pairwise(starts)]
    return statistics.median(rounds), kernel_s


def machine_limits(folder: Path) -> MachineLimits:
    """The best values of this machine so far, including a new measurement of about half a second.

    The best, because other load only makes a measurement worse.

    Args:
        folder: of the store, where the best values are saved.
    """
    now = MachineLimits(_read_bytes_s(), _flops_s())
    before = MachineLimits.read(folder) or now
    best = MachineLimits(
        max(before.read_bytes_s, now.read_bytes_s), max(before.flops_s, now.flops_s)
    )
    with contextlib.suppress(OSError):
        write_whole(folder / LIMITS_FILE, json.dumps(dataclasses.asdict(best)).encode())
    return best


def _read_bytes_s() -> float:
    """Every core sums its part of a large array; nothing is written."""
    cores = len(os.sched_getaffinity(0))
    parts = np.array_split(np.ones(READ_BYTES // 4, np.float32), cores)

    def read(part: np.ndarray) -> float:
        return float(np.dot(part, part))

    with ThreadPoolExecutor(cores) as pool:
        return READ_BYTES / _shortest(lambda: list(pool.map(read, parts)))


def _flops_s() -> float:
    matrix = tf.random.normal([WIDTH, WIDTH])
    return 2 * WIDTH**3 / _shortest(lambda: tf.matmul(matrix, matrix).numpy())


def _shortest(work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
