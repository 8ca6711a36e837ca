"""What is tested here takes long, all of it: `make test` leaves it to `make release-test`."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies in this folder; pytest gives all items to each conftest."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("release")
