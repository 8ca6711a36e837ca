"""Short stories for children, invented from a small world, with questions about them.

Knows how the steps of `stories.toml` become a story.

A seed gives one story of a split, "train" or "held-out". The combination (kind of hero, topic,
place) decides about the split by its hash: one in ten is held out, and no training story has it.
"""

from __future__ import annotations

import hashlib
import random
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

WORLD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
LISTS = {name: " ".join(text.split()).split(", ") for name, text in WORLD["lists"].items()}
OBJECTS = [
    [noun, adjectives]
    for nouns, adjectives in WORLD["tables"]["objects"]
    for noun in nouns.split(", ")
]
TABLES = {
    **{name: [[phrase] for phrase in phrases] for name, phrases in LISTS.items()},
    **WORLD["tables"],
    "objects": OBJECTS,
}
A_BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=honest|(?!uni|one)[aeiou])")


class Question(NamedTuple):
    """One fact of a story: ways to ask for it, and the short answer."""

    forms: tuple[str, ...]
    answer: str


class Story(NamedTuple):
    """A story, questions about it, and equivalent summaries of one sentence."""

    text: str
    questions: tuple[Question, ...]
    summaries: tuple[str, ...]


class _Words(dict[str, str]):
    """The words to be filled in; `{He}` is `{he}` with a capital letter."""

    def __missing__(self, key: str) -> str:
        value = self[key[0].lower() + key[1:]]
        return value[0].upper() + value[1:]


class _Scene:
    """A story while it is being written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.words = _Words()
        self.sentences: list[str] = []
        self.questions: list[Question] = []

    def fill(self, form: str) -> str:
        """The form with its words, and "an" where the next word needs it."""
        return A_BEFORE_VOWEL.sub(r"\1n ", form.format_map(self.words))

    def put(self, columns: Sequence[str], row: Sequence[str]) -> None:
        """Words for the slots named by `columns`."""
        self.words |= zip(columns, map(self.fill, row), strict=True)

    def kind(self, she: bool) -> str:
        pools = ("animals", "people", "magical", "girls" if she else "boys")
        return self.rng.choice(LISTS[self.rng.choices(pools, (55, 12, 15, 18))[0]])

    def enter(self, who: str, prefix: str, kind: str, she: bool) -> None:
        """A character of this kind gets a name, a trait and pronouns."""
        self.words[who] = self.rng.choice(LISTS["girl_names" if she else "boy_names"])
        trait = "little" if self.rng.random() < 0.2 else self.rng.choice(LISTS["traits"])
        pronouns = ("she", "her", "her") if she else ("he", "him", "his")
        columns = [f"{prefix}{part}" for part in ("kind", "trait", "he", "him", "his")]
        self.put((*columns, f"a_{who}"), (kind, trait, *pronouns, f"a {trait} {kind}"))

    def write(self, forms: Sequence[str]) -> None:
        self.sentences.append(self.fill(self.rng.choice(forms)))

    def follow(self, steps: Sequence[Any]) -> None:
        """Writes steps of the form that the head of `stories.toml` explains."""
        for step in steps:
            match step:
                case str():
                    self.follow(WORLD[step])
                case dict():
                    for texts in step.values():
                        answer, *forms = map(self.fill, texts)
                        self.questions.append(Question(tuple(forms), answer))
                case [float(chance), *forms]:
                    if self.rng.random() < chance:
                        self.write(forms)
                case _:
                    self.write(step)


def is_held_out(*combination: str) -> bool:
    """Whether stories with this (kind of hero, topic, place) are held out of training."""
    digest = hashlib.sha256("|".join(combination).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 10 == 0


def write_story(seed: int, split: str = "train") -> Story:
    """The story of this seed in one split.

    >>> write_story(12, "held-out").text[:52]
    'A little pony named Alfie lived near a stone bridge.'
    """
    rng = random.Random(f"{split}:{seed}")
    scene = _Scene(rng)
    while True:
        she = rng.random() < 0.5
        kind = scene.kind(she)
        plot = rng.choice(tuple(WORLD["plots"].values()))
        table, *columns = plot["topic"]
        topic = rng.choice(TABLES[table])
        at, place, adjectives = rng.choice(TABLES["places"])
        if is_held_out(kind, topic[0], place) == (split == "held-out") and kind != topic[0]:
            break
    scene.enter("hero", "", kind, she)
    # The other one has the other pronoun, so that "he" and "she" are never in doubt, and is of
    # another kind, so that "the fox" is not either.
    other = topic[0] if "pal_kind" in columns else scene.kind(not she)
    while other == kind:
        other = scene.kind(not she)
    scene.enter("pal", "pal_", other, not she)
    scene.put(["where"], [f"{at} a {rng.choice(adjectives.split(', '))} {place}"])

    [(_, is_dated, opening)] = rng.choices(WORLD["openings"], [row[0] for row in WORLD["openings"]])
    scene.put(["when"], [rng.choice(LISTS["later_times" if is_dated else "times"])])
    scene.follow([[opening], "opening"])
    if rng.random() < 0.45:
        scene.put(["pastime"], [rng.choice(LISTS["pastimes"])])
        scene.follow(["pastime"])
    if table == "objects":
        topic = [topic[0], rng.choice(topic[1].split(", "))]
    scene.put(columns, topic)
    for drawn, *names in plot.get("draw", ()):
        scene.put(names, rng.choice(TABLES[drawn]))
    scene.follow(plot["steps"])
    lesson = rng.choice(plot["lessons"])
    if rng.random() < 0.6:
        scene.put(["lesson"], [lesson])
        scene.follow(["lesson"])
    scene.follow(["farewell"])
    summaries = tuple(map(scene.fill, plot["summaries"]))
    return Story(" ".join(scene.sentences), tuple(scene.questions), summaries)
