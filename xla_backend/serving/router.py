"""`SessionRouter`: which replica Ray Serve chooses.

Knows Ray Serve's routers, sessions and models. Must not know the requests. Runs in every process
with a handle to the replicas.
"""

from __future__ import annotations

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray.serve.request_router import MultiplexMixin, PendingRequest, RunningReplica


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
            return await super().choose_replicas(candidate_replicas, pending_request)
        # Otherwise Serve would retry without a pause while all replicas are full.
        pending_request.routing_context.should_backoff = True
        model = pending_request.metadata.multiplexed_model_id
        return self.rank_replicas_via_multiplex(candidate_replicas, model)
