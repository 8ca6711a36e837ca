"""The report: results as sentences and tables.

Knows the results file and the bars. Must not know how anything was measured.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import results
from benchmarks.contenders import ENGINE, LIMIT, THREADS
from benchmarks.measures import BARS, FAR_S, MEASURES, PAGE_AIM_S, PAGE_BAR_S, Bar

BUSY = 0.1
"""A measure gets a remark if others used more than this share of the processor."""


def verdicts(kept: dict[str, Any]) -> list[str]:
    """One sentence per bar that has numbers."""
    return [f"{sentence}: {text}" for sentence, text, _ in _bars(kept)]


def document(kept: dict[str, Any]) -> str:
    """The Markdown document: machine and method, bars, numbers."""
    machine = kept["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(kept["versions"].items()))
    parts = [
        "# Benchmarks",
        "Written by `make bench` (the quick set) and `make bench-full` (everything); the raw"
        " values are in [benchmarks.json](benchmarks.json).",
        f"Measured on {machine['processor']}, {machine['cores']} cores,"
        f" {machine['memory_gib']} GiB, {machine['system']},"
        f" Python {machine['python']}; {versions}.",
        f"Every contender is a process of its own with {THREADS} threads and float32 weights "
        "(but where its name says otherwise), alive during the whole run and called in turn, A "
        "B C A B C. All read the same checkpoint folder; the published shapes have random "
        "weights, on which speed does not depend. *A token* is the time of a call for 64 new "
        "tokens less that of a call for 2, over 62; *first token* is the call for 2 less a "
        "token. The engine is timed from text to text, padding included; the peers from tokens "
        "to tokens. Times and ratios are medians over the rounds, a ratio taken within each "
        "round. *Reading the weights* is the limit: the bytes that a token needs, read with two "
        "threads.",
        "![Time a token of every contender](images/benchmark-peers.svg)",
        "## The bars",
        _table(
            ("measure", "bar", "aim", "measured", ""),
            [(sentence, *cells) for sentence, _, cells in _bars(kept)],
        ),
    ]
    for measure in MEASURES:
        entry = kept["entries"].get(f"{measure.name}/{measure.model}")
        if entry and not measure.growth and "calls" in entry:
            parts += [f"## {measure.title}", _times(entry), *_remarks(entry, measure.same_tokens)]
    parts += _page(kept) + _memory(kept) + _growth(kept)
    return "\n\n".join(parts) + "\n"


def page_overheads(clicks: list[dict[str, float]]) -> list[float]:
    """Seconds per click that the page added to the engine's first token."""
    return [click["first_text_s"] - click["first_token_s"] for click in clicks]


