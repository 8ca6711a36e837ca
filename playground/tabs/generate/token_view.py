"""The tokens of a run, as HTML: every slot of the compiled shape, new tokens shaded by probability.

Knows how a token, a probability and an empty slot look. Must not know components or events.
"""

import math
import re

import htpy as h

from playground.context.runs import Shown
from playground.tabs.generate.in_words import read_again
from playground.ui import quantities
from playground.ui.charts import legend
from playground.ui.markup import nothing, rendered, with_note
from playground.ui.wording import CONTINUING, Wording
from xla_backend import GenerationResult, Token, TopLogprob

# From 90%, from 50%, from 20%, from 5%, and below; the style is `likely-4` to `likely-0`.
_BOUNDS = (0.9, 0.5, 0.2, 0.05)
_SHADES = ("90% or more", "from 50%", "from 20%", "from 5%", "below 5%")
_MAX_CELLS = 256
_TOP_SHOWN = 5
_MUCH = 0.5
"""From this probability of forbidden tokens on, the model would rather have written one of them."""
_MARKS = {
    "same-pass": "underlined: in one pass with the token before",
    "forced": "hatched: the form left no other text",
    "diverted": "framed: the model would rather have written what the form forbids",
}
_SPECIAL = re.compile(r"<\|[^|>]*\|>|</?[a-z_0-9]+>")
_SAME_PASS = "It came from the same pass of the model as the token before it, by a correct guess."
_HINT = "Point at a token, tap it or use the arrow keys to see the most likely tokens there."


@rendered
def empty_token_view() -> h.Node:
    """The box before the first run."""
    return _view(nothing("The tokens appear here when the text is finished."))


