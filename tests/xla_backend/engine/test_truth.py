"""Whether the numbers are true: beside a stopwatch of the caller's, and beside XLA's own files.

XLA writes a file about every module that it compiles where its flag `--xla_dump_to` says so; it
does not when machine code is handed to it. That is its word on what was compiled, not ours.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkpoints import gpt2
from xla_backend import BackendProcess, CacheOutcome, GenerationOptions, GenerationResult

pytestmark = pytest.mark.release

OPTIONS = GenerationOptions(max_new_tokens=16)
REQUESTS = 200


@dataclass
class Measured:
    """An engine, and what XLA says that it compiled."""

    process: BackendProcess
    model: str
    dumps: Path

    def compiled(self) -> set[str]:
        """The functions of ours, and HLO stubs, that XLA has compiled so far, by their names."""
        suffix = ".before_optimizations.txt"
        return {
            path.name
            for path in self.dumps.glob(f"*{suffix}")
            if "prefill" in path.name or "decode" in path.name
        }

    def ask(
        self, options: GenerationOptions = OPTIONS, prompt: str = "Once upon a time", **more: bool
    ) -> tuple[GenerationResult, float, int]:
        """A result, the seconds of a stopwatch around it, and how many functions XLA compiled."""
        before = self.compiled()
        began = time.perf_counter()
        result = self.process.generate(self.model, prompt, options, **more, mode="padded")
        took_s = time.perf_counter() - began
        return result, took_s, len(self.compiled() - before)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("truth")
    model = str(gpt2(folder / "model", seed=51, n_layer=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", f"--xla_dump_to={folder / 'dumps'} --xla_dump_hlo_as_text=true")
        process = BackendProcess(default_model=model, store=folder / "store", warm_up=None)
        process.wait_ready(240)
        yield Measured(process, model, folder / "dumps")
        process.close()


def test_outcomes_are_what_xla_says(measured: Measured) -> None:
    first, _, compiled = measured.ask()
    # Prefill and decode; for the store, each has an HLO stub.
    assert (first.cache, compiled) == (CacheOutcome.MISS, 2 * 2)
    again, _, compiled = measured.ask()
    assert (again.cache, compiled) == (CacheOutcome.HIT, 0)
    longer, _, compiled = measured.ask(OPTIONS.replace(max_new_tokens=40))
    assert (longer.cache, compiled) == (CacheOutcome.MISS, 2 * 1), "its prefill was there"
    other, _, compiled = measured.ask(OPTIONS.replace(max_new_tokens=20))
    assert (other.cache, compiled) == (CacheOutcome.REUSED, 0)
    measured.process.cancel_prefetch()
    measured.process.clear(disk=False)
    restored, _, compiled = measured.ask()
    assert (restored.cache, compiled) == (CacheOutcome.DISK, 0)
    assert restored.text == first.text


def test_waiting_is_never_counted_as_work(measured: Measured) -> None:
    """The engine does one thing at a time: what two clients' requests took without their waiting
    cannot be more than the time that went by."""
    measured.ask()
    results: list[tuple[GenerationResult, float]] = []

    def client() -> None:
        for _ in range(25):
            result, took_s, _ = measured.ask()
            results.append((result, took_s))

    threads = [threading.Thread(target=client) for _ in range(2)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    worked_s = sum(result.timing.total_s - result.timing.queue_s for result, _ in results)
    waited_s = sum(result.timing.queue_s for result, _ in results)
    assert worked_s <= wall_s
    assert waited_s > 0.2 * worked_s, "they were in each other's way"
    assert sum(took_s for _, took_s in results) <= 2 * wall_s
