"""First and cached calls of a shape: this engine, store empty and filled, and Transformers.

Ways, each in a fresh process, in turn: eager `model.generate`; `tf.function(model.generate,
jit_compile=True)`, as in the guide; this engine with nothing on disk; this engine with the store
of the way before. All write 32 tokens after the same prompt padded to 16, and must write the same.
The cached time is the median of 10 further calls. The ratio is the first call of compiled
`generate` over the way's.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Iterator

from benchmarks import checkpoints
from benchmarks.harness import MeasureFailed, Row, note, ratio
from xla_backend import GenerationOptions
from xla_backend.baselines.comparison import Baseline, BaselineComparison, BaselineResult
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {
    "models": [checkpoints.GPT2_124M, "gpt2-stories", PACKAGED_MODEL],
    "num_beams": [1, 4],
    "rounds": 3,
}
PROMPT = "Once upon"
MAX_NEW_TOKENS, CACHED_CALLS = 32, 10
NAMES = {
    Baseline.EAGER: "eager generate",
    Baseline.GUIDE: "compiled generate",
    Baseline.ENGINE: "this engine, empty store",
    Baseline.ENGINE_FROM_DISK: "this engine, filled store",
}


def measure(options: Namespace) -> Iterator[Row]:
    """A row for each model, number of beams and way."""
    for model in options.models:
        for num_beams in options.num_beams:
            rounds = [_compare(model, num_beams) for _ in range(options.rounds)]
            firsts = {way: [each[way].first_s for each in rounds] for way in NAMES}
            for way, name in NAMES.items():
                results = [each[way] for each in rounds]
                yield {
                    "model": model,
                    "beams": num_beams,
                    "way": name,
                    "load, s": statistics.median(each.load_s for each in results),
                    "first call, s": statistics.median(firsts[way]),
                    "trace, s": statistics.median(each.trace_s for each in results),
                    "compile, s": statistics.median(each.compile_s for each in results),
                    "ratio": ratio(firsts[Baseline.GUIDE], firsts[way]),
                    "cached, ms": 1000
                    * statistics.median(s for each in results for s in each.cached_s),
                }


def _compare(model: str, num_beams: int) -> dict[Baseline, BaselineResult]:
    options = GenerationOptions(max_new_tokens=MAX_NEW_TOKENS, num_beams=num_beams)
    comparison = BaselineComparison(
        checkpoints.name_for_engine(model), PROMPT, options, cached_calls=CACHED_CALLS
    )
    for _ in comparison:
        pass
    if comparison.failures:
        raise MeasureFailed("\n".join(comparison.failures.values()))
    if not comparison.identical:
        raise MeasureFailed(f"{model}: the ways wrote different tokens with {num_beams} beams")
    note(f"  {model}, {num_beams} beams: compared")
    return comparison.results
