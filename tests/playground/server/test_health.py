"""`/health`: what the page says of an engine. `test_engine` asks it of a real one."""

import httpx
import pytest

from tests.playground.api_page import ApiPage
from xla_backend import EngineStatus


@pytest.mark.parametrize(
    ("state", "status", "said"),
    [("ready", 200, "ok"), ("compiling", 200, "ok"), ("starting", 503, "starting")],
)
def test_health_says_whether_it_serves(site: ApiPage, state: str, status: int, said: str) -> None:
    site.backend.status = EngineStatus(state)  # type: ignore[arg-type]
    answer = httpx.get(f"{site.url}/health")
    assert (answer.status_code, answer.json()["status"]) == (status, said)
    assert ("retry-after" in answer.headers) == (status == 503)
    assert answer.json()["engine"]["state"] == state
    assert answer.json()["waiting"] == answer.json()["running"] == 0
