"""What the retrace doctor shows, as HTML: the two calls as code, and what each change did.

Knows how `Findings` read, and `tf.function`'s rules in words. Must not know components or events.
"""

import os

import htpy as h

from playground.ui import quantities
from playground.ui.markup import nothing, remarks, rendered
from playground.ui.report_parts import working_bar
from playground.ui.tables import sheet
from xla_backend.retracing.question import (
    GENERATE,
    Argument,
    Attempt,
    Change,
    Findings,
    Kind,
    Trial,
)

_RULES: dict[Kind, str] = {
    "shape": "A tensor’s shape is part of what a graph is made for. Pad to a few sizes, as this "
    "page does. A function declared for any number of rows is traced once, and XLA still compiles "
    "it for each number.",
    "dtype": "A tensor’s dtype is part of what a graph is made for. Cast it before the call.",
    "value": "A Python value becomes a constant of the graph, so each value has a graph of its "
    "own. Pass a tensor; where the value sets a size, round it up to a few.",
    "none": "With None the function takes another path than with a tensor. Always pass a tensor: a "
    "mask of ones hides nothing.",
    "type": "A tensor is an input of the graph, a Python value a constant in it. Choose one.",
}
_DEFINED = """\
def weighted(x, factor, mask=None):
    y = x * tf.cast(factor, x.dtype)
    return y if mask is None else tf.where(mask, y, tf.zeros_like(y))

"""
_HEADINGS = ("Argument", "First call", "Second call", "This change alone", "Why")


@rendered
def code(question: Trial) -> h.Node:
    """The two calls as a program would make them."""
    jit = "jit_compile=True" if question.jit_compile else "jit_compile=False"
    if question.function == GENERATE:
        name, defined = "generate", ""
        made = f"generate = tf.function(model.generate, {jit})\n"
    else:
        name, defined = "weighted", _DEFINED
        specs = ", ".join(
            f"tf.TensorSpec({[None, *each.shape[1:]] if each.shape else []}, tf.{each.dtype})"
            for each in question.first
        )
        signature = f", input_signature=[{specs}]" if question.any_rows else ""
        made = f"weighted = tf.function(weighted{signature}, {jit})\n"
    calls = "".join(
        f"{name}({', '.join(f'{each.name}={_written(each)}' for each in call)})\n"
        for call in (question.first, question.second)
    )
    return h.pre(".doctor-code", tabindex="0")[defined, made, calls]


def _written(argument: Argument) -> str:
    if argument.dtype:
        return f"tf.ones({list(argument.shape)}, tf.{argument.dtype})"
    return str(argument)


@rendered
def empty() -> h.Node:
    """Before the first question."""
    sentence = (
        "Choose what differs between two calls and press Try: both are made on a fresh function, "
        "and so is each change alone."
    )
    return nothing(sentence), _flags()


@rendered
def working(question: Trial) -> h.Node:
    """While it is tried."""
    how_long = "a minute" if question.function == GENERATE else "some seconds"
    what = f"Trying both calls in a separate process: {how_long}."
    return h.p(role="status")[what], working_bar()


@rendered
def report(findings: Findings) -> h.Node:
    """The verdict on the second call, and each change."""
    first, second = findings.first, findings.second
    took = (
        f" First call {quantities.fine_seconds(first.seconds)}, second "
        f"{quantities.fine_seconds(second.seconds)}."
    )
    return (
        h.p(".doctor-verdict")[h.strong[_verdict(second)], took],
        [
            h.p(".notice.problem")[f"The {which} call failed: {each.problem}"]
            for which, each in (("first", first), ("second", second))
            if each.problem
        ],
        sheet(_HEADINGS, map(_row, findings.changes))
        if findings.changes
        else h.p["Nothing differs."],
        _flags(),
    )


def _verdict(attempt: Attempt) -> str:
    if attempt.problem:
        return "The second call failed."
    if attempt.traced:
        and_compiled = " and compiled" if attempt.compiled else ""
        return f"The second call was traced{and_compiled} again."
    if attempt.compiled:
        return "The second call was not traced again, but compiled again."
    return "The second call used the existing function."


def _row(change: Change) -> tuple[h.Node, ...]:
    return (
        h.code[change.name],
        h.span(".signature")[change.was],
        h.span(".signature")[change.now],
        _alone(change.alone),
        " ".join(_RULES[kind] for kind in change.kinds),
    )


def _alone(attempt: Attempt) -> h.Node:
    if attempt.problem:
        return f"Not possible alone: {attempt.problem}"
    made = [name for name in ("traced", "compiled") if getattr(attempt, name)]
    happened = f"{' and '.join(made).capitalize()} again" if made else "Used the existing function"
    return happened, h.br, h.small[quantities.fine_seconds(attempt.seconds)]


def _flags() -> h.Node:
    """What the environment says to TensorFlow and XLA."""
    flags = {name: os.environ.get(name) for name in ("XLA_FLAGS", "TF_XLA_FLAGS")}
    given = [(" ", h.code[f"{name}={value}"]) for name, value in flags.items() if value]
    if not given:
        return remarks(f"Neither {' nor '.join(flags)} is set here.")
    return remarks(["Set here:", given])
