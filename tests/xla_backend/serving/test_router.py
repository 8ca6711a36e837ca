"""Which replica is asked: Ray Serve's own router, with replicas that are only names."""

import asyncio
import time
from typing import Any

import pytest
from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve.request_router import PendingRequest

from xla_backend.serving import router as routers
from xla_backend.serving.router import SessionRouter, avoid

ENGINES = DeploymentID("Engines")


class Named:
    """A running replica."""

    def __init__(self, name: str, *models: str) -> None:
        self.replica_id = ReplicaID(name, ENGINES)
        self.multiplexed_model_ids = set(models)
        self.node_id = self.availability_zone = ""
        self.max_ongoing_requests = 8

    def update_replica_info(self, info: Any) -> None: ...


ONE, TWO, THREE = Named("one", "gpt2"), Named("two", "gpt2", "t5"), Named("three")


def ranked(*requests: dict[str, str], among: tuple[Named, ...] = (ONE, TWO, THREE)) -> list[Any]:
    """Of each request, the replicas in groups, the best first, as sets of names."""

    async def rank() -> list[Any]:
        router: Any = SessionRouter(ENGINES, DeploymentHandleSource.REPLICA)
        router.initialize_state()
        router.update_replicas(list(among))
        answers = []
        for number, request in enumerate(requests):
            metadata = RequestMetadata(str(number), str(number), **request)
            groups = await router.choose_replicas(list(among), PendingRequest([], {}, metadata))
            answers.append([{r.replica_id.unique_id for r in group} for group in groups if group])
        return answers

    return asyncio.run(rank())


def test_a_request_goes_where_its_model_is_and_then_where_fewest_are() -> None:
    gpt2, t5, other = ranked(*({"multiplexed_model_id": name} for name in ("gpt2", "t5", "opt")))
    assert gpt2 == [{"one", "two"}, {"three"}]
    assert t5 == [{"two"}, {"three"}, {"one"}]
    assert other == [{"three"}, {"one", "two"}]


def test_a_session_goes_to_one_replica_whoever_comes_or_goes() -> None:
    sessions = [{"session_id": str(n), "multiplexed_model_id": "gpt2"} for n in range(60)]
    homes = [groups[0] for groups in ranked(*sessions)]
    assert homes == [groups[0] for groups in ranked(*sessions, among=(THREE, TWO, ONE))]
    assert {name for home in homes for name in home} == {"one", "two", "three"}
    fewer = [groups[0] for groups in ranked(*sessions, among=(ONE, TWO))]
    assert all(now == home for now, home in zip(fewer, homes, strict=True) if home != {"three"})


def test_a_replica_whose_engine_starts_is_the_last_for_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routers, "_avoided_until", {})
    requests = [{"multiplexed_model_id": "gpt2"}, {"session_id": "a"}]
    [_, session] = before = ranked(*requests)
    [home] = session[0]
    avoid("one")
    avoid(home)
    [gpt2, session] = ranked(*requests)
    assert "one" not in gpt2[0] and "one" in gpt2[-1]
    assert home not in session[0] and home in session[-1]
    monkeypatch.setattr(time, "monotonic", lambda: float("inf"))
    assert ranked(*requests) == before
