"""Columns as HTML: the bar that adds and chooses them, and their answers beside each other.

Knows how a column's settings, state and answer are drawn, and what differs between them. Must not
know components, events or the queue.
"""

from collections.abc import Callable, Mapping, Sequence

import htpy as h

from playground.context.runs import STOPPED, Shown
from playground.context.runs_together import Member
from playground.context.status_line import ACTIVITY, Phase, phase_of
from playground.history.records import Record
from playground.history.report import comparison, verdict
from playground.settings.columns import NAMES, ColumnRuns, Columns
from playground.tabs.generate import report
from playground.tabs.generate.answers import decisions_view, form_view
from playground.tabs.generate.token_view import token_view
from playground.ui import quantities, report_parts
from playground.ui.markup import caret, remarks, rendered
from playground.ui.option_controls import LABELS
from playground.ui.outcomes import badge, no_badge
from playground.ui.word_differences import marked_pair
from playground.ui.wording import Wording, model_name
from xla_backend import EngineStatus, Prediction
from xla_backend.interface.decisions import Decisions

_MIN_COMPILE_S = 0.05
"""Of compiling beside a run: what is worth telling."""
_LONGEST = 24
"""Characters of a setting in a column's name."""
_SWITCHES = {"raw": "raw prompt", "exact_key": "exact shape"}

# A button's `data-act` says what it does, `data-at` with which column.
BAR_SCRIPT = """
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-act]");
  if (button) trigger("select", {act: button.dataset.act, at: Number(button.dataset.at)});
});
"""


@rendered
def bar(columns: Columns, predictions: Sequence[Prediction | None] = ()) -> h.Node:
    """A button for each column, with what its request will meet; one to add another."""
    add = h.button(".column-add", type="button", data_act="add", data_at="0")["+ compare"]
    if not columns.are_compared:
        return h.div(".columns-bar")[add]
    labels = map(_label, columns.columns, columns.differences())
    buttons = [
        h.div(class_=["column-choice", place == columns.chosen and "chosen"])[
            h.button(
                type="button",
                data_act="open",
                data_at=str(place),
                aria_pressed=str(place == columns.chosen).lower(),
            )[h.b[NAMES[place]], h.span[label], badge(prediction.outcome) if prediction else None],
            h.button(
                ".column-remove",
                type="button",
                data_act="remove",
                data_at=str(place),
                aria_label=f"Remove {NAMES[place]}",
                title=f"Remove {NAMES[place]}",
            )["×"],
        ]
        for place, (label, prediction) in enumerate(zip(labels, predictions, strict=True))
    ]
    order = h.button(
        ".column-order",
        type="button",
        data_act="order",
        data_at="0",
        aria_pressed=str(columns.in_turn).lower(),
        title="Measures each alone",
    )["One after the other"]
    sentence = "The settings below are the chosen column’s; all have the same prompt."
    return h.div(".columns-bar", role="group", aria_label="Columns")[
        buttons, len(buttons) < len(NAMES) and add, order, h.p(".caption")[sentence]
    ]


def _label(column: Mapping[str, object], differences: Mapping[str, str]) -> str:
    """The model, and what is not the same in all columns."""
    model = model_name(str(column.get("model", "")))
    parts = [_setting(name, text) for name, text in differences.items() if name != "model"]
    return " · ".join([model, *parts])


def _setting(name: str, text: str) -> str:
    if name in _SWITCHES:
        return _SWITCHES[name]
    if name in ("answer_as", "grammar"):
        return text if name == "answer_as" else "own schema"
    value = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return f"{LABELS.get(name, name.replace('_', ' ').capitalize())} {value or '–'}"


@rendered
def answers(
    runs: ColumnRuns,
    wording_of: Callable[[Shown], Wording],
    status: EngineStatus,
    records: Sequence[Record] = (),
) -> h.Node:
    """The answer of each column with its report, while they run and at their end.

    Args:
        runs: the requests.
        wording_of: the words of a result's model.
        status: of the engine.
        records: of the runs, once all have a result.
    """
    texts = _marked(runs.members) if runs.is_over else [None] * len(runs.members)
    labels = map(_label, runs.columns.columns, runs.columns.differences())
    columns = [
        h.section(".compared-column", aria_label=f"Answer of {name}")[
            h.h2[name, " ", h.small[label]], _answer(name, member, runs, text, wording_of, status)
        ]
        for name, label, member, text in zip(NAMES, labels, runs.members, texts, strict=False)
    ]
    return h.div(".compared")[
        h.div(".compared-columns")[columns], records and _differences(runs, records)
    ]


