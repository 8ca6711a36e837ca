"""Comparisons that visitors have started: what each one does, step by step, and its results.

Knows the engine, ways and variants. Must not know components or HTML. A comparison waits its turn
like any run, and while it has the engine nothing else is measured or compiled.
"""

import time
from collections.abc import Generator, Iterator

from playground.context.measuring import MeasuringRun, check_answerable, registry_of
from playground.context.page_context import PageContext
from xla_backend import GenerationOptions, SharedBackend
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import Baseline, BaselineComparison, BaselineProgress
from xla_backend.baselines.overlay import BaselineMissing, InstallProgress


class BaselinesRun(MeasuringRun):
    """This engine beside Transformers, in fresh processes.

    Attributes:
        comparison: the ways and what they measured.
        progress: progress of the current way; None before the first and after the last.
        installing: progress of installing the overlay that Transformers' ways need.
        problem: why it could not be installed; empty otherwise.
        took_s: seconds of all ways together; None before all have ended.
    """

    activity = "Comparing"

    def __init__(self, comparison: BaselineComparison, may_install: bool = False) -> None:
        """Starts nothing yet.

        Args:
            comparison: the ways.
            may_install: whether the overlay is installed first, where it is missing.
        """
        super().__init__()
        self.comparison = comparison
        self.progress: BaselineProgress | None = None
        self.installing: InstallProgress | None = None
        self.problem = ""
        self.took_s: float | None = None
        self._may_install = may_install

    def stop(self) -> None:
        """Ends the current way's process."""
        super().stop()
        self.comparison.stop()

    def measure(self, backend: SharedBackend) -> Generator[None, None, None]:
        """Runs the ways.

        Raises:
            InvalidRequest, ModelUnavailable: the request cannot be served in any way.
        """
        try:
            if self._may_install and not overlay.is_installed():
                yield from self._install()
            began = time.perf_counter()
            if self.expected_s is not None:
                self.ends_at = began + self.expected_s
            for progress in self.comparison:
                self.progress = progress
                yield
            if len(self.comparison.results) == len(Baseline) and not self.stopped:
                self.took_s = time.perf_counter() - began
        finally:
            self.progress = None

    def _install(self) -> Iterator[None]:
        # Ways that need no overlay are measured even if it cannot be installed.
        try:
            for self.installing in overlay.install():
                yield
                if self.stopped:
                    return
        except BaselineMissing as error:
            self.problem = str(error)
        finally:
            self.installing = None


def baselines_run(
    page: PageContext,
    model: str,
    prompt: str,
    options: GenerationOptions,
    cached_calls: int,
    may_install: bool,
) -> BaselinesRun:
    """The ways of a request, not started.

    Raises:
        InvalidRequest, ModelUnavailable: the request is at fault.
    """
    check_answerable(page, model, prompt, options)
    return BaselinesRun(
        BaselineComparison(
            model, prompt, options, cached_calls=cached_calls, registry=registry_of(page)
        ),
        may_install,
    )
