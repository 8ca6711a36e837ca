"""What a request is filled in with when the page opens: by a link, or as it was before a reload.

Knows the components and the page's load event. Must not know what a link looks like.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground.tabs.generate import permalink
from playground.tabs.generate.examples import examples_for
from playground.tabs.generate.prompt_fields import PromptFields
from playground.ui.components import PRESS, QUIET, html, notice
from playground.ui.option_controls import NAMES, OptionControls, options_from, values_for
from xla_backend import BackendError

if TYPE_CHECKING:
    from playground.context.page_context import PageContext


class LinkedRequest:
    """Builds the notice about a link where it is created.

    Attributes:
        model: the model that a link has just chosen, whose own examples must not replace what the
            link says; None otherwise.
    """

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self.notice = html("", "link_notice")
        self.model = gr.State(None)
        self._run = gr.Checkbox(visible=False)
        self._before = gr.Textbox(visible=False)
        self._is_reload = gr.Checkbox(visible=False)

    def connect(
        self,
        model: gr.components.Component,
        prompt: PromptFields,
        exact_key: gr.components.Component,
        controls: OptionControls,
        generate: gr.Button,
    ) -> None:
        """Fills these in when the page loads, and presses the button if the link says so."""
        self._controls = controls
        self._page.load(
            self._restore,
            [self._before, self._is_reload],
            [
                *(self.notice, self.model, self._run, model, *prompt.inputs, exact_key),
                *(controls.hold, *controls.inputs),
            ],
            js="() => requestBefore()",
            **QUIET,
        ).then(None, self._run, None, js=PRESS, **QUIET)
        # The visitor has moved on: the complaint about the link goes.
        generate.click(None, None, self.notice, js="() => ''", **QUIET)

    def _restore(self, before: str, is_reload: bool, request: gr.Request) -> list[Any]:
        models = {model.name: model for model in self._page.models()}
        first = next(iter(models), None)
        query = {name: str(text) for name, text in dict(request.query_params).items()}
        if query.get("tab") == permalink.CHAT:
            query = {}
        link = permalink.read(query, list(models), self._controls.ranges)
        written = self._written(before, list(models))
        if written and (is_reload or (link.is_empty and not link.problems)):
            holds_seed, name, *rest = written
            of_link = name if name != first else None
            return ["", of_link, False, name, *rest[:4], holds_seed, *rest[4:]]
        problem = permalink.problem(link)
        message = notice(problem)
        if link.is_empty:
            return [message, None, link.run and not problem, *[gr.skip()] * (6 + len(NAMES))]
        name = link.model or first
        example = examples_for(models.get(str(name)))[0]
        return [
            message,
            name if name != first else None,
            link.run and not problem,
            name,
            example.prompt if link.prompt is None else link.prompt,
            link.system or "",
            bool(link.raw),
            bool(link.exact_key),
            "seed" in link.options,
            *values_for(self._page.limits.within(example.options).replace(**link.options)),
        ]

    def _written(self, before: str, models: list[str]) -> list[Any]:
        """What was written: whether the seed is held, then the request's fields in their order.

        Empty where there is nothing, or nothing that fits: a browser may bring anything.
        """
        try:
            values = json.loads(before)
            holds_seed, model, text, system, is_raw, exact_key, *options = values
            options_from(tuple(options))
        except (ValueError, TypeError, BackendError):
            return []
        # A field that was never in sight has no value.
        are_kinds = (
            isinstance(text, str)
            and isinstance(system, str | None)
            and all(isinstance(switch, bool) for switch in (holds_seed, is_raw, exact_key))
        )
        return values if are_kinds and model in models else []
