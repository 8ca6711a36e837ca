"""The sliders and switches for `GenerationOptions`.

Knows one control for each option, when an option has no effect, and which seed a run gets. Must not
know what is done with the options.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import gradio as gr

from playground.ui.components import LATEST, Field, without_validation
from xla_backend import GenerationOptions
from xla_backend.interface.options import MAX_DRAFTS

LABELS = {
    "max_new_tokens": "New tokens",
    "num_beams": "Beams",
    "temperature": "Temperature",
    "top_k": "Top k",
    "top_p": "Top p",
    "min_p": "Min p",
    "repetition_penalty": "Repetition penalty",
    "presence_penalty": "Presence penalty",
    "frequency_penalty": "Frequency penalty",
    "length_penalty": "Length penalty",
    "early_stopping": "Stop searching when",
    "seed": "Seed",
    "stop": "Stop strings",
    "prompt_lookup_num_tokens": "Prompt lookup",
}
"""What the page calls each option that it has."""
NAMES = tuple(LABELS)
# A name without an underscore is a word of any sentence, but in front it is the option's.
_NAMED = re.compile(
    rf"\b(?:{'|'.join(name for name in NAMES if '_' in name)})\b|^(?:temperature|seed|stop)\b"
)
_ESCAPED = re.compile(r"\\([n\\])")
SAMPLING_ONLY = ("top_k", "top_p", "min_p", "seed")
BEAMS_ONLY = ("length_penalty", "early_stopping")
_OFF_BY_DEFAULT = (
    *("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    "prompt_lookup_num_tokens",
)
# A radio button carries text; these are the three values that Hugging Face defines.
EARLY_STOPPING = {"unlikely": False, "enough": True, "impossible": "never"}
MAX_NEW_TOKENS = 256
"""The engine takes more; a page that shows what a token costs does not need them."""
_SEEDS = 1_000_000
"""Seeds that are drawn are below it: enough to be new, and short enough to be told."""


class OptionControls:
    """Builds the controls where it is created.

    Attributes:
        inputs: the options' components, in order.
        hold: whether each run has the seed that stands there; otherwise it draws a new one.
    """

    def __init__(
        self,
        defaults: GenerationOptions,
        prefix: str = "",
        most_new_tokens: int = MAX_NEW_TOKENS,
    ) -> None:
        """Builds them.

        Args:
            defaults: the values to begin with.
            prefix: what the elements' ids begin with.
            most_new_tokens: what a visitor may ask for at most.
        """
        self._prefix = prefix
        self._most_new_tokens = slider_end(most_new_tokens)
        self._by_name: dict[str, Field] = {}
        self._build_shape(defaults)
        with gr.Accordion("More options", open=False, elem_classes="more-options"):
            self._build_sampling(defaults)
            self._build_penalties(defaults)
            self._build_beams(defaults)
            self._build_stop(defaults)
            self._build_lookup(defaults)
        for control in self._by_name.values():
            if isinstance(control, gr.Slider | gr.Number):
                without_validation(control)

    @property
    def seed(self) -> Field:
        """The component that shows which seed the last run had."""
        return self._by_name["seed"]

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

    def _build_shape(self, defaults: GenerationOptions) -> None:
        self._by_name["max_new_tokens"] = gr.Slider(
            1,
            self._most_new_tokens,
            value=defaults.max_new_tokens,
            step=1,
            label=LABELS["max_new_tokens"],
            info="Most tokens to write. Part of the shape.",
            elem_id=f"{self._prefix}max_new_tokens",
        )
        self._by_name["num_beams"] = gr.Slider(
            1,
            8,
            value=defaults.num_beams,
            step=1,
            label=LABELS["num_beams"],
            info="Texts searched side by side. Part of the shape.",
            elem_id=f"{self._prefix}num_beams",
        )
        self._by_name["temperature"] = gr.Slider(
            0,
            2,
            value=defaults.temperature,
            step=0.05,
            label=LABELS["temperature"],
            info="0 always takes the likeliest token; higher is bolder. Never compiles anew.",
            elem_id=f"{self._prefix}temperature",
        )

    def _build_sampling(self, defaults: GenerationOptions) -> None:
        sampled = defaults.do_sample
        self._by_name["top_k"] = gr.Slider(
            0,
            200,
            value=defaults.top_k,
            step=1,
            label=LABELS["top_k"],
            info="Draw from the k likeliest tokens; 0 is all. Needs temperature above 0.",
            interactive=sampled,
            elem_id=f"{self._prefix}top_k",
        )
        self._by_name["top_p"] = gr.Slider(
            0.05,
            1,
            value=defaults.top_p,
            step=0.05,
            label=LABELS["top_p"],
            info="Draw from the likeliest tokens that add up to p. Needs temperature above 0.",
            interactive=sampled,
            elem_id=f"{self._prefix}top_p",
        )
        self._by_name["min_p"] = gr.Slider(
            0,
            1,
            value=defaults.min_p,
            step=0.01,
            label=LABELS["min_p"],
            info="Draw from tokens at least this likely next to the likeliest; 0 is all. Needs "
            "temperature above 0.",
            interactive=sampled,
            elem_id=f"{self._prefix}min_p",
        )
        self._by_name["seed"] = gr.Number(
            value=defaults.seed,
            precision=0,
            minimum=0,
            label=LABELS["seed"],
            info="The same seed draws the same text. Needs temperature above 0.",
            interactive=sampled,
            elem_id=f"{self._prefix}seed",
        )
        self.hold = gr.Checkbox(
            label="Hold the seed",
            info="Otherwise each run draws a new one, and writes another text.",
            interactive=sampled,
            elem_id=f"{self._prefix}hold",
        )

    def _build_penalties(self, defaults: GenerationOptions) -> None:
        self._by_name["repetition_penalty"] = gr.Slider(
            0.5,
            2,
            value=defaults.repetition_penalty,
            step=0.05,
            label=LABELS["repetition_penalty"],
            info="Above 1 avoids words that already occurred.",
            elem_id=f"{self._prefix}repetition_penalty",
        )
        for name, info in (
            ("presence_penalty", "Above 0 avoids tokens that were written already."),
            ("frequency_penalty", "Above 0 avoids tokens the more, the more often they came."),
        ):
            self._by_name[name] = gr.Slider(
                -2,
                2,
                value=getattr(defaults, name),
                step=0.1,
                label=LABELS[name],
                info=info,
                elem_id=f"{self._prefix}{name}",
            )

    def _build_beams(self, defaults: GenerationOptions) -> None:
        several = defaults.num_beams > 1
        self._by_name["length_penalty"] = gr.Slider(
            -2,
            2,
            value=defaults.length_penalty,
            step=0.1,
            label=LABELS["length_penalty"],
            info="Above 0 favours longer texts. Needs 2 beams or more.",
            interactive=several,
            elem_id=f"{self._prefix}length_penalty",
        )
        self._by_name["early_stopping"] = gr.Radio(
            [
                ("a better text is unlikely", "unlikely"),
                ("enough texts are finished", "enough"),
                ("a better text is impossible", "impossible"),
            ],
            value=next(
                name for name, value in EARLY_STOPPING.items() if value == defaults.early_stopping
            ),
            label=LABELS["early_stopping"],
            info="Needs 2 beams or more.",
            interactive=several,
            elem_id=f"{self._prefix}early_stopping",
        )

    def _build_stop(self, defaults: GenerationOptions) -> None:
        self._by_name["stop"] = gr.Textbox(
            value=stop_text(defaults),
            lines=2,
            max_lines=4,
            label=LABELS["stop"],
            info="The text ends before the first of them. One a line, at most four; \\n is a line "
            "break.",
            elem_id=f"{self._prefix}stop_strings",
        )

    def _build_lookup(self, defaults: GenerationOptions) -> None:
        name = "prompt_lookup_num_tokens"
        self._by_name[name] = gr.Slider(
            0,
            MAX_DRAFTS,
            value=defaults.prompt_lookup_num_tokens,
            step=1,
            label=LABELS[name],
            info="Guess so many tokens at a time from what is there: the same text, sooner where "
            "it repeats. 0 is off, 3 a good number. Part of the shape. Needs 1 beam.",
            elem_id=f"{self._prefix}{name}",
        )

    def connect(self) -> None:
        """Switches off what has no effect, as long as it has none."""
        gr.on(
            self._by_name["temperature"].change,
            lambda temperature: _switch((*SAMPLING_ONLY, "hold"), bool(temperature)),
            self._by_name["temperature"],
            [*(self._by_name[name] for name in SAMPLING_ONLY), self.hold],
            **LATEST,
        )
        gr.on(
            self._by_name["num_beams"].change,
            lambda beams: _switch(BEAMS_ONLY, isinstance(beams, int | float) and beams > 1),
            self._by_name["num_beams"],
            [self._by_name[name] for name in BEAMS_ONLY],
            **LATEST,
        )


def options_from(values: tuple[Any, ...]) -> GenerationOptions:
    """The options that the controls' values stand for.

    Raises:
        InvalidRequest: a value is empty or out of range.
    """
    named = dict(zip(NAMES, values, strict=True))
    if isinstance(word := named["early_stopping"], str):
        named["early_stopping"] = EARLY_STOPPING.get(word, word)
    if isinstance(text := named["stop"], str):
        named["stop"] = stops_from(text)
    return GenerationOptions.from_dict(named)


def labelled(message: str) -> str:
    """A message of the engine with the options called as they are on the page."""
    return _NAMED.sub(lambda found: LABELS[found[0]], message)


def relevant(options: GenerationOptions) -> dict[str, str]:
    """The options with a number that had an effect, and stop strings, as text."""
    values, defaults = options.to_dict(), GenerationOptions().to_dict()
    idle = (
        *("early_stopping", "stop"),
        *(() if options.do_sample else SAMPLING_ONLY),
        *(() if options.num_beams > 1 else BEAMS_ONLY),
        *(name for name in _OFF_BY_DEFAULT if values[name] == defaults[name]),
    )
    numbers = {name: f"{values[name]:.9g}" for name in NAMES if name not in idle}
    return numbers | ({"stop": ", ".join(map(repr, options.stop))} if options.stop else {})


def with_seed(options: GenerationOptions, is_held: bool) -> GenerationOptions:
    """The options of one run: with a new seed, where they sample and the visitor holds none."""
    if is_held or not options.do_sample:
        return options
    return options.replace(seed=secrets.randbelow(_SEEDS))


def values_for(options: GenerationOptions) -> list[Any]:
    """The controls' values that stand for these options."""
    values = options.to_dict()
    values["early_stopping"] = next(
        name for name, value in EARLY_STOPPING.items() if value == values["early_stopping"]
    )
    values["stop"] = stop_text(options)
    return [values[name] for name in NAMES]


def stops_from(text: str) -> list[str]:
    """The stop strings that the field stands for: its lines, with `\\n` for a line break."""
    return [
        _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else "\\", line)
        for line in text.replace("\r\n", "\n").split("\n")
        if line
    ]


def stop_text(options: GenerationOptions) -> str:
    """The inverse of `stops_from`."""
    return "\n".join(string.replace("\\", "\\\\").replace("\n", "\\n") for string in options.stop)


def slider_end(most_new_tokens: int) -> int:
    """Where a slider of tokens ends that shows no more than may be asked for.

    Gradio's sliders need two values, so where one token is allowed a second one can be set, and the
    page says that it may not be had.
    """
    return max(2, min(MAX_NEW_TOKENS, most_new_tokens))


def _switch(names: tuple[str, ...], interactive: bool) -> list[Any]:
    return [gr.update(interactive=interactive) for _ in names]
