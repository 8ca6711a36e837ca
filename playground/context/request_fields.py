"""`RequestFields`: the components of a text request, read and set by name.

Knows the fields of a request and what their values mean. Must not know where they are on the page,
nor what is done with a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playground.ui.components import Field, Updates
from playground.ui.option_controls import OptionControls, options_from, values_for
from xla_backend import GenerationOptions, Prompt

if TYPE_CHECKING:
    import gradio as gr

    from playground.context.page_context import PageContext


@dataclass(frozen=True)
class Asked:
    """A request from its fields.

    Attributes:
        prompt: messages for an instruct model, unless it is raw.
        holds_seed: whether the seed stays; otherwise each run draws a new one.
    """

    model: str
    prompt: Prompt
    options: GenerationOptions
    exact_key: bool
    holds_seed: bool


@dataclass(frozen=True)
class RequestFields:
    """The components of a request.

    Attributes:
        linked_model: state; the model of a link, whose examples must not replace the prompt.
    """

    page: PageContext
    model: Field
    text: Field
    system: Field
    is_raw: Field
    exact_key: Field
    controls: OptionControls
    linked_model: gr.State

    @property
    def in_link(self) -> list[Field]:
        """The fields in a link, in its order."""
        prompt = (self.text, self.system, self.is_raw)
        return [self.model, *prompt, self.exact_key, *self.controls.inputs]

    @property
    def inputs(self) -> list[Field]:
        """All fields, in the order in which Gradio sends a set of components."""
        return sorted([*self.in_link, self.controls.hold], key=lambda field: field._id)

    def prompt(self, values: Mapping[Any, Any]) -> Prompt:
        """The prompt for the model."""
        system, is_raw = values[self.system], values[self.is_raw]
        return self.page.prompt(values[self.model], values[self.text], system, is_raw)

    def options(self, values: Mapping[Any, Any]) -> GenerationOptions:
        """The options.

        Raises:
            InvalidRequest: one is empty or out of range.
        """
        return options_from(tuple(values[field] for field in self.controls.inputs))

    def asked(self, values: Mapping[Any, Any]) -> Asked:
        """The whole request.

        Raises:
            InvalidRequest: an option is empty or out of range.
        """
        exact_key, holds_seed = values[self.exact_key], values[self.controls.hold]
        options = self.options(values)
        return Asked(values[self.model], self.prompt(values), options, exact_key, holds_seed)

    def of_options(self, options: GenerationOptions) -> Updates:
        """Updates that set the options' fields."""
        return dict(zip(self.controls.inputs, values_for(options), strict=True))
