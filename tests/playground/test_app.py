"""`app.py` as it is started and ended."""

from __future__ import annotations

import subprocess
import sys

import httpx

from tests.playground.served import ROOT, Site, serve


def test_the_page_costs_little_more_than_gradio(site: Site) -> None:
    # Against what importing Gradio takes here: seconds depend on the machine and its neighbours.
    # TensorFlow alone takes as much again.
    code = "import time, gradio; print(time.process_time())"
    gradio_s = float(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True))
    assert site.served.up_cpu_s < 2.5 * gradio_s


def test_the_page_travels_compressed(site: Site) -> None:
    sizes = {}
    for encoding in ("identity", "gzip"):
        with httpx.stream("GET", site.url, headers={"accept-encoding": encoding}) as answer:
            assert answer.headers.get("content-encoding", "identity") == encoding
            sizes[encoding] = len(b"".join(answer.iter_raw()))
    assert sizes["gzip"] < sizes["identity"] / 3


def test_the_app_ends_cleanly_when_it_is_told_to() -> None:
    served = serve(PLAYGROUND_MODELS="gpt2-stories")
    assert served.end() == 0
    assert "Traceback" not in "\n".join(served.output)


def test_a_port_in_use_is_said_in_one_sentence(site: Site) -> None:
    port = site.url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "app.py", "--port", port],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"{port}" in done.stderr
    assert "Traceback" not in done.stderr
