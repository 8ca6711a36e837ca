"""A page with `FakeBackend` that is served in this process, for what programs send to it.

Knows how to serve and end it. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playground import create_app, launch_options
from playground.page import Page
from playground.server.metrics import Metrics
from tests.playground.fake_backend import FakeBackend, FakeTextStream
from tests.waiting import wait_until


class WatchedBackend(FakeBackend):
    """A `FakeBackend` that keeps the streams it gave.

    Attributes:
        streams: of texts, in the order of the requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[FakeTextStream] = []

    def stream(self, *values: Any, **options: Any) -> FakeTextStream:
        self.streams.append(super().stream(*values, **options))
        return self.streams[-1]


@dataclass
class ApiPage:
    """A served page.

    Attributes:
        url: without a slash at its end.
    """

    page: Page
    url: str
    backend: WatchedBackend = field(default_factory=WatchedBackend)

    @property
    def api(self) -> str:
        """Where OpenAI's clients are pointed to."""
        return f"{self.url}/v1"

    def wait_for(self, running: int, waiting: int = 0) -> None:
        """Waits until so many requests are at the engine and in the line."""
        line = self.page.context.line
        wait_until(lambda: (line.running, line.waiting) == (running, waiting))

    def settle(self) -> None:
        """Ends what runs; for the next test it is as at the start."""
        for stream in self.backend.streams:
            stream.stop()
        self.wait_for(running=0)
        fresh = WatchedBackend()
        for name, value in vars(fresh).items():
            setattr(self.backend, name, value)


@contextmanager
def api_page(
    password: str = "",
    cors: Sequence[str] = (),
    metrics: Metrics | None = None,
    **options: Any,
) -> Iterator[ApiPage]:
    """Serves a page; see `launch_options`, and for all other options `create_app`."""
    backend = WatchedBackend()
    page = create_app(backend, **options)
    page.launch(
        server_name="127.0.0.1",
        prevent_thread_lock=True,
        quiet=True,
        **launch_options(page, password, cors=cors, metrics=metrics),
    )
    try:
        yield ApiPage(page, page.local_url.rstrip("/"), backend)
    finally:
        page.close(verbose=False)
