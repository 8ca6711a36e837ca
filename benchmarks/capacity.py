"""The replicas, cores and memory for a number of visitors: by formulas and by a simulation.

    python -m benchmarks.capacity            writes docs/capacity.md

Knows measured service times with their sources, how visitors arrive, and how requests are routed
(by `xla_backend.serving.routing`, as in the service). Must not run an engine.

The simulation checks the formulas, and gives results for which there is no formula.
"""

from __future__ import annotations

import heapq
import json
import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from xla_backend.serving.routing import Route, home, ranked, spill_at

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS, PAGE = ROOT / "docs" / "benchmarks.json", ROOT / "docs" / "capacity.md"
HOUR = 3600.0
LOAD = 0.7
"""The largest allowed share of time in which replicas are busy."""

NEW_TOKENS = 96
"""New tokens of a request: the page's default."""

# `python -m benchmarks.function_costs`, 2 cores of an AMD EPYC, 2026-11-21; seconds and GB.
COMPILE_S, RESTORE_S = 2.70, 0.63
ENGINE_GB, WEIGHTS_GB, FUNCTION_GB = 0.64, 0.66, 0.08
WORK_GB = 0.20
"""Memory that the first request of a model adds, for any cache key."""

# Resident memory of Ray's own process beside the engine, while the cluster of
# tests/xla_backend/serving served.
RAY_WORKER_GB = 0.20

Policy = Literal["by key", "at random"]


@dataclass(frozen=True)
class Costs:
    """Time in seconds and memory in GB of one engine with two cores, for one model.

    Attributes:
        run_s: one request on a function in memory.
        compile_s, restore_s: added if the function is compiled, or restored from the store.
        base_gb, weights_gb, function_gb: memory of a replica without a model, of the model's
            weights, and of each function.
        cores: of a replica.
    """

    run_s: float
    compile_s: float
    restore_s: float
    base_gb: float
    weights_gb: float
    function_gb: float
    cores: int = 2


@dataclass(frozen=True)
class Visitors:
    """The load: visitors and their requests.

    Attributes:
        an_hour: visitors per hour.
        requests: per visitor.
        keys: number of cache keys, all of one model.
        skew: the share of the n-th most frequent key is proportional to n ** -skew.
    """

    an_hour: float
    requests: float = 6.0
    keys: int = 40
    skew: float = 1.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.an_hour * self.requests / HOUR

    def shares(self) -> np.ndarray:
        """(keys,) shares of the requests, the most frequent key first."""
        weights = np.arange(1, self.keys + 1, dtype=float) ** -self.skew
        return weights / weights.sum()


# --- the arithmetic -------------------------------------------------------------------------------


def replicas_needed(visitors: Visitors, costs: Costs, load: float = LOAD) -> int:
    """The least number of replicas that are busy for at most `load` of the time."""
    return max(1, math.ceil(visitors.rate * costs.run_s / load))


def first_calls(visitors: Visitors, replicas: int, seconds: float, policy: Policy) -> float:
    """Expected number of functions that are compiled or restored within these seconds.

    Arrivals are a Poisson process. By key, the first request for a key makes one replica compile.
    At random, each replica sees its own Poisson stream of 1/n of the key's requests and compiles.
    """
    places = 1 if policy == "by key" else replicas
    expected = visitors.rate * visitors.shares() * seconds / places
    return float(places * (1.0 - np.exp(-expected)).sum())


def wait_s(rate: float, run_s: Sequence[float] | float, replicas: int) -> float:
    """Mean wait in seconds with random routing, where each replica is an M/G/1 queue.

    Pollaczek and Khinchine: W = r E[S^2] / 2 (1 - r E[S]), r the rate of one replica. Infinite if
    requests arrive faster than they are served.
    """
    served = np.atleast_1d(np.asarray(run_s, dtype=float))
    one = rate / replicas
    busy = one * served.mean()
    return math.inf if busy >= 1.0 else float(one * (served**2).mean() / (2.0 * (1.0 - busy)))


def memory_gb(costs: Costs, functions_a_replica: float, replicas: int) -> float:
    """Memory of all replicas in GB, each with the model's weights."""
    each = costs.base_gb + costs.weights_gb + costs.function_gb * functions_a_replica
    return replicas * each


