"""This visitor's runs as HTML: the table, and how runs differ.

Knows how a record is shown. Must not know where records are stored, components or events.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import htpy as h

from playground.history.records import Record
from playground.ui import quantities
from playground.ui.markup import nothing, rendered, with_note
from playground.ui.outcomes import badge, ended_by
from playground.ui.report_parts import BETWEEN, PHASE_NAMES, faster, figures
from playground.ui.tables import sheet, sizes
from playground.ui.wording import model_name
from xla_backend import CacheKey, CacheOutcome
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.timing import PHASES, RESTORING

_MAX_CHARACTERS = 300
_MAX_BEFORE_ANSWER = 60
"""Characters of an input that is shown before its answer, in two lines together."""
_WORTH_TELLING = 0.2
"""Of a difference: what is as large a part of it is named."""
_HEADINGS = ("Run", "Outcome", "Text", "Shape", "End to end", "TTFT", "Tokens/s", "")

# A button's `data-act` is the name of its event.
SCRIPT = """
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-act]");
  if (button) trigger(button.dataset.act, {run: Number(button.dataset.run)});
});
"""


@rendered
def history_table(runs: Sequence[Record]) -> h.Node:
    """The runs as a table, or a note what will appear there."""
    if not runs:
        return nothing(
            "Your runs appear here. They are kept in this browser, not on the server, and are "
            "still here after a reload."
        )
    return h.div(".runs-box", tabindex="0", role="region", aria_label="Your runs")[
        sheet(_HEADINGS, map(_row, runs), "sheet runs")
    ]


def comparison(head: h.Element, chosen: Sequence[Record]) -> h.Node:
    """What differs in the runs, and, folded, what does not differ."""
    rows = {name: [reads(run) for run in chosen] for name, reads in _METRICS.items()}
    different = {name: values for name, values in rows.items() if len(set(values)) > 1}
    alike = {name: values[:1] for name, values in rows.items() if name not in different}
    return h.table[head, h.tbody[_rows(different)]], h.details[
        h.summary[f"Alike in {quantities.count(len(alike), 'value')}"],
        h.table[h.tbody[_rows(alike)]],
    ]


def _rows(named: Mapping[str, Sequence[h.Node]]) -> h.Node:
    return [
        h.tr[h.th(scope="row")[name], [h.td[value] for value in values]]
        for name, values in named.items()
    ]


def verdict(chosen: Sequence[Record], names: Sequence[str]) -> h.Node:
    """Which of two runs was faster in total, and how much of the difference had to be done once or
    was waiting; nothing where one was stopped."""
    totals = [run["timing"]["total_s"] for run in chosen]
    if min(totals) <= 0 or any(run["finish"] == "stopped" for run in chosen):
        return None
    at = totals.index(min(totals))
    fast, slow = chosen[at], chosen[1 - at]
    ratio = max(totals) / min(totals)
    if ratio < 1.05:
        return h.p(".faster")[h.strong["Equally fast"], ", within 5%."]
    gap_s = max(totals) - min(totals)
    why = [
        f"{quantities.seconds(more_s)} of the difference is {what}."
        for what, more_s in zip(
            ("loading the model", *_making(slow), "waiting in the queue"),
            map(float.__sub__, _once(slow), _once(fast)),
            strict=True,
        )
        if more_s >= _WORTH_TELLING * gap_s
    ]
    first, other = names[at].capitalize(), names[1 - at]
    if fast["new_tokens"] != slow["new_tokens"]:
        tokens = quantities.count(fast["new_tokens"], "token")
        each = " and ".join(quantities.seconds_or_dash(run["tpot_s"]) for run in (fast, slow))
        wrote = f"{first} wrote {tokens}, {other} {slow['new_tokens']:,}"
        why.append(f"{wrote}: {each} per token.")
    than = " ".join([f"than {other}, in total.", *why])
    return faster(f"{first} was {quantities.times(ratio)} faster", than)


def _once(run: Record) -> tuple[float, ...]:
    """Seconds of loading, of making function and grammar, and of waiting."""
    timing = run["timing"]
    made_s = timing["trace_s"] + timing["compile_s"]
    return run["load_s"], made_s, timing["tokenize_s"], timing["queue_s"]


def _making(run: Record) -> tuple[str, str]:
    return (
        "restoring its function" if run["cache"] == CacheOutcome.DISK.value else "compiling",
        "building its grammar" if run["options"]["grammar"] else "tokenizing",
    )


def _row(run: Record) -> tuple[h.Node, ...]:
    timing = run["timing"]
    number = h.span(".number")
    return (
        str(run["run"]),
        badge(CacheOutcome(run["cache"])),
        (h.div(".run-text", dir="auto")[_short_story(run)], _details(run)),
        (number[sizes(CacheKey(**run["key"]))], with_note("", model_name(run["model"]))),
        number[quantities.seconds(timing["total_s"])],
        number[quantities.seconds_or_dash(run["ttft_s"])],
        quantities.rate(run["tokens_per_second"]),
        h.span(".row-actions")[
            _action("retry", "Rerun", run),
            _action("delete", "Delete", run),
        ],
    )


def _action(act: str, name: str, run: Record) -> h.Element:
    label = f"{name} run {run['run']}"
    data = {"data-act": act, "data-run": run["run"]}
    return h.button(".row-action", data, aria_label=label, type="button")[name]


def _details(run: Record) -> h.Element:
    """All other metrics of a run, below its text."""
    is_restored = run["cache"] == CacheOutcome.DISK.value
    called = {PHASE_NAMES[phase]: name for phase, name in RESTORING.items()} if is_restored else {}
    metrics = [(called.get(name, name), reads(run)) for name, reads in _METRICS.items()]
    return h.details[
        h.summary["Details"],
        figures(metrics, "run-metrics"),
        h.div(".run-whole", dir="auto")[_given_and_new(_given(run), run["text"])],
    ]


def _given(run: Record) -> str:
    prompt = run["prompt"] + ("" if run["prompt_is_whole"] else "…")
    return prompt + ("\n→ " if run["is_apart"] else "")


def _short_story(run: Record) -> h.Node:
    if run["is_apart"]:
        return _given_and_new(
            _short(run["prompt"], _MAX_BEFORE_ANSWER) + " → ", _short(run["text"])
        )
    return _given_and_new(_short(run["prompt"]), _short(run["text"]))


def _given_and_new(given: str, new: h.Node) -> h.Node:
    return h.span(".story-prompt")[given], new


def _short(text: str, most: int = _MAX_CHARACTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _phase(name: str) -> Callable[[Record], str]:
    def reads(run: Record) -> str:
        value = run["timing"][f"{name}_s"]
        return quantities.seconds(value) if value > 0 else "–"

    return reads


def _queue(run: Record) -> str:
    value = run["ttft_queue_s"]
    return _phase("queue")(run) if value is None else quantities.seconds(value) if value else "–"


def _queue_between(run: Record) -> str:
    before_s, whole_s = run["ttft_queue_s"], run["timing"]["queue_s"]
    is_any = before_s is not None and whole_s > before_s
    return quantities.seconds(whole_s - before_s) if is_any else "–"


def _option(name: str) -> Callable[[Record], str]:
    def reads(run: Record) -> str:
        value = run["options"][name]
        if value is None or isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False) if value else "–"
        return str(value).lower() if isinstance(value, bool | str) else f"{value:g}"

    return reads


_METRICS: dict[str, Callable[[Record], str]] = {
    "Model": lambda run: model_name(run["model"]),
    "System prompt": lambda run: run["system"] or "–",
    "Shape": lambda run: sizes(CacheKey(**run["key"])),
    "Shape asked for": lambda run: sizes(CacheKey(**run["requested_key"])),
    "End to end": lambda run: quantities.seconds(run["timing"]["total_s"]),
    "TTFT": lambda run: quantities.seconds_or_dash(run["ttft_s"]),
    "TPOT": lambda run: quantities.seconds_or_dash(run["tpot_s"]),
    **{PHASE_NAMES[name]: _phase(name) for name in PHASES},
    PHASE_NAMES["queue"]: _queue,
    BETWEEN: _queue_between,
    "First call of the shape": lambda run: quantities.seconds(sum(run["first_call"].values())),
    "Loading the model": lambda run: (
        quantities.seconds(run["load_s"]) if run["load_s"] > 0.0005 else "–"
    ),
    "Tokens/s": lambda run: quantities.rate(run["tokens_per_second"]),
    "Requests at once": lambda run: str(run["batch_size"]),
    "Prompt tokens": lambda run: str(run["prompt_tokens"]),
    "New tokens": lambda run: str(run["new_tokens"]),
    "Ended by": lambda run: ended_by(run["finish"], run["new_tokens"]),
    **{
        name.replace("_", " ").capitalize(): _option(name) for name in GenerationOptions().to_dict()
    },
    "When": lambda run: datetime.fromtimestamp(run["time"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    "Machine": lambda run: str(run["machine"]),
}