@rendered
def token_view(shown: Shown, wording: Wording = CONTINUING) -> h.Node:
    """Every slot of the compiled shape: padding, prompt, new tokens, unused slots."""
    result, key = shown.result, shown.result.key
    padding = 0 if key.is_pooled else max(0, key.padded_length - result.prompt_tokens)
    given = [_slots("padding", padding, "padding"), _prompt(result, wording.input)]
    if not wording.pads_left:
        given.reverse()
    unused = 0 if key.is_pooled else max(0, key.max_new_tokens - result.new_tokens)
    marks = {mark for token in result.tokens for mark in _marks(token)}
    note = "; ".join(_MARKS[mark] for mark in _MARKS if mark in marks)
    new = h.div(".tokens", role="group", dir="auto", translate="no", aria_label="New tokens")
    return _view(
        [
            h.div(".token-given")[given],
            h.figure(".token-slots")[
                h.figcaption[with_note(f"{result.new_tokens:,} new", note)], new[_new(result)]
            ],
            h.div(".token-given")[_slots("room", unused, "unused")],
        ]
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


def _view(box: h.Node) -> h.Element:
    """The box, the legend below it, and the popover of one token.

    A live region says the same to screen readers.
    """
    last = len(_SHADES) - 1
    return h.div(".token-view")[
        h.div(".token-box")[box],
        h.p(".token-hint")[_HINT],
        h.p(".caption")["Probability of each new token, before temperature, filters and penalties"],
        legend(
            ((f"likely-{last - place}", name) for place, name in enumerate(_SHADES)), "token-legend"
        ),
        h.p(".token-detail", aria_live="polite"),
        h.div(".token-popover", aria_hidden="true", hidden=True)[
            h.p["The most likely in this place"], h.ol(translate="no"), h.p(".token-place")
        ],
    ]


def _share(logprob: float) -> float:
    return min(1.0, math.exp(logprob))


def _prompt(result: GenerationResult, label: str) -> h.Node:
    """The prompt's tokens with their texts, in the slots that padding leaves free."""
    if not result.prompt_texts:
        return _slots("prompt", result.prompt_tokens, label)
    miss, length = result.prefix_miss, len(result.prompt_texts)
    parts_at = miss.place if miss and miss.tokens else None
    first = min(max(0, (parts_at or 0) - _MAX_CELLS // 2), max(0, length - _MAX_CELLS))
    last = min(length, first + _MAX_CELLS)

    def given(place: int) -> h.Node:
        is_cached, is_place = place < result.cached_tokens, place == parts_at
        return h.span(
            class_=["token given", is_cached and "cached", is_place and "parted"],
            title=(is_place and read_again(miss)) or (is_cached and "Cached, not read again"),
        )[_marked(result.prompt_texts[place])]

    cached = f"{result.cached_tokens:,} of them cached" if result.cached_tokens else ""
    return h.figure(".token-slots")[
        h.figcaption[with_note(f"{result.prompt_tokens:,} {label}", cached)],
        h.div(".tokens", dir="auto", translate="no")[
            first > 0 and h.small[f"{first:,} before … "],
            map(given, range(first, last)),
            last < length and h.small[f"… {length - last:,} more"],
        ],
        parts_at is not None and h.p(".caption")[read_again(miss)],
    ]


def _new(result: GenerationResult) -> h.Node:
    if not result.tokens:
        return nothing("No token was written.")
    return [_token(token, place, result.new_tokens) for place, token in enumerate(result.tokens)]


def _token(token: Token, place: int, of: int) -> h.Node:
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
    if token.is_forced:
        where += " The form left no other text."
    if token.in_same_pass:
        where += f" {_SAME_PASS}"
    detail = f"“{visible(token.text)}”{kind}: {percent(share)} likely. {where}"
    if token.forbidden:
        where += f" The form forbade tokens that were {percent(token.forbidden)} likely together."
    rows = [
        (visible(top.text), *_bar(top), _style(top, token))
        for top in token.top_logprobs[:_TOP_SHOWN]
    ]
    if rows:
        named = ", ".join(
            f"“{text}” {of_it}{' (forbidden)' if style == 'forbidden' else ''}"
            for text, of_it, _, style in rows
        )
        detail += f" The most likely in this place: {named}."
    if not any(style == "chosen" for *_, style in rows):
        rows.append((visible(token.text), *_bar(token), "chosen"))
    button = h.button(
        class_=[f"token likely-{shade}", is_special and "special", *_marks(token)],
        type="button",
        tabindex="-1" if place else "0",
        data_detail=detail,
        data_place=where,
        # No field holds a tab or a line break: `visible` replaces both.
        data_top_logprobs="\n".join("\t".join(map(str, row)) for row in rows),
    )
    line_breaks = 0 if is_special else min(2, token.text.count("\n"))
    return button[_marked(token.text)], [h.br] * line_breaks


def _marks(token: Token) -> list[str]:
    is_marked = {
        "same-pass": token.in_same_pass,
        "forced": token.is_forced,
        "diverted": token.forbidden >= _MUCH,
    }
    return [mark for mark, is_so in is_marked.items() if is_so]


def _bar(token: Token | TopLogprob) -> tuple[str, int]:
    share = _share(token.logprob)
    return percent(share), round(100 * share)


def _style(top: TopLogprob, chosen: Token) -> str:
    if top.id == chosen.id:
        return "chosen"
    return "forbidden" if top.is_forbidden else ""


def _marked(text: str) -> h.Node:
    """The token's text, with whitespace signs in a lighter style."""
    parts = re.findall(r"\S+|\s", text) if text else [""]
    return [h.i[visible(part)] if part.isspace() or not part else visible(part) for part in parts]


def _slots(style: str, number: int, label: str) -> h.Node:
    """Slots without text: one box each, or one box for all if there are too many."""
    if not number:
        return None
    cells = min(number, _MAX_CELLS)
    name = quantities.count(number, "slot")
    return h.figure(".token-slots")[
        h.figcaption[f"{number:,} {label}"],
        h.div(".slots", role="img", aria_label=f"{name}: {label}")[
            [h.i(f".slot.slot-{style}")] * cells,
            number > cells and h.span[f"… {number - cells:,} more"],
        ],
    ]
