"""Clients as they come, each in its documented way, against the app with SmolLM2.

They are in an environment of their own: `make .venv-clients/.installed`, a part of
`make release-test`. Where Node.js is missing, npm's are not tried.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playground.served import ROOT, serve
from tests.release.clients.hello import HELLOS, MODEL

CLIENTS = ROOT / ".venv-clients"
SCRIPTS = Path(__file__).parent / "clients"
OF_NPM = re.findall(r"async (npm_\w+)", (SCRIPTS / "hello.mjs").read_text())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What tells the clients of a server, and keeps them from other ones."""
    # Few tokens: a small model that repeats itself would fill its whole context.
    served = serve("--models", MODEL, "--no-store", "--max-new-tokens", "256")
    home, api = tmp_path_factory.mktemp("home"), f"{served.url}/v1"
    llm = {"model_name": MODEL, "api_base": api, "supports_schema": True}
    named = [{"model_id": MODEL, **llm}, {"model_id": "responses", "responses": True, **llm}]
    (home / "extra-openai-models.yaml").write_text(json.dumps(named))
    yield os.environ | {
        "HOME": str(home),
        "TMPDIR": str(home),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": api,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": served.url,
        "TYPESAFE_API_KEY": "none",
        "TYPESAFE_BASE_URL": served.url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LLM_USER_PATH": str(home),
        "API_BASE_URL": api,  # these two are shell-gpt's
        "DEFAULT_MODEL": MODEL,
    }
    served.end()


@pytest.mark.parametrize("name", [*HELLOS, *OF_NPM])
def test_a_client_is_answered(name: str, environment: dict[str, str]) -> None:
    command: list[str | Path] = [CLIENTS / "bin" / "python", SCRIPTS / "hello.py", name]
    script = ""
    if name in OF_NPM:
        if not shutil.which("node"):
            pytest.skip("Node.js is not here.")
        command = ["node", "--input-type=module", "-", name]
        script = (SCRIPTS / "hello.mjs").read_text()
    done = subprocess.run(
        command, input=script, cwd=CLIENTS, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
