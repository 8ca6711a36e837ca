"""Recorded runs as one HTML file that replays them at their own speed, without a server.

Knows what such a file needs: the reports of finished runs, the times of their tokens, and the style
sheets and script, all inside. It computes nothing and fetches nothing; without scripts it shows the
finished runs.
"""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import htpy as h
from markupsafe import Markup

from playground.context import machine
from playground.context.runs import Shown
from playground.tabs.generate import report
from playground.tabs.generate.answers import form_view
from playground.tabs.generate.token_view import token_view
from playground.tabs.inside.report import report as inside_report
from playground.ui import report_parts
from playground.ui.markup import clean
from playground.ui.outcomes import badge, no_badge
from playground.ui.quantities import count, seconds
from playground.ui.theme import ASSETS, DARK, LIGHT
from playground.ui.wording import CONTINUING, Wording
from xla_backend import GenerationResult
from xla_backend.inspection.inspection import Inspection
from xla_backend.interface.prompt import last_text

_FOLDER = Path(__file__).parent
_SHEETS = ("page.css", "playground.css", "tokens.css", "inside.css")
"""The style sheets of what a file shows, beside its own."""
_MAX_TITLE = 60
"""Characters of a prompt in its run's heading."""


@dataclass(frozen=True)
class RecordedRun:
    """A finished run.

    Attributes:
        shown: its result.
        wording: of its model.
        inside: of its compiled function; None where it is in no store.
    """

    shown: Shown
    wording: Wording = CONTINUING
    inside: Inspection | None = None


def document(runs: Sequence[RecordedRun], title: str = "XLA Playground") -> str:
    """The HTML file. It needs no network and may be opened from disk.

    Args:
        runs: in the order of their calls; at least one.
        title: of the page.
    """
    newest = max(run.shown.ended_s for run in runs)
    recorded = f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%d %H:%M} UTC on {machine.summary()}"
    return clean(
        h.html(lang="en")[
            h.head[
                h.meta(charset="utf-8"),
                h.meta(name="viewport", content="width=device-width, initial-scale=1"),
                h.link(rel="icon", href="data:,"),
                h.title[title],
                h.style[Markup(_styles())],
            ],
            h.body(".gradio-container.recorded")[
                h.main("#page")[
                    h.header[
                        h.h1[title],
                        h.p[
                            f"{count(len(runs), 'run')}, recorded on {recorded}. Nothing is "
                            "computed here: Replay shows a run again with its own times."
                        ],
                    ],
                    [_run(number, run) for number, run in enumerate(runs, 1)],
                    _functions(runs),
                ],
                h.script[Markup(_script())],
            ],
        ]
    )


def timeline(result: GenerationResult) -> dict[str, Any]:
    """A run's times for the script, as JSON values.

    Returns:
        "spans": for each its name, end in milliseconds since the request's arrival, and the number
        of tokens known at its end; "tokens": their texts.
    """
    names = report_parts.phase_names(result)
    start = result.spans[0].started if result.spans else 0.0
    spans, known = [], 0
    for span in result.spans:
        known = min(known + span.tokens, result.new_tokens)
        ended_ms = round((span.started - start + span.duration_s) * 1000, 1)
        spans.append([names.get(span.name, span.name), ended_ms, known])
    return {"spans": spans, "tokens": [token.text for token in result.tokens]}


def _run(number: int, run: RecordedRun) -> h.Element:
    """One run: its finished report, and what the script shows while it replays."""
    shown, wording, result = run.shown, run.wording, run.shown.result
    prompt = last_text(shown.prompt)
    at = f"{datetime.fromtimestamp(shown.ended_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return h.article(".card.recorded-run", data_timeline=json.dumps(timeline(result)))[
        h.div(".recorded-head")[
            h.h2[f"{number}. {textwrap.shorten(prompt, _MAX_TITLE, placeholder='…')}"],
            badge(result.cache),
            h.button(".replay", type="button", hidden="")["Replay"],
        ],
        h.p(".caption")[f"Recorded {at}. End to end {seconds(result.timing.total_s)}."],
        h.div(".replayed", hidden="", aria_live="off")[
            report.story(shown.prompt, "", writing=True, wording=wording),
            report_parts.frame(
                no_badge("REPLAY"),
                h.span(".replay-phase"),
                report_parts.figures([("Elapsed", h.span(".replay-clock")["0 ms"])]),
            ),
        ],
        h.div(".finished")[
            report.story(shown.prompt, result.text, wording=wording),
            form_view(shown),
            report.origin(shown),
            report.report(shown, wording),
            h.details[
                h.summary["Tokens and their probabilities"],
                h.div(".recorded-tokens")[token_view(shown, wording)],
            ],
        ],
    ]


def _functions(runs: Sequence[RecordedRun]) -> h.Node:
    """What XLA made of each compiled function, once."""
    inside = {str(run.shown.result.key): run.inside for run in runs if run.inside is not None}
    return [
        h.details(".card")[
            h.summary[f"Inside the compiled function {key}"], inside_report(seen, None)
        ]
        for key, seen in inside.items()
    ]


def _styles() -> str:
    """All styles; light or dark as the reader's system says."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in palette.items())
        for palette in (LIGHT, DARK)
    )
    sheets = [(ASSETS / name).read_text(encoding="utf-8") for name in _SHEETS]
    own = (_FOLDER / "record.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            f":root{{color-scheme:light dark;{light}}}",
            f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}",
            *sheets,
            own,
        ]
    )


def _script() -> str:
    copy, popover, replay = (
        path.read_text(encoding="utf-8")
        for path in (ASSETS / "copy.js", ASSETS / "tokens.js", _FOLDER / "replay.js")
    )
    each = 'for (const element of document.querySelectorAll(".recorded-tokens")) {\n'
    return f"{copy}{each}{popover}}}\n{replay}"
