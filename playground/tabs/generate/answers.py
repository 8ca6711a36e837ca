"""Answers that are no texts, as HTML: probabilities as bars, JSON as a form.

Knows how they look. Must not know components or events.
"""

import json
from typing import Any

import htpy as h

from playground.context.runs import Shown
from playground.tabs.generate.token_view import percent
from playground.ui import quantities
from playground.ui.charts import part
from playground.ui.markup import rendered
from xla_backend.answers.reader import AnswerReader, split_thoughts
from xla_backend.answers.tool_format import ToolFormat
from xla_backend.interface.decisions import Decision, Decisions
from xla_backend.interface.prompt import ToolCall


@rendered
def decisions_view(result: Decisions) -> h.Node:
    """Each question with the probabilities of its answers, and when they were known."""
    known = [decision.known_s for decision in result.decisions]
    sentence = f"Known after {quantities.seconds(max(known))}."
    if len(known) > 1:
        sentence = (
            f"The first of {len(known)} answers was known after {quantities.seconds(min(known))}, "
            f"the last after {quantities.seconds(max(known))}: the text was read once for all."
        )
    return h.section(".decisions", aria_label="Answers")[
        h.ul[map(_decision, result.decisions)], h.p(".caption")[sentence]
    ]


def _decision(decision: Decision) -> h.Node:
    question, found = decision.question, decision.probabilities
    if question.is_yes_no:
        found = dict(zip(("Yes", "No"), found.values(), strict=True))
    best = max(found, key=found.__getitem__)
    return h.li[
        h.header[
            h.bdi[question.name], h.small(title="known after")[quantities.seconds(decision.known_s)]
        ],
        [
            h.div(class_=["decision", name == best and "chosen"])[
                h.bdi[name],
                h.span(".bar", role="img", aria_label=f"{name}: {percent(share)}")[part("", share)],
                h.b[percent(share)],
            ]
            for name, share in found.items()
        ],
    ]


@rendered
def form_view(shown: Shown) -> h.Node:
    """The fields of a JSON answer or a call; nothing where it is none, or was cut."""
    if call := call_in(shown):
        return h.section(".json-form", aria_label="Call of a tool")[
            h.h3["Calls ", h.bdi(translate="no")[call.name]], _value(json.loads(call.arguments))
        ]
    grammar = shown.result.options.grammar
    if grammar is None or not grammar.kind.startswith("json"):
        return None
    try:
        value = json.loads(split_thoughts(shown.result.text)[1])
    except ValueError:
        return None
    return h.section(".json-form", aria_label="Fields of the answer")[_value(value)]


def call_in(shown: Shown) -> ToolCall | None:
    """The call that an answer is; None where it is none, or was cut."""
    grammar = shown.result.options.grammar
    if grammar is None or grammar.kind != "tool_calls":
        return None
    reader = AnswerReader(ToolFormat(*json.loads(grammar.text)["format"]))
    reader.read_whole(shown.result.text)
    return reader.calls[0] if reader.has_called else None


def _value(value: Any) -> h.Node:
    if isinstance(value, dict):
        pairs = (h.div[h.dt[h.bdi[name]], h.dd[_value(each)]] for name, each in value.items())
        return h.dl[pairs]
    if isinstance(value, list):
        return h.ol[(h.li[_value(each)] for each in value)]
    return h.bdi[value if isinstance(value, str) else json.dumps(value)]