# --- the simulation -------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The result of a simulation.

    Attributes:
        waits_s: of each request, seconds from its arrival to the start of its work.
        totals_s: of each request, seconds from its arrival to its end.
        made: number of functions that were compiled.
        restored: number of functions that were restored from the shared store.
        functions: number in each replica's memory at the end.
        busy: the share of time in which replicas worked.
    """

    waits_s: list[float] = field(default_factory=list)
    totals_s: list[float] = field(default_factory=list)
    made: int = 0
    restored: int = 0
    functions: list[int] = field(default_factory=list)
    busy: float = 0.0


@dataclass
class _Replica:
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    has: set[int] = field(default_factory=set)
    running: int = 0


def simulate(
    visitors: Visitors,
    costs: Costs,
    replicas: int,
    seconds: float,
    policy: Policy,
    *,
    seed: int = 0,
    has_store: bool = True,
    warm: bool = False,
) -> Outcome:
    """Simulates Poisson arrivals for these seconds, and serves all of them.

    Args:
        visitors, costs: load, and time of the work.
        replicas: their number; each has one queue, and serves its requests in order, one at a time.
        seconds: of arrivals.
        policy: "by key" follows `routing.ranked` with all queues known; "at random" ignores it.
        seed: of the random numbers.
        has_store: whether replicas share a store, so that a function is compiled only once.
        warm: whether all replicas start with all functions in memory.
    """
    rng = np.random.default_rng(seed)
    count = max(1, int(rng.poisson(visitors.rate * seconds)))
    arrivals = np.sort(rng.uniform(0.0, seconds, count)).tolist()
    keys = rng.choice(visitors.keys, size=count, p=visitors.shares()).tolist()
    dealt = rng.integers(replicas, size=count).tolist()
    names = [f"replica {number}" for number in range(replicas)]
    number_of = {name: number for number, name in enumerate(names)}
    functions = [f"model {key}" for key in range(visitors.keys)]
    homes = [number_of[home(function, names)] for function in functions]
    elsewhere_s = costs.restore_s if has_store else costs.compile_s
    spill = spill_at(elsewhere_s + costs.run_s, costs.run_s)

    fleet = [_Replica(has=set(range(visitors.keys)) if warm else set()) for _ in range(replicas)]
    holders: list[set[int]] = [set() for _ in range(visitors.keys)]
    stored: set[int] = set()
    ends: list[tuple[float, int]] = []
    outcome = Outcome()
    worked = 0.0

    def choose(key: int) -> int:
        having = holders[key] or {homes[key]}
        queues = {names[n]: len(one.waiting) + one.running for n, one in enumerate(fleet)}
        route = Route(functions[key], spill_at=spill)
        best = ranked(route, queues, {names[n] for n in having})[0]
        return number_of[min(best, key=queues.__getitem__)]

    def begin(now: float, number: int) -> None:
        nonlocal worked
        replica = fleet[number]
        arrived, key = replica.waiting.popleft()
        took = costs.run_s
        if key not in replica.has:
            replica.has.add(key)
            if has_store and key in stored:
                outcome.restored += 1
                took += costs.restore_s
            else:
                outcome.made += 1
                stored.add(key)
                took += costs.compile_s
        outcome.waits_s.append(now - arrived)
        outcome.totals_s.append(now + took - arrived)
        replica.running = 1
        worked += took
        heapq.heappush(ends, (now + took, number))

    last = 0.0
    arrivals, keys, dealt = [*arrivals, math.inf], [*keys, 0], [*dealt, 0]
    for arrived, key, random_one in zip(arrivals, keys, dealt, strict=True):
        while ends and ends[0][0] <= arrived:
            last, number = heapq.heappop(ends)
            fleet[number].running = 0
            if fleet[number].waiting:
                begin(last, number)
        if arrived == math.inf:
            break
        number = choose(key) if policy == "by key" else random_one
        holders[key].add(number)
        fleet[number].waiting.append((arrived, key))
        if not fleet[number].running:
            begin(arrived, number)
    outcome.functions = [len(one.has) for one in fleet]
    outcome.busy = worked / (replicas * max(last, seconds))
    return outcome


# --- the page -------------------------------------------------------------------------------------

SIZES = (10, 1_000, 100_000)
SIMULATED_S = {10: 100 * HOUR, 1_000: 2 * HOUR, 100_000: 180.0}
"""Simulated seconds of each size: enough for some thousand requests."""
POLICIES: tuple[Policy, ...] = ("by key", "at random")


def measured_costs() -> Costs:
    """One engine with two cores and a model of 124M parameters, from docs/benchmarks.json."""
    entries = json.loads(BENCHMARKS.read_text(encoding="utf-8"))["entries"]
    first_s, token_s = _engine_s(entries["greedy/124m"])
    return Costs(
        run_s=first_s + (NEW_TOKENS - 1) * token_s,
        compile_s=COMPILE_S,
        restore_s=RESTORE_S,
        base_gb=ENGINE_GB + WORK_GB + RAY_WORKER_GB,
        weights_gb=WEIGHTS_GB,
        function_gb=FUNCTION_GB,
    )


def _engine_s(entry: dict) -> tuple[float, float]:
    """Seconds of the first token and of each further one, computed as in docs/benchmarks.md."""
    seconds = {
        call["new_tokens"]: statistics.median(call["seconds"])
        for call in entry["calls"]
        if call["contender"] == "this engine"
    }
    token_s = (seconds[64] - seconds[2]) / 62
    return seconds[2] - token_s, token_s


def page() -> str:
    """The text of docs/capacity.md, with all numbers computed or simulated now."""
    costs = measured_costs()
    rows, first, waits, cold = [], [], [], {}
    for size in SIZES:
        visitors, seconds = Visitors(size), SIMULATED_S[size]
        replicas = replicas_needed(visitors, costs)
        # At most one hour, to show the first calls of a new service.
        played = {
            policy: simulate(visitors, costs, replicas, min(seconds, HOUR), policy)
            for policy in POLICIES
        }
        warm = {
            policy: simulate(visitors, costs, replicas, seconds, policy, warm=True)
            for policy in POLICIES
        }
        name = f"{size:,}"
        memory = {
            policy: memory_gb(costs, statistics.fmean(played[policy].functions), replicas)
            for policy in POLICIES
        }
        rows.append(
            f"| {name} | {visitors.rate:.3g} | {visitors.rate * costs.run_s:.3g} | {replicas:,} | "
            f"{replicas * costs.cores:,} | {memory['by key']:,.0f} GB | "
            f"{memory['at random']:,.0f} GB |"
        )
        period = min(seconds, HOUR)
        for policy in POLICIES:
            one = played[policy]
            needed = first_calls(visitors, replicas, period, policy)
            first.append(
                f"| {name} | {period:.0f} s | {policy} | {needed:,.0f} | "
                f"{one.made + one.restored:,} | {one.restored:,} | "
                f"{statistics.fmean(one.functions):.0f} | {_share(one):.1%} |"
            )
        waits.append(
            f"| {name} | {replicas:,} | {wait_s(visitors.rate, costs.run_s, replicas):.2f} | "
            f"{statistics.fmean(warm['at random'].waits_s):.2f} | "
            f"{statistics.fmean(warm['by key'].waits_s):.2f} | "
            f"{_p95(warm['at random'].totals_s):.2f} | {_p95(warm['by key'].totals_s):.2f} |"
        )
        cold[size] = {policy: _share(played[policy]) for policy in POLICIES}
    visitors = Visitors(1_000)
    return _TEXT.format(
        costs=costs,
        base_parts=f"{ENGINE_GB} + {WORK_GB} + {RAY_WORKER_GB}",
        new_tokens=NEW_TOKENS,
        load=LOAD,
        visitors=visitors,
        top=visitors.shares()[0],
        rows="\n".join(rows),
        first="\n".join(first),
        waits="\n".join(waits),
        cold_small=cold[SIZES[0]]["by key"],
        one_in_random=1 / cold[SIZES[-1]]["at random"],
        one_in_key=1 / cold[SIZES[-1]]["by key"],
        all_weights=replicas * costs.weights_gb,
        spill=spill_at(costs.restore_s + costs.run_s, costs.run_s),
        spill_cold=spill_at(costs.compile_s + costs.run_s, costs.run_s),
    )


def _share(outcome: Outcome) -> float:
    """The share of requests that waited for a function to be compiled or restored."""
    return (outcome.made + outcome.restored) / len(outcome.totals_s)


def _p95(seconds: Sequence[float]) -> float:
    return float(np.quantile(seconds, 0.95))


def main() -> None:
    """Writes docs/capacity.md."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written")


