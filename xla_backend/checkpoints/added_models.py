"""`AddedModels`: the models that were added on this computer, in a small file."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from xla_backend.compilation.store import write_whole
from xla_backend.interface.results import ModelInfo

FILE_NAME = "added_models.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AddedModels:
    """The models in a file, which need not exist."""

    path: Path

    def read(self) -> dict[str, ModelInfo]:
        """The models by name, in the order in which they were added."""
        try:
            values = json.loads(self.path.read_text(encoding="utf-8"))
            infos = [ModelInfo(**value) for value in values]
            return {info.name: info for info in infos}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            _warn(f"{self.path} cannot be read: {error}. Delete it, and add the models again.")
            return {}

    def add(self, info: ModelInfo) -> None:
        """Adds a model, or replaces its entry.

        Raises:
            OSError: the file cannot be written.
        """
        infos = [*(i for i in self.read().values() if i.name != info.name), info]
        text = json.dumps([dataclasses.asdict(info) for info in infos], indent=1)
        write_whole(self.path, text.encode())


@functools.cache
def _warn(message: str) -> None:
    """Logs each message once: the file is read often."""
    logger.warning("%s", message)
