"""Where tests of GGUF write a file."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file, which is not there yet."""
    return tmp_path / "model.gguf"
