"""The cost of reuse: a request runs on a larger compiled function than it needs.

Knows the engine from outside. Run as

    python -m benchmarks.reuse [--model 124m] [--num-beams 1]

The same request (a short prompt, 32 new tokens) runs on larger and larger functions, in turn; the
table gives medians and ratios to the exact function. The results justify
`prediction.REUSE_PADDED_LENGTH` and `REUSE_MAX_NEW_TOKENS`: the slowest function that they allow
must cost far less than compiling the exact one.
"""

from __future__ import annotations

import statistics
import tempfile
import time

from benchmarks import terminal
from benchmarks.checkpoints import gpt2_124m

EXACT = (16, 32)
SIZES = [EXACT, (32, 32), (64, 32), (128, 32), (256, 32), (16, 128), (16, 512), (128, 512)]
CALLS = 7


def main() -> None:
    """Measures and prints a table."""
    arguments = terminal.options(__doc__, model="124m", num_beams=1, work=terminal.WORK)
    from xla_backend import Backend, CacheKey, GenerationOptions
    from xla_backend.engine import prediction

    model = str(gpt2_124m(arguments.work)) if arguments.model == "124m" else arguments.model
    options = GenerationOptions(max_new_tokens=EXACT[1], num_beams=arguments.num_beams)
    # Also measures sizes beyond the bounds.
    prediction.REUSE_PADDED_LENGTH = prediction.REUSE_MAX_NEW_TOKENS = 1000
    backends, first_s = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            backends[size] = Backend(store=folder)
            start = time.perf_counter()
            key = CacheKey(size[0], arguments.num_beams, size[1])
            backends[size].warm(model, [key])
            first_s[size] = time.perf_counter() - start
        taken = {size: [] for size in SIZES}
        for _ in range(CALLS):
            for size, backend in backends.items():
                result = backend.generate(model, "Once upon", options)
                assert (result.key.padded_length, result.key.max_new_tokens) == size
                backend.cancel_prefetch()
                taken[size].append(result.timing.run_s)
    exact = statistics.median(taken[EXACT])
    terminal.print_command("reuse")
    terminal.print_head("padded length", "max_new_tokens", "run ms", "over the exact function")
    for size, seconds in taken.items():
        median = statistics.median(seconds)
        terminal.print_row(*size, f"{1000 * median:.1f}", f"{median / exact:.2f}")
    print(f"\nMaking the exact function ready with nothing stored took {first_s[EXACT]:.1f} s.")


if __name__ == "__main__":
    main()
