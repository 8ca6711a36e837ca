"""A clock that moves only when a test moves it."""

import importlib
import time
from types import SimpleNamespace

import pytest


class Clock:
    """Stands in for `time.perf_counter` in some modules.

    Attributes:
        now: what it reads, in seconds.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *modules: str) -> None:
        self.now = 1000.0
        read = SimpleNamespace(perf_counter=lambda: self.now, time=time.time)
        for name in modules:
            patch.setattr(importlib.import_module(name), "time", read)
