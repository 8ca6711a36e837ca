"""These tests run by themselves, in a pytest process that sees the baseline overlay.

Knows how pytest is asked for this folder. Must not know what is tested.

    python -m pytest tests/demo_models/training

Training needs Transformers' TensorFlow models. They lie in the overlay, and a process that sees it
has an older Transformers than the page and the engine: so no test of those may run in it, and none
of these anywhere else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from xla_backend.baselines import overlay

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Sees the overlay, before a test module or another library imports what lies in it.

    Where it is not installed the run ends here and says so: a skip would hide it.
    """
    if _is_all_that_was_asked_for(config):
        try:
            overlay.use()
        except overlay.BaselineMissing as error:
            raise pytest.UsageError(str(error)) from error


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leaves the folder out of every other run; the Makefile has one for it."""
    return None if _is_all_that_was_asked_for(config) else True


def _is_all_that_was_asked_for(config: pytest.Config) -> bool:
    asked = [config.invocation_params.dir / name.partition("::")[0] for name in config.args]
    return all(HERE in (path, *path.parents) for path in asked)
