"""`PrefixCache`: the keys and values of recent requests, for those that begin with the same tokens.

Knows who may reuse what, and how much memory that takes. Must not know how keys and values are
computed. What a request reuses is found by the tokens themselves, so an edited, rewritten or
repeated talk reuses what is still true of it and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xla_backend.interface.results import PrefixCacheUse

if TYPE_CHECKING:
    from xla_backend.model.kept_prompt import KeptPrompt

DEFAULT_BYTES = 512 * 10**6


@dataclass(frozen=True)
class _Entry:
    owner: tuple[str, str]
    kept: KeptPrompt


class PrefixCache:
    """Kept prompts, those of the latest requests. Thread-safe.

    While a request works with one, it has left the cache: nobody else finds it, and it is not
    counted.
    """

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        """Holds nothing yet, and never more than so many bytes."""
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []  # the least recently used first

    @property
    def use(self) -> PrefixCacheUse:
        """What it holds now."""
        with self._lock:
            return PrefixCacheUse(
                prompts=len(self._entries),
                tokens=sum(len(entry.kept.token_ids) for entry in self._entries),
                held_bytes=self._held(),
                limit_bytes=self._limit_bytes,
            )

    def take(
        self, model: str, salt: str, token_ids: Sequence[int], slots: int
    ) -> KeptPrompt | None:
        """What is known of the beginning of a prompt, with so many slots; None for nothing.

        Its last token is never known: it must run, so that there are logits of the next one.
        """
        owner, wanted = (model, salt), token_ids[:-1]
        with self._lock:
            own = [entry for entry in self._entries if entry.owner == owner]
            best = max(own, key=lambda entry: entry.kept.common(wanted), default=None)
            if best is None or (count := best.kept.common(wanted)) == 0:
                return None
            kept = best.kept
            # Where only the last answer would be lost, the talk goes on from here (or the answer is
            # asked for again, or was rewritten). Else this may be a branch: both shall live.
            if count >= min(kept.answer_from - 1, len(kept.token_ids)):
                self._entries.remove(best)
                kept.cut(count)
            if kept.slots != slots or len(kept.token_ids) != count:
                kept = kept.copy(count, slots)
            return kept

    def put(self, model: str, salt: str, kept: KeptPrompt) -> None:
        """Keeps what a request has computed; the least recently used may go for it."""
        if not kept.token_ids:  # nothing came of the request
            return
        new = _Entry((model, salt), kept)
        with self._lock:
            self._entries = [
                entry
                for entry in self._entries
                if entry.owner != new.owner
                or kept.common(entry.kept.token_ids) < len(entry.kept.token_ids)
            ]
            self._entries.append(new)
            while self._held() > self._limit_bytes:
                del self._entries[0]

    def clear(self) -> None:
        """Lets go of all."""
        with self._lock:
            self._entries.clear()

    def _held(self) -> int:
        return sum(entry.kept.size_bytes for entry in self._entries)
