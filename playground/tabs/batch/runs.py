"""A batch that a visitor has started: its prompts and their results.

Knows the engine's streams, turns and the files of results. Must not know components or HTML. Each
prompt is a turn of its own, so that other visitors' requests run in between.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from playground.context.page_context import PageContext
from playground.context.runs import TextRun, page_mode, reporting_errors
from playground.tabs.batch.prompts import BatchPrompt
from playground.ui.csv_cells import csv_table
from xla_backend import (
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelUnavailable,
    Prompt,
)
from xla_backend.interface.timing import PHASES, Span
from xla_backend.interface.trace import TracedRequest

_COLUMNS = (
    *("line", "prompt", "text", "cache", "batch_size"),
    *("padded_length", "num_beams", "max_new_tokens"),
    *("prompt_tokens", "new_tokens", "ttft_s", "tpot_s", "tokens_per_second"),
    *(f"{phase}_s" for phase in PHASES),
    *("load_s", "total_s", "problem"),
)


@dataclass
class BatchRow:
    """A prompt of a batch and its result so far."""

    prompt: BatchPrompt
    sent: Prompt  # what the model is asked; messages where it is an instruct model
    text: str = ""  # the text so far
    result: GenerationResult | None = None  # the answer; None until it is there
    spans: tuple[Span, ...] = ()  # what the page did meanwhile
    problem: str = ""  # why it failed

    @property
    def is_done(self) -> bool:
        """Whether it is finished."""
        return self.result is not None or bool(self.problem)


class Batch:
    """Prompts that run one after the other.

    Attributes:
        rows: one for each prompt, in order.
        skipped: lines of the table that have no prompt.
        stopped: whether the visitor has asked for the end.
    """

    def __init__(
        self, model: str, rows: list[BatchRow], options: GenerationOptions, exact_key: bool
    ) -> None:
        self.model = model
        self.options = options
        self.exact_key = exact_key
        self.rows = rows
        self.skipped: list[int] = []
        self.stopped = False
        self._run: TextRun | None = None
        self._enter_next()

    @property
    def current(self) -> BatchRow | None:
        """The first row that is not done; None at the end."""
        return next((row for row in self.rows if not row.is_done), None)

    @property
    def is_over(self) -> bool:
        """Whether the batch is finished."""
        return self.stopped or self.current is None

    @property
    def outcomes(self) -> Counter[CacheOutcome]:
        """How many answers had which cache outcome."""
        return Counter(row.result.cache for row in self.rows if row.result)

    def stop(self) -> None:
        """Stops it; what was generated so far is kept. May be called from any thread."""
        self.stopped = True
        if self._run is not None:
            self._run.stop()

    async def turn(self, page: PageContext) -> AsyncIterator[None]:
        """Runs the next prompt; yields while its text grows. Raises nothing."""
        row, run = self.current, self._run
        if row is None or run is None or self.stopped:
            return
        with reporting_errors() as ending:
            async for text in run.steps(page.backend):
                row.text = text
                yield
        row.problem = ending.problem
        if (result := run.result) is not None and not row.problem:
            row.result, row.text = result, result.text
            row.spans = tuple(run.spans)
        elif not row.problem and self.stopped:
            row.text = ""
        self._enter_next()

    def _enter_next(self) -> None:
        """Starts the next prompt's queue time."""
        row = self.current
        if row is not None and not self.stopped:
            self._run = TextRun(self.model, row.sent, self.options, self.exact_key)

    def to_json(self) -> str:
        """The finished results for a file: an object for each prompt, as `/generate` returns it."""
        return json.dumps(
            {
                "model": self.model,
                "options": self.options.to_dict(),
                "exact_key": self.exact_key,
                "results": [_row_json(row) for row in self.rows if row.is_done],
            },
            indent=1,
            ensure_ascii=False,
        )

    def traced(self) -> list[TracedRequest]:
        """What took how long, of each prompt that has a result."""
        return [TracedRequest(row.result, row.spans) for row in self.rows if row.result]

    def to_csv(self) -> str:
        """All finished results as a table that is safe to open in a spreadsheet."""
        rows = (_row_values(row) for row in self.rows if row.is_done)
        return csv_table(_COLUMNS, [[row.get(name) for name in _COLUMNS] for row in rows])


def checked(
    page: PageContext,
    model: str,
    prompts: Sequence[BatchPrompt],
    options: GenerationOptions,
    exact_key: bool,
) -> Batch:
    """A batch whose prompts were all checked.

    Raises:
        InvalidRequest: a prompt is invalid; the message names its line.
        ModelUnavailable: the model is not offered or not available.
    """
    page.check_request(model, options=options)
    rows = [BatchRow(prompt, page.prompt(model, prompt.prompt)) for prompt in prompts]
    for row in rows:
        try:
            page.check_request(model, row.sent)
            mode = page_mode(options)
            page.backend.predict(model, row.sent, options, mode=mode, exact_key=exact_key)
        except InvalidRequest as error:
            raise InvalidRequest(f"Line {row.prompt.line}: {error}") from error
        except ModelUnavailable:
            # The tokenizer is not downloaded yet: the first run will fetch it, or say why not.
            break
    return Batch(model, rows, options, exact_key)


def _row_json(row: BatchRow) -> dict[str, Any]:
    given = {"line": row.prompt.line, "prompt": row.prompt.prompt}
    return {**given, **(row.result.to_json() if row.result else {"problem": row.problem})}


def _row_values(row: BatchRow) -> dict[str, object]:
    given: dict[str, object] = {"line": row.prompt.line, "prompt": row.prompt.prompt}
    result = row.result
    if result is None:
        return {**given, "problem": row.problem}
    return {
        **given,
        "text": result.text,
        "cache": result.cache.value,
        "batch_size": result.batch_size,
        **result.key.to_dict(),
        "prompt_tokens": result.prompt_tokens,
        "new_tokens": result.new_tokens,
        "ttft_s": result.ttft_s,
        "tpot_s": result.tpot_s,
        "tokens_per_second": result.tokens_per_second,
        "load_s": result.load_s,
        **result.timing.to_dict(),
    }
