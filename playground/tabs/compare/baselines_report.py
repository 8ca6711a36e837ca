"""The ways of a comparison, as HTML: the claim, two bar charts, the texts, all values.

Knows how `BaselineResult`s read for a visitor who has never heard of tracing. Must not know
components, events or how anything was measured.
"""

import re
from collections.abc import Mapping, Sequence

import htpy as h

from playground.tabs.compare import difference
from playground.ui import quantities
from playground.ui.charts import legend, part
from playground.ui.markup import nothing, remarks, rendered, with_note
from playground.ui.tables import sheet
from xla_backend.baselines.comparison import (
    CALLS_BUDGET_S,
    Baseline,
    BaselineComparison,
    BaselineProgress,
    BaselineResult,
)
from xla_backend.interface.timing import MIN_FOR_QUARTILES, Spread

NAMES = {
    Baseline.EAGER: "Transformers, eager",
    Baseline.GUIDE: "Transformers, as in the guide",
    Baseline.ENGINE: "This engine, empty store",
    Baseline.ENGINE_FROM_DISK: "This engine, filled store",
}
WHAT: dict[Baseline, h.Node] = {
    Baseline.EAGER: (
        h.code["model.generate(…)"],
        ": one operation after the other, nothing compiled.",
    ),
    Baseline.GUIDE: (h.code["tf.function(model.generate, jit_compile=True)"], ", prompt padded."),
    Baseline.ENGINE: "Its first call with nothing in memory and nothing on disk.",
    Baseline.ENGINE_FROM_DISK: "The same in a new process: code is restored, not compiled.",
}
LATER = {
    Baseline.EAGER: "Transformers, eager",
    Baseline.GUIDE: "Transformers, as in the guide",
    Baseline.ENGINE: "This engine",
}
"""Ways whose later calls can differ: for them it no longer matters where the code came from."""
STAGES = {
    "importing": "importing TensorFlow",
    "loading": "loading the model",
    "tracing": "tracing",
    "compiling": "compiling",
    "running": "running",
}


def claim(comparison: BaselineComparison | None) -> str:
    """The result in one quotable sentence; empty while there is none.

    Example:
        "First call 10.5 s → 2.37 s, from disk 0.36 s. Later calls: 134 times faster than eager, no
        difference within noise from the guide’s compiled function."
    """
    results = comparison.results if comparison else {}
    guide, ours = results.get(Baseline.GUIDE), results.get(Baseline.ENGINE)
    from_disk = results.get(Baseline.ENGINE_FROM_DISK)
    sentences = []
    if ours is not None and guide is not None:
        first = f"{quantities.seconds(guide.first_s)} → {quantities.seconds(ours.first_s)}"
        if from_disk is not None:
            first += f", from disk {quantities.seconds(from_disk.first_s)}"
        sentences.append(f"First call {first}.")
    if later := _later_claims(results) if comparison and comparison.is_over else []:
        sentences.append(f"Later calls: {', '.join(later)}.")
    return " ".join(sentences)


def _later_claims(results: Mapping[Baseline, BaselineResult]) -> list[str]:
    """How this engine's later calls compare with each rival's."""
    later = {way: result.later for way, result in results.items() if result.later}
    ours = later.get(Baseline.ENGINE)
    rivals = ((Baseline.EAGER, "eager"), (Baseline.GUIDE, "the guide’s compiled function"))
    return [how_fast(later[way], ours, whom) for way, whom in rivals if ours and way in later]


def how_fast(rival: Spread, ours: Spread, whom: str) -> str:
    """How this engine's calls compare with a rival's: "28 times faster than eager"."""
    ratio = difference.how_many_times(ours, rival)
    if ratio is None:
        return f"no difference within noise from {whom}"
    times = quantities.times(max(ratio, 1 / ratio)).removesuffix("×")
    return f"{times} times {'faster' if ratio > 1 else 'slower'} than {whom}"


