"""What a request is filled in with when the page opens: by a link, or as it was before a reload.

Knows the components and the page's load event. Must not know what a link looks like.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gradio as gr

from playground.tabs.generate import permalink
from playground.tabs.generate.examples import examples_for
from playground.ui.components import PRESS, QUIET, Updates, html, notice
from playground.ui.families import Family, family_of
from xla_backend import BackendError, Prompt

if TYPE_CHECKING:
    from playground.context.page_context import PageContext
    from playground.context.request_fields import RequestFields


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
        self._cut = gr.Textbox(visible=False)

    def connect(
        self,
        fields: RequestFields,
        generate: gr.Button,
        interrupted: Callable[[Prompt, str, Family], Updates],
        result: list[Any],
    ) -> None:
        """Fills the fields in when the page loads, and presses the button if the link says so.

        Args:
            interrupted: what a text that the reload has cut makes of the components in `result`.
        """
        self._fields, self._interrupted = fields, interrupted
        self._page.load(
            self._restore,
            [self._before, self._is_reload, self._cut],
            [self.notice, self.model, self._run, *fields.inputs, *result],
            js="() => requestBefore()",
            **QUIET,
        ).then(None, self._run, None, js=PRESS, **QUIET)
        # The visitor has moved on: the complaint about the link goes.
        generate.click(None, None, self.notice, js="() => ''", **QUIET)

    def _restore(self, before: str, is_reload: bool, cut: str, request: gr.Request) -> Updates:
        models = {model.name: model for model in self._page.models()}
        first, fields = next(iter(models), None), self._fields
        query = {name: str(text) for name, text in dict(request.query_params).items()}
        if query.get("tab") in (permalink.CHAT, permalink.SIDES):
            query = {}
        link = permalink.read(query, list(models), fields.controls.ranges)
        written = self._written(before, list(models))
        updates: Updates
        if written and (is_reload or (link.is_empty and not link.problems)):
            name = written[fields.model]
            of_link = name if name != first else None
            updates = {**written, self.notice: "", self.model: of_link, self._run: False}
            if cut:
                text, is_raw = str(written[fields.text]), bool(written[fields.is_raw])
                prompt = self._page.prompt(name, text, is_raw=is_raw)
                family = family_of(models[name], is_raw=isinstance(prompt, str))
                updates |= self._interrupted(prompt, cut, family)
            return updates
        problem = permalink.problem(link)
        updates = {self.notice: notice(problem), self._run: link.run and not problem}
        if link.is_empty:
            return {**updates, self.model: None}
        name = link.model or first
        example = examples_for(models.get(str(name)))[0]
        options = self._page.limits.within(example.options).replace(**link.options)
        return {
            **updates,
            self.model: name if name != first else None,
            fields.model: name,
            fields.text: example.prompt if link.prompt is None else link.prompt,
            fields.system: link.system or "",
            fields.is_raw: bool(link.raw),
            fields.exact_key: bool(link.exact_key),
            fields.controls.hold: "seed" in link.options,
            **fields.of_options(options),
        }

    def _written(self, before: str, models: list[str]) -> Updates:
        """What was written in the fields.

        Empty where there is nothing, or nothing that fits: a browser may bring anything.
        """
        fields = self._fields
        try:
            values: Updates = dict(zip(fields.inputs, json.loads(before), strict=True))
        except (ValueError, TypeError):
            return {}
        # A field that was never in sight has no value.
        switches = (fields.controls.hold, fields.is_raw, fields.exact_key)
        are_kinds = (
            isinstance(values[fields.text], str)
            and isinstance(values[fields.system], str | None)
            and all(isinstance(values[switch], bool) for switch in switches)
        )
        if not are_kinds or values[fields.model] not in models:
            return {}
        try:
            fields.options(values)
        except (ValueError, TypeError, BackendError):  # the text is worth more than they are
            for control in fields.controls.inputs:
                del values[control]
        return values
