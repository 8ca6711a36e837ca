"""This visitor's runs: the records that live in the browser, newest first.

Knows which part of a run is worth keeping, how much of it a browser holds, and that a browser or a
file may bring anything. Must not know components, events or HTML.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from playground.context.json_values import LATEST, real, real_or_none, text, truth, whole
from playground.context.runs import Shown
from playground.history import machine
from playground.ui.families import CONTINUING, Family
from playground.ui.markup import clean
from xla_backend import (
    BackendError,
    CacheKey,
    CacheOutcome,
    GenerationOptions,
    Timing,
)
from xla_backend.interface.prompt import last_text, system_text
from xla_backend.interface.results import Finish

MAX_RUNS = 100
MAX_CHARACTERS = 6_000
"""Characters of one prompt or text that are kept."""
MAX_JSON_CHARACTERS = 500_000
"""Characters of all runs together: a browser gives a page a few millions, and every run sends them
there and back."""
MAX_PINNED = 2
_FINISHES = get_args(Finish)
_FIRST_CALL = ("trace_s", "compile_s", "run_s")

Record = dict[str, Any]
"""A run that has ended, as JSON values: `record` says which."""


def record(shown: Shown, number: int, family: Family = CONTINUING) -> Record:
    """One run, with every metric that was measured.

    Args:
        shown: the run.
        number: its number among this visitor's.
        family: of its model.
    """
    result = shown.result
    prompt, system = last_text(shown.prompt), system_text(shown.prompt)
    # Of a chat's later turns only the last question is kept.
    is_first = not isinstance(shown.prompt, tuple) or len(shown.prompt) == bool(system) + 1
    return {
        "run": number,
        "time": round(shown.ended_s, 3),
        "model": clean(result.model),
        "prompt": clean(prompt)[:MAX_CHARACTERS],
        "prompt_is_whole": len(prompt + (system or "")) <= MAX_CHARACTERS and is_first,
        "system": system and clean(system)[:MAX_CHARACTERS],
        "text": clean(result.text)[:MAX_CHARACTERS],
        "is_apart": family.is_apart,
        "cache": result.cache.value,
        "batch_size": result.batch_size,
        "key": result.key.to_dict(),
        "requested_key": result.requested_key.to_dict(),
        "exact_key": shown.exact_key,
        "prompt_tokens": result.prompt_tokens,
        "new_tokens": result.new_tokens,
        "finish": result.finish,
        "ttft_s": result.ttft_s,
        "tpot_s": result.tpot_s,
        "tokens_per_second": result.tokens_per_second,
        "timing": result.timing.to_dict(),
        "first_call": {name: getattr(result.first_call, name) for name in _FIRST_CALL},
        "options": result.options.to_dict(),
        "load_s": result.load_s,
        "machine": machine.summary(),
        "pinned": 0,
    }


def add(runs: object, shown: Shown, family: Family = CONTINUING) -> list[Record]:
    """The runs with one more, newest first."""
    kept = readable(runs)
    return _bounded([record(shown, _next_number(kept), family), *kept])


def readable(runs: object) -> list[Record]:
    """What the browser sent, without the records that another version or a hand has changed."""
    if not isinstance(runs, list):
        return []
    return [run for run in map(checked, runs[:MAX_RUNS]) if run is not None]


def checked(run: object) -> Record | None:
    """A record from outside, with the known entries alone; None where one is missing or wrong."""
    try:
        return _read(run)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, BackendError):
        return None


def find(runs: Sequence[Record], number: object) -> Record | None:
    """The run of that number."""
    return next((run for run in runs if run["run"] == number), None)


def without(runs: Sequence[Record], number: object) -> list[Record]:
    """The runs without one."""
    return [run for run in runs if run["run"] != number]


def pin(runs: Sequence[Record], number: object) -> list[Record]:
    """The runs with one pinned, or no longer pinned. Of two others, the one pinned first goes."""
    latest = max((run["pinned"] for run in runs), default=0)

    def changed(run: Record) -> Record:
        if run["run"] != number:
            return run
        return {**run, "pinned": 0 if run["pinned"] else latest + 1}

    turned = [changed(run) for run in runs]
    kept = {run["run"] for run in pinned(turned)}
    return [run if run["run"] in kept else {**run, "pinned": 0} for run in turned]


def pinned(runs: Sequence[Record]) -> list[Record]:
    """The runs that were pinned last, two at most, in the order of pinning."""
    return sorted((run for run in runs if run["pinned"]), key=lambda run: run["pinned"])[
        -MAX_PINNED:
    ]


def merge(runs: Sequence[Record], others: Sequence[Record]) -> tuple[list[Record], int]:
    """Adds runs from elsewhere, newest first, as far as there is room; own runs all stay.

    Returns:
        The runs, and how many were added. Runs that are there already are not added again.
    """
    there = {_identity(run) for run in runs}
    number = _next_number(runs)
    new: list[Record] = []
    for other in others:
        if _identity(other) not in there and _fits([*new, other, *runs]):
            there.add(_identity(other))
            new.append(other)
    numbered = [
        {**run, "run": number + place, "pinned": 0} for place, run in enumerate(reversed(new))
    ]
    return [*reversed(numbered), *runs], len(new)


def taken_over(
    mine: Sequence[Record], before: Sequence[Record], after: Sequence[Record]
) -> list[Record]:
    """The runs of another window, on top of them those of the own that it did not know of.

    Args:
        mine: of this window.
        before, after: of the other one, before it changed them and since.
    """
    known = {_identity(run) for run in (*before, *after)}
    return under([run for run in mine if _identity(run) not in known], after)


def under(runs: Sequence[Record], earlier: Sequence[Record]) -> list[Record]:
    """Runs with earlier ones below them, whose numbers and pins stay; the new ones count on."""
    number = _next_number(earlier)
    counted = [{**run, "run": number + place} for place, run in enumerate(reversed(runs))]
    return _bounded([*reversed(counted), *earlier])


def _next_number(runs: Sequence[Record]) -> int:
    return 1 + max((run["run"] for run in runs), default=0)


def _identity(run: Record) -> str:
    """What makes two records the same run."""
    return json.dumps([run["time"], run["prompt"], run["text"], run["timing"]])


def _fits(runs: Sequence[Record]) -> bool:
    return len(runs) <= MAX_RUNS and len(json.dumps(runs)) <= MAX_JSON_CHARACTERS


def _bounded(runs: list[Record]) -> list[Record]:
    """The runs without the oldest ones that nobody pinned, until they fit."""
    while len(runs) > 1 and not _fits(runs):
        loose = [run for run in runs[1:] if not run["pinned"]] or runs[1:]
        runs = [run for run in runs if run is not loose[-1]]
    return runs


def _read(run: Mapping[str, Any]) -> Record:
    """The record, or an error of any of the kinds that `checked` catches."""
    timing = run["timing"]
    if "tpot_s" not in run:  # an older record: it called prefill otherwise, and put it into speed
        timing = {**timing, "prefill_s": timing["first_token_s"]}
        run = {**run, "ttft_s": None, "tpot_s": None, "tokens_per_second": None}
    if run["finish"] not in _FINISHES:
        raise ValueError("no way to finish")
    return {
        "run": whole(run["run"], 1),
        "time": real(run["time"], LATEST),
        "model": text(run["model"], 1000),
        "prompt": text(run["prompt"], MAX_CHARACTERS),
        "prompt_is_whole": truth(run["prompt_is_whole"]),
        "system": None
        if run.get("system") is None
        else text(run["system"], MAX_CHARACTERS),  # None: no messages
        "text": text(run["text"], MAX_CHARACTERS),
        "is_apart": truth(run["is_apart"]),
        "cache": CacheOutcome(run["cache"]).value,
        "batch_size": whole(run.get("batch_size", 1), 1),  # older records ran alone
        "key": _key(run["key"]),
        "requested_key": _key(run["requested_key"]),
        "exact_key": truth(run["exact_key"]),
        "prompt_tokens": whole(run["prompt_tokens"], 0),
        "new_tokens": whole(run["new_tokens"], 0),
        "finish": run["finish"],
        "ttft_s": real_or_none(run["ttft_s"]),
        "tpot_s": real_or_none(run["tpot_s"]),
        "tokens_per_second": real_or_none(run["tokens_per_second"], math.inf),
        "timing": {name: real(timing[name]) for name in Timing().to_dict()},
        "first_call": {name: real(run["first_call"][name]) for name in _FIRST_CALL},
        "options": GenerationOptions.from_dict(run["options"]).to_dict(),
        "load_s": real(run["load_s"]),
        "machine": text(run["machine"], 300),
        "pinned": whole(run["pinned"], 0),
    }


def _key(values: Mapping[str, object]) -> dict[str, int]:
    sizes = {name: whole(values[name], 1) for name in CacheKey(1, 1, 1).to_dict()}
    return CacheKey(
        **sizes,
        is_pooled=truth(values.get("is_pooled", False)),
        prompt_lookup_num_tokens=whole(values.get("prompt_lookup_num_tokens", 0), 0),
    ).to_dict()