def _answer(
    name: str,
    member: Member,
    runs: ColumnRuns,
    text: h.Node,
    wording_of: Callable[[Shown], Wording],
    status: EngineStatus,
) -> h.Node:
    """A column's text and report."""
    run = member.run
    box = f"Text of {name}"
    shown = run.shown() if member.is_over else None
    if shown is None:
        written = [h.span(".story-new")[run.text], caret(bool(run.text) and not member.is_over)]
        return report_parts.text_box(box, written, not member.is_over), _unfinished(
            member, runs, status
        )
    wording = wording_of(shown)
    if isinstance(shown.result, Decisions):
        return decisions_view(shown.result), report.report(shown, wording)
    marked = h.span(".story-new")[run.text if text is None else text]
    return [
        report_parts.text_box(box, marked, is_busy=False),
        form_view(shown),
        report.report(shown, wording),
        h.details(".compared-tokens")[h.summary["Tokens"], token_view(shown, wording)],
    ]


def _unfinished(member: Member, runs: ColumnRuns, status: EngineStatus) -> h.Element:
    if member.is_over:
        partial = " This is what was written until then." if member.run.text else ""
        sentence = h.span(".problem-text")[(member.problem or STOPPED) + partial]
        return report_parts.frame(no_badge("FAILED" if member.problem else "STOPPED"), sentence)
    now = _phase(member, runs, status)
    return report_parts.frame(
        no_badge(now.badge),
        report_parts.phase(now.name, now.more),
        report_parts.figures([("Elapsed", report_parts.clock(member.run.clicked_s))]),
        report_parts.working_bar(),
        busy=True,
    )


def _phase(member: Member, runs: ColumnRuns, status: EngineStatus) -> Phase:
    """What becomes of a column: also that it waits for another one."""
    run = member.run
    since = run.pressed_at
    if not member.was_sent:
        waits = runs.columns.in_turn
        return Phase("Waiting for another column to end" if waits else "Starting", since)
    if run.taken_at is not None:
        return phase_of(run, status, None)
    others = [each for each in runs.members if each is not member and not each.is_over]
    whom = "another column" if any(each.run.taken_at for each in others) else "the engine"
    now = " ".join(filter(None, [ACTIVITY[status.state], model_name(status.detail)]))
    return Phase(f"Waiting for {whom}", since, f"Runs now: {now}")


def _marked(members: Sequence[Member]) -> list[h.Node]:
    """The texts, with the words marked that differ: from A's, or of two columns in both."""
    first, *others = (member.run.text for member in members)
    pairs = [marked_pair(first, other) if first and other else (None, None) for other in others]
    return [pairs[0][0] if len(pairs) == 1 else None, *(pair[1] for pair in pairs)]


def _differences(runs: ColumnRuns, records: Sequence[Record]) -> h.Node:
    """Which run was faster and why, and all values that differ."""
    names = NAMES[: len(records)]
    heads = [h.th(scope="col")[name] for name in names]
    is_same = len({run["text"] for run in records}) == 1
    sentence = "All wrote the same text." if is_same else "Words that differ are marked above."
    results = [result for member in runs.members if (result := member.run.result)]
    if not runs.columns.in_turn:
        sentence += " They ran at once and shared the processor: alone each would be faster."
    compiling_s = max(result.background_compile_s for result in results)
    if compiling_s > _MIN_COMPILE_S:
        seconds = quantities.seconds(compiling_s)
        sentence += f" Up to {seconds} of loading and compiling beside a run slowed it down."
    faster = verdict(records, names) if len(records) == 2 else None
    if any(run["finish"] == "stopped" for run in records):
        faster = h.p(".faster")["Stopped: the times are those until then."]
    return h.section(".differences", aria_label="Differences")[
        faster, remarks(sentence), comparison(h.thead[h.tr[h.td, heads]], records)
    ]
