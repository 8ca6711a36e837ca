"""A page that is served for one module's tests, and OpenAI's own client for it."""

from collections.abc import Iterator

import openai
import pytest

from tests.playground.api_page import ApiPage, api_page


@pytest.fixture(scope="module")
def served() -> Iterator[ApiPage]:
    with api_page() as page:
        yield page


@pytest.fixture
def page(served: ApiPage) -> Iterator[ApiPage]:
    yield served
    served.settle()


@pytest.fixture
def client(page: ApiPage) -> openai.OpenAI:
    return openai.OpenAI(base_url=page.api, api_key="none", max_retries=0)
