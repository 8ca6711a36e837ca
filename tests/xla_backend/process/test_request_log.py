"""Tests of `request_log`: a line a request, and nothing in it that a visitor wrote."""

import contextlib
import io
import json
import os
import threading
from pathlib import Path

import pytest

from xla_backend import (
    CacheKey,
    CacheOutcome,
    FirstCall,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    Timing,
    Token,
)
from xla_backend.interface.requests import TextRequest
from xla_backend.interface.results import PrefixMiss
from xla_backend.process.messages import EngineRequest
from xla_backend.process.request_log import FinishedRequest, RequestLog, Watchers

SECRET = "pear-4711"
REQUEST = EngineRequest(3, "generate", TextRequest("gpt2-stories", f"my word is {SECRET}"))
RESULT = GenerationResult(
    model="gpt2-stories",
    text=f"so it is {SECRET}",
    tokens=(Token(5, SECRET, -0.5),),
    prompt_tokens=4,
    key=CacheKey(16, 1, 32),
    requested_key=CacheKey(16, 1, 32),
    cache=CacheOutcome.HIT,
    finish="length",
    timing=Timing(queue_s=1.5, decode_s=0.5, total_s=2.0),
    first_call=FirstCall(CacheOutcome.MISS, 1.0, 2.0, 0.1),
    options=GenerationOptions(),
    prefix_miss=PrefixMiss("differs", 0, 9, 0.5, 0, "user", "content", SECRET, SECRET, SECRET),
)


def written(*finished: FinishedRequest) -> list[dict]:
    stream = io.StringIO()
    log = RequestLog(stream)
    for each in finished:
        log.write(each)
    assert SECRET not in stream.getvalue()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_result_tells_outcome_key_phases_and_queue_an_error_its_kind() -> None:
    (line,) = written(FinishedRequest(REQUEST, "result", RESULT, wall_s=2.01, ahead=2))
    assert line["cache"] == "hit"
    assert line["key"] == {"padded_length": 16, "num_beams": 1, "max_new_tokens": 32}
    assert line["timing"] == RESULT.timing.to_dict()
    assert (line["model"], line["request"], line["end"]) == ("gpt2-stories", "generate", "result")
    assert (line["wall_s"], line["ahead"], line["new_tokens"]) == (2.01, 2, 1)
    assert line["time"].endswith("+00:00")
    assert line["cache_miss"].items() >= {"place": 0, "tokens": 9, "message": 0}.items()

    error = InvalidRequest(f"{SECRET} is no option.")
    (line,) = written(FinishedRequest(REQUEST, "error", error, wall_s=0.1, ahead=0))
    assert line["error"] == "InvalidRequest"


@pytest.mark.parametrize("kind", ["dropped", "abandoned"])
def test_what_nobody_waited_for_is_told(kind: str) -> None:
    (line,) = written(FinishedRequest(REQUEST, kind, None, 0.2, 1))
    assert (line["end"], line["request"]) == (kind, "generate")


def test_lines_of_many_threads_stay_whole() -> None:
    stream = io.StringIO()
    log = RequestLog(stream)
    finished = FinishedRequest(REQUEST, "result", RESULT, 2.0, 0)
    threads = [
        threading.Thread(target=lambda: [log.write(finished) for _ in range(100)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 800
    assert all(json.loads(line)["cache"] == "hit" for line in lines)


@pytest.mark.parametrize("device", ["/dev/full", "a closed pipe"])
def test_a_log_that_cannot_be_written_stops_no_other_and_is_reported_once(
    device: str, caplog: pytest.LogCaptureFixture
) -> None:
    if device == "a closed pipe":
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
    else:
        stream = Path(device).open("w")  # noqa: SIM115
    seen: list[FinishedRequest] = []
    watchers = Watchers({"The log": RequestLog(stream).write, "/metrics": seen.append})
    finished = FinishedRequest(REQUEST, "result", RESULT, wall_s=2.01, ahead=2)
    for _ in range(3):
        watchers(finished)
    assert seen == [finished] * 3
    [record] = caplog.records
    assert record.message.startswith("The log misses requests: ") and not record.exc_info
    with contextlib.suppress(OSError):
        stream.close()
