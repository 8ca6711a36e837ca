"""Waiting, with an end, for what another thread or process does."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 240.0) -> None:
    """Returns once the condition holds; fails after `timeout_s` seconds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
