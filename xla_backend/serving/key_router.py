"""`KeyRouter`: Ray Serve's request router that follows `routing`.

Knows Ray Serve's router classes. Must not know what is routed beyond its `Route`, the first
argument of every call. Runs in every process that has a handle to the replicas.
"""

from __future__ import annotations

from ray.serve.request_router import (
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)

from xla_backend.serving.routing import Route, ranked


class KeyRouter(MultiplexMixin, RequestRouter):
    """Sends requests where their function is, and elsewhere when the queue there is too long.

    Who has what comes from Serve's model multiplexing: replicas register the ids of their functions
    as multiplexed models.
    """

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The candidates in groups, the best first; Serve takes the least busy that has room."""
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas]
        # Or Serve would ask again without a pause while everybody is full.
        pending_request.routing_context.should_backoff = True
        route = pending_request.args[0] if pending_request.args else Route()
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        queues = {
            name: self.replica_queue_len_cache.get(replica.replica_id) or 0
            for name, replica in replicas.items()
        }
        holders = {
            name
            for name, replica in replicas.items()
            if route.function in replica.multiplexed_model_ids
        }
        return [[replicas[name] for name in group] for group in ranked(route, queues, holders)]
