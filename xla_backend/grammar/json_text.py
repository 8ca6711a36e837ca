"""Regular expressions of JSON text: strings, numbers, literals and formats.

Knows how JSON writes values. Must not know schemas or automata. The expressions are those of Rust's
`regex` crate, without captures, anchors or look-around.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

Ranges = list[tuple[int, int]]
"""Characters as ranges of code points, both ends included, sorted and apart."""

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_SHORT_ESCAPES = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_HEX = "[0-9a-fA-F]"
_LOW_SURROGATE = rf"\\u[dD][c-fC-F]{_HEX}{_HEX}"
_PAIR = rf"[dD][89abAB]{_HEX}{_HEX}{_LOW_SURROGATE}"

CHARACTER = (
    r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF]'
    rf"{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}|{_PAIR})))"
)
"""One character of a string; half of a surrogate pair is none."""
_ESCAPED_BEYOND_ASCII = (
    rf"\\u(?:00[89a-fA-F]{_HEX}|0[1-9a-fA-F]{_HEX}{{2}}|[1-9a-cA-CefEF]{_HEX}{{3}}"
    rf"|[dD][0-7]{_HEX}{{2}}|{_PAIR})"
)
STRING = f'"{CHARACTER}*"'
_EXPONENT = "(?:[eE][+-]?[0-9]{1,2})?"
"""Beyond it lie numbers that many readers do not take."""
INTEGER = "-?(?:0|[1-9][0-9]*)"
NUMBER = rf"{INTEGER}(?:\.[0-9]+)?{_EXPONENT}"
SCALAR = f"(?:{STRING}|{NUMBER}|true|false|null)"
COLON = "[ ]?:[ ]?"
DEEPEST = 12
"""Levels of indentation."""

_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    f"|(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:[Zz]|[+-]{_CLOCK})"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP = f"{_HEX}{{1,4}}"
_IPV6 = "|".join(
    [
        f"(?:{_GROUP}:){{7}}{_GROUP}",
        *(f"(?:{_GROUP}:){{1,{n}}}(?::{_GROUP}){{1,{7 - n}}}" for n in range(1, 7)),
        f"(?:{_GROUP}:){{1,7}}:",
        f":(?:(?::{_GROUP}){{1,7}}|:)",
        f"(?:{_GROUP}:){{6}}{_IPV4}",
        f"::(?:{_GROUP}:){{0,5}}{_IPV4}",
        *(f"(?:{_GROUP}:){{{n}}}:(?:{_GROUP}:){{0,{5 - n}}}{_IPV4}" for n in range(1, 6)),
    ]
)
_DURATION_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION_DATE = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_IN_URI = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_FRAGMENT = f"(?:#{_IN_URI}*)?"
_BEYOND_ASCII = "[\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd]"
_IN_IRI = f"(?:{_IN_URI}|{_BEYOND_ASCII})"
_IRI_REFERENCE = f"{_IN_IRI}*(?:#{_IN_IRI}*)?"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": f"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)",
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "email": rf"{_WORD}(?:\.{_WORD})*@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": f"[A-Za-z][A-Za-z0-9+.-]*:{_IN_URI}*{_FRAGMENT}",
    "uri-reference": f"{_IN_URI}*{_FRAGMENT}",
    "iri": f"[A-Za-z][A-Za-z0-9+.-]*:{_IRI_REFERENCE}",
    "iri-reference": _IRI_REFERENCE,
    "json-pointer": r"(?:/(?:[^~/\x00-\x1f\"\\\\]|~[01])*)*",
}
"""Formats of strings (RFC 3339, 4122, 5321 without quotes, 4291, 3986, 3987, 6901)."""


def literal(text: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def line_break(depth: int) -> str:
    """White space that may contain a line break, at this nesting depth."""
    depth = min(depth, DEEPEST)
    return rf"(?:[ ]|\r?\n(?:[ ]{{0,{4 * depth}}}|\t{{0,{depth}}}))?"


def complement(ranges: Ranges) -> Ranges:
    """All other characters except surrogates."""
    rest, start = [], 0
    for first, last in joined([*ranges, _SURROGATES]):
        if start < first:
            rest.append((start, first - 1))
        start = last + 1
    return [*rest, (start, _LAST)] if start <= _LAST else rest


def other_than(*characters: str) -> str:
    """Any character but these and 0, which begins each text where automata are made."""
    return any_of(complement(joined((ord(each), ord(each)) for each in ("\0", *characters))))


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges sorted, overlaps merged."""
    apart: Ranges = []
    for first, last in sorted(ranges):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = (apart[-1][0], max(apart[-1][1], last))
        else:
            apart.append((first, last))
    return apart