@rendered
def baselines_report(
    comparison: BaselineComparison | None = None,
    progress: BaselineProgress | None = None,
    remark: str = "",
) -> h.Node:
    """The whole report, with the same layout before, during and after a comparison.

    Args:
        comparison: None before the first one.
        progress: progress of the current way, if any.
        remark: shown instead of the claim until there is one, then below it.
    """
    results = comparison.results if comparison else {}
    failures = comparison.failures if comparison else {}
    # No line break between a number and its unit: these are the page's largest letters.
    sentence = re.sub(r"(?<=\d) (?=m?s\b)", "\N{NO-BREAK SPACE}", claim(comparison))
    is_busy = progress is not None
    return h.section(class_=["baselines", is_busy and "busy"], aria_label="Methods compared")[
        difference.headline(sentence, remark),
        _first_calls(results, failures, progress, comparison is not None),
        _later_calls(results, progress, comparison),
        _agreement(comparison),
    ]


def _first_calls(
    results: Mapping[Baseline, BaselineResult],
    failures: Mapping[Baseline, str],
    progress: BaselineProgress | None,
    is_chosen: bool,
) -> h.Element:
    scale_s = max((result.first_s for result in results.values()), default=1.0)
    rows = []
    for way in Baseline:
        label = NAMES[way], h.small(".baseline-what")[WHAT[way]]
        if way in results:
            rows.append(_row(label, _first_bar(results[way], scale_s), results[way].first_s, way))
        elif way in failures:
            rows.append(_waiting_row(label, failures[way], "failed"))
        else:
            rows.append(_waiting_row(label, _state(way, progress, is_chosen)))
    phases = (("trace", "trace"), ("compile", "compile"), ("decode", "run"))
    return h.figure[
        h.figcaption["First call of a fresh process"],
        h.div(".baseline-rows.described")[rows],
        legend((f"phase-{phase}", what) for phase, what in phases),
    ]


def _later_calls(
    results: Mapping[Baseline, BaselineResult],
    progress: BaselineProgress | None,
    comparison: BaselineComparison | None,
) -> h.Element:
    later = {way: result.later for way, result in results.items() if way in LATER and result.later}
    scale_s = difference.shared_scale(later.values())
    rows = []
    note = h.small(".baseline-what")
    for way, name in LATER.items():
        if way in later:
            label = name, note[difference.spread_note(later[way])]
            rows.append(
                _row(label, difference.spread_bar(later[way], scale_s), later[way].median_s, way)
            )
        else:
            rows.append(_waiting_row([name, note["\N{NO-BREAK SPACE}"]], ""))
    state = "median"
    if progress is not None and progress.stage == "cached" and comparison is not None:
        state = f"round {progress.calls + 1} of {comparison.cached_calls}"
    return h.figure[
        h.figcaption[with_note("Every later call, in turn", state)], h.div(".baseline-rows")[rows]
    ]


def _first_bar(result: BaselineResult, scale_s: float) -> h.Node:
    parts = (("trace", result.trace_s), ("compile", result.compile_s), ("decode", result.run_s))
    return [part(f"phase-{phase}", seconds / scale_s) for phase, seconds in parts if seconds > 0]


def _row(label: h.Node, bar: h.Node, seconds: float, way: Baseline) -> h.Element:
    return h.div(f".baseline.baseline-{way.value}")[
        h.span(".baseline-name")[label],
        h.span(".baseline-track", aria_hidden="true")[bar],
        h.b[quantities.seconds(seconds)],
    ]


def _waiting_row(label: h.Node, state: str, kind: str = "waits") -> h.Element:
    kind = "now" if "·" in state and kind == "waits" else kind
    what: h.Node = h.span(".baseline-state")[state]
    if not state:
        what = h.span(".baseline-track"), h.b["–"]
    return h.div(f".baseline.{kind}")[h.span(".baseline-name")[label], what]


