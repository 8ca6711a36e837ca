"""What the Chat tab shows, as HTML: messages, the line under each answer, TTFT by turn, the list.

Knows how a turn reads. Must not know components or events.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import htpy as h

from playground.tabs.chat.conversation import Conversation, Figures, Turn
from playground.tabs.generate.in_words import quote
from playground.ui import quantities
from playground.ui.charts import legend, part
from playground.ui.markup import answer, caret, nothing, rendered
from playground.ui.outcomes import badge, ended_by
from playground.ui.prediction_line import ONE_SHAPE, expected
from playground.ui.report_parts import clock, has_waited, phase, queued
from xla_backend import CacheOutcome, Prediction

_MADE = (CacheOutcome.MISS, CacheOutcome.DISK)
_LABELLED_BARS = 12
"""From more turns on, only the last bar has its number beside it."""
LIST_SCRIPT = """
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-chat]");
  if (!button) return;
  chooseChat(button.dataset.chat);
  trigger("select", {});
});
"""

# The chatbot would show a question as HTML. A character that nobody sees keeps a browser from
# reading it so; escaped, a question could not be edited as it was written.
_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])|&(?=[a-zA-Z#])")
_UNSEEN = "\u2060"

Message = dict[str, Any]


def messages(conversation: Conversation, shown: Sequence[Message] = ()) -> list[Message]:
    """The conversation as the chatbot takes it, and what is being written below it."""
    lines = [
        message
        for turn in conversation.turns
        for message in (_question(turn.question), _message(_answer(turn)))
    ]
    return [*lines, *shown]


def waiting(
    question: str, prediction: Prediction | None, clicked_s: float, ahead: int = 0
) -> list[Message]:
    """A question whose answer has not begun; `ahead` as many requests come first."""
    now = queued(ahead) if ahead else phase("Sent")
    line = h.p(".chat-line.busy")[now, " · ", _prediction(prediction), clock(clicked_s)]
    return [_question(question), _message(line)]


def _prediction(prediction: Prediction | None) -> h.Node:
    if prediction is None:
        return None
    work = expected(prediction)
    return badge(prediction.outcome), f" Work expected: {work} · " if work else " "


def writing(question: str, text: str) -> list[Message]:
    """A question whose answer is being written."""
    return [_question(question), _message([_text(text), caret(True)])]


@rendered
def line(figures: Figures) -> h.Node:
    """What an answer cost, in one line."""
    ttft = f"TTFT {quantities.seconds_or_dash(figures.ttft_s)}"
    if _has_waited(figures):
        ttft += f", of which waiting {quantities.seconds(figures.waited_s)}"
    pieces = [
        ttft,
        f"TPOT {quantities.seconds_or_dash(figures.tpot_s)}",
        *([] if figures.finish == "length" else [quantities.count(figures.new_tokens, "token")]),
        f"reused {figures.cached_tokens:,} of "
        f"{quantities.count(figures.prompt_tokens, 'prompt token')}"
        if figures.reuses
        else f"without reuse: {quantities.count(figures.prompt_tokens, 'prompt token')}",
    ]
    if figures.left_out:
        pieces.append(f"the oldest {quantities.count(figures.left_out, 'turn')} not read")
    if figures.rounded_bits is not None:
        pieces.append(f"weights rounded to {figures.rounded_bits} bits")
    pieces.append(ended_by(figures.finish, figures.new_tokens))
    if figures.reuses:
        pieces.append(ONE_SHAPE)
    return badge(figures.cache), " ", " · ".join(pieces)


@rendered
def strip(turns: Sequence[Turn]) -> h.Node:
    """TTFT by turn as small bars, on one scale; a turn that had to make its function stands out.

    Where it, or one that waited for others, took longer than the scale shows, its bar is cut.
    """
    measured = [
        (number, turn.figures)
        for number, turn in enumerate(turns, 1)
        if turn.figures and turn.figures.ttft_s is not None
    ]
    if not measured:
        return None
    times = {number: figures.ttft_s or 0.0 for number, figures in measured}
    ran = [
        times[number]
        for number, figures in measured
        if figures.cache not in _MADE and not _has_waited(figures)
    ]
    scale = max(ran or times.values())
    bars = [
        _bar(number, figures, times[number] / scale, len(measured) <= _LABELLED_BARS)
        for number, figures in measured
    ]
    spoken = ", ".join(
        f"{number}: {quantities.seconds(value)} {figures.cache.value.upper()}"
        for (number, figures), value in zip(measured, times.values(), strict=True)
    )
    is_mixed = not all(figures.reuses for _, figures in measured)
    mark = h.small[h.i(".without-reuse"), h.span["Without reuse"]]
    return h.figure(".chat-strip")[
        h.figcaption[h.span["TTFT by turn"], is_mixed and mark],
        h.div(".chat-bars", role="img", aria_label=f"TTFT by turn: {spoken}")[bars],
    ]


@rendered
def context_bar(turns: Sequence[Turn], context: int | None) -> h.Node:
    """What the conversation takes of the model's context, in tokens, as of the last answer."""
    last = next((turn.figures for turn in reversed(turns) if turn.figures), None)
    if last is None or context is None:
        return None
    used = last.prompt_tokens + last.new_tokens
    parts = [
        ("cached", last.cached_tokens, "phase-prefill"),
        ("computed", used - last.cached_tokens, "phase-decode"),
        ("room", max(0, context - used), "context-room"),
    ]
    pieces = f"Context: {used:,} of {context:,} tokens"
    return h.figure(".chat-context")[
        h.figcaption[pieces],
        h.div(".bar", role="img", aria_label=pieces)[
            (part(style, number / context) for _, number, style in parts if number)
        ],
        legend((style, name, f"{number:,}") for name, number, style in parts),
    ]


