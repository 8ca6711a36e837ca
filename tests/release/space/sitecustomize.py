"""Makes an interpreter what it would be on a Space: nothing but the requirements, no way out.

Knows Python's import system and its audit events. Must not know the app. Python imports this file
by its name at every start, the engine's process included, while its folder is in PYTHONPATH.
`SPACE_ABSENT` names a JSON file: "modules" and "distributions" that are not to be found.
`SPACE_CALLS` names a file that gets a line for each attempt to leave this computer.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from typing import Any

_ABSENT = json.loads(Path(os.environ["SPACE_ABSENT"]).read_text())
_MODULES = frozenset(_ABSENT["modules"])
_DISTRIBUTIONS = frozenset(_ABSENT["distributions"])
_CALLS = Path(os.environ["SPACE_CALLS"])
_HERE = (None, "", b"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")


class RequiredOnly(PathFinder):
    """Finds what is installed, but for what the requirements do not bring."""

    @classmethod
    def find_spec(cls, fullname: str, *where: Any) -> ModuleSpec | None:
        """A module's spec; None for an absent one, as if no such file were there."""
        if fullname.partition(".")[0] in _MODULES:
            return None
        return super().find_spec(fullname, *where)

    @staticmethod
    def find_distributions(
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        """The installed distributions, but for absent ones."""
        for distribution in PathFinder.find_distributions(context):
            if distribution.name not in _DISTRIBUTIONS:
                yield distribution


def _stay_here(event: str, arguments: tuple) -> None:
    """Refuses connections to other computers, and look-ups of their names."""
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if host not in _HERE:
        with _CALLS.open("a") as calls:
            calls.write(f"{event} {host}\n")
        raise OSError(f"there is no network here, not even to {host}")


sys.meta_path[:] = [RequiredOnly if finder is PathFinder else finder for finder in sys.meta_path]
sys.addaudithook(_stay_here)
