"""A batch that a visitor has going: its prompts, and what became of each.

Knows the engine's streams, turns and what a file of results holds. Must not know components or
HTML. Each prompt is a turn of its own, so that others come in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playground.batch_prompts import BatchPrompt
from playground.csv_cells import csv_table
from playground.runs import Run
from xla_backend import (
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelUnavailable,
)
from xla_backend.timing import PHASES

if TYPE_CHECKING:
    from playground.page import PageContext

_COLUMNS = (
    *("line", "prompt", "text", "cache", "batch_size"),
    *("padded_length", "num_beams", "max_new_tokens"),
    *("prompt_tokens", "new_tokens", "tokens_per_second"),
    *(f"{phase}_s" for phase in PHASES),
    *("total_s", "problem"),
)


@dataclass
class BatchRow:
    """A prompt of a batch, and what is known of it so far.

    Attributes:
        text: what was written, as far as it is.
        result: the answer; None until it is there.
        problem: why there is none.
    """

    prompt: BatchPrompt
    text: str = ""
    result: GenerationResult | None = None
    problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        return self.result is not None or bool(self.problem)


class Batch:
    """Prompts that shall run one after the other.

    Attributes:
        rows: one a prompt, in their order.
        stopped: whether the visitor has asked for the end.
    """

    def __init__(
        self,
        model: str,
        prompts: Sequence[BatchPrompt],
        options: GenerationOptions,
        exact_key: bool,
    ) -> None:
        self.model = model
        self.options = options
        self.exact_key = exact_key
        self.rows = [BatchRow(prompt) for prompt in prompts]
        self.stopped = False
        self._run: Run | None = None
        self._enter_next()

    @property
    def current(self) -> BatchRow | None:
        """The first row that is not done; None at the end."""
        return next((row for row in self.rows if not row.is_done), None)

    @property
    def is_over(self) -> bool:
        """Whether nothing will be run any more."""
        return self.stopped or self.current is None

    @property
    def outcomes(self) -> Counter[CacheOutcome]:
        """How many answers came from where."""
        return Counter(row.result.cache for row in self.rows if row.result)

    def stop(self) -> None:
        """Asks for the end; what was written so far is kept. From any thread."""
        self.stopped = True
        if self._run is not None:
            self._run.stop()

    def turn(self, page: PageContext) -> Iterator[None]:
        """Runs the next prompt; yields while its text grows. No error comes out."""
        row, run = self.current, self._run
        if row is None or run is None or self.stopped:
            return
        with page.runs.told() as ending:
            for text in run.texts(page.backend, page.line.waited_s()):
                row.text = text
                yield
        row.problem = ending.problem
        if (result := run.result) is not None and not row.problem:
            row.result, row.text = result, result.text
        elif not row.problem and self.stopped:
            row.text = ""
        self._enter_next()

    def _enter_next(self) -> None:
        """From here on the next prompt waits; its queue time tells how long."""
        row = self.current
        if row is not None and not self.stopped:
            self._run = Run(self.model, row.prompt.prompt, self.options, self.exact_key)

    def to_json(self) -> str:
        """Everything that is done, for a file: one object a prompt, as `/generate` answers it."""
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

    def to_csv(self) -> str:
        """Everything that is done as a table, safe to open in a spreadsheet."""
        rows = (_row_values(row) for row in self.rows if row.is_done)
        return csv_table(_COLUMNS, [[row.get(name) for name in _COLUMNS] for row in rows])


def checked(
    page: PageContext,
    model: str,
    prompts: Sequence[BatchPrompt],
    options: GenerationOptions,
    exact_key: bool,
) -> Batch:
    """A batch in which no prompt is at fault, as far as can be told beforehand.

    Raises:
        InvalidRequest: one is; the message names its line.
        ModelUnavailable: the model is not offered, or cannot be had.
    """
    page.check_request(model, options=options)
    for prompt in prompts:
        try:
            page.check_request(model, prompt.prompt)
            page.backend.predict(model, prompt.prompt, options, exact_key=exact_key)
        except InvalidRequest as error:
            raise InvalidRequest(f"Line {prompt.line}: {error}") from error
        except ModelUnavailable:
            # The model's vocabulary is not here yet: the first run will fetch it, or say why not.
            break
    return Batch(model, prompts, options, exact_key)


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
        "tokens_per_second": result.tokens_per_second,
        **result.timing.to_dict(),
    }
