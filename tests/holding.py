"""`Hold`: keeps an engine's process where a test needs it, so that no test races an engine.

Knows how that process says what it does. Must not know what is tested meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_ITS_START = """
import os, sys, time

def hold(said):
    while os.path.exists(os.path.join({folder!r}, said)):
        time.sleep(0.01)

if "xla_backend.process.engine_process" in sys.orig_argv:
    hold("starting")
    from xla_backend.child_process.channel import Channel

    send = Channel.send

    def send_and_hold(self, message):
        send(self, message)
        hold(message[-1].state if message[0] == "status" else message[0])

    Channel.send = send_and_hold
"""


class Hold:
    """Holds engines that have `folder` in their `PYTHONPATH`, where Python looks at its start."""

    def __init__(self, folder: Path) -> None:
        """Holds nothing yet.

        Args:
            folder: an empty one.
        """
        self.folder = folder
        (folder / "sitecustomize.py").write_text(_AT_ITS_START.format(folder=str(folder)))

    @contextmanager
    def at(self, said: str) -> Iterator[None]:
        """Inside, an engine does not go on once it has said this: a state, or a reply's kind."""
        (self.folder / said).touch()
        try:
            yield
        finally:
            (self.folder / said).unlink()
