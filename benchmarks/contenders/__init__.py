"""The requests of every contender. Their own environments import this, so it needs no package."""

from __future__ import annotations

from dataclasses import dataclass

THREADS = 2
"""Threads of every contender: the cores of the free hardware that the page is meant for."""


@dataclass(frozen=True)
class Request:
    """One generation, the same for all contenders."""

    ids: tuple[int, ...]  # the prompt's tokens
    new_tokens: int  # number of new tokens. No text may end earlier.
    num_beams: int = 1  # 1 is greedy search


LIKELY = 20
"""How many tokens `likely` gives for each position: as many as this engine and llama.cpp report."""

Likely = list[list[tuple[int, float]]]
"""For each position of some tokens: the `LIKELY` most likely next ones, best first, with the
natural logarithms of their probabilities."""
