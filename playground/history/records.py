"""This visitor's runs: the records in the browser, newest first.

Knows which parts of a run are stored, how much a browser can store, and that a browser or a file
may send anything. Must not know components, events or HTML.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, TypeAdapter

from playground.context import json_values as kinds
from playground.context import machine
from playground.context.runs import Shown
from playground.ui.markup import clean
from playground.ui.wording import CONTINUING, Wording
from xla_backend import CacheKey, CacheOutcome, GenerationOptions, Timing
from xla_backend.interface.prompt import last_text, start_of_answer, system_text
from xla_backend.interface.results import Finish

MAX_RUNS = 100
MAX_CHARACTERS = 6_000
"""Characters stored of one prompt or text."""
MAX_JSON_CHARACTERS = 500_000
"""Characters of all runs together: a browser gives a page a few million, and every run sends them
both ways."""
_FIRST_CALL = ("trace_s", "compile_s", "run_s")

Record = dict[str, Any]
"""A run that has ended, as JSON values; see `record`."""


def record(shown: Shown, number: int, wording: Wording = CONTINUING) -> Record:
    """A run with all its metrics.

    Args:
        shown: the run.
        number: its number among this visitor's.
        wording: of its model.
    """
    result = shown.result
    prompt, system = last_text(shown.prompt), system_text(shown.prompt)
    # Of several messages only the last question is stored.
    is_first = not isinstance(shown.prompt, tuple) or len(shown.prompt) == bool(system) + 1
    options = result.options
    if has_tools := options.grammar is not None and options.grammar.kind == "tool_calls":
        options = options.replace(grammar=None)  # which is made of tools
    return {
        "run": number,
        "time": round(shown.ended_s, 3),
        "model": clean(result.model),
        "prompt": clean(prompt)[:MAX_CHARACTERS],
        "prompt_is_whole": len(prompt + (system or "")) <= MAX_CHARACTERS
        and is_first
        and not has_tools,
        "system": system and clean(system)[:MAX_CHARACTERS],
        "text": clean(start_of_answer(shown.prompt) + result.text)[:MAX_CHARACTERS],
        "is_apart": wording.is_apart,
        "cache": result.cache.value,
        "batch_size": result.batch_size,
        "key": result.key.to_dict(),
        "requested_key": result.requested_key.to_dict(),
        "prompt_tokens": result.prompt_tokens,
        "new_tokens": result.new_tokens,
        "finish": result.finish,
        "ttft_s": result.ttft_s,
        "ttft_queue_s": result.ttft_queue_s,
        "tpot_s": result.tpot_s,
        "tokens_per_second": result.tokens_per_second,
        "timing": result.timing.to_dict(),
        "first_call": {name: getattr(result.first_call, name) for name in _FIRST_CALL},
        "options": options.to_dict(),
        "load_s": result.load_s,
        "machine": machine.summary(),
    }


def add(runs: object, shown: Shown, wording: Wording = CONTINUING) -> list[Record]:
    """The runs with one more, newest first."""
    stored = readable(runs)
    return _bounded([record(shown, _next_number(stored), wording), *stored])


def readable(runs: object) -> list[Record]:
    """The browser's records, without invalid ones from another version or edited by hand."""
    if not isinstance(runs, list):
        return []
    return [run for run in map(checked, runs[:MAX_RUNS]) if run is not None]


def checked(run: object) -> Record | None:
    """A record from outside with only the known entries; None if one is missing or wrong."""
    try:
        return _Checked.model_validate(_as_today(run)).model_dump()  # type: ignore[arg-type]
    except kinds.ERRORS:
        return None


def find(runs: Sequence[Record], number: object) -> Record | None:
    return next((run for run in runs if run["run"] == number), None)


def without(runs: Sequence[Record], number: object) -> list[Record]:
    return [run for run in runs if run["run"] != number]


def merge(runs: Sequence[Record], others: Sequence[Record]) -> tuple[list[Record], int]:
    """Adds imported runs, newest first, as far as there is room; own runs all stay.

    Returns:
        The runs, and how many were added. Known runs are not added again.
    """
    there = {_identity(run) for run in runs}
    number = _next_number(runs)
    new: list[Record] = []
    for other in others:
        if _identity(other) not in there and _fits([*new, other, *runs]):
            there.add(_identity(other))
            new.append(other)
    numbered = [{**run, "run": number + place} for place, run in enumerate(reversed(new))]
    return [*reversed(numbered), *runs], len(new)


def taken_over(
    mine: Sequence[Record], before: Sequence[Record], after: Sequence[Record]
) -> list[Record]:
    """The runs of another window, with this window's runs that it did not know above them.

    Args:
        mine: of this window.
        before, after: of the other window, before and after its change.
    """
    known = {_identity(run) for run in (*before, *after)}
    return under([run for run in mine if _identity(run) not in known], after)


def under(runs: Sequence[Record], earlier: Sequence[Record]) -> list[Record]:
    """Runs above earlier ones, whose numbers stay; the new numbers follow theirs."""
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
    """The runs without the oldest ones, until they fit."""
    while len(runs) > 1 and not _fits(runs):
        runs = runs[:-1]
    return runs


def _as_today(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Converts records of older versions, which named prefill and the exact key otherwise."""
    if "exact_key" in run:
        run = {**run, "options": {**run["options"], "exact_key": run["exact_key"]}}
    if "tpot_s" in run:
        return run
    timing = {**run["timing"], "prefill_s": run["timing"]["first_token_s"]}
    return {**run, "timing": timing, "ttft_s": None, "tpot_s": None, "tokens_per_second": None}


class _Key(BaseModel):
    padded_length: kinds.Positive
    num_beams: kinds.Positive
    max_new_tokens: kinds.Positive
    is_pooled: kinds.Truth = False
    prompt_lookup_num_tokens: kinds.Whole = 0


def _timed(names: Iterable[str]) -> PlainValidator:
    """Checks an object with seconds under these names, and drops others."""
    seconds = TypeAdapter(kinds.Seconds)
    return PlainValidator(lambda given: {n: seconds.validate_python(given[n]) for n in names})


_Prompt = Annotated[kinds.Text, Field(max_length=MAX_CHARACTERS)]
_KeyDict = Annotated[
    Any, PlainValidator(lambda key: CacheKey(**dict(_Key.model_validate(key))).to_dict())
]


class _Checked(BaseModel):
    """A record from outside."""

    run: kinds.Positive
    time: kinds.Date
    model: Annotated[kinds.Text, Field(max_length=1000)]
    prompt: _Prompt
    prompt_is_whole: kinds.Truth
    system: _Prompt | None = None  # None: no messages
    text: _Prompt
    is_apart: kinds.Truth
    cache: Annotated[str, AfterValidator(lambda cache: CacheOutcome(cache).value)]
    batch_size: kinds.Positive = 1  # older records ran alone
    key: _KeyDict
    requested_key: _KeyDict
    prompt_tokens: kinds.Whole
    new_tokens: kinds.Whole
    finish: Finish
    ttft_s: kinds.Seconds | None
    ttft_queue_s: kinds.Seconds | None = None  # None: older records do not have it
    tpot_s: kinds.Seconds | None
    tokens_per_second: kinds.Rate | None
    timing: Annotated[Any, _timed(Timing().to_dict())]
    first_call: Annotated[Any, _timed(_FIRST_CALL)]
    options: Annotated[
        Any, PlainValidator(lambda given: GenerationOptions.from_dict(given).to_dict())
    ]
    load_s: kinds.Seconds
    machine: Annotated[kinds.Text, Field(max_length=300)]
