"""`SessionRouter`: which replica Ray Serve chooses.

Knows Ray Serve's routers, sessions and models. Runs in every process with a handle to the replicas.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray.serve.request_router import MultiplexMixin, PendingRequest, RunningReplica

AVOIDED_S = 5.0
"""Seconds for which requests go to other replicas after one said that its engine is starting."""
_avoided_until: dict[str, float] = {}


def avoid(replica: str) -> None:
    """Lets requests of this process go to other replicas for a time, if there are any."""
    _avoided_until[replica] = time.monotonic() + AVOIDED_S


class SessionRouter(MultiplexMixin, ConsistentHashRouter):
    """Requests of one session go to one replica, which has their prefixes in memory, or to its
    neighbours while that one is full; others to the least busy replica that has their model."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The candidates in groups, the best first; Serve takes the least busy one with room."""
        if pending_request is None or pending_request.metadata.session_id:
            chosen = await super().choose_replicas(candidate_replicas, pending_request)
            return _avoided_last(chosen)
        # Otherwise Serve would retry without a pause while all replicas are full.
        pending_request.routing_context.should_backoff = True
        model = pending_request.metadata.multiplexed_model_id
        return _avoided_last(self.rank_replicas_via_multiplex(candidate_replicas, model))


def _avoided_last(groups: Sequence[Sequence[RunningReplica]]) -> list[list[RunningReplica]]:
    """The groups without the replicas that are avoided, which come last."""
    now = time.monotonic()
    avoided = {name for name, until in _avoided_until.items() if until > now}
    ready = [[r for r in group if r.replica_id.unique_id not in avoided] for group in groups]
    last = [r for group in groups for r in group if r.replica_id.unique_id in avoided]
    return [group for group in [*ready, last] if group]
