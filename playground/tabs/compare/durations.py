"""How long a comparison with Transformers takes, before and while it runs.

Knows how the time of each method grows with the model and the request, and what it took here
before. Must not know how it is told.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass

from xla_backend import GenerationOptions
from xla_backend.baselines.comparison import CALLS_BUDGET_S, SETTLE_S, Baseline
from xla_backend.checkpoints.architectures.table import DECODERS
from xla_backend.checkpoints.models import ModelFiles

_SCATTER = 1.5


@dataclass(frozen=True)
class ModelSize:
    """What the durations depend on."""

    model: str  # its name
    layers: int  # of the decoder
    parameters: float  # about how many
    is_rotary: bool  # whether it has rotary positions: Transformers gets it as another class's

    @classmethod
    def of(cls, model: str, files: ModelFiles) -> ModelSize:
        """Of a model whose files are here."""
        config = files.config
        layers, width = config.num_hidden_layers, config.hidden_size
        is_rotary = config.model_type in DECODERS
        return cls(model, layers, width * (config.vocab_size + 12.0 * layers * width), is_rotary)


@dataclass(frozen=True)
class _Way:
    """Seconds of one way: until its first call is over, and of each later one."""

    once_s: float
    call_s: float


def stated(way: Baseline, size: ModelSize, options: GenerationOptions) -> _Way:
    """What a method takes on two idle cores of the machine of `docs/measurements.md`, roughly.

    Fitted to gpt2-stories (6 layers, 2 million parameters) and SmolLM2-135M (30 layers).
    """
    layers, billions = size.layers, size.parameters / 1e9
    beams = 1 + 0.25 * (options.num_beams - 1)
    run_s = options.max_new_tokens * (0.14 * billions + 0.0003) * beams
    start_s = 5.0 + 27 * billions + (4.0 if size.is_rotary and way is Baseline.EAGER else 0.0)
    if way is Baseline.EAGER:
        each_s = 0.023 if size.is_rotary else 0.014
        run_s = options.max_new_tokens * layers * each_s * beams
        return _Way(start_s + run_s, run_s)
    first_s = {
        Baseline.GUIDE: 11.3 + 0.42 * layers,
        Baseline.ENGINE: 3.4 + 0.13 * layers,
        Baseline.ENGINE_FROM_DISK: 0.05 * layers,
    }[way]
    return _Way(start_s + first_s + run_s, run_s)


class Durations:
    """Predicts comparisons from the sizes of models, and from those that have ended here."""

    def __init__(self) -> None:
        self._slowness: dict[str, float] = {}  # of each model: measured seconds over stated ones

    def record(
        self, size: ModelSize, options: GenerationOptions, cached_calls: int, took_s: float
    ) -> None:
        """Records what all methods of a comparison took together."""
        self._slowness[size.model] = took_s / _stated_s(size, options, cached_calls)

    def is_measured(self, model: str) -> bool:
        """Whether a comparison of a model has ended here."""
        return model in self._slowness

    def expected_s(self, size: ModelSize, options: GenerationOptions, cached_calls: int) -> float:
        """Seconds that all ways will take: like the last ones of this model, or of others."""
        others = statistics.median(self._slowness.values()) if self._slowness else 1.0
        slowness = self._slowness.get(size.model, others)
        return slowness * _stated_s(size, options, cached_calls)


def at_most(expected_s: float) -> float:
    """An upper estimate, in seconds, for a machine that other programs use too."""
    return expected_s * max(_SCATTER, 1 + os.getloadavg()[0] / (os.cpu_count() or 1))


def _stated_s(size: ModelSize, options: GenerationOptions, cached_calls: int) -> float:
    """Seconds of all ways, of whose later calls each makes what its time allows."""
    whole_s = SETTLE_S * cached_calls
    for way in Baseline:
        stated_s = stated(way, size, options)
        calls = max(1, min(cached_calls, int(CALLS_BUDGET_S / stated_s.call_s)))
        whole_s += stated_s.once_s + calls * stated_s.call_s
    return whole_s
