"""What can be compared, and how a visitor's choice becomes variants.

Knows the kinds of comparison and how an option set is written in one line. Must not know components
or HTML.
"""

import ast
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from playground.tabs.compare.runs import MAX_VARIANTS, Variant
from xla_backend import GenerationOptions, InvalidRequest, TokenIds

WAYS, MODELS, OPTIONS, SHAPES = "ways", "models", "options", "shapes"
KINDS = [
    ("This engine and Transformers", WAYS),
    ("Models", MODELS),
    ("Option sets", OPTIONS),
    ("Buckets or one shape", SHAPES),
]
LENGTHS = 10
LONGEST = 512
"""Tokens of the longest of the prompts: with more, a comparison would last too long."""
SHAPE_CALLS = 3
"""Later calls of each way at each length."""
OPTION_SETS = {
    "Sampling": """temperature=0
temperature=0.7, seed=1
temperature=1.2, top_p=0.9, seed=1
num_beams=4, length_penalty=2""",
    "Numbers of beams": """num_beams=1
num_beams=2
num_beams=4
num_beams=8""",
}
"""Those to begin with, by what a button says."""

_PAIR = re.compile(r"\s*(\w+)\s*=\s*([^,\s]+)\s*")


def of_models(models: Sequence[str], max_new_tokens: int) -> list[Variant]:
    """The same request to other models.

    Raises:
        InvalidRequest: fewer than two, or too many, are chosen.
    """
    options = GenerationOptions(max_new_tokens=max_new_tokens)
    return _checked([Variant(Path(model).name, model, options) for model in models], "models")


def of_shapes(
    model: str, ids: Sequence[int], max_new_tokens: int, context_length: int
) -> list[Variant]:
    """Ten prompts of growing length, each through its bucket and as a row of the pool, in turn.

    Args:
        model, max_new_tokens: what is asked.
        ids: the tokens of a prompt; they are repeated as often as it takes.
        context_length: of the model.

    Raises:
        InvalidRequest: there is no room for ten lengths.
    """
    room = min(LONGEST, context_length - max_new_tokens)
    if room < LENGTHS:
        raise InvalidRequest(
            f"The model's context of {context_length} tokens has no room for {LENGTHS} prompts of "
            f"different lengths beside {max_new_tokens} new tokens. Choose fewer new tokens."
        )
    options = GenerationOptions(max_new_tokens=max_new_tokens)
    repeated = tuple(itertools.islice(itertools.cycle(ids), room))
    return [
        Variant(f"{number}", model, options, TokenIds(repeated[:tokens]), is_pooled)
        for number in range(1, LENGTHS + 1)
        for tokens in [room * number // LENGTHS]
        for is_pooled in (False, True)
    ]


def of_option_sets(model: str, lines: str, max_new_tokens: int) -> list[Variant]:
    """The same request with other options, one set a line: `temperature=0.7, top_k=20`.

    A set may name `max_new_tokens` too, and then has its own.

    Raises:
        InvalidRequest: a line cannot be read, an option is unknown or out of range, or there are
            fewer than two lines, or too many.
    """
    variants = []
    for number, line in enumerate(filter(None, map(str.strip, lines.splitlines())), start=1):
        try:
            values = {"max_new_tokens": max_new_tokens} | _values(line)
            variants.append(Variant(line, model, GenerationOptions.from_dict(values)))
        except InvalidRequest as error:
            raise InvalidRequest(f"Option set {number}: {error}") from None
    return _checked(variants, "option sets")


def _values(line: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for part in line.split(","):
        pair = _PAIR.fullmatch(part)
        if pair is None:
            raise InvalidRequest(
                f"{part.strip()[:40]!r} cannot be read. Write options like temperature=0.7, "
                "with commas between them."
            )
        values[pair[1]] = _value(pair[2])
    return values


def _value(word: str) -> object:
    """A number or a boolean as Python or JSON write it; otherwise the word itself."""
    truths = {"true": True, "false": False}
    if word.lower() in truths:
        return truths[word.lower()]
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def _checked(variants: list[Variant], what: str) -> list[Variant]:
    if not 2 <= len(variants) <= MAX_VARIANTS:
        raise InvalidRequest(
            f"Choose two to {['', '', 'two', 'three', 'four'][MAX_VARIANTS]} {what} to compare; "
            f"there {'is' if len(variants) == 1 else 'are'} {len(variants)}."
        )
    return variants
