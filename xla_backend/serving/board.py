"""`Board`: where replicas tell their state, and clients read everybody's.

Knows snapshots by the names of their replicas and when each was told. Must not know what is in
them. One small process; if it dies, Ray Serve starts another, and the replicas fill it within a
second.
"""

from __future__ import annotations

import asyncio
import time

from xla_backend.serving.snapshot import Snapshot

HEARTBEAT_S = 1.0
"""How often a replica tells its state when nothing changes."""
SILENCE_S = 5.0
"""After so long without a word, a replica counts as gone."""


class Board:
    """The latest snapshot of every replica."""

    def __init__(self) -> None:
        """Empty."""
        self._snapshots: dict[str, tuple[float, Snapshot]] = {}
        # Not from zero: a client of this board's predecessor must notice that it is another.
        self._version = time.time_ns()
        self._changed = asyncio.Event()

    async def report(self, snapshot: Snapshot) -> None:
        """Takes a replica's state."""
        _, known = self._snapshots.get(snapshot.replica, (0.0, None))
        if known is not None and known.number >= snapshot.number:
            return  # two messages overtook each other
        self._snapshots[snapshot.replica] = (time.monotonic(), snapshot)
        self._tell()

    async def leave(self, replica: str) -> None:
        """Forgets a replica that ends as planned."""
        if self._snapshots.pop(replica, None) is not None:
            self._tell()

    async def read(self, version: int, timeout_s: float) -> tuple[int, list[Snapshot]]:
        """All snapshots, as soon as their version is not the given one any more.

        Returns:
            The version and the snapshots; after `timeout_s` seconds also unchanged ones.
        """
        end = time.monotonic() + timeout_s
        self._drop_silent()
        while self._version == version and (left := end - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, HEARTBEAT_S))
            except TimeoutError:
                self._drop_silent()
        return self._version, [snapshot for _, snapshot in self._snapshots.values()]

    def _drop_silent(self) -> None:
        now = time.monotonic()
        silent = [name for name, (sent, _) in self._snapshots.items() if now - sent > SILENCE_S]
        for name in silent:
            del self._snapshots[name]
        if silent:
            self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
