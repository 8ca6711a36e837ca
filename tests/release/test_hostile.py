"""Requests that are wrong, strange or as large as allowed: none is a server's error, and 2,000 of
them leave next to no memory behind."""

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.playground.served import Served, children, serve

GROWTH_BYTES, REQUESTS = 20e6, 2000
PATHS = (
    *("chat/completions", "completions", "responses", "messages", "messages/count_tokens"),
    *("responses/input_tokens", "decide", "decisions", "systemone", "completion", "infill"),
    *("tokenize", "detokenize", "apply-template", "no-such-path", "models/no-such-model"),
)
ODD = (
    *(None, True, -1, 1.5, 2**70, "", "x" * 5_000, "\u2028\x00\U0001f600", [], [[]], [None], {}),
    *({"a": {"b": []}}, [{"role": "user"}], [{"role": "x", "content": [5]}], [1, 2, "three"]),
    *([{"role": "user", "content": "Hello"}] * 50, {"type": "json_schema", "schema": {"not": {}}}),
)
FIELDS = (
    *("prompt", "messages", "input", "state", "questions", "content", "tokens", "model", "stop"),
    *("max_tokens", "temperature", "seed", "n", "logit_bias", "tools", "tool_choice", "grammar"),
    *("response_format", "guided_regex", "bad_words", "allowed_token_ids", "best_of", "suffix"),
    *("chat_template", "chat_template_kwargs", "input_prefix", "input_suffix", "n_probs", "stream"),
    *("stream_options", "logprobs", "top_logprobs", "instructions", "previous_response_id"),
    *("system", "thinking", "prompt_cache_key", "cache_salt", "no_such_field"),
)


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    served = serve("--models", "gpt2-stories", "--no-store", "--metrics")
    yield served
    served.end()


def bodies(dice: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        body = {name: dice.choice(ODD) for name in dice.sample(FIELDS, dice.randint(1, 5))}
        if dice.random() < 0.7:  # so that the strange field is reached
            body |= {"prompt": "Once", "input": "Once", "content": "Once", "state": "Once"}
            body["messages"] = [{"role": "user", "content": "Once"}]
        yield {"max_tokens": 2} | body | ({"n": 1} if dice.random() < 0.9 else {})


def resident_bytes(app: Served) -> int:
    """Of the page and the engine."""
    pids = [app.process.pid, *children(app.process.pid)]
    status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
    return sum(int(kib) * 1024 for kib in re.findall(r"VmRSS:\s+(\d+)", status))


@pytest.mark.timeout(1800)
def test_hostile_requests_are_no_errors_of_the_server_and_leave_no_memory(app: Served) -> None:
    dice = random.Random(5)
    all = zip(itertools.cycle(PATHS), bodies(dice), strict=False)
    failed = []
    with httpx.Client(base_url=f"{app.url}/v1/", timeout=600) as client:
        for count, (path, body) in enumerate(itertools.islice(all, 2 * REQUESTS)):
            if count == REQUESTS:  # what is made once is there
                before = resident_bytes(app)
            answer = client.post(path, json=body)
            if answer.status_code >= 500:
                failed.append((path, body, answer.text[:200]))
    grown = resident_bytes(app) - before
    print(f"{grown / 1e6:.1f} MB more after {REQUESTS} requests")
    assert not failed, failed[0]
    assert grown <= GROWTH_BYTES
    assert not [line for line in app.output if "Traceback" in line]
