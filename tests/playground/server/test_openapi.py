"""The description of the API at /v1, and that the documents say the same."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.playground.api_page import api_page
from xla_backend import __version__

FORM = "TranscriptionForm"
REQUESTS = ("ChatRequest", "CompletionRequest", FORM)
API_DOC = Path(__file__).resolve().parents[3] / "docs" / "api.md"


@pytest.fixture(scope="module")
def description() -> Iterator[dict[str, Any]]:
    with api_page() as page:
        places = ("/v1/openapi.json", "/openapi.json")
        all = [httpx.get(f"{page.url}{place}").json() for place in places]
        assert all[0] == all[1]
        assert "swagger" in httpx.get(f"{page.url}/docs").text
        yield all[0]


def test_every_answer_of_the_api_is_described(description: dict[str, Any]) -> None:
    paths = set(description["paths"])
    assert {"/chat/completions", "/models"} <= paths
    assert description["servers"] == [{"url": "/v1"}]
    named = set(re.findall(r"#/components/schemas/(\w+)", str(description)))
    assert named
    assert named <= set(description["components"]["schemas"])
    assert description["info"]["version"] == __version__

    for operations in description["paths"].values():
        for operation in operations.values():
            reported = set(operation["responses"])
            assert {"200", "400", "401", "404", "413", "429", "500", "503"} <= reported
            assert "422" not in reported, "which FastAPI would answer, and this API does not"


def fields_in(table_after: str) -> set[str]:
    """The names in the first column of the table that follows a line of the document."""
    rest = API_DOC.read_text("utf-8").partition(table_after)[2].lstrip().partition("\n\n")[2]
    table = rest.lstrip().partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_documents_name_every_field_and_path_and_no_other(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    asked = {
        name for schema in REQUESTS if schema != FORM for name in schemas[schema]["properties"]
    }
    assert fields_in("\nRequests, all of which") == asked
    assert fields_in("`system_fingerprint` of") == set(schemas["Timings"]["properties"])
    reported = API_DOC.read_text("utf-8").partition("A transcription has")[2].partition(".\n")[0]
    assert set(schemas[FORM]["properties"]) <= set(re.findall(r"`([\w\[\]]+)`", reported))

    text = API_DOC.read_text("utf-8")
    for path in description["paths"]:
        named = re.sub(r"\{(\w+?)(:path)?\}", lambda place: place[1].upper(), path)
        assert f"/v1{named}`" in text
