"""A request as a row of a table: what it is, where it is, and where its time went.

Knows how a record is drawn. Must not know who sees it, components or events.
"""

import htpy as h

from playground.tabs.generate.in_words import read_again
from playground.ui import quantities
from playground.ui.charts import legend, part
from playground.ui.markup import nothing, rendered, with_note
from playground.ui.outcomes import badge
from playground.ui.report_parts import PHASE_NAMES, clock
from playground.ui.tables import sheet, sheet_row
from playground.ui.wording import model_name
from xla_backend.interface.request_record import RequestRecord
from xla_backend.interface.timing import PHASES

HEADINGS = (
    *("Request", "From", "State", "Prompt", "New", "TTFT", "TPOT"),
    *("Where the time went", "Outcome", ""),
)
_NAMES = {"queue": "Waiting", "load": "Loading", "prefill": "Being read", "decode": "Decoding"}
_DRAWN = ("queue", "load", "trace", "compile", "prefill", "decode")
WINDOWS = {10: "10 s", 60: "1 min", 600: "10 min"}


@rendered
def frame() -> h.Node:
    """What the page's script fills: a bar for each request over time, and the table."""
    return (
        h.div(".lanes-head")[
            h.button(".row-action.pause", type="button", aria_pressed="false")["Pause"],
            h.label[
                "Shown: the last ",
                h.select(".window")[
                    (
                        h.option(value=str(seconds), selected=seconds == 60)[name]
                        for seconds, name in WINDOWS.items()
                    )
                ],
            ],
            h.a(
                ".file.trace",
                download="requests.json",
                title="For Perfetto and the trace viewer of Chrome",
            )["Save as a trace"],
        ],
        h.div(".lanes"),
        h.p(".caption.doing", role="status")[
            "Point at a bar, or choose it and press the arrow keys: who waited for whom?"
        ],
        legend((f"phase-{name}", {**PHASE_NAMES, **_NAMES}[name]) for name in _DRAWN),
        sheet(HEADINGS, ()),
        nothing("No request yet. Each one appears here, whoever sends it."),
    )


@rendered
def row(record: RequestRecord, place: int | None, is_own: bool) -> h.Node:
    """A row of the table.

    Args:
        record: the request.
        place: how many are before it while it waits.
        is_own: whether it is the reader's own, with its text and a button to stop it.
    """
    cells = (
        with_note(f"{record.number}", f"{record.arrived_at:%H:%M:%S} UTC"),
        (
            with_note(_source(record), model_name(record.model) or record.kind),
            is_own and _text(record),
        ),
        _state(record, place, is_own),
        _prompt(record),
        h.span(".new-tokens")[count_of(record.new_tokens)],
        quantities.seconds_or_dash(record.ttft_s),
        quantities.seconds_or_dash(record.tpot_s),
        _phases(record),
        _outcome(record),
        is_own
        and record.ended is None
        and h.button(".row-action", type="button", data_stop=record.number)["Stop"],
    )
    return sheet_row(HEADINGS, cells, id=f"request_{record.number}", data_number=record.number)


def _source(record: RequestRecord) -> str:
    source = record.entry.source
    return (source.protocol or "library") + (f", {source.address}" if source.address else "")


def _text(record: RequestRecord) -> h.Element:
    return h.div(".run-text", dir="auto")[
        h.span(".story-prompt")[record.prompt], " ", h.span(".new-text")[record.text]
    ]


def _state(record: RequestRecord, place: int | None, is_own: bool) -> h.Node:
    state = h.span(".state")[record.state]
    if record.ended is None:
        where = "" if place is None else f"{place} before it"
        return state, h.small[" ", clock(record.spans()[-1].duration_s), f" {where}"]
    if record.error is None:
        return state
    return state, h.small[" ", str(record.error) if is_own else type(record.error).__name__]


def _prompt(record: RequestRecord) -> h.Node:
    cached = record.cached_tokens
    return with_note(count_of(record.prompt_tokens), f"{cached:,} cached" if cached else "")


def _phases(record: RequestRecord) -> h.Node:
    timing = record.timing
    if timing is None:
        return None
    seconds = {name: getattr(timing, f"{name}_s") for name in PHASES} | {"load": record.load_s}
    whole = sum(seconds.values()) or 1.0
    label = ", ".join(
        f"{ {**PHASE_NAMES, 'load': 'Load model'}[name] } {quantities.seconds(value)}"
        for name, value in seconds.items()
        if value > 0
    )
    return h.div(".bar", role="img", aria_label=label, title=label)[
        (part(f"phase-{name}", value / whole) for name, value in seconds.items() if value > 0)
    ]


def _outcome(record: RequestRecord) -> h.Node:
    if record.cache is None:
        return None
    return badge(record.cache), [h.small[f" {why}"] for why in _why(record)]


def _why(record: RequestRecord) -> list[str]:
    """Why it compiled, and why a part of its prompt was read again."""
    compiled = record.miss.sentence("would have been") if record.miss else ""
    return [each for each in (compiled, read_again(record.prefix_miss)) if each]


def count_of(number: int | None) -> str:
    """A number of tokens; a dash if it is unknown."""
    return "–" if number is None else f"{number:,}"
