"""The tokens of a run, as HTML: every slot of the compiled shape, new tokens shaded by probability.

Knows how a token, a probability and an empty slot look. Must not know components or events.
"""

from __future__ import annotations

import json
import math
import re

from playground.context.runs import Shown
from playground.ui import quantities
from playground.ui.families import CONTINUING, Family
from playground.ui.markup import escape
from xla_backend import GenerationResult, Token

# From 90%, from 50%, from 20%, from 5%, and below; the style is `likely-4` to `likely-0`.
_BOUNDS = (0.9, 0.5, 0.2, 0.05)
_SHADES = ("90% or more", "from 50%", "from 20%", "from 5%", "below 5%")
_MAX_CELLS = 256
_TOP_SHOWN = 5
_SPECIAL = re.compile(r"<\|[^|>]*\|>|</?[a-z_0-9]+>")
_SAME_PASS = (
    "It came of the same pass of the model as the token before it, which was guessed right."
)
_HINT = "Point at a token, tap it or use the arrow keys to see what the model found likely there."

# The Tab key stops once for all tokens; the arrow keys move between them.
SCRIPT = """
const tokens = () => [...element.querySelectorAll("button.token")];
const find = (event) => event.target.closest?.("button.token");
const part = (name) => element.querySelector(".token-" + name);
let pinned = null;

const add = (parent, tag, style, text) => {
  const child = document.createElement(tag);
  child.className = style;
  child.textContent = text;
  parent.append(child);
  return child;
};
const show = (token) => {
  const popover = part("popover");
  if (part("detail").textContent !== token.dataset.detail) {
    part("detail").textContent = token.dataset.detail;
    const list = popover.querySelector("ol");
    list.replaceChildren();
    for (const [text, share, width, isChosen] of JSON.parse(token.dataset.topLogprobs)) {
      const row = add(list, "li", isChosen ? "chosen" : "", "");
      add(row, "bdi", "", text);
      add(add(row, "span", "bar", ""), "i", "", "").style.width = width + "%";
      add(row, "b", "", share);
    }
    popover.querySelector(".token-place").textContent = token.dataset.place;
  }
  popover.hidden = false;
  const [view, box] = [popover.parentElement, token].map((each) => each.getBoundingClientRect());
  const most = view.width - popover.offsetWidth;
  const isBelow = box.bottom + popover.offsetHeight + 6 < innerHeight || box.top < 300;
  popover.style.left = Math.max(0, Math.min(most, box.left - view.left)) + "px";
  popover.style.top =
    (isBelow ? box.bottom + 6 : box.top - popover.offsetHeight - 6) - view.top + "px";
};
const hide = () => {
  pinned = null;
  if (part("popover")) part("popover").hidden = true;
};
for (const name of ["focusin", "click"]) {
  element.addEventListener(name, (event) => {
    if (!find(event)) return;
    pinned = find(event);
    show(pinned);
  });
}
element.addEventListener("mousemove", (event) => {
  // The box scrolled under a resting mouse: nobody is pointing at anything.
  if (!event.movementX && !event.movementY) return;
  if (find(event)) show(find(event));
  else if (pinned?.isConnected) show(pinned);
  else if (!event.target.closest(".token-popover")) hide();
});
element.addEventListener("mouseleave", () => (pinned?.isConnected ? show(pinned) : hide()));
element.addEventListener("focusout", hide);
element.addEventListener("scroll", hide, true);
document.addEventListener("pointerdown", (event) => {
  if (!element.contains(event.target)) hide();
});
element.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
  const token = find(event);
  if (!token || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = tokens();
  const at = all.indexOf(token);
  const rtl = getComputedStyle(token.parentElement).direction === "rtl";
  const next = {
    ArrowRight: at + (rtl ? -1 : 1), ArrowLeft: at - (rtl ? -1 : 1),
    ArrowDown: at + 10, ArrowUp: at - 10, Home: 0, End: all.length - 1,
  }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const chosen = all[Math.max(0, Math.min(all.length - 1, next))];
  token.tabIndex = -1;
  chosen.tabIndex = 0;
  // Scroll first: scrolling hides the popover.
  chosen.scrollIntoView({ block: "nearest" });
  requestAnimationFrame(() => requestAnimationFrame(() => chosen.focus({ preventScroll: true })));
});
"""


def empty_token_view(family: Family = CONTINUING) -> str:
    """The box before the first run."""
    return _view(
        f'<p class="nothing">The tokens of the {family.output} appear here when it is finished.</p>'
    )


def token_view(shown: Shown, family: Family = CONTINUING) -> str:
    """Every slot of the compiled shape: padding, prompt, new tokens, unused slots."""
    result = shown.result
    padding = 0 if result.key.is_pooled else result.key.padded_length - result.prompt_tokens
    given = [_slots("padding", max(0, padding), "padding"), _prompt(result, family.input)]
    if not family.pads_left:
        given.reverse()
    room = 0 if result.key.is_pooled else result.key.max_new_tokens - result.new_tokens
    unused = max(0, room)
    guessed = ""
    if any(token.in_same_pass for token in result.tokens):
        guessed = " <small>underlined: in one pass with the token before</small>"
    return _view(
        f'<div class="token-given">{"".join(given)}</div>'
        f'<figure class="token-slots"><figcaption>{result.new_tokens:,} new{guessed}'
        "</figcaption>"
        '<div class="tokens" role="group" dir="auto" translate="no" aria-label="New tokens">'
        f"{_new(result)}</div></figure>"
        f'<div class="token-given">{_slots("room", unused, "unused")}</div>'
    )