def _bars(kept: dict[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Each measured bar: its sentence, its verdict in words, and its cells of the table."""
    lines = []
    for bar in BARS:
        entry = kept["entries"].get(f"{bar.measure}/{bar.model}")
        try:
            value = results.ratio(entry, bar) if entry else None
        except KeyError:
            value = None
        if value is not None:
            lines.append(_line(bar, value))
    entry = kept["entries"].get(next(f"page/{m.model}" for m in MEASURES if m.name == "page"))
    if entry:
        added = statistics.median(page_overheads(entry["clicks"]))
        verdict = _verdict(added <= PAGE_BAR_S, added <= PAGE_AIM_S)
        sentence = "page, click to first text, less the engine's first token"
        bar_ms, aim_ms, added_ms = (f"{1000 * s:.0f} ms" for s in (PAGE_BAR_S, PAGE_AIM_S, added))
        text = f"bar {bar_ms}, aim {aim_ms}, measured {added_ms}: {verdict}"
        lines.append((sentence, text, (bar_ms, aim_ms, added_ms, verdict)))
    return lines


def _line(bar: Bar, value: float) -> tuple[str, str, tuple[str, ...]]:
    if bar.at_least:
        verdict = _verdict(value >= bar.bar, value >= bar.aim)
        bound = "at least {} times faster"
    else:
        verdict = _verdict(value <= bar.bar, value <= bar.aim)
        bound = "at most {}"
    digits = 0 if value >= 20 else 2
    text = f"bar {bar.bar:g}, aim {bar.aim:g}, measured {value:.{digits}f}: {verdict}"
    cells = (bound.format(f"{bar.bar:g}"), f"{bar.aim:g}", f"{value:.{digits}f}", verdict)
    return bar.sentence, text, cells


def _verdict(meets_bar: bool, meets_aim: bool) -> str:
    return "met, and the aim" if meets_aim else "met" if meets_bar else "MISSED"


def _times(entry: dict[str, Any]) -> str:
    rows = []
    for who in dict.fromkeys(row["setting"] or row["contender"] for row in entry["calls"]):
        cells = [who]
        for statistic in ("first token", "token", "whole call"):
            try:
                median = statistics.median(results.sample(entry, who, statistic))
                cells.append("" if who == LIMIT and statistic != "token" else _ms(median))
            except (KeyError, ZeroDivisionError):
                cells.append("")
        rows.append(tuple(cells))
    return _table(("", "first token, ms", "a token, ms", "64 new tokens, ms"), rows)


def _remarks(entry: dict[str, Any], same_tokens: bool) -> list[str]:
    remarks = []
    if same_tokens and not entry["tokens"]:
        remarks.append("All float32 contenders wrote the same tokens.")
    for difference in entry.get("tokens", ()):
        lead = difference["lead"]
        remarks.append(
            f"{difference['contender']} writes another token at place {difference['place']} of "
            f"{difference['new_tokens']}"
            + ("." if lead is None else f"; the most likely logit leads there by {lead:g}.")
        )
    for contender, sentence in entry["failures"].items():
        remarks.append(f"{contender} could not take part: {sentence.splitlines()[0][:200]}")
    if entry["bystanders"] > BUSY:
        remarks.append(
            f"Other programs used {entry['bystanders']:.0%} of the processor meanwhile: "
            "these numbers are not worth much."
        )
    rounds = len(entry["calls"][0]["seconds"])
    remarks.append(f"{rounds} rounds, {entry['measured']} UTC, `{entry['command']}`")
    return [" ".join(remarks)]


def _page(kept: dict[str, Any]) -> list[str]:
    parts = []
    for name, entry in kept["entries"].items():
        if name.startswith("page/"):
            clicks = entry["clicks"]
            first_text = statistics.median(click["first_text_s"] for click in clicks)
            first_token = statistics.median(click["first_token_s"] for click in clicks)
            added = page_overheads(clicks)
            far = (
                f" With {_ms(FAR_S)} ms to the server and back the page adds"
                f" {_ms(statistics.median(page_overheads(entry['far_clicks'])))} ms."
                if "far_clicks" in entry
                else ""
            )
            parts += [
                "## The page",
                f"{len(clicks)} clicks on a compiled shape of {name.partition('/')[2]}: first text"
                f" to be seen after {_ms(first_text)} ms, of which the engine's first token took"
                f" {_ms(first_token)} ms; what the page adds is {_ms(statistics.median(added))} ms"
                f" (from {_ms(min(added))} to {_ms(max(added))} ms). Browser and engine share the"
                f" two cores.{far}",
            ]
    return parts


def _memory(kept: dict[str, Any]) -> list[str]:
    parts = []
    for name, entry in kept["entries"].items():
        if name.startswith("memory/"):
            weights, first, every = (entry[key] for key in ("weights", "first_key", "all_keys"))
            parts += [
                "## Memory",
                f"The engine's process with the {name.partition('/')[2]} model holds"
                f" {first / 2**20:.0f} MiB with one key and {every / 2**20:.0f} MiB with"
                f" {entry['keys']}; the weights alone are {weights / 2**20:.0f} MiB. So it is"
                f" {every / weights:.1f} times the weights, and a key costs"
                f" {(every - first) / (entry['keys'] - 1) / 2**20:.0f} MiB.",
            ]
    return parts


def _growth(kept: dict[str, Any]) -> list[str]:
    rows = []
    for measure in MEASURES:
        entry = kept["entries"].get(f"{measure.name}/{measure.model}")
        for kind, xs, ys in results.growth(entry) if entry and measure.growth else ():
            times = ", ".join(f"{x}: {_ms(y)}" for x, y in zip(xs, ys, strict=True))
            rows.append((measure.title, kind, times, f"{results.straightness(xs, ys):.3f}"))
    if not rows:
        return []
    return [
        "## Cost as work grows",
        f"The times of {ENGINE}, in ms. Straightness is the share of the growth that a straight"
        " line explains: 1 is linear.",
        "![Cost as work grows](images/benchmark-growth.svg)",
        _table(("", "weights", "times", "straightness"), rows),
    ]


def _ms(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
