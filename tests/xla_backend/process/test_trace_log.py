"""The trace of a server: what was written is one at any moment, and holds no text."""

import json
from pathlib import Path

from tests.playground.samples import result
from xla_backend.interface.requests import TextRequest
from xla_backend.process.messages import EngineRequest
from xla_backend.process.request_log import FinishedRequest, TraceLog


def test_what_was_written_so_far_is_a_trace_of_each_request(tmp_path: Path) -> None:
    log = TraceLog(tmp_path / "trace.json")
    secret = TextRequest("gpt2-stories", "my word is pear-4711")
    for _ in range(2):
        log.write(FinishedRequest(EngineRequest(0, "generate", secret), "result", result(), 0.5, 0))
    log.write(FinishedRequest(EngineRequest(0, "generate", secret), "dropped", None, 0.1, 0))
    written = (tmp_path / "trace.json").read_text("utf-8")
    assert "pear-4711" not in written
    events = json.loads(written.rstrip().rstrip(",") + "]")
    slices = [event["name"] for event in events if event["ph"] == "X"]
    assert slices and len(slices) % 2 == 0
    assert slices[: len(slices) // 2] == slices[len(slices) // 2 :], "of both alike"
