"""`Adding`: the model that is being added to this page's list, from its look-up to its last byte.

Knows the file of added models and the download. Must not know components or HTML. All who use the
page share it, as they share the list.
"""

import threading
from dataclasses import dataclass, replace

from playground.context.runs import UNEXPECTED
from xla_backend import BackendError, InvalidRequest, ModelInfo
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.download_process import DownloadProcess


@dataclass(frozen=True)
class AddingProgress:
    """How far the last addition has come.

    Attributes:
        name: of the model.
        done, total: bytes.
        state: "failed" comes with a `problem`.
    """

    name: str
    done: int = 0
    total: int = 0
    state: str = "downloading"
    problem: str = ""


class Adding:
    """Adds one model at a time. Methods may be called from any thread.

    Attributes:
        progress: of the last addition; None before the first.
    """

    def __init__(self, added: AddedModels) -> None:
        self.progress: AddingProgress | None = None
        self._added = added
        self._lock = threading.Lock()
        self._download: DownloadProcess | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a model is being downloaded."""
        return self.progress is not None and self.progress.state == "downloading"

    def start(self, info: ModelInfo) -> None:
        """Adds what `checkpoints.models.candidate` has found, once it is on this computer.

        Raises:
            InvalidRequest: another model is being added.
            BackendError: the download cannot be started, or the file cannot be written.
        """
        with self._lock:
            if self.is_under_way:
                raise InvalidRequest("Another model is being added. Wait for it, or cancel it.")
            if info.source == "folder":
                self._store(info)
                return
            self._download = DownloadProcess(info.name)
            self.progress = AddingProgress(info.name, total=info.download_bytes or 0)
            arguments = (self._download, info)
            threading.Thread(target=self._follow, args=arguments, daemon=True).start()

    def cancel(self) -> None:
        """Ends the download, if there is one."""
        with self._lock:
            if self._download is not None and self.is_under_way:
                self._download.cancel()

    def _follow(self, download: DownloadProcess, info: ModelInfo) -> None:
        try:
            for step in download:
                self.progress = AddingProgress(info.name, step.done, step.total)
            if download.info is None:
                self.progress = AddingProgress(info.name, state="cancelled")
                return
            self._store(
                replace(download.info, license=info.license, download_bytes=info.download_bytes)
            )
        except BackendError as error:
            self.progress = AddingProgress(info.name, state="failed", problem=str(error))
        except Exception:
            self.progress = AddingProgress(info.name, state="failed", problem=UNEXPECTED)
            raise

    def _store(self, info: ModelInfo) -> None:
        try:
            self._added.add(info)
        except OSError as error:
            raise InvalidRequest(
                f"{self._added.path} cannot be written: {error.strerror or error}. Name another "
                "folder with --store."
            ) from error
        self.progress = AddingProgress(info.name, state="added")
