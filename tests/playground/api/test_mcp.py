"""The endpoints as tools for agents, called by an MCP client over HTTP."""

import ast
import asyncio
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from playground import create_app, launch_options
from playground.flags import flags_from
from tests.playground.fake_backend import MODELS, FakeBackend


@pytest.fixture(scope="module")
def engine() -> FakeBackend:
    return FakeBackend()


@pytest.fixture(scope="module")
def url(engine: FakeBackend) -> Iterator[str]:
    """The page for strangers, for agents too; its engine is made up."""
    page = create_app(engine)
    page.launch(
        server_name="127.0.0.1",
        prevent_thread_lock=True,
        quiet=True,
        mcp_server=True,
        **launch_options(page),
    )
    yield f"{page.local_url}gradio_api/mcp/"
    page.close(verbose=False)


async def _ask(url: str, calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[Any], list[Any]]:
    async with (
        streamable_http_client(url) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        tools = (await session.list_tools()).tools
        return tools, [await session.call_tool(name, values) for name, values in calls]


def test_an_agent_finds_the_tools_and_calls_them_where_the_packages_are(
    url: str,
    engine: FakeBackend,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {"prompt": "Once upon a time", "max_new_tokens": 5}
    calls = [("generate", asked), ("predict", asked), ("models", {})]
    tools, answers = asyncio.run(_ask(url, [*calls, ("generate", {**asked, "prompt": " "})]))
    described = {tool.name: tool for tool in tools}
    assert set(described) == {"generate", "predict", "transcribe", "models"}
    for tool in tools:
        assert len(tool.description) > 30
    properties = described["generate"].inputSchema["properties"]
    assert "The text to continue" in properties["prompt"]["description"]
    assert properties["max_new_tokens"]["type"] == "integer"

    result, prediction, models = (
        ast.literal_eval(answer.content[0].text) for answer in answers[:3]
    )
    assert result["cache"] == "miss"
    assert result["text"] == " there was a"
    assert prediction["cache"] == "hit"
    assert prediction["key"] == result["key"]
    assert {model["name"] for model in models} == {info.name for info in MODELS}
    assert answers[3].isError
    assert {each.entry.source.protocol for each in engine.requests.newest()} == {"MCP"}
    assert "The prompt is empty" in answers[3].content[0].text

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        flags_from(["--mcp"])
    assert "pip install -r requirements-mcp.txt" in capsys.readouterr().err
    assert flags_from([]).mcp is False
