"""What happens when the page is opened by a link that carries a request.

Knows the components and the page's load event. Must not know what a link looks like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from playground import permalink
from playground.components import QUIET, notice
from playground.examples import examples_for
from playground.option_controls import NAMES, OptionControls, values_for

if TYPE_CHECKING:
    from playground.page import PageContext

# The button itself, so that there is one way to start a run.
PRESS = "(run) => { if (run) setTimeout(() => document.getElementById('generate').click(), 0); }"


class LinkedRequest:
    """Builds the notice about a link where it is created.

    Attributes:
        model: the model that a link has just chosen, whose own examples must not replace what the
            link says; None else.
    """

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self.notice = gr.HTML("", elem_id="link_notice", apply_default_css=False)
        self.model = gr.State(None)
        self._run = gr.Checkbox(visible=False)

    def connect(
        self,
        model: gr.components.Component,
        prompt: gr.components.Component,
        exact_key: gr.components.Component,
        controls: OptionControls,
        generate: gr.Button,
    ) -> None:
        """Has the page's load fill these in, and press the button where a link says so."""
        self._controls = controls
        self._page.load(
            self._restore,
            None,
            [self.notice, self.model, self._run, model, prompt, exact_key, *controls.inputs],
            **QUIET,
        ).then(None, self._run, None, js=PRESS, **QUIET)
        # What was wrong with the link is no news any more.
        generate.click(None, None, self.notice, js="() => ''", **QUIET)

    def _restore(self, request: gr.Request) -> list[Any]:
        models = {model.name: model for model in self._page.models()}
        query = {name: str(text) for name, text in dict(request.query_params).items()}
        link = permalink.read(query, list(models), self._controls.ranges)
        problem = permalink.problem(link)
        told = notice(problem) if problem else ""
        if link.is_empty:
            return [told, None, link.run and not problem, *[gr.skip()] * (3 + len(NAMES))]
        first = next(iter(models), None)
        name = link.model or first
        example = examples_for(models.get(str(name)))[0]
        return [
            told,
            name if name != first else None,
            link.run and not problem,
            name,
            example.prompt if link.prompt is None else link.prompt,
            bool(link.exact_key),
            *values_for(self._page.limits.within(example.options).replace(**link.options)),
        ]
