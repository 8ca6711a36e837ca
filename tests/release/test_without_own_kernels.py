"""The server where machine code of our own cannot run: XLA alone serves, and says so."""

from pathlib import Path

import httpx2
import pytest

from benchmarks.client import Client
from benchmarks.servers import this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = {
    "library": "from xla_backend.kernels import ffi; ffi._library = lambda: Path('/nowhere')",
    "F16C": "from llvmlite import binding; binding.get_host_cpu_features = dict",
}
"""What every process of the server runs first."""
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_server_chats_and_follows_a_schema(
    hidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["import sys", "from pathlib import Path", f"sys.path.insert(0, {str(ROOT)!r})"]
    (tmp_path / "sitecustomize.py").write_text("\n".join([*lines, HIDDEN[hidden]]))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with this_app("--models", PACKAGED_MODEL) as url:
        [model] = [x for x in httpx2.get(f"{url}/v1/models").json()["data"] if "SmolLM2" in x["id"]]
        assert (model["kernels"], model["device"]) == ("xla", "cpu")
        client = Client(url, PACKAGED_MODEL)
        answer = client.chat(QUESTION, max_tokens=24, temperature=0)
        assert "Paris" in answer.text
        again = client.chat(
            [*QUESTION, {"role": "assistant", "content": answer.text}, *QUESTION], max_tokens=4
        )
        assert again.cached_tokens > 0
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
        structured = client.chat(QUESTION, max_tokens=32, temperature=0, response_format=form)
        assert structured.text.startswith("{")
        assert again.cache == "hit"
