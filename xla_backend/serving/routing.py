"""Which replica a request should go to.

Knows function ids, who has which function, and how many requests each replica has. Must not know
Ray.

A function is made where its requests go, so that the rule is: to a replica that has it; if none
has, to its home, which everybody computes alike from its id and the names of the replicas; and away
from there only when waiting would take longer than making it elsewhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from xla_backend.interface.buckets import CacheKey

NEVER = 1_000_000
"""A `Route.spill_at` that no queue reaches."""


@dataclass(frozen=True)
class Route:
    """Where a request wants to go; the first argument of every call to a replica.

    Attributes:
        function: id of what serves it, from `function_id`; empty where any replica will do.
        to: the one replica that can serve it, empty for none in particular.
        spill_at: by how many requests the queue of a replica that has the function may be longer
            than another's before the request goes there instead.
        salt: of the kept keys and values that it may reuse: these are where the requests before it
            went, even where others have the function.
    """

    function: str = ""
    to: str = ""
    spill_at: int = NEVER
    salt: str = ""


def function_id(model: str, key: CacheKey | None = None) -> str:
    """What a compiled function (or, without a key, a loaded model) is called among replicas."""
    if key is None:
        return model
    sizes = "x".join(str(int(size)) for size in key.to_dict().values())
    return f"{model} {sizes}"


def spill_at(first_call_s: float | None, run_s: float | None) -> int:
    """How much longer the queue with the function may be: its extra wait equals a first call.

    Args:
        first_call_s: what making the function elsewhere should take, restored or compiled.
        run_s: what one request takes where it is. Either is None where it was never measured.
    """
    if first_call_s is None or not run_s:
        return NEVER
    return max(2, math.ceil(first_call_s / run_s))


def home(function: str, replicas: Collection[str]) -> str:
    """The replica where a function is made first: by rendezvous hashing.

    Everybody finds the same one without a word, and of n replicas one more or less moves only one
    function in n.
    """
    return max(replicas, key=lambda replica: (_weight(function, replica), replica))


def ranked(route: Route, queues: Mapping[str, int], holders: Collection[str]) -> list[list[str]]:
    """The replicas in groups, the best first; within a group, the shortest queue is best.

    Args:
        route: where the request wants to go.
        queues: each replica's requests, running and waiting.
        holders: replicas that have the function.
    """
    if route.to:
        return [[route.to]] if route.to in queues else [list(queues)]
    if not route.function:
        return [list(queues)]
    having = [replica for replica in queues if replica in holders]
    if route.salt:
        having = [home(route.salt, queues)]
    elif not having:
        having = [home(route.function, queues)]
    others = [replica for replica in queues if replica not in having]
    if not others:
        return [having]
    shortest = min(queues[replica] for replica in others)
    if min(queues[replica] for replica in having) - shortest >= route.spill_at:
        return [[replica for replica in others if queues[replica] == shortest], having]
    return [having, others]


def _weight(function: str, replica: str) -> bytes:
    return hashlib.blake2b(f"{replica} {function}".encode(), digest_size=8).digest()
