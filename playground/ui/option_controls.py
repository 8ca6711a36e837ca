"""The sliders and switches for `GenerationOptions`.

Knows one control for each option, when an option has no effect, and which seed a run gets. Must not
know what is done with the options.
"""

import json
import re
import secrets
from collections.abc import Iterable
from typing import Any

import gradio as gr

from playground.ui.components import QUIET, Field, without_validation
from xla_backend import GenerationOptions, Grammar
from xla_backend.interface.grammar import KINDS
from xla_backend.interface.options import MAX_STOPS, OPTIONS

LABELS = {name: option.label for name, option in OPTIONS.items() if option.label}
"""The page's name for each of its options."""
NAMES = tuple(LABELS)
# A name without an underscore may be a common word, but at the start it is the option's.
_NAMED = re.compile(
    rf"\b(?:{'|'.join(name for name in NAMES if '_' in name)})\b|"
    r"^(?:temperature|seed|stop|grammar)\b"
)
_ESCAPED = re.compile(r"\\([n\\])")
SAMPLING_ONLY = tuple(name for name in NAMES if OPTIONS[name].needs == "sampling")
BEAMS_ONLY = tuple(name for name in NAMES if OPTIONS[name].needs == "beams")
_NEEDS = {"": "", "sampling": " Needs temperature above 0.", "beams": " Needs 2 beams or more."}
_IDS = {"stop": "stop_strings"}  # "stop" is the id of the button
IN_SIGHT = ("grammar", "max_new_tokens", "num_beams", "temperature", "exact_key")
"""Options that are not folded."""
_SHOWN = ("max_new_tokens", "num_beams", "temperature", "top_k", "top_p", "seed", "length_penalty")
"""Options that are shown beside a text even with their defaults."""
# A radio button carries text; these are the three values that Hugging Face defines.
EARLY_STOPPING = {"unlikely": False, "enough": True, "impossible": "never"}
MAX_NEW_TOKENS = 256
"""The engine allows more; the page does not need them to show the cost of a token."""
_OTHERS: dict[str, tuple[type[Field], dict[str, Any]]] = {
    "seed": (gr.Number, {"precision": 0, "minimum": 0}),
    "early_stopping": (
        gr.Radio,
        {
            "choices": [
                ("a better text is unlikely", "unlikely"),
                ("enough texts are finished", "enough"),
                ("a better text is impossible", "impossible"),
            ],
            "info": _NEEDS["beams"].strip(),
        },
    ),
    "exact_key": (gr.Checkbox, {}),
    "stop": (
        gr.Textbox,
        {
            "lines": 2,
            "max_lines": 4,
            "info": f"The text ends before the first of them. One per line, at most {MAX_STOPS}; "
            "\\n is a line break.",
        },
    ),
    "grammar": (
        gr.Textbox,
        {
            "lines": 2,
            "max_lines": 12,
            "placeholder": '{"type": "object", "properties": {"name": {"type": "string"}}}',
            "info": 'A JSON schema, or {"regex": "[0-9]+"}; empty for any text. Needs one beam and '
            "a decoder-only model.",
        },
    ),
}
"""Controls that are not sliders, with their settings."""
_SEEDS = 1_000_000
"""Drawn seeds are below it: enough different ones, and short enough to write down."""


