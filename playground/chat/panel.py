"""What the Chat tab shows, as HTML: messages, the line under each answer, TTFT by turn, the list.

Knows how a turn reads. Must not know components or events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from playground.chat.conversation import Conversation, Figures, Turn
from playground.ui import quantities
from playground.ui.markup import answer, escape
from playground.ui.outcomes import badge
from playground.ui.prediction_line import ONE_SHAPE, expected
from playground.ui.report_parts import clock, has_waited
from xla_backend import CacheOutcome, Prediction

_MADE = (CacheOutcome.MISS, CacheOutcome.DISK)
_TOLD_BARS = 12
"""From more turns on, only the last bar has its number beside it."""
_FINISHES = {"stopped": "stopped", "length": "ended at the limit of new tokens"}
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
        for message in (_question(turn.question), _said(_answer(turn)))
    ]
    return [*lines, *shown]


def waiting(question: str, prediction: Prediction | None, clicked_s: float) -> list[Message]:
    """A question whose answer has not begun."""
    said = ""
    if prediction:
        said = badge(prediction.outcome)
        if work := expected(prediction):
            said += f" Work expected: {work} ·"
    return [_question(question), _said(f'<p class="chat-line busy">{said} {clock(clicked_s)}</p>')]


def writing(question: str, text: str) -> list[Message]:
    """A question whose answer is being written."""
    caret = '<span class="caret" aria-hidden="true"></span>'
    return [_question(question), _said(f"{_text(text)}{caret}")]


def line(figures: Figures) -> str:
    """What an answer cost, in one line."""
    ttft = f"TTFT {quantities.seconds_or_dash(figures.ttft_s)}"
    if _has_waited(figures):
        ttft += f", of which waiting {quantities.seconds(figures.waited_s)}"
    said = [
        ttft,
        f"TPOT {quantities.seconds_or_dash(figures.tpot_s)}",
        quantities.count(figures.new_tokens, "token"),
        f"reused {figures.cached_tokens:,} of "
        f"{quantities.count(figures.prompt_tokens, 'prompt token')}"
        if figures.reuses
        else f"without reuse: {quantities.count(figures.prompt_tokens, 'prompt token')}",
    ]
    if figures.left_out:
        said.append(f"the oldest {quantities.count(figures.left_out, 'turn')} not read")
    if figures.rounded_bits is not None:
        said.append(f"weights rounded to {figures.rounded_bits} bits")
    if figures.finish in _FINISHES:
        said.append(_FINISHES[figures.finish])
    if figures.reuses:
        said.append(ONE_SHAPE)
    return f"{badge(figures.cache)} {' · '.join(said)}"


def strip(turns: Sequence[Turn]) -> str:
    """TTFT by turn as small bars, on one scale; a turn that had to make its function stands out.

    Where it, or one that waited for others, took longer than the scale shows, its bar is cut.
    """
    measured = [
        (number, turn.figures)
        for number, turn in enumerate(turns, 1)
        if turn.figures and turn.figures.ttft_s is not None
    ]
    if not measured:
        return ""
    times = {number: figures.ttft_s or 0.0 for number, figures in measured}
    ran = [
        times[number]
        for number, figures in measured
        if figures.cache not in _MADE and not _has_waited(figures)
    ]
    scale = max(ran or times.values())
    bars = "".join(
        _bar(number, figures, times[number] / scale, len(measured) <= _TOLD_BARS)
        for number, figures in measured
    )
    spoken = ", ".join(
        f"{number}: {quantities.seconds(value)} {figures.cache.value.upper()}"
        for (number, figures), value in zip(measured, times.values(), strict=True)
    )
    is_mixed = not all(figures.reuses for _, figures in measured)
    legend = '<small><i class="without-reuse"></i><span>Without reuse</span></small>'
    return (
        f'<figure class="chat-strip"><figcaption><span>TTFT by turn</span>'
        f"{legend if is_mixed else ''}</figcaption>"
        f'<div class="chat-bars" role="img" aria-label="TTFT by turn: {spoken}">{bars}</div>'
        "</figure>"
    )


def left_out_note(left_out: int) -> str:
    """What the next question leaves out, said before it is sent; empty where all is read."""
    if not left_out:
        return ""
    return (
        f'<p class="chat-left-out">The context is full: the model will not read the oldest '
        f"{quantities.count(left_out, 'turn')}. The system prompt stays.</p>"
    )


def conversations(summaries: str, opened: str) -> str:
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
        return '<p class="nothing">Your conversations appear here.</p>'
    entries = "".join(
        f'<li><button type="button" data-chat="{escape(each)}"'
        f"{' aria-current=true' if each == opened else ''}>"
        f'<span dir="auto">{escape(name)}</span>'
        f"<small>{quantities.count(turns, 'turn')}</small></button></li>"
        for _, each, name, turns in found
    )
    return f'<ul class="chat-list">{entries}</ul>'


def _summary(values: dict[str, Any]) -> tuple[float, str, str, int]:
    return (
        float(values["changed_s"]),
        str(values["id"]),
        str(values["name"]),
        int(values["turns"]),
    )


def as_written(question: str) -> str:
    """A question as the chatbot has it, as its visitor wrote it."""
    return question.replace(f"<{_UNSEEN}", "<").replace(f"&{_UNSEEN}", "&")


def _question(text: str) -> Message:
    shown = _MARKUP.sub(lambda found: found[0] + _UNSEEN, text)
    return {"role": "user", "content": {"type": "text", "text": shown}}


def _said(html: str) -> Message:
    # Gradio's own Markdown would fetch pictures and follow links.
    part = {"component": "html", "value": html, "constructor_args": {}, "props": {}}
    return {"role": "assistant", "content": {"type": "component", **part}}


def _answer(turn: Turn) -> str:
    figures = line(turn.figures) if turn.figures else "cut short by an error"
    return (
        f'{_text(turn.answer)}<p class="chat-line">{figures}'
        '<button type="button" class="chat-copy">Copy</button></p>'
    )


def _has_waited(figures: Figures) -> bool:
    return has_waited(figures.waited_s, figures.ttft_s or 0.0)


def _text(said: str) -> str:
    return (
        f'<div class="chat-answer markdown" dir="auto" data-text="{escape(said)}">'
        f"{answer(said)}</div>"
    )


def _bar(number: int, figures: Figures, share: float, is_labelled: bool) -> str:
    ttft_s = figures.ttft_s or 0.0
    kind = f"outcome-{figures.cache.value}" if figures.reuses else "without-reuse"
    cut = " cut" if share > 1 else ""
    label = f"<b>{quantities.seconds(ttft_s)}</b>" if is_labelled else ""
    return (
        f'<span class="chat-bar{cut}" title="{quantities.seconds(ttft_s)}">{label}'
        f'<i class="{kind}" style="--share:{min(share, 1):.3f}"></i><small>{number}</small></span>'
    )
