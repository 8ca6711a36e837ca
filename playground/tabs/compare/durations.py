"""How long a comparison with Transformers takes, before and while it runs.

Knows how the time of each method grows with the model and the request, and what it took here
before. Must not know how it is told.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from xla_backend import GenerationOptions
from xla_backend.baselines.comparison import (
    CALLS_BUDGET_S,
    SETTLE_S,
    Baseline,
    BaselineComparison,
    BaselineProgress,
)
from xla_backend.checkpoints.architectures.table import DECODERS
from xla_backend.checkpoints.models import ModelFiles
from xla_backend.interface.results import KeyHistory

_COMPILE_S = (2.1, 0.06)  # of this engine: at all, and for each layer
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
        self._ratios: dict[tuple[str, Baseline], _Way] = {}  # measured over stated

    def record(self, comparison: BaselineComparison, size: ModelSize) -> None:
        """Records what the methods of a comparison took."""
        for way, result in comparison.results.items():
            before = stated(way, size, comparison.options)
            call_s = result.later.median_s if result.later else result.run_s
            ratio = _Way(result.wall_s / before.once_s, call_s / before.call_s)
            self._ratios[comparison.model, way] = ratio

    def is_measured(self, model: str) -> bool:
        """Whether all ways of a model have been measured here."""
        return all((model, way) in self._ratios for way in Baseline)

    def expected_s(
        self,
        size: ModelSize,
        options: GenerationOptions,
        cached_calls: int,
        past: Iterable[KeyHistory],
    ) -> float:
        """Seconds that all ways will take.

        Args:
            past: what this engine took to make functions of the model, which tells how fast the
                machine is as long as nothing was compared on it.
        """
        slowness = self._slowness(size, past)
        ways = {way: self._way(way, size, options, slowness) for way in Baseline}
        return sum(way.once_s for way in ways.values()) + _later_s(
            [way.call_s for way in ways.values()], cached_calls
        )

    def left_s(
        self,
        comparison: BaselineComparison,
        progress: BaselineProgress,
        size: ModelSize,
        past: Iterable[KeyHistory],
    ) -> float:
        """Seconds that a comparison under way will still take."""
        slowness, left_s, calls_s = self._slowness(size, past), 0.0, []
        expected_of = {
            way: self._way(way, size, comparison.options, slowness)
            for way in comparison.baselines
            if way not in comparison.failures
        }
        # What this comparison has shown counts: the rest is as much slower as its beginning was.
        paces = [
            comparison.results[way].wall_s / expected.once_s
            for way, expected in expected_of.items()
            if way in comparison.results
        ]
        pace = statistics.median(paces) if paces else 1.0
        if (current := progress.baseline) in expected_of and current not in comparison.results:
            pace = max(pace, progress.baseline_s / expected_of[current].once_s)
        for way, expected in expected_of.items():
            result = comparison.results.get(way)
            if result is None:
                spent_s = progress.baseline_s if way is current else 0.0
                left_s += max(0.0, pace * expected.once_s - spent_s)
            calls_s.append(pace * expected.call_s)
            if result is not None and (result.later or way is Baseline.EAGER):
                calls_s[-1] = result.later.median_s if result.later else result.first_s
        rounds = comparison.cached_calls
        is_later = progress.stage == "cached"
        done_s = _later_s(calls_s, progress.calls) if is_later and progress.calls else 0.0
        return left_s + max(0.0, _later_s(calls_s, rounds) - done_s)

    def _slowness(self, size: ModelSize, past: Iterable[KeyHistory]) -> float:
        """How much slower this machine is, judged by earlier comparisons or by compile times."""
        if self._ratios:
            return statistics.median(ratio.once_s for ratio in self._ratios.values())
        usual_s = _COMPILE_S[0] + _COMPILE_S[1] * size.layers
        compiled = [each.compiled.compile_s / usual_s for each in past if each.compiled]
        return min(4.0, max(0.7, statistics.median(compiled))) if compiled else 1.0

    def _way(
        self, way: Baseline, size: ModelSize, options: GenerationOptions, slowness: float
    ) -> _Way:
        measured_s = stated(way, size, options)
        ratio = self._ratios.get((size.model, way), _Way(slowness, slowness))
        return _Way(measured_s.once_s * ratio.once_s, measured_s.call_s * ratio.call_s)


def at_most(expected_s: float) -> float:
    """An upper estimate, in seconds, for a machine that other programs use too."""
    return expected_s * max(_SCATTER, 1 + os.getloadavg()[0] / (os.cpu_count() or 1))


def _later_s(calls_s: list[float], rounds: int) -> float:
    """Seconds of so many rounds of later calls, of which each way makes what its time allows."""
    most = [max(1, min(rounds, int(CALLS_BUDGET_S / max(s, 1e-3)))) for s in calls_s]
    return sum(map(float.__mul__, calls_s, map(float, most))) + SETTLE_S * rounds
