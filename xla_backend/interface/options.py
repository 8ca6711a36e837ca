"""`GenerationOptions`: a request's options, checked before anything is compiled, in one table.

Knows their names, ranges and meanings: those of Hugging Face's `GenerationConfig`, of OpenAI
(penalties, `logit_bias`, `stop`) and of vLLM (other options that end a text). A new option is a
field here. Must not know models, tokens or TensorFlow: the page's process imports this module.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.grammar import Grammar

AudioInput = str | os.PathLike | tuple[int, np.ndarray]
"""A recording: a file's path, or (rate in Hz, samples) with samples (n,) or (n, channels)."""
DEFAULT_MAX_SECONDS = 600.0
"""Default bound on the length of a recording, in seconds."""
MAX_NEW_TOKENS = 8192
"""A model's context may be shorter: the text then ends there."""
WINDOW_TOKENS = 224
"""Default `max_new_tokens` of a window of a recording, as in Whisper's own program for 30 seconds
of speech. A larger bound makes every token slower."""
MAX_NUM_BEAMS = 8
MAX_TOP_K = 1_000_000
MAX_SEED = 2**31 - 1
"""Largest seed that the engine uses; larger ones are taken modulo a prime below it."""
MAX_BIASED_TOKENS = 300
MAX_STOPS = 64
"""Bound on a request's stop strings, and on its stop tokens."""
MAX_DRAFTS = 7
"""Bound on `prompt_lookup_num_tokens`: a pass with many rows takes much longer than with a few."""
MAX_STOP_CHARACTERS = 100


@dataclass(frozen=True)
class Option:
    """The description of a field of `GenerationOptions`.

    The command line, the endpoints, `/v1`, the page's controls and links and the table in
    docs/options.md are made from the fields and this.

    Attributes:
        help: what it does, as a phrase.
        label: on the page; empty if the page has no control for it.
        low: lowest value of a number.
        high: highest value of a number.
        slider: lowest value, highest value and step on the page.
        needs: the option without which it has no effect.
        is_in_key: whether it is part of a compiled function's cache key.
    """

    help: str
    label: str = ""
    low: float | None = None
    high: float | None = None
    slider: tuple[float, float, float] | None = None
    needs: Literal["", "sampling", "beams"] = ""
    is_in_key: bool = False

    @property
    def sentence(self) -> str:
        """What it does, and whether it is part of the key."""
        described = f"{self.help[0].upper()}{self.help[1:]}."
        return f"{described} Changing this may compile." if self.is_in_key else described

    @property
    def range(self) -> str:
        """The range of a number, like "0 to 1"; empty for other types."""
        if self.low is None:
            return ""
        if isinstance(self.low, int):
            return f"{self.low} to {self.high}"
        return f"{self.low:g} to {self.high:g}"


