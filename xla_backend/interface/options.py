"""`GenerationOptions`: a request's options, checked before anything is compiled.

Knows their names, ranges and meanings (those of Hugging Face's `GenerationConfig`). Must not know
models, tokens or TensorFlow: the page's process imports this module.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xla_backend.interface.errors import InvalidRequest

AudioInput = str | os.PathLike | tuple[int, np.ndarray]
"""A recording: a file's path, or (rate in Hz, samples) with samples (n,) or (n, channels)."""
DEFAULT_MAX_SECONDS = 600.0
"""Default bound on the length of a recording, in seconds."""
MAX_NEW_TOKENS = 8192
"""What a model has no room for is not generated: the text ends there."""
WINDOW_TOKENS = 224
"""Default `max_new_tokens` of a window of a recording: Whisper's own program allows as many for 30
seconds of speech. A larger bound makes every token slower."""
MAX_NUM_BEAMS = 8
MAX_TOP_K = 1_000_000
MAX_SEED = 2**31 - 1
MAX_BIASED_TOKENS = 300
MAX_STOPS = 4
MAX_DRAFTS = 7
"""Of `prompt_lookup_num_tokens`: a pass with more rows takes much longer than one with a few."""
MAX_STOP_CHARACTERS = 100


@dataclass(frozen=True)
class GenerationOptions:
    """Options of one generation. Sampling is on exactly when `temperature` is above 0.

    Attributes:
        max_new_tokens: upper bound of generated tokens, 1 to 8192; a text also ends where
            the model's context does.
        num_beams: number of beams, 1 to 8; 1 is greedy search or plain sampling.
        temperature: divides the logits before sampling, up to 100; 0 (default) is greedy.
        top_k: when sampling, keep only the k most likely tokens; 0 keeps all.
        top_p: when sampling, keep the most likely tokens whose probabilities first add up to
            `top_p`, above 0 up to 1; 1 keeps all.
        min_p: when sampling, keep only tokens at least `min_p` times as likely as the most likely,
            0 to 1; 0 keeps all.
        repetition_penalty: above 1 makes tokens that already occurred less likely, 0.01 to 100.
        presence_penalty: subtracted from the logits of tokens that were generated, -2 to 2.
        frequency_penalty: the same, times how often they were generated, -2 to 2.
        logit_bias: pairs of a token id and what is added to its logit, -100 to 100, for at most 300
            tokens, sorted. Any mapping can be given; its ids may be text, as in JSON.
        length_penalty: exponent on the length by which beam scores are divided, -10 to 10;
            above 0 favours longer texts. Beam search only.
        early_stopping: True stops as soon as `num_beams` texts are finished, False when a better
            one is unlikely, "never" when a better one is impossible. Beam search only.
        seed: of sampling, 0 to 2**31 - 1; the same seed gives the same text.
        stop: the text ends before the first of these strings that it contains, and without it: at
            most four, of 1 to 100 characters. A single string can be given as it is.
        prompt_lookup_num_tokens: how many tokens are guessed at a time, 0 to 7, from where the last
            ones occurred before in the prompt or the text, and verified together: the same text
            sooner, where it repeats what is there. 0 guesses none. One beam, and decoder-only
            models.

    Raises:
        InvalidRequest: an option has a wrong type or is out of range; the message names the option,
            the range and the value.
    """

    max_new_tokens: int = 32
    num_beams: int = 1
    temperature: float = 0.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    seed: int = 0
    stop: tuple[str, ...] = ()
    prompt_lookup_num_tokens: int = 0

    def __post_init__(self) -> None:
        if self.temperature is None:
            object.__setattr__(self, "temperature", 0.0)
        if self.prompt_lookup_num_tokens is None:  # Hugging Face's default
            object.__setattr__(self, "prompt_lookup_num_tokens", 0)
        for name, low, high in (
            ("max_new_tokens", 1, MAX_NEW_TOKENS),
            ("num_beams", 1, MAX_NUM_BEAMS),
            ("top_k", 0, MAX_TOP_K),
            ("seed", 0, MAX_SEED),
            ("prompt_lookup_num_tokens", 0, MAX_DRAFTS),
        ):
            object.__setattr__(self, name, _integer(name, getattr(self, name), low, high))
        for name, least, most in (
            ("temperature", 0.0, 100.0),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 0.01, 100.0),
            ("presence_penalty", -2.0, 2.0),
            ("frequency_penalty", -2.0, 2.0),
            ("length_penalty", -10.0, 10.0),
        ):
            object.__setattr__(self, name, _real(name, getattr(self, name), least, most))
        if self.top_p == 0.0:
            raise InvalidRequest("top_p must be above 0 and at most 1: 0 would leave no token.")
        if 0.0 < self.temperature < 0.01:
            raise InvalidRequest(
                "temperature must be 0 (greedy) or between 0.01 and 100; "
                f"{self.temperature:g} divides by almost nothing. Use 0 for greedy text."
            )
        if self.prompt_lookup_num_tokens and self.num_beams > 1:
            raise InvalidRequest(
                f"prompt_lookup_num_tokens works with one beam, not with {self.num_beams}: leave "
                "it out, or set num_beams to 1."
            )
        if not (isinstance(self.early_stopping, bool) or self.early_stopping == "never"):
            raise InvalidRequest(
                f'early_stopping must be true, false or "never", not {shown(self.early_stopping)}.'
            )
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        object.__setattr__(self, "stop", _stops(self.stop))

    @property
    def do_sample(self) -> bool:
        """Whether tokens are sampled (temperature above 0); otherwise the most likely is taken."""
        return self.temperature > 0.0

    def replace(self, **changes: Any) -> GenerationOptions:
        """A copy with some options changed, checked again."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON values: `logit_bias` as an object, `stop` as a list."""
        return {
            **dataclasses.asdict(self),
            "logit_bias": {str(token_id): bias for token_id, bias in self.logit_bias},
            "stop": list(self.stop),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GenerationOptions:
        """Options from JSON values.

        Raises:
            InvalidRequest: a name is unknown, a type is wrong or a value is out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(str(name) for name in values if name not in known)
        if unknown:
            raise InvalidRequest(
                f"unknown option {', '.join(unknown)}; the options are {', '.join(sorted(known))}."
            )
        return cls(**values)


def shown(value: object, length: int = 40) -> str:
    """Any value as text for a message: its `repr`, cut to at most `length` characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits.
        return "a number of thousands of digits"
    return text if len(text) <= length else text[: length - 3] + "..."


def _integer(name: str, value: object, low: int, high: int) -> int:
    # JSON and sliders send whole numbers as floats: 32.0 is 32, 32.5 is a mistake.
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidRequest(
            f"{name} must be a whole number from {low} to {high}, not {shown(value)}."
        )
    number = int(value)
    if not low <= number <= high:
        raise InvalidRequest(f"{name} must be from {low} to {high}, not {shown(number)}.")
    return number


def _real(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidRequest(
            f"{name} must be a number from {low:g} to {high:g}, not {shown(value)}."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and low <= number <= high):
        raise InvalidRequest(f"{name} must be from {low:g} to {high:g}, not {shown(value)}.")
    return number


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """The pairs, sorted by id; of the same pairs, as a changed copy has them, too."""
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in pairs
    ):
        raise InvalidRequest(
            'logit_bias must map token ids to numbers from -100 to 100, as {"198": -100}, not '
            f"{shown(value)}."
        )
    if len(pairs) > MAX_BIASED_TOKENS:
        raise InvalidRequest(
            f"logit_bias can name at most {MAX_BIASED_TOKENS} tokens, not {len(pairs)}."
        )
    biases = {}
    for token_id, bias in pairs:
        # JSON's objects have text for keys.
        is_digits = isinstance(token_id, str) and token_id.isascii() and token_id.isdigit()
        number = _integer(
            "a token id of logit_bias",
            int(token_id) if is_digits and len(token_id) <= 10 else token_id,
            0,
            2**31 - 1,
        )
        if number in biases:
            raise InvalidRequest(f"logit_bias names token {number} twice.")
        biases[number] = _real(f"logit_bias of token {number}", bias, -100.0, 100.0)
    return tuple(sorted(biases.items()))


def _stops(value: object) -> tuple[str, ...]:
    """The different strings, as they were given."""
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list | tuple) or not all(isinstance(one, str) for one in strings):
        raise InvalidRequest(f"stop must be a string or a list of strings, not {shown(value)}.")
    if len(strings) > MAX_STOPS:
        raise InvalidRequest(f"stop can have at most {MAX_STOPS} strings, not {len(strings)}.")
    for string in strings:
        if not 1 <= len(string) <= MAX_STOP_CHARACTERS:
            raise InvalidRequest(
                f"a stop string must have 1 to {MAX_STOP_CHARACTERS} characters, not {len(string)}."
            )
        if not string.isascii() and any("\ud800" <= each <= "\udfff" for each in string):
            raise InvalidRequest(
                "a stop string contains half of a surrogate pair, which is no character; remove it."
            )
    return tuple(dict.fromkeys(strings))


DEFAULT_OPTIONS = GenerationOptions()
"""Greedy search, 32 new tokens."""