class OptionControls:
    """Builds the controls where it is created.

    Attributes:
        inputs: the options' components, in order.
        hold: whether each run uses the seed in the field; otherwise it draws a new one.
    """

    def __init__(
        self,
        defaults: GenerationOptions,
        most_new_tokens: int = MAX_NEW_TOKENS,
    ) -> None:
        """Builds them.

        Args:
            defaults: the initial values.
            most_new_tokens: the visitor's limit.
        """
        self._defaults = defaults
        self._most_new_tokens = slider_end(most_new_tokens)
        self._by_name: dict[str, Field] = {}
        for name in IN_SIGHT:
            self._build(name)
        with gr.Accordion("More options", open=False, elem_classes="more-options"):
            for name in NAMES:
                if name not in IN_SIGHT:
                    self._build(name)
        for control in self._by_name.values():
            if isinstance(control, gr.Slider | gr.Number):
                without_validation(control)

    @property
    def seed(self) -> Field:
        """The component that shows which seed the last run had."""
        return self._by_name["seed"]

    @property
    def num_beams(self) -> Field:
        """The component of the number of beams."""
        return self._by_name["num_beams"]

    @property
    def grammar(self) -> Field:
        """The component of the grammar."""
        return self._by_name["grammar"]

    @property
    def inputs(self) -> list[Field]:
        """The components whose values `options_from` takes, in order."""
        return [self._by_name[name] for name in NAMES]

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value that each slider can show."""
        return {
            name: (control.minimum, control.maximum)
            for name, control in self._by_name.items()
            if isinstance(control, gr.Slider)
        }

    def _build(self, name: str) -> None:
        option = OPTIONS[name]
        has_effect = {
            "": None,
            "sampling": self._defaults.do_sample,
            "beams": self._defaults.num_beams > 1,
        }
        shown: dict[str, Any] = {
            "value": _values(self._defaults)[name],
            "label": option.label,
            "info": option.sentence + _NEEDS[option.needs],
            "interactive": has_effect[option.needs],
            "elem_id": _IDS.get(name, name),
        }
        if option.slider is not None:
            lowest, highest, step = option.slider
            if name == "max_new_tokens":
                highest = self._most_new_tokens
            self._by_name[name] = gr.Slider(lowest, highest, step=step, **shown)
        else:
            kind, own = _OTHERS[name]
            self._by_name[name] = kind(**{**shown, **own})

        if name == "seed":
            self.hold = gr.Checkbox(
                label="Hold the seed",
                info="Otherwise each run draws a new seed and writes a different text.",
                interactive=shown["interactive"],
                elem_id="hold",
            )

    def connect(self) -> None:
        """Disables options while they have no effect; in the browser only.

        Call it before other events are connected to the fields, as `empty_on_change`.
        """
        sampling = [*(self._by_name[name] for name in SAMPLING_ONLY), self.hold]
        self._switch("temperature", sampling, above=0)
        self._switch("num_beams", [self._by_name[name] for name in BEAMS_ONLY], above=1)

    def _switch(self, name: str, parts: list[Field], above: int) -> None:
        update = f"{{__type__: 'update', interactive: value > {above}}}"
        js = f"(value) => Array({len(parts)}).fill({update})"
        self._by_name[name].change(None, self._by_name[name], parts, js=js, **QUIET)


def options_from(values: tuple[Any, ...]) -> GenerationOptions:
    """The options from the controls' values.

    Raises:
        InvalidRequest: a value is empty or out of range.
    """
    named = dict(zip(NAMES, values, strict=True))
    if isinstance(word := named["early_stopping"], str):
        named["early_stopping"] = EARLY_STOPPING.get(word, word)
    if isinstance(text := named["stop"], str):
        named["stop"] = stops_from(text)
    if isinstance(text := named["grammar"], str):
        named["grammar"] = grammar_from(text)
    return GenerationOptions.from_dict(named)


def labelled(message: str) -> str:
    """A message of the engine with the page's names of options."""
    return _NAMED.sub(lambda found: LABELS[found[0]], message)


def relevant(options: GenerationOptions) -> dict[str, str]:
    """The numeric options that had an effect, and stop strings, as text."""
    values, defaults = options.to_dict(), GenerationOptions().to_dict()
    idle = (
        *("early_stopping", "stop", "grammar", "exact_key"),
        *(() if options.do_sample else SAMPLING_ONLY),
        *(() if options.num_beams > 1 else BEAMS_ONLY),
        *(name for name in NAMES if name not in _SHOWN and values[name] == defaults[name]),
    )
    numbers = {name: f"{values[name]:.9g}" for name in NAMES if name not in idle}
    stops = {"stop": ", ".join(map(repr, options.stop))} if options.stop else {}
    grammar = options.grammar
    return numbers | stops | ({"grammar": grammar.kind.replace("_", " ")} if grammar else {})


def with_seed(options: GenerationOptions, is_held: bool) -> GenerationOptions:
    """The options of one run, with a new seed if they sample and the seed is not held."""
    if is_held or not options.do_sample:
        return options
    return options.replace(seed=secrets.randbelow(_SEEDS))


def values_for(options: GenerationOptions) -> list[Any]:
    """The controls' values for these options."""
    values = _values(options)
    return [values[name] for name in NAMES]


def _values(options: GenerationOptions) -> dict[str, Any]:
    values = options.to_dict()
    values["early_stopping"] = _word_of(options.early_stopping)
    values["stop"] = stop_text(options.stop)
    values["grammar"] = _grammar_text(options.grammar)
    return values


def grammar_from(text: str) -> Grammar | None:
    """The grammar in the field: a JSON schema, or a grammar by its kind as in the API.

    Raises:
        InvalidRequest: it is none.
    """
    if not text.strip():
        return None
    schema = Grammar.json_schema(text)
    value = json.loads(schema.text)
    is_named = isinstance(value, dict) and len(value) == 1 and next(iter(value)) in KINDS
    return Grammar.of(value) if is_named else schema


def _grammar_text(grammar: Grammar | None) -> str:
    if grammar is None:
        return ""
    value = grammar.to_dict()
    return json.dumps(value.get("json_schema", value), indent=2, ensure_ascii=False)


def stops_from(text: str) -> list[str]:
    """The stop strings that the field stands for: its lines, with `\\n` for a line break."""
    return [
        _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else "\\", line)
        for line in text.replace("\r\n", "\n").split("\n")
        if line
    ]


def stop_text(stops: Iterable[str]) -> str:
    """The inverse of `stops_from`."""
    return "\n".join(string.replace("\\", "\\\\").replace("\n", "\\n") for string in stops)


def slider_end(most_new_tokens: int) -> int:
    """The end of a slider of tokens, at most the visitor's limit.

    Gradio's sliders need two values, so if one token is allowed a second one can be set, and is
    refused.
    """
    return max(2, min(MAX_NEW_TOKENS, most_new_tokens))


def _word_of(early_stopping: bool | str) -> str:
    return next(word for word, value in EARLY_STOPPING.items() if value == early_stopping)