@rendered
def left_out_note(left_out: int) -> h.Node:
    """What the next question leaves out, said before it is sent; empty where all is read."""
    oldest = quantities.count(left_out, "turn")
    return (
        left_out > 0
        and h.p(".chat-left-out")[
            f"The context is full: the model will not read the oldest {oldest}. The system prompt "
            "stays."
        ]
    )


@rendered
def conversations(summaries: str, opened: str) -> h.Node:
    """The list of what the browser keeps, newest first.

    Args:
        summaries: the browser's, as JSON: `id`, `name`, `turns` and `changed_s` of each.
        opened: the id of the one that is open.
    """
    try:
        found = sorted(map(_summary, json.loads(summaries)["chats"]), reverse=True)
    except (ValueError, TypeError, KeyError):  # no script of this page wrote it
        found = []
    if not found:
        return nothing("Your conversations appear here.")
    return h.ul(".chat-list")[
        (
            h.li[
                h.button(type="button", data_chat=each, aria_current=each == opened and "true")[
                    h.span(dir="auto")[name], h.small[quantities.count(turns, "turn")]
                ]
            ]
            for _, each, name, turns in found
        )
    ]


def _summary(values: dict[str, Any]) -> tuple[float, str, str, int]:
    return (
        float(values["changed_s"]),
        str(values["id"]),
        str(values["name"]),
        int(values["turns"]),
    )


def as_written(question: str) -> str:
    """The original text of a question that the chatbot shows."""
    return question.replace(f"<{_UNSEEN}", "<").replace(f"&{_UNSEEN}", "&")


def _question(text: str) -> Message:
    shown = _MARKUP.sub(lambda found: found[0] + _UNSEEN, text)
    return {"role": "user", "content": {"type": "text", "text": shown}}


@rendered
def _html(shown: h.Node) -> h.Node:
    return shown


def _message(shown: h.Node) -> Message:
    # Gradio's own Markdown would fetch pictures and follow links.
    part = {"component": "html", "value": _html(shown), "constructor_args": {}, "props": {}}
    return {"role": "assistant", "content": {"type": "component", **part}}


def _answer(turn: Turn) -> h.Node:
    buttons = [
        h.button(".chat-copy", type="button")["Copy"],
        h.button(".chat-edit", type="button")["Edit"],
    ]
    edited = turn.is_edited and " · edited"
    if turn.figures is None:
        buttons.append(h.button(".chat-retry", type="button")["Retry"])
        return _text(turn.answer), h.p(".chat-line.interrupted")["Interrupted", edited, buttons]
    figures = turn.figures
    return (
        _text(turn.answer),
        h.p(".chat-line")[line(figures), edited, buttons],
        figures.read_again and h.p(".chat-line.read-again")[figures.read_again],
        quote(figures.latency, figures.about),
    )


def _has_waited(figures: Figures) -> bool:
    return has_waited(figures.waited_s, figures.ttft_s or 0.0)


def _text(pieces: str) -> h.Element:
    return h.div(".chat-answer.markdown", dir="auto", data_text=pieces)[answer(pieces)]


def _bar(number: int, figures: Figures, share: float, is_labelled: bool) -> h.Element:
    took = quantities.seconds(figures.ttft_s or 0.0)
    kind = f"outcome-{figures.cache.value}" if figures.reuses else "without-reuse"
    return h.span(class_=["chat-bar", share > 1 and "cut"], title=took)[
        is_labelled and h.b[took],
        h.i(f".{kind}", style=f"--share:{min(share, 1):.3f}"),
        h.small[number],
    ]