_TEXT = """# How much for how many

Written by `python -m benchmarks.capacity`: arithmetic for the service on Ray Serve
(`xla_backend/serving`), beside a simulation that plays the visitors one by one and routes them by the
service's own rules. Nothing here was measured on many machines; what was measured are the costs below.

## What goes in

| | | from |
| --- | --- | --- |
| one request, {new_tokens} new tokens, function in memory | {costs.run_s:.2f} s | \
[benchmarks.json](benchmarks.json): GPT-2's shape (124M parameters), 2 cores |
| to compile a function | {costs.compile_s:.2f} s | `python -m benchmarks.function_costs` |
| to restore it from the store | {costs.restore_s:.2f} s | the same |
| memory of a replica with no model | {costs.base_gb:.2f} GB | the same ({base_parts}: the engine, \
what its first request adds, Ray's worker) |
| the model's weights | {costs.weights_gb:.2f} GB | the same |
| each function | {costs.function_gb:.2f} GB | the same |

A visitor sends {visitors.requests:.0f} requests, at random moments of the hour (Poisson). They fall on
{visitors.keys} keys of one model; the n-th most wanted is asked for in proportion to 1/n, so that the first
gets {top:.0%} of all requests. These are guesses: put in your own.

## Replicas, cores, memory

Requests a second times seconds a request is the number of engines that are busy on average. Replicas may
be busy for {load:.0%} of the time, each has {costs.cores} cores and all weights, and the functions that
the simulation left in it.

| visitors an hour | requests/s | engines busy | replicas | cores | memory, routed by key | \
routed at random |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

## First calls

With requests dealt out at random, every one of n replicas meets every key and makes its function:
n · Σ (1 - e^(-r·t/n)) of them in t seconds, r the key's requests a second. By key, one replica makes it:
Σ (1 - e^(-r·t)). The simulation makes more by key, on purpose: a key that is wanted more than one replica
can serve spills over to others, as soon as the queue is longer than restoring
takes ({spill} requests here; {spill_cold} where there is no shared store).

| visitors an hour | first | routed | first calls, formula | simulated | of these from the store | \
functions a replica | requests that waited for one |
| --- | --- | --- | --- | --- | --- | --- | --- |
{first}

## Waiting

Dealt out at random, each replica is a queue by itself, and the mean wait is Pollaczek and Khinchine's,
λ·E[S²] / 2(1 - λ·E[S]). By key with spilling, a request may leave a long queue; there is no such formula, so
the simulation says how long it waits. All functions are in memory here; seconds.

| visitors an hour | replicas | mean wait, formula | at random, simulated | by key, simulated | \
95% are done within, at random | by key |
| --- | --- | --- | --- | --- | --- | --- |
{waits}

## Where the bottleneck is

- **10 visitors an hour: first calls.** One replica is busy for two percent of the time, but of the first
  hour's requests {cold_small:.0%} meet a function that is not there. A store that was filled beforehand
  (`python -m xla_backend warm`) turns {costs.compile_s:.1f} s into {costs.restore_s:.1f} s. Routing does not matter.
- **1,000: queueing.** After some minutes every function is made. What is left is the wait for a free
  engine: dealt out at random, requests queue at one replica while another idles; by key with spilling, a
  quarter of that.
- **100,000: memory and restoring.** At random, every replica restores and keeps every function: after
  three minutes one request in {one_in_random:.0f} has waited for that, by key one in {one_in_key:.0f}. The
  weights are in every replica all the same, {all_weights:,.0f} GB of them; fewer replicas with more cores
  each (`XLA_BACKEND_CORES`) hold fewer copies.
- **Not in these numbers:** requests that wait for the same function run on it side by side
  (`python -m benchmarks.batched_runs`), so that a long queue of one key moves faster than this page says.
  The ingress and the board are one process each by default. Every reply passes
  through an ingress; `num_replicas` of `Ingress` in a Serve config file makes more of them.
"""  # noqa: E501


if __name__ == "__main__":
    main()
