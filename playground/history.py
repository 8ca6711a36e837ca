"""This visitor's runs: the records that live in the browser, and the table made of them.

Knows which part of a run is worth keeping and that a browser may send anything back. Must not know
components or events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playground import quantities
from playground.families import CONTINUING, Family
from playground.markup import clean, escape
from playground.outcomes import badge
from playground.result_panel import Shown
from xla_backend import CacheOutcome

MOST_RUNS = 50
_MOST_CHARACTERS = 300
_MOST_BEFORE_ANSWER = 60
"""Characters of an input whose answer comes after it, in two lines together."""
_HEADINGS = ("Run", "Outcome", "Text", "Shape", "Total", "Tokens/s")


def record(shown: Shown, number: int, family: Family = CONTINUING) -> dict[str, Any]:
    """One run as JSON values, small enough for fifty of them to stay in the browser."""
    result = shown.result
    return {
        "run": number,
        "model": result.model,
        "prompt": _short(shown.prompt),
        "text": _short(result.text),
        "is_apart": family.is_apart,
        "cache": result.cache.value,
        "key": result.key.to_dict(),
        "prompt_tokens": result.prompt_tokens,
        "new_tokens": result.new_tokens,
        "finish": result.finish,
        "tokens_per_second": result.tokens_per_second,
        "timing": result.timing.to_dict(),
        "options": result.options.to_dict(),
    }


def add(runs: object, shown: Shown, family: Family = CONTINUING) -> list[dict[str, Any]]:
    """The runs with one more, newest first."""
    kept = readable(runs)
    number = 1 + max((run["run"] for run in kept), default=0)
    return [record(shown, number, family), *kept][:MOST_RUNS]


def readable(runs: object) -> list[dict[str, Any]]:
    """What the browser sent, without the records that another version or a hand has changed."""
    if not isinstance(runs, list):
        return []
    return [run for run in runs[:MOST_RUNS] if _is_record(run)]


def history_table(runs: object) -> str:
    """The runs as an HTML table, or what will appear there."""
    kept = readable(runs)
    if not kept:
        return (
            '<p class="nothing">Your runs appear here. They are kept in this browser, not on the '
            "server, and are still here after a reload.</p>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEADINGS)
    rows = "".join(_row(run) for run in kept)
    return f'<table class="sheet runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _row(run: Mapping[str, Any]) -> str:
    key = run["key"]
    speed = run["tokens_per_second"]
    values = (
        str(run["run"]),
        badge(CacheOutcome(run["cache"])),
        _text(run),
        f'<span class="number">{key["padded_length"]} · {key["num_beams"]} · '
        f"{key['max_new_tokens']}</span> <small>{escape(run['model'])}</small>",
        f'<span class="number">{quantities.seconds(run["timing"]["total_s"])}</span>',
        quantities.rate(speed),
    )
    cells = "".join(
        f'<td data-label="{name}"><div>{value}</div></td>'
        for name, value in zip(_HEADINGS, values, strict=True)
    )
    return f"<tr>{cells}</tr>"


def _text(run: Mapping[str, Any]) -> str:
    prompt = run["prompt"]
    if run.get("is_apart") is True:  # Runs of an earlier version have no such entry.
        prompt = _short(prompt, _MOST_BEFORE_ANSWER) + " → "
    return f'<span class="story-prompt">{escape(prompt)}</span>{escape(run["text"])}'


def _is_record(run: object) -> bool:
    try:
        CacheOutcome(run["cache"])  # type: ignore[index]
        numbers = [run["run"], run["timing"]["total_s"], *run["key"].values()]  # type: ignore[index]
        numbers.append(run["tokens_per_second"] or 0.0)  # type: ignore[index]
        texts = [run["model"], run["prompt"], run["text"]]  # type: ignore[index]
        named = {"padded_length", "num_beams", "max_new_tokens"} == set(run["key"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return (
        named
        and all(isinstance(number, int | float) for number in numbers)
        and all(isinstance(text, str) for text in texts)
    )


def _short(text: str, most: int = _MOST_CHARACTERS) -> str:
    whole = clean(text)
    return whole if len(whole) <= most else whole[: most - 1] + "…"