def _state(way: Baseline, progress: BaselineProgress | None, is_chosen: bool) -> str:
    if progress is None or progress.baseline is not way:
        return "waits" if is_chosen and progress is not None else ""
    stage = STAGES.get(progress.stage, "later calls")
    return f"{stage} · {quantities.elapsed(progress.baseline_s)}"


def _agreement(comparison: BaselineComparison | None) -> h.Element:
    """Whether all ways wrote the same text, and the text."""
    results = comparison.results if comparison else {}
    texts: dict[tuple[int, ...], list[BaselineResult]] = {}
    for result in results.values():
        texts.setdefault(result.tokens, []).append(result)
    number = quantities.count(len(next(iter(texts), ())), "token")
    sentence: h.Node
    if len(results) < 2:
        sentence, kind = "The texts are compared token for token.", "none"
        if results:
            sentence = f"One method has written {number}."
    elif len(texts) == 1:
        ways = quantities.count(len(results), "method")
        sentence, kind = [h.strong["Identical output:"], f" {ways}, the same {number}."], "same"
    else:
        place = _agreed([*texts]) + 1
        sentence = h.strong["The texts differ"], f" from new token {place} on."
        kind = "different"
    shown = [_text(same, texts) for same in texts.values()]
    return h.div(f".agreement.{kind}")[h.p[sentence], h.div(".agreement-text")[shown]]


def _text(
    same: Sequence[BaselineResult], texts: Mapping[tuple[int, ...], list[BaselineResult]]
) -> h.Element:
    text = same[0].text
    if len(texts) == 1:
        return h.p(dir="auto")[text]
    agreed = _agreed([others[0].text for others in texts.values()])
    names = ", ".join(NAMES[result.baseline] for result in same)
    given = h.span(".story-prompt")[text[:agreed]]
    return h.p(dir="auto")[h.small[h.bdi[names]], h.br, given, text[agreed:]]


def _agreed(texts: Sequence[Sequence[object]]) -> int:
    """How many letters or tokens all texts begin with."""
    each_place = enumerate(zip(*texts, strict=False))
    return next((at for at, each in each_place if len(set(each)) > 1), min(map(len, texts)))


@rendered
def all_values(results: Mapping[Baseline, BaselineResult] | None = None) -> h.Node:
    """All numbers, folded up, for readers who want to check the claim."""
    headings = ("Method", "Import", "Load model", "First call", "Later calls", "Tokens/s")
    seconds = quantities.seconds
    rows = []
    for way, result in (results or {}).items():
        parts = (
            f"trace {seconds(result.trace_s)} · compile {seconds(result.compile_s)} · run "
            f"{seconds(result.run_s)}"
        )
        later = quantities.seconds_or_dash(result.later.median_s if result.later else None)
        rows.append(
            (
                NAMES[way],
                seconds(result.import_s),
                seconds(result.load_s),
                with_note(seconds(result.first_s), parts if result.trace_s else ""),
                with_note(later, ", ".join(map(seconds, result.cached_s))),
                quantities.rate(result.tokens_per_second),
            )
        )
    return h.details(".all-values")[
        h.summary["All measured values, and what is timed"],
        sheet(headings, rows) if rows else nothing("They appear here as they are measured."),
        remarks(
            "A call is timed from text to text. Importing TensorFlow and loading the model "
            "happen before it, for every method, and are counted apart. Transformers does not tell "
            "compiling from running: there, compile is what remains of the first call without "
            "tracing and without the median of the later calls. The prompt is padded to as many "
            "slots in the guide’s method as in this engine’s; eager needs no padding. All methods "
            "take the most likely token, since sampled texts could not be compared. The "
            "processes stay, and later calls go in turn: one of each method, then again. A method "
            f"whose later calls have taken {CALLS_BUDGET_S:.0f} s makes no more. Faster or "
            "slower is said where the middle halves of the calls (of less than "
            f"{MIN_FOR_QUARTILES} calls, all of them) have nothing in common and the medians "
            "differ by 5 % or more."
        ),
    ]
