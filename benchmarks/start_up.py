"""Time from the start of the process to the page, and to the first text.

Knows the app's HTTP API. Run as

    python -m benchmarks.start_up [--rounds 3]

Each round starts `app.py` for each model twice: with an empty store, and with the store that the
first start filled. The request is the one that the page starts with. For comparison, each round
also times the import of TensorFlow alone.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from benchmarks import terminal
from benchmarks.served import served
from xla_backend.checkpoints.models import PACKAGED_MODEL

REQUESTS = {
    "gpt2-stories": {"prompt": "Once upon a time", "max_new_tokens": 96},
    PACKAGED_MODEL: {
        "prompt": "What is the capital of France?",
        "chat": True,
        "max_new_tokens": 128,
    },
}
"""Model: what the page asks it first."""


def main() -> None:
    """Measures and prints a table."""
    rounds = terminal.options(__doc__, rounds=3).rounds
    page, text, imported = {}, {}, []
    for _ in range(rounds):
        for model, request in REQUESTS.items():
            with tempfile.TemporaryDirectory() as store:
                for name in (f"{model}, empty store", f"{model}, filled store"):
                    page_s, text_s = _start(store, model, request)
                    page.setdefault(name, []).append(page_s)
                    text.setdefault(name, []).append(text_s)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import tensorflow"], capture_output=True, check=True)
        imported.append(time.perf_counter() - start)
    terminal.print_command("start_up")
    terminal.print_head("start", "page served, s", "first answer complete, s")
    for name in page:
        page_s, text_s = statistics.median(page[name]), statistics.median(text[name])
        terminal.print_row(name, f"{page_s:.1f}", f"{text_s:.1f}")
    print(f"\n`import tensorflow` alone: {statistics.median(imported):.1f} s")


def _ask(url: str, request: dict) -> None:
    """Sends a request to the page's API and waits for its answer."""
    body = urllib.request.Request(
        f"{url}/gradio_api/call/v2/generate",
        json.dumps(request).encode(),
        {"Content-Type": "application/json"},
    )
    event = json.loads(urllib.request.urlopen(body).read())["event_id"]
    answer = urllib.request.urlopen(f"{url}/gradio_api/call/generate/{event}").read()
    assert b"event: complete" in answer, answer


def _start(store: str, model: str, request: dict) -> tuple[float, float]:
    """Seconds from the start of the process to the page, and to the end of the first text."""
    start = time.perf_counter()
    with served("--models", model, store=store) as url:
        urllib.request.urlopen(url).read()
        page_s = time.perf_counter() - start
        _ask(url, request)
        return page_s, time.perf_counter() - start


if __name__ == "__main__":
    main()
