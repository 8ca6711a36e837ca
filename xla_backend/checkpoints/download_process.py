"""`DownloadProcess`: a download from the Hub in its own process, so that it can be cancelled.

Knows how it starts, reports and ends. The Hub's client cannot be stopped inside a process, because
parts of it are not Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xla_backend.checkpoints.hub import Download
from xla_backend.checkpoints.models import Registry
from xla_backend.child_process import calling
from xla_backend.child_process.child_side import first_line
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.results import ModelInfo


class DownloadProcess:
    """One download: iterate over its progress once, then read `info`.

    Attributes:
        info: the downloaded model; None before the end, and if it was cancelled.
    """

    def __init__(self, name: str) -> None:
        """Starts it.

        Raises:
            EngineStopped: the process cannot be started.
        """
        self.info: ModelInfo | None = None
        self._name = name
        self._is_cancelled = False
        self._process = calling.started(f"{__name__}:download", name, sends_chunks=True)

    def __iter__(self) -> Iterator[Download]:
        """Its progress, twice a second."""
        try:
            while True:
                kind, _, value = self._process.receive()
                if kind == "chunk":
                    yield value
                elif kind == "error":
                    raise value
                else:
                    self.info = value
                    return
        except (EOFError, OSError) as error:
            if not self._is_cancelled:
                raise ModelUnavailable(
                    f"The download of {self._name} ended unexpectedly. Try again: finished files "
                    "are not downloaded again."
                ) from error
        finally:
            self._process.end()

    def cancel(self) -> None:
        """Ends it now, from any thread; finished files stay in the Hub's cache."""
        self._is_cancelled = True
        self._process.kill()


def download(report: Callable[[Download], None], name: str) -> ModelInfo:
    """Downloads a model in this process."""
    try:
        return Registry([name], allow_folders=False).locate(name, report).info
    except ModelUnavailable:
        raise
    except Exception as error:
        raise ModelUnavailable(f"{name} cannot be downloaded: {first_line(error)}") from error
