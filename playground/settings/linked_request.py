"""What a request is filled in with when the page opens: by a link, or as it was before a reload.

Knows the components and the page's load event. Must not know what a link looks like.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gradio as gr

from playground.context.draft import CHAT, Draft, by_column, read
from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.settings.columns import OWN, SHARED, Columns, columns_in
from playground.settings.examples import examples_for
from playground.ui.components import PRESS, QUIET, Updates, html, notice
from playground.ui.wording import Wording, wording_of
from xla_backend import Prompt


class LinkedRequest:
    """Builds the notice about a link where it is created.

    Attributes:
        model: the model that a link has just chosen, whose own examples must not replace what the
            link says; None otherwise.
        columns: all columns, see `Columns.to_json`.
    """

    def __init__(self, page: PageContext) -> None:
        self._page = page
        self.notice = html("", "link_notice")
        self.model = gr.State(None)
        self._run = gr.Checkbox(visible=False)
        self._before = gr.Textbox(visible=False)
        self._is_reload = gr.Checkbox(visible=False)
        self._cut = gr.Textbox(visible=False)
        self.columns = gr.Textbox(visible=False)

    def connect(
        self,
        fields: RequestFields,
        interrupted: Callable[[Prompt, str, Wording], Updates],
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
            [self.notice, self._run, self.columns, *fields.outputs, *result],
            js="() => requestBefore()",
            **QUIET,
        ).then(None, self._run, None, js=PRESS, **QUIET)

    def read(self, values: object) -> Draft:
        """Settings from outside, as this page can have them."""
        known = values if isinstance(values, dict) else {}
        return read(known, self._page.models(), self._fields.controls.ranges)

    def whole(self, draft: Draft) -> Updates:
        """Updates that set the whole request: where a draft says nothing, as the page begins."""
        models = self._page.models()
        first = models[0].name if models else None
        name = draft.settings.get("model", first)
        example = examples_for(self._page.info(str(name)))[0]
        settings = {"model": name, "prompt": example.prompt, **draft.whole().settings}
        options = self._page.limits.within(example.options)
        return self._fields.filled_in(Draft(settings, draft.options), options)

    def column(self, settings: dict[str, Any]) -> Updates:
        """Updates that set a column's own settings."""
        updates = self.whole(self.read(settings))
        for name in SHARED:
            del updates[self._fields.settings[name]]
        return updates

    def own(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        """The own settings of a column from the values of the fields."""
        fields = self._fields
        own = {name: field for name, field in fields.settings.items() if name in OWN}
        holds = values[fields.controls.hold]
        return {n: values[f] for n, f in own.items() if f in values and (holds or n != "seed")}

    def _restore(self, before: str, is_reload: bool, cut: str, request: gr.Request) -> Updates:
        query = {name: str(text) for name, text in dict(request.query_params).items()}
        if query.get("tab") == CHAT:  # the prompt is its message
            query = {name: text for name, text in query.items() if name not in ("prompt", "run")}
        first, *others = by_column(query)
        link, drafts = self.read(first), map(self.read, others)
        link = replace(link, problems=sum((each.problems for each in drafts), link.problems))
        written, columns = self._written(before)
        is_empty = link.is_empty and not link.problems and not others
        if "model" in written.settings and (is_reload or is_empty):
            updates: Updates = {self.notice: "", self._run: False, self.columns: columns}
            updates.update(self.whole(written))
            return {**updates, **(self._cut_short(updates, cut) if cut else {})}
        problem = link.problem("link")
        updates = {self.notice: notice(problem), self._run: link.run and not problem}
        if others:
            own = tuple(self.own(self.column(each)) for each in (first, *others))
            updates[self.columns] = Columns(own).to_json()
        return updates if link.is_empty and not others else {**updates, **self.whole(link)}

    def _written(self, before: str) -> tuple[Draft, str]:
        """What was written in the fields, as far as it can be read, and the columns: a browser may
        bring anything, and a visitor may have left a number half typed."""
        try:
            values = json.loads(before)
            columns = columns_in(values.pop("columns", ""))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return Draft(), ""
        return self.read(values), columns.to_json() if columns.are_compared else ""

    def _cut_short(self, updates: Updates, text: str) -> Updates:
        prompt = self._fields.prompt(updates)
        model = self._page.info(updates[self._fields.settings["model"]])
        return self._interrupted(prompt, text, wording_of(model, is_raw=isinstance(prompt, str)))
