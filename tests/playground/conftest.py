"""The page that tests of the API ask, served in this process; its engine is made up."""

from collections.abc import Iterator

import pytest

from tests.playground.api_page import ApiPage, api_page


@pytest.fixture(scope="module")
def site() -> Iterator[ApiPage]:
    """With all tabs and endpoints."""
    with api_page(admin=True) as page:
        yield page
