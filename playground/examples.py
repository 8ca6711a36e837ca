"""The examples of the Playground tab: requests worth clicking, each showing one thing.

Knows prompts and options. Must not know components.
"""

from __future__ import annotations

from dataclasses import dataclass

from xla_backend import GenerationOptions

DEFAULTS = GenerationOptions(max_new_tokens=96, temperature=0.7)


@dataclass(frozen=True)
class Example:
    """A request with the name of what it shows."""

    name: str
    prompt: str
    options: GenerationOptions


EXAMPLES = (
    Example("A short opening", "Once upon a time", DEFAULTS),
    Example(
        "Same shape, other words",
        "One day a small rabbit",
        DEFAULTS.replace(seed=3),
    ),
    Example(
        "Longer prompt, new shape",
        "Once upon a time there was a little fox who lived near the river with his sister. "
        "He had a red kite, and he wanted to fly it on the hill. But one morning",
        DEFAULTS,
    ),
    Example(
        "Four beams, new shape",
        "Once upon a time",
        DEFAULTS.replace(num_beams=4, temperature=0.0),
    ),
    Example(
        "Bolder, same shape",
        "Once upon a time",
        DEFAULTS.replace(temperature=1.2, top_p=0.95, seed=7),
    ),
)