def any_of(ranges: Ranges) -> str:
    """One of these characters, as plain text."""
    spans = "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ranges)
    return f"[{spans}]"


def any_of_in_string(ranges: Ranges) -> str:
    """One of these characters, as a JSON string writes it."""

    def holds(character: int) -> bool:
        return any(first <= character <= last for first, last in ranges)

    special = [(0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\"))]
    plain = complement(joined([*complement(ranges), *special]))
    ways = [any_of(plain)] if plain else []
    ways += [literal(f"\\{way}") for of, way in _SHORT_ESCAPES.items() if holds(ord(of))]
    ways += [literal(f"\\u{of:04x}") for of in range(0x20) if holds(of)]
    if holds(ord("/")):
        ways.append(literal("\\/"))
    if not [1 for first, last in complement(ranges) if last > 0x7F]:
        ways.append(_ESCAPED_BEYOND_ASCII)
    else:
        few = [range(*each) for each in joined(ranges) if each[1] > 0x7F]
        if sum(map(len, few)) < 64:
            ways += [_escaped(of) for each in few for of in [*each, each.stop] if of > 0x7F]
    return f"(?:{'|'.join(ways)})"


def _escaped(character: int) -> str:
    units = chr(character).encode("utf-16-be").hex()
    parts = [units[at : at + 4] for at in range(0, len(units), 4)]
    return "".join(
        r"\\u" + "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in part) for part in parts
    )


@functools.lru_cache(1000)
def _in_string(character: str) -> str:
    return any_of_in_string([(ord(character), ord(character))])


def value(of: Any) -> str:
    """The JSON text of exactly one value that is no array or object."""
    if isinstance(of, str):
        return f'"{"".join(map(_in_string, of))}"'
    return literal(json.dumps(of))


def comma(depth: int) -> str:
    """Between two members of a value so many levels deep."""
    return f"[ ]?,{line_break(depth + 1)}"


def enclosed(opening: str, members: str, closing: str, depth: int) -> str:
    """An array or an object, of the text of all its members."""
    return f"\\{opening}{line_break(depth + 1)}{members}{line_break(depth)}\\{closing}"


def any_value(levels: int, depth: int) -> str:
    """Any JSON value with at most this nesting depth."""
    if not levels:
        return SCALAR
    array = many("[", any_value(levels - 1, depth + 1), "]", depth)
    return f"(?:{SCALAR}|{any_object(levels, depth)}|{array})"


def any_object(levels: int, depth: int) -> str:
    """Any object; its values nest one level less."""
    return many("{", f"{STRING}{COLON}{any_value(levels - 1, depth + 1)}", "}", depth)


def many(opening: str, each: str, closing: str, depth: int) -> str:
    """An array or an object of any number of alike members."""
    return enclosed(opening, f"(?:{each}(?:{comma(depth)}{each})*)?", closing, depth)


# --- numbers within bounds ----------------------------------------------------------------------


def integer(low: int | None, high: int | None) -> str:
    """A whole number from `low` to `high`; None for no bound."""
    ways = []
    if low is None or low < 0:
        least = 1 if high is None or high >= 0 else -high
        if low is None or -low >= least:
            ways.append(f"-{_digits(least, None if low is None else -low)}")
    if high is None or high >= 0:
        ways.append(_digits(max(0, low or 0), high))
    return f"(?:{'|'.join(ways)})"


def _digits(low: int, high: int | None) -> str:
    """A whole number from `low` (0 or more) to `high`, without leading zeros."""
    if high is None:
        size = len(str(low))
        more = f"[1-9][0-9]{{{size},}}"
        return f"(?:{_digits(low, 10**size - 1)}|{more})"
    ways = []
    while low <= high:
        top = min(high, 10 ** len(str(low)) - 1)
        ways.append(_same_length(str(low), str(top)))
        low = top + 1
    return f"(?:{'|'.join(ways)})"


def _same_length(low: str, high: str) -> str:
    if not low.strip("0") and not high.strip("9"):
        return f"[0-9]{{{len(low)}}}" if low else ""
    rest = len(low) - 1
    if low[0] == high[0]:
        return low[0] + _same_length(low[1:], high[1:])
    ways = [low[0] + _same_length(low[1:], "9" * rest)]
    if int(high[0]) - int(low[0]) > 1:
        ways.append(f"[{int(low[0]) + 1}-{int(high[0]) - 1}]" + "[0-9]" * rest)
    ways.append(high[0] + _same_length("0" * rest, high[1:]))
    return f"(?:{'|'.join(ways)})"


def whole(bound: Decimal, *, up: bool, apart: bool) -> int:
    """The nearest whole number within a bound."""
    nearest = int(bound.to_integral_value("ROUND_CEILING" if up else "ROUND_FLOOR"))
    return nearest + (1 if up else -1) if apart and nearest == bound else nearest


Bound = tuple[Decimal, bool]
"""A bound, and whether the number may be equal to it."""


def number(low: Bound | None, high: Bound | None) -> str:
    """A decimal number between bounds, without an exponent; None for no bound."""
    zero = Decimal(0)
    ways = []
    if low is None or low[0] < 0:
        least = (-high[0], high[1]) if high and high[0] <= 0 else (zero, False)
        ways.append(f"-{_decimal(least, (-low[0], low[1]) if low else None)}")
    if high is None or high[0] > 0 or high == (zero, True):
        ways.append(
            _decimal(low if (low and low[0] > 0) or low == (zero, False) else (zero, True), high)
        )
    return f"(?:{'|'.join(way for way in ways if way not in ('', '-'))})"


def _decimal(low: Bound, high: Bound | None) -> str:
    """A number from `low`, which is not below 0; empty where there is none."""
    least, low_digits = _parts(low[0])
    most, high_digits = _parts(high[0]) if high else (None, "")
    ways = []
    for whole in dict.fromkeys(each for each in (least, most) if each is not None):
        from_low = (low_digits, low[1]) if whole == least else None
        to_high = (high_digits, high[1]) if high and whole == most else None
        is_enough, more = _digits_between(from_low, to_high)
        if most is None or least <= most:
            ways += [f"{whole}(?:\\.{more}){'?' * is_enough}"] if more else [str(whole)] * is_enough
    if most is None or least + 1 < most:
        further = _digits(least + 1, None if most is None else most - 1)
        ways.append(further + r"(?:\.[0-9]+)?")
    return f"(?:{'|'.join(ways)})" if ways else ""


def _parts(number: Decimal) -> tuple[int, str]:
    """The whole part, and the digits behind the point without the zeros at their end."""
    whole, _, digits = f"{number:f}".partition(".")
    return int(whole), digits.rstrip("0")


def _digits_between(
    low: tuple[str, bool] | None, high: tuple[str, bool] | None
) -> tuple[bool, str]:
    """Whether no digits behind the point are enough; and other ones, empty where there are none.

    Args:
        low, high: digits without zeros at their end, and whether these may be; None for no bound.
    """
    if low == ("", True):
        low = None
    if high and not high[0]:
        return (True, "0+") if high[1] and low is None else (False, "")
    if low is None and high is None:
        return True, "[0-9]+"
    if low and not low[0] and high is None:
        return False, "[0-9]*[1-9][0-9]*"
    first = int(low[0][:1] or 0) if low else 0
    last = int(high[0][0]) if high else 9
    ways = []
    for digit in dict.fromkeys((first, last)) if first <= last else ():
        is_enough, more = _digits_between(
            (low[0][1:], low[1]) if low and digit == first else None,
            (high[0][1:], high[1]) if high and digit == last else None,
        )
        ways += [f"{digit}(?:{more}){'?' * is_enough}"] if more else [str(digit)] * is_enough
    if first + 1 < last:
        ways.append(f"[{first + 1}-{last - 1}][0-9]*")
    return low is None, f"(?:{'|'.join(ways)})" if ways else ""
