"""From starting the process to a page, and to the first text of the default prompt.

Knows the program from outside: its command and its HTTP address. Run as

    python -m benchmarks.start_up [--rounds 3]

Each round starts `app.py` twice: with an empty store and with the store that the first start
filled. For comparison it also times importing TensorFlow alone, in the same turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PORT = 7991


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    page, text, imported = {}, {}, []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as store:
            for name in ("empty store", "filled store"):
                page_s, text_s = _start(store)
                page.setdefault(name, []).append(page_s)
                text.setdefault(name, []).append(text_s)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import tensorflow"], capture_output=True, check=True)
        imported.append(time.perf_counter() - start)
    print(f"\npython -m benchmarks.start_up {' '.join(sys.argv[1:])}\n")
    print("| start | page served, s | first answer complete, s |")
    print("| --- | --- | --- |")
    for name in page:
        page_s, text_s = statistics.median(page[name]), statistics.median(text[name])
        print(f"| {name} | {page_s:.1f} | {text_s:.1f} |")
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


def _start(store: str) -> tuple[float, float]:
    """Seconds from the start of the process to the page and to the answer to its first prompt."""
    url = f"http://127.0.0.1:{PORT}"
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    start = time.perf_counter()
    command = [sys.executable, "app.py", "--port", str(PORT), "--store", store]
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).read()
                break
            except OSError:
                time.sleep(0.02)
        page_s = time.perf_counter() - start
        _ask(url, {"prompt": "Once upon a time", "max_new_tokens": 96})
        return page_s, time.perf_counter() - start
    finally:
        server.terminate()
        server.wait(20)


if __name__ == "__main__":
    main()
