"""A page with `FakeBackend` that is served in this process, for what programs send to it.

Knows how to serve and end it. Must not know what is asked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playground import create_app, launch_options
from playground.page import Page
from playground.server.metrics import Metrics
from tests.playground.fake_backend import FakeBackend
from tests.waiting import wait_until
from xla_backend import ModelInfo
from xla_backend.interface.request_queue import RequestQueue


@dataclass
class ApiPage:
    """A served page."""

    page: Page
    url: str  # without a slash at its end
    backend: FakeBackend  # the engine that it has
    models: Sequence[ModelInfo]  # what that knows at the start

    @property
    def api(self) -> str:
        """Where OpenAI's clients are pointed to."""
        return f"{self.url}/v1"

    def wait_for(self, running: int, waiting: int = 0) -> None:
        """Waits until so many requests are at the engine and in the line."""
        queue = self.backend.queue
        wait_until(lambda: (queue.running, queue.waiting) == (running, waiting))

    def settle(self) -> None:
        """Ends what runs; for the next test it is as at the start."""
        for stream in self.backend.streams:
            stream.stop()
        self.backend.release()
        self.wait_for(running=0)
        shared = {"queue": self.backend.queue, "requests": self.backend.requests}
        vars(self.backend).update(vars(FakeBackend(models=self.models)) | shared)


@contextmanager
def api_page(
    backend: FakeBackend | None = None,
    password: str = "",
    cors: Sequence[str] = (),
    metrics: Metrics | None = None,
    hosts: Sequence[str] = (),
    root_path: str = "",
    **options: Any,
) -> Iterator[ApiPage]:
    """Serves a page; see `launch_options`, and for all other options `create_app`."""
    backend = backend or FakeBackend()
    if "limits" in options:
        backend.queue = RequestQueue(options["limits"].queue)
    page = create_app(backend, **options)
    page.launch(
        server_name="127.0.0.1",
        prevent_thread_lock=True,
        quiet=True,
        **launch_options(
            page, password, cors=cors, metrics=metrics, hosts=hosts, root_path=root_path
        ),
    )
    try:
        yield ApiPage(page, page.local_url.rstrip("/"), backend, backend.models())
    finally:
        page.close(verbose=False)