def _option(default: Any, help: str, **described: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": Option(help, **described)})


@dataclass(frozen=True)
class GenerationOptions:
    """The options of one generation; their only table.

    Sampling is on exactly when `temperature` is above 0. `max_new_tokens` is an upper bound: a text
    also ends at the end of the model's context. `logit_bias` takes a mapping from token ids (also
    as text) to what is added to their logits; it is stored as sorted pairs. `early_stopping` is
    True to stop as soon as `num_beams` texts are finished, False when a better one is unlikely,
    "never" when a better one is impossible. `stop` also takes a single string. The drafts of
    `prompt_lookup_num_tokens` are the tokens that followed an earlier occurrence of the last
    tokens; they are verified together, with one beam and decoder-only models.

    Raises:
        InvalidRequest: an option has a wrong type or is out of range; the message names the option,
            the range and the value.
    """

    max_new_tokens: int = _option(
        32,
        "maximum length of the text in tokens",
        label="New tokens",
        low=1,
        high=MAX_NEW_TOKENS,
        slider=(1, 256, 1),
        is_in_key=True,
    )
    num_beams: int = _option(
        1,
        "candidates searched in parallel",
        label="Beams",
        low=1,
        high=MAX_NUM_BEAMS,
        slider=(1, MAX_NUM_BEAMS, 1),
        is_in_key=True,
    )
    temperature: float = _option(
        0.0,
        "0 takes the most likely token; above 0 tokens are sampled, the higher the more varied",
        label="Temperature",
        low=0.0,
        high=100.0,
        slider=(0, 2, 0.05),
    )
    top_k: int = _option(
        50,
        "sample from the k most likely tokens; 0 and -1 are all",
        label="Top k",
        low=-1,
        high=MAX_TOP_K,
        slider=(0, 200, 1),
        needs="sampling",
    )
    top_p: float = _option(
        1.0,
        "sample from the most likely tokens whose probabilities add up to p; 0 takes the first",
        label="Top p",
        low=0.0,
        high=1.0,
        slider=(0.05, 1, 0.05),
        needs="sampling",
    )
    min_p: float = _option(
        0.0,
        "sample from tokens at least p times as likely as the most likely one",
        label="Min p",
        low=0.0,
        high=1.0,
        slider=(0, 1, 0.01),
        needs="sampling",
    )
    seed: int = _option(
        0,
        "the same seed gives the same text; -1 draws one",
        label="Seed",
        low=-(2**63),
        high=2**64 - 1,
        needs="sampling",
    )
    repetition_penalty: float = _option(
        1.0,
        "above 1 avoids tokens that occurred already, in the prompt too",
        label="Repetition penalty",
        low=0.01,
        high=100.0,
        slider=(0.5, 2, 0.05),
    )
    presence_penalty: float = _option(
        0.0,
        "above 0 avoids tokens that were generated already",
        label="Presence penalty",
        low=-2.0,
        high=2.0,
        slider=(-2, 2, 0.1),
    )
    frequency_penalty: float = _option(
        0.0,
        "above 0 avoids tokens the more, the more often they were generated",
        label="Frequency penalty",
        low=-2.0,
        high=2.0,
        slider=(-2, 2, 0.1),
    )
    logit_bias: tuple[tuple[int, float], ...] = _option(
        (),
        f"token ids, at most {MAX_BIASED_TOKENS}, each with -100 to 100 that is added to its logit",
    )
    length_penalty: float = _option(
        1.0,
        "above 0 favours longer texts",
        label="Length penalty",
        low=-10.0,
        high=10.0,
        slider=(-2, 2, 0.1),
        needs="beams",
    )
    early_stopping: bool | Literal["never"] = _option(
        False,
        "whether the search ends once enough texts are finished: true, false (a better one is "
        'unlikely) or "never" (a better one is impossible)',
        label="Stop searching when",
        needs="beams",
    )
    stop: tuple[str, ...] = _option(
        (),
        f"the text ends before the first of these strings: at most {MAX_STOPS}, of "
        f"{MAX_STOP_CHARACTERS} characters each",
        label="Stop strings",
    )
    stop_token_ids: tuple[int, ...] = _option(
        (),
        f"ids of tokens that end the text too, at most {MAX_STOPS}; needs one beam",
    )
    include_stop_str_in_output: bool = _option(
        False, "whether the text has the stop string or token that ended it"
    )
    min_new_tokens: int = _option(
        0,
        "minimum length of the text in tokens; only a stop string or the limit ends it before",
        low=0,
        high=MAX_NEW_TOKENS,
    )
    ignore_eos: bool = _option(False, "whether the model's own ends of a text end nothing")
    prompt_lookup_num_tokens: int = _option(
        0,
        "tokens guessed at a time from the prompt and the text: the same text, sooner where it "
        "repeats; needs one beam",
        label="Prompt lookup",
        low=0,
        high=MAX_DRAFTS,
        slider=(0, MAX_DRAFTS, 1),
        is_in_key=True,
    )
    grammar: Grammar | None = _option(  # noqa: RUF009
        None,
        "the form that the text must have: a JSON schema, any JSON object, a regular expression, "
        "choices or rules; needs one beam and a decoder-only model",
        label="Form of the text",
    )
    exact_key: bool = _option(
        False, "do not reuse a larger compiled function", label="Exact shape only"
    )

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            if option.low is not None and option.high is not None:
                value = getattr(self, name)
                if value is None and name in ("temperature", "prompt_lookup_num_tokens"):
                    value = 0  # None switches these off in Hugging Face's configuration
                check = _integer if isinstance(option.low, int) else _real
                object.__setattr__(self, name, check(name, value, option.low, option.high))
        object.__setattr__(self, "top_k", max(self.top_k, 0))
        object.__setattr__(self, "seed", _seed(self.seed))
        if self.temperature < 0.01:  # dividing by less would overflow
            object.__setattr__(self, "temperature", 0.0)
        if self.prompt_lookup_num_tokens and self.num_beams > 1:
            raise InvalidRequest(
                f"prompt_lookup_num_tokens works with one beam, not with {self.num_beams}: leave "
                "it out, or set num_beams to 1."
            )
        object.__setattr__(self, "grammar", Grammar.of(self.grammar))
        if self.grammar and self.num_beams > 1:
            raise InvalidRequest(
                f"grammar works with one beam, not with {self.num_beams}: leave one of them out."
            )
        if not (isinstance(self.early_stopping, bool) or self.early_stopping == "never"):
            raise InvalidRequest(
                f'early_stopping must be true, false or "never", not {shown(self.early_stopping)}.'
            )
        for name in ("ignore_eos", "include_stop_str_in_output", "exact_key"):
            if not isinstance(value := getattr(self, name), bool):
                raise InvalidRequest(f"{name} must be true or false, not {shown(value)}.")
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        object.__setattr__(self, "stop", _stops(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_tokens(self.stop_token_ids))
        if self.stop_token_ids and self.num_beams > 1:
            raise InvalidRequest(
                f"stop_token_ids works with one beam, not with {self.num_beams}: leave one of them "
                "out."
            )

    @property
    def do_sample(self) -> bool:
        """Whether tokens are sampled (temperature above 0); otherwise the most likely is taken."""
        return self.temperature > 0.0

    @property
    def may_reuse(self) -> bool:
        """Whether a larger compiled function may serve."""
        return not self.exact_key

    @property
    def needs_rows(self) -> bool:
        """Whether only a row of a model's pool can follow them: a grammar, or drafts."""
        return bool(self.grammar or self.prompt_lookup_num_tokens)

    def of_row(self) -> GenerationOptions:
        """Those of a row of a pool, which has no functions for its own sizes."""
        return self.replace(exact_key=False)

    def replace(self, **changes: Any) -> GenerationOptions:
        """A copy with some options changed, checked again."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON values: `logit_bias` and `grammar` as objects, `stop` as a list."""
        return {
            **dataclasses.asdict(self),
            "logit_bias": {str(token_id): bias for token_id, bias in self.logit_bias},
            "stop": list(self.stop),
            "stop_token_ids": list(self.stop_token_ids),
            "grammar": self.grammar.to_dict() if self.grammar else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GenerationOptions:
        """Options from JSON values.

        Raises:
            InvalidRequest: a name is unknown, a type is wrong or a value is out of range.
        """
        unknown = sorted(str(name) for name in values if name not in OPTIONS)
        if unknown:
            known = ", ".join(sorted(OPTIONS))
            raise InvalidRequest(f"unknown option {', '.join(unknown)}; the options are {known}.")
        return cls(**values)


OPTIONS: dict[str, Option] = {
    field.name: field.metadata["option"] for field in dataclasses.fields(GenerationOptions)
}
"""The description of each field of `GenerationOptions`, in order."""


def shown(value: object, length: int = 40) -> str:
    """Any value as text for a message: its `repr`, cut to at most `length` characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= length else text[: length - 3] + "..."


def _integer(name: str, value: object, low: float, high: float) -> int:
    # JSON and sliders send whole numbers as floats: 32.0 is valid, 32.5 is not.
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


def _seed(seed: int) -> int:
    if seed == -1:
        return secrets.randbelow(MAX_SEED + 1)
    return seed if 0 <= seed <= MAX_SEED else seed % (MAX_SEED - 18)


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """The pairs, sorted by id, from a mapping or from pairs."""
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
        # The keys of JSON objects are text.
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


def _stop_tokens(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_STOPS:
        raise InvalidRequest(
            f"stop_token_ids must be a list of at most {MAX_STOPS} token ids, not {shown(value)}."
        )
    ids = (_integer("a token id of stop_token_ids", each, 0, 2**31 - 1) for each in value)
    return tuple(sorted(set(ids)))


def _stops(value: object) -> tuple[str, ...]:
    """The distinct strings, in their order."""
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list | tuple) or not all(isinstance(one, str) for one in strings):
        raise InvalidRequest(f"stop must be a string or a list of strings, not {shown(value)}.")
    if len(strings) > MAX_STOPS:
        raise InvalidRequest(f"stop can have at most {MAX_STOPS} strings, not {len(strings)}.")
    strings = list(filter(None, strings))  # an empty string has no effect
    for string in strings:
        if len(string) > MAX_STOP_CHARACTERS:
            raise InvalidRequest(
                f"a stop string can have {MAX_STOP_CHARACTERS} characters, not {len(string)}."
            )
        if not string.isascii() and any("\ud800" <= each <= "\udfff" for each in string):
            raise InvalidRequest(
                "a stop string contains half of a surrogate pair, not a character; remove it."
            )
    return tuple(dict.fromkeys(strings))


DEFAULT_OPTIONS = GenerationOptions()
"""Greedy search, 32 new tokens."""
