"""`RequestFields`: the components of a text request, read and set by name.

Knows the fields of a request and what their values mean. Must not know where they are on the page,
nor what is done with a request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from playground.context.draft import VARIABLE, Draft, filled_in, messages_in, variables_in
from playground.context.page_context import PageContext
from playground.ui.components import Field, Updates
from playground.ui.option_controls import OptionControls
from xla_backend import GenerationOptions, InvalidRequest, Prompt


@dataclass(frozen=True)
class FilledRequest:
    """A request from its fields."""

    model: str
    prompt: Prompt  # messages for an instruct model, unless it is raw
    options: GenerationOptions
    holds_seed: bool  # whether the seed stays; otherwise each run draws a new one


@dataclass(frozen=True)
class RequestFields:
    """The components of a request."""

    page: PageContext
    # its fields by the names in `draft.SETTINGS`, in that order
    settings: Mapping[str, Field]
    linked_model: gr.State  # state; the model of a link, whose examples must not replace the prompt

    @property
    def controls(self) -> OptionControls:
        return self.page.settings.controls

    @property
    def inputs(self) -> list[Field]:
        """All fields, in the order in which Gradio sends a set of components."""
        return sorted([*self.settings.values(), self.controls.hold], key=lambda field: field._id)

    @property
    def outputs(self) -> list[Any]:
        """What `filled_in` sets."""
        return [self.linked_model, *self.inputs]

    def text(self, values: Mapping[Any, Any]) -> str:
        """The text in the prompt's field, with its variables replaced.

        Raises:
            InvalidRequest: the values of the variables cannot be read.
        """
        return self._fill(values)(values[self.settings["prompt"]])

    def prompt(self, values: Mapping[Any, Any]) -> Prompt:
        """The prompt for the model.

        Raises:
            InvalidRequest: messages or values of variables cannot be read.
        """
        return self._prompt(values, self._fill(values))

    def options(self, values: Mapping[Any, Any]) -> GenerationOptions:
        """See `SettingFields.options`."""
        return self.page.settings.options(values)

    def request(self, values: Mapping[Any, Any]) -> FilledRequest:
        """The whole request.

        Raises:
            InvalidRequest: an option is empty or out of range, or something cannot be read.
        """
        model, holds_seed = self._value(values, "model"), values[self.controls.hold]
        return FilledRequest(model, self.prompt(values), self.options(values), holds_seed)

    def check_variables(self, values: Mapping[Any, Any]) -> None:
        """Asks for the values of variables before a request is sent with their names in it.

        Raises:
            InvalidRequest: one has no value.
        """
        # As it was written: values are not searched for variables.
        prompt = self._prompt(values, lambda text: text or "")
        given = variables_in(self._value(values, "variables") or "")
        texts = [str(e.content) for e in prompt] if isinstance(prompt, tuple) else [str(prompt)]
        names = dict.fromkeys(VARIABLE.findall(" ".join(texts)))
        if missing := [name for name in names if not given.get(name.lower())]:
            listed = ", ".join(f"{{{{{name}}}}}" for name in missing)
            verb, what = ("has", "it") if len(missing) == 1 else ("have", "them")
            raise InvalidRequest(
                f"{listed} {verb} no value yet: fill {what} in below the prompt. To send the "
                "braces as they are, write them there again."
            )

    def filled_in(self, draft: Draft, options: GenerationOptions) -> Updates:
        """Updates that set a draft's settings.

        Args:
            draft: the settings.
            options: for those that the draft does not set.
        """
        return {
            self.linked_model: draft.settings.get("model"),
            **{self.settings[name]: value for name, value in draft.settings.items()},
            self.controls.hold: "seed" in draft.options,
            **self.page.settings.of_options(options.replace(**draft.options)),
        }

    def _prompt(self, values: Mapping[Any, Any], fill: Callable[[str | None], str]) -> Prompt:
        return self.page.prompt(
            self._value(values, "model"),
            fill(self._value(values, "prompt")),
            fill(self._value(values, "system")),
            bool(self._value(values, "raw")),
            [
                message._replace(content=fill(message.content))
                for message in messages_in(self._value(values, "messages") or "")
            ],
            fill(self._value(values, "begins_with")),
        )

    def _value(self, values: Mapping[Any, Any], name: str) -> Any:
        return values[self.settings[name]]

    def _fill(self, values: Mapping[Any, Any]) -> Callable[[str | None], str]:
        """Replaces the variables of a text; those without a value stay. A field that was never
        visible has no text."""
        given = variables_in(self._value(values, "variables") or "")
        return lambda text: filled_in(text or "", lambda name: given.get(name.lower()) or None)
