"""*Your runs*: what can be done with this visitor's runs.

Knows the components and what each event does to the records. Must not know how records look.
"""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import gradio as gr

from playground.context.draft import Draft
from playground.context.page_context import PageContext
from playground.context.request_fields import RequestFields
from playground.history import records, records_file
from playground.history.records import Record
from playground.history.report import SCRIPT, history_table
from playground.ui import components as ui
from playground.ui import quantities
from playground.ui.wording import model_name
from xla_backend import BackendError, GenerationOptions, InvalidRequest
from xla_backend.interface.options import OPTIONS

_FULL = (
    "This browser has no room for more runs, or stores nothing for this page: they are lost when "
    "it is closed. Export what you want to keep; clear the others."
)


class HistoryPanel:
    name = "Your runs"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Column(elem_classes="card"):
            with gr.Row(elem_classes="card-head history-head"):
                ui.heading(
                    "Your runs",
                    "Kept in this browser. Shape is prompt or input slots · beams · new slots.",
                )
                with gr.Row(elem_classes="history-actions"):
                    self.csv = ui.small_button("Export CSV", "export_csv")
                    self.json = ui.small_button("Export JSON", "export_json")
                    self.upload = ui.small_button("Import JSON", "import_json", min_width=100)
                    self.clear = ui.small_button("Clear", "clear")
                    self.undo = ui.small_button("Undo clear", "undo_clear", visible=False)
            self.notice = ui.html("", "history_notice")
            self.table = ui.html(history_table([]), "history", js_on_load=SCRIPT)
        self._cleared = gr.State([])
        self._made = gr.Textbox(visible=False)
        self._news = gr.Textbox(visible=False)
        self._press = gr.Checkbox(visible=False)

    def connect(self, request: RequestFields) -> None:
        """Connects the buttons; a rerun sets the request's fields."""
        self._request = request
        page, runs = self._page, self._page.runs_of_visitor
        runs.change(None, runs, None, js="(runs) => tellRuns(runs)", **ui.QUIET)
        page.in_sight["runs"].click(
            lambda value: history_table(records.readable(value)), runs, self.table, **ui.LATEST
        )
        full = json.dumps(str(ui.notice(_FULL)))
        page.runs_are_lost.click(None, None, self.notice, js=f"() => {full}", **ui.QUIET)
        changed = [runs, self.notice]
        page.runs_are_new.click(
            self._take_over,
            [runs, self._news],
            changed,
            js="(runs) => [runs, runsOfOthers()]",
            queue=False,
            **ui.FOLLOWING,
        )
        cleared = [*changed, self._cleared, self.undo]
        self.clear.click(self._clear_runs, [runs, self._cleared], cleared, **ui.QUIET)
        self.undo.click(self._undo, [runs, self._cleared], cleared, **ui.QUIET)
        self.table.delete(self._delete, runs, changed, **ui.QUIET)
        self.table.retry(
            self._rerun, runs, [self.notice, self._press, *request.outputs], **ui.QUIET
        ).then(None, self._press, None, js=ui.PRESS, **ui.QUIET)
        ui.import_file(self.upload, self._made, self._import, [runs], changed)
        for button, export, name, kind in (
            (self.csv, _csv, "xla-playground-runs.csv", "text/csv;charset=utf-8"),
            (self.json, _json, "xla-playground-runs.json", "application/json"),
        ):
            ui.save_file(button, page.file, runs, self.notice, export, name, kind)

    def _changed(self, runs: list[Record], message: str = "") -> ui.Updates:
        """The records; `message` is a notice in HTML."""
        return {self._page.runs_of_visitor: runs, self.notice: message}

    def _take_over(self, runs: Any, news: str) -> ui.Updates:
        """Takes over changes from other windows of this browser."""
        mine = records.readable(runs)
        with contextlib.suppress(ValueError, TypeError, KeyError):  # not from the page's script
            for change in json.loads(news):
                before, after = (records.readable(change[when]) for when in ("before", "after"))
                mine = records.taken_over(mine, before, after)
        return self._changed(mine)

    def _clear_runs(self, runs: Any, cleared: list[Record]) -> ui.Updates:
        stored = records.readable(runs) or cleared  # a second press clears nothing
        return {
            **self._changed([]),
            self._cleared: stored,
            self.undo: gr.update(visible=bool(stored)),
        }

    def _undo(self, runs: Any, cleared: list[Record]) -> ui.Updates:
        """Restores the cleared runs below those that came since."""
        return {
            **self._changed(records.under(records.readable(runs), cleared)),
            self._cleared: [],
            self.undo: gr.update(visible=False),
        }

    def _delete(self, runs: Any, event: gr.EventData) -> ui.Updates:
        return self._changed(records.without(records.readable(runs), _number(event)))

    def _import(self, text: str, runs: Any) -> ui.Updates:
        if not text:
            return {self.notice: gr.skip()}
        own = records.readable(runs)
        try:
            others, unreadable = records_file.from_json(text)
        except BackendError as error:
            return {self.notice: ui.notice(str(error))}
        merged, added = records.merge(own, others)
        return self._changed(merged, ui.notice(_imported(added, len(others), unreadable), "calm"))

    def _rerun(self, runs: Any, event: gr.EventData, request: gr.Request) -> ui.Updates:
        """Sets the request's fields; the browser then presses the button."""
        run = records.find(records.readable(runs), _number(event))
        try:
            if self._page.runs.of(str(request.session_hash)) is not None:
                raise InvalidRequest("Your last run has not ended yet. Wait for it, then rerun.")
            return {self.notice: "", self._press: True, **self._filled_in(run)}
        except BackendError as error:
            return {self.notice: ui.notice(str(error)), self._press: False}

    def _filled_in(self, run: Record | None) -> ui.Updates:
        """Updates that set the fields to a run's request.

        Raises:
            InvalidRequest: the request cannot be repeated exactly.
        """
        if run is None:
            raise InvalidRequest("That run is no longer kept. Reload the page to see which are.")
        name = f"Run {run['run']}"
        if not run["prompt_is_whole"]:
            raise InvalidRequest(
                f"{name} had a prompt that was not kept whole (more than "
                f"{records.MAX_CHARACTERS:,} characters, several messages, or tools), so it cannot "
                "be run again."
            )
        offered = {model.name: model.is_instruct for model in self._page.models()}
        model = next((m for m in offered if run["model"] in (m, model_name(m))), None)
        if model is None:
            raise InvalidRequest(
                f"{name} used {model_name(run['model'])}, which this page does not offer."
            )
        options = GenerationOptions.from_dict(run["options"])
        for option, value in OPTIONS.items():  # from an imported file
            if getattr(options, option) and not value.label:
                raise InvalidRequest(f"{name} had {option}, which the page has no control for.")
        for option, (low, high) in self._request.controls.ranges.items():
            value = run["options"][option]
            if not low <= value <= high:
                raise InvalidRequest(
                    f"{name} had {option.replace('_', ' ')} {value:g}; the controls go from "
                    f"{low:g} to {high:g}."
                )
        settings = {
            "model": model,
            "prompt": run["prompt"],
            "system": run["system"] or "",
            "raw": offered[model] and run["system"] is None,
        }
        updates = self._request.filled_in(Draft(settings).whole(), options)
        return {**updates, self._request.controls.hold: options.do_sample}


def _number(event: gr.EventData) -> object:
    return event._data.get("run") if isinstance(event._data, dict) else None


def _imported(added: int, readable: int, unreadable: int) -> str:
    """The result of an import, in a sentence or two."""
    sentence = f"{quantities.count(added, 'run')} imported."
    if left := readable - added:
        sentence += (
            f" {quantities.count(left, 'run')} left out: already here, or no room for more than "
            f"{records.MAX_RUNS}."
        )
    if unreadable:
        sentence += f" {quantities.count(unreadable, 'run')} could not be read."
    return sentence


def _csv(value: Any) -> str:
    runs = records.readable(value)
    # Without the byte order mark, Excel does not recognise UTF-8.
    return "\ufeff" + records_file.to_csv(runs) if runs else ""


def _json(value: Any) -> str:
    runs = records.readable(value)
    return records_file.to_json(runs, datetime.now(UTC)) if runs else ""
