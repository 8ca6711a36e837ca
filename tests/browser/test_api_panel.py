"""Gradio's panel about the API, as this page serves it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit


@pytest.fixture
def panel(visit: Callable[..., Visit]) -> Visit:
    """A page on which the panel was opened. That its console shows no error, `visit` looks at."""
    window = visit()
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    with window.page.expect_response("**/monitoring/summary") as summary:
        window.page.locator("button.show-api").click()
    assert summary.value.ok
    # What it shows first where there are no tools.
    expect(window.at(".api-docs").get_by_text("pip install gradio_client")).to_be_visible()
    assert not [url for url in asked if "/mcp/" in url]
    return window


def snippets(panel: Visit, language: str, begin: str) -> dict[str, str]:
    """The snippets of a language by the names of their endpoints."""
    panel.at(".api-docs .snippet").get_by_text(language, exact=True).click()
    found = panel.at(".api-docs code", has_text=begin)
    found.first.wait_for()
    texts = [text.strip() for text in found.all_inner_texts()]
    named = {}
    for text in texts:
        name = re.search(r'call/v2/(\w+)|api_name="/(\w+)"|predict\("/(\w+)"', text)
        assert name is not None, text
        named[next(filter(None, name.groups()))] = text
    return named


def test_its_snippets_for_a_shell_and_for_python_run(panel: Visit) -> None:
    shell = snippets(panel, "cURL", "curl -X POST")
    python = snippets(panel, "Python", "from gradio_client")
    assert set(shell) == set(python) >= {"generate", "stream", "predict", "compare", "transcribe"}
    for name in ("generate", "predict"):
        # `read` at the end of a pipe needs zsh, or this of bash.
        command = ["bash", "-O", "lastpipe", "-c", shell[name]]
        run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert "event: complete" in run.stdout, (shell[name], run.stdout, run.stderr)
        answer = json.loads(run.stdout.partition("data: ")[2])[0]
        assert answer["cache"] in ("hit", "miss", "disk", "reused")

        command = [sys.executable, "-c", python[name]]
        run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert run.returncode == 0, run.stderr
        again = ast.literal_eval(run.stdout.splitlines()[-1])
        assert set(again) == set(answer)
        # Not the key: what a larger function has served may have one of its own since.
        assert again["prompt_tokens"] == answer["prompt_tokens"]


def test_its_snippets_say_the_same_in_json_and_javascript(panel: Visit) -> None:
    shell = snippets(panel, "cURL", "curl -X POST")
    script = snippets(panel, "JavaScript", "import { Client }")
    for name in ("generate", "stream", "predict", "compare"):
        sent = re.search(r"-d '(.*?)'", shell[name])
        given = re.search(r'predict\("/\w+", (\{.*\})\);', script[name], re.DOTALL)
        assert sent is not None and given is not None
        assert json.loads(sent[1]) == panel.page.evaluate(f"({given[1]})")


def test_it_closes(panel: Visit) -> None:
    panel.at(".api-docs .backdrop").click(position={"x": 5, "y": 5})
    panel.at(".api-docs").wait_for(state="detached")