def probability(token: Token) -> float:
    """The probability, 0 to 1, that the model gave the token; rounding never takes it above 1."""
    return _share(token.logprob)


def percent(share: float) -> str:
    """A probability as a percentage; "100%" only for exactly 1."""
    if share >= 1.0:
        return "100%"
    if share > 0.999:
        return "over 99.9%"
    if share < 0.0001:
        return "under 0.01%"
    digits = 2 if share < 0.001 else 1 if share < 0.1 or share >= 0.995 else 0
    return f"{share * 100:.{digits}f}%"


def visible(text: str) -> str:
    """A token with whitespace made visible: ␣ space, ↵ line break, ⇥ tab."""
    named = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽", "": "∅"}
    if not text:
        return named[""]
    return "".join(
        named.get(sign) or (sign if sign.isprintable() else f"U+{ord(sign):04X}") for sign in text
    )


def _view(box: str) -> str:
    """The box, the legend below it, and the popover of one token.

    A live region says the same to screen readers.
    """
    return (
        f'<div class="token-view"><div class="token-box">{box}</div>'
        f'<p class="token-hint">{_HINT}</p>{_legend()}'
        '<p class="token-detail" aria-live="polite"></p>'
        '<div class="token-popover" aria-hidden="true" hidden>'
        "<p>The most likely in this place</p>"
        '<ol translate="no"></ol><p class="token-place"></p></div></div>'
    )


def _share(logprob: float) -> float:
    return min(1.0, math.exp(logprob))


def _prompt(result: GenerationResult, label: str) -> str:
    """The prompt's tokens with their texts, in the slots that padding leaves free."""
    if not result.prompt_texts:
        return _slots("prompt", result.prompt_tokens, label)
    shown = result.prompt_texts[:_MAX_CELLS]
    texts = "".join(f'<span class="token given">{_marked(text)}</span>' for text in shown)
    over = len(result.prompt_texts) - len(shown)
    more = f"<small>… {over:,} more</small>" if over else ""
    return (
        f'<figure class="token-slots"><figcaption>{result.prompt_tokens:,} {label}</figcaption>'
        f'<div class="tokens" dir="auto" translate="no">{texts}{more}</div></figure>'
    )


def _new(result: GenerationResult) -> str:
    if not result.tokens:
        return '<p class="nothing">No token was written.</p>'
    return "".join(
        _token(token, place, result.new_tokens) for place, token in enumerate(result.tokens)
    )


def _token(token: Token, place: int, of: int) -> str:
    share = probability(token)
    shade = sum(share >= bound for bound in _BOUNDS)
    is_special = _SPECIAL.fullmatch(token.text) is not None
    kind = ", a special token" if is_special else ""
    if "\ufffd" in token.text:
        kind = ", part of a character"
    where = (
        f"Token {place + 1} of {of}, number {token.id} in the vocabulary, "
        f"log probability {token.logprob:.3g}."
    )
    if token.in_same_pass:
        where += f" {_SAME_PASS}"
    detail = f"“{visible(token.text)}”{kind}: {percent(share)} likely. {where}"
    rows = [
        (visible(text), percent(_share(logprob)), round(100 * _share(logprob)), id == token.id)
        for id, text, logprob in token.top_logprobs[:_TOP_SHOWN]
    ]
    if rows:
        named = ", ".join(f"“{text}” {of_it}" for text, of_it, *_ in rows)
        detail += f" The most likely in this place: {named}."
    if not any(is_chosen for *_, is_chosen in rows):
        rows.append((visible(token.text), percent(share), round(100 * share), True))
    styles = f"token likely-{shade}{' special' if is_special else ''}"
    styles += " same-pass" if token.in_same_pass else ""
    button = (
        f'<button type="button" class="{styles}" tabindex="{-1 if place else 0}" '
        f'data-detail="{escape(detail)}" data-place="{escape(where)}" '
        f'data-top-logprobs="{escape(json.dumps(rows))}">{_marked(token.text)}</button>'
    )
    return button + "<br>" * (0 if is_special else min(2, token.text.count("\n")))


def _marked(text: str) -> str:
    """The token's text, with whitespace signs in a lighter style."""
    parts = re.findall(r"\S+|\s", text) if text else [""]
    return "".join(
        f"<i>{escape(visible(part))}</i>" if part.isspace() or not part else escape(visible(part))
        for part in parts
    )


def _slots(style: str, number: int, label: str) -> str:
    """Slots without text: one box each, or one box for all if there are too many."""
    if not number:
        return ""
    cells = min(number, _MAX_CELLS)
    box = f'<i class="slot slot-{style}"></i>' * cells
    more = f"<span>… {number - cells:,} more</span>" if number > cells else ""
    name = quantities.count(number, "slot")
    return (
        f'<figure class="token-slots"><figcaption>{number:,} {label}</figcaption>'
        f'<div class="slots" role="img" aria-label="{name}: {label}">{box}{more}</div></figure>'
    )


def _legend() -> str:
    keys = "".join(
        f'<li><i class="likely-{len(_SHADES) - 1 - place}"></i><span>{name}</span></li>'
        for place, name in enumerate(_SHADES)
    )
    return (
        '<p class="caption">Probability of each new token, before temperature, filters and '
        f'penalties</p><ul class="legend token-legend">{keys}</ul>'
    )
