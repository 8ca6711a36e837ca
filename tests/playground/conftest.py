"""The running app for tests of the API, shared with the browser tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playground.served import Site, the_site


@pytest.fixture(scope="session")
def site(
    request: pytest.FixtureRequest, small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    """The app with two random models, one fast and one slow; started once per session."""
    return the_site(request.config, small_gpt2, tmp_path_factory)
