"""The Statistics tab: first calls against cached ones, and how the visitor's own runs spread.

Knows the components and when they change. Must not know how anything looks or is computed.
"""

from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.history import records
from playground.tabs.statistics.report import engine_statistics, visitor_statistics
from playground.ui.components import EACH_TIME, heading, html


class StatisticsTab:
    name = "Statistics"

    def __init__(self, page: PageContext) -> None:
        self._page = page
        with gr.Row(elem_classes="columns two"):
            with gr.Column(elem_classes="card"):
                heading(
                    "The engine’s functions",
                    "For everybody who uses this page, and from earlier runs of the program. "
                    "Prompt or input slots · beams · new slots.",
                )
                self.engine = html("", "statistics_engine")  # filled in sight, as below
                self.sent = gr.State(None)
            with gr.Column(elem_classes="card"):
                heading(
                    "Your own runs",
                    f"From the history that this browser keeps, {records.MAX_RUNS} runs at most.",
                )
                self.runs = html("", "statistics_runs")
        gr.on(
            page.in_sight["statistics"].click,
            self._refresh,
            self.sent,
            [self.engine, self.sent],
            **EACH_TIME,
        )
        page.in_sight["statistics"].click(
            lambda runs: visitor_statistics(records.readable(runs)),
            page.runs_of_visitor,
            self.runs,
            **EACH_TIME,
        )

    def _refresh(self, sent: int | None) -> tuple[Any, Any]:
        """The engine's part, when it is another than the one last sent."""
        shown = engine_statistics(self._page.backend.cached_functions(), self._page.backend.past())
        new = hash(shown)
        return (gr.skip(), gr.skip()) if new == sent else (shown, new)
