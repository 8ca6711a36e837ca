"""Read a story back and say what contradicts itself in it.

Knows: the words of the story world, and the rules that every true story keeps.
Must not know: which model wrote the text.
"""

from __future__ import annotations

import re
from functools import cache

from demo_models import story_words as world
from demo_models.stories import tell

WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
NAMES = dict.fromkeys(world.GIRL_NAMES, "she") | dict.fromkeys(world.BOY_NAMES, "he")
PRONOUNS = {"she": "she", "her": "she", "he": "he", "him": "he", "his": "he"}
KINDS = {
    *world.ANIMALS,
    *world.PEOPLE,
    *world.GIRLS,
    *world.BOYS,
    *world.MAGICAL,
    *world.SCARY_KINDS,
}
OBJECTS = {noun for noun, _ in world.OBJECTS} - {"key"}  # a locked gate comes with its key
_KIND = "|".join(sorted(KINDS))
_NAME = "|".join(sorted(NAMES))
# The ways in which a story says what somebody is; each gives a name and a kind.
_IS_A = [
    re.compile(form.format(name=rf"(?P<name>{_NAME})", kind=rf"(?P<kind>{_KIND})"))
    for form in (
        r"\b{name} the {kind}\b",
        r"\b{name} was an? \w+ {kind}\b",
        r"\b{name}, an? \w+ {kind}\b",
        r"\b{kind} (?:named|called) {name}\b",
    )
]
# "His name was Pip" may come before the name is known.
_NAME_FOLLOWS = re.compile(r"\b(?:His|Her) name was|\bwith his|\bwith her")
KNOWN_WORDS_STORIES = 20_000


def words(text: str) -> list[str]:
    """The words of a text in lower case; a number or any other script counts as a word too.

    >>> words('"Oh no!" said Pip.')
    ['oh', 'no', 'said', 'pip']
    """
    return [word.lower() for word in re.findall(r"[^\W_]+(?:'[a-z]+)?", text)]


@cache
def known_words() -> frozenset[str]:
    """Every word of the training stories (sampled until no new one turns up)."""
    return frozenset(word for seed in range(KNOWN_WORDS_STORIES) for word in words(tell(seed).text))


def unknown_words(text: str, is_cut: bool = False) -> list[str]:
    """The words of a text that no training story has; the last is ignored where it may be cut."""
    found = words(text)
    if is_cut and text and text[-1].isalnum():
        found = found[:-1]
    return [word for word in found if word not in known_words()]


def contradictions(text: str) -> list[str]:
    """What a careful reader would object to, in words; an empty list for a consistent story.

    A story has at most two named characters, each of one kind; a pronoun needs someone it can
    stand for; "the kite" needs a kite that was mentioned before.
    """
    found = []
    names = list(dict.fromkeys(word for word in WORD.findall(text) if word in NAMES))
    if len(names) > 2:
        found.append(f"{len(names)} names: {', '.join(names)}")
    kinds: dict[str, set[str]] = {}
    for form in _IS_A:
        for match in form.finditer(text):
            kinds.setdefault(match["name"], set()).add(match["kind"])
    found += [f"{name} is {' and '.join(sorted(k))}" for name, k in kinds.items() if len(k) > 1]
    return found + _loose_words(text)


def _loose_words(text: str) -> list[str]:
    """Pronouns and objects that refer to nobody and nothing."""
    found = []
    present: set[str] = set()
    mentioned: set[str] = set()
    previous = ""
    for match in WORD.finditer(text):
        word = match.group()
        lower = word.lower()
        if word in NAMES:
            present.add(NAMES[word])
        elif lower in PRONOUNS and PRONOUNS[lower] not in present:
            if _NAME_FOLLOWS.match(text, match.start()):
                present.add(PRONOUNS[lower])
            else:
                found.append(f"nobody is {lower!r}")
        elif lower in OBJECTS:
            if previous == "the" and lower not in mentioned:
                found.append(f"no {lower} was mentioned before")
            mentioned.add(lower)
        previous = lower
    return found
