"""A batch that a visitor has started: its prompts and their results.

Knows how prompts become requests, one after the other or arriving while others run, and the files
of results. Must not know components or HTML.
"""

import json
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from playground.context.page_context import PageContext
from playground.context.runs import TextRun, page_mode
from playground.context.runs_together import Member, RunsTogether
from playground.tabs.batch.prompts import BatchPrompt, prompts_in
from playground.tabs.batch.summary import Summary, summary
from playground.ui.csv_cells import csv_table
from playground.ui.wording import model_name
from xla_backend import (
    CacheOutcome,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelUnavailable,
    Prompt,
    SharedBackend,
)
from xla_backend.interface.timing import PHASES
from xla_backend.process.trace import TracedRequest
from xla_backend.rows.scheduler import MAX_ROWS

APART_S = 0.15
"""Seconds between two requests of many visitors."""
_COLUMNS = (
    *("line", "prompt", "text", "cache", "batch_size"),
    *("padded_length", "num_beams", "max_new_tokens"),
    *("prompt_tokens", "new_tokens", "ttft_s", "tpot_s", "tokens_per_second"),
    *(f"{phase}_s" for phase in PHASES),
    *("load_s", "total_s", "problem"),
)


class BatchMember(Member):
    """A prompt of a batch and its request."""

    def __init__(self, prompt: BatchPrompt, run: TextRun) -> None:
        super().__init__(run, prompt.prompt)
        self.prompt = prompt

    async def send(self, backend: SharedBackend) -> None:
        self.run.pressed_at = time.perf_counter()  # it waited for the others, in no queue
        await super().send(backend)

    @property
    def result(self) -> GenerationResult | None:
        """The answer; None until it is there."""
        return self.run.result if self.is_over and not self.problem else None

    @property
    def is_done(self) -> bool:
        return self.result is not None or bool(self.problem)


class Batch(RunsTogether):
    """Prompts that run one after the other, or arrive while others run.

    Attributes:
        members: one for each request.
        skipped: lines of the table that have no prompt.
        visitors: how many send the prompts in turn, as rows, each with a salt of its own, so that
            none finds another's prefix; 0 where padded shapes serve them, one after the other.
    """

    members: Sequence[BatchMember]
    update_s = 0.25

    def __init__(
        self,
        model: str,
        prompts: Sequence[tuple[BatchPrompt, Prompt]],
        options: GenerationOptions,
        visitors: int = 0,
    ) -> None:
        """Sends nothing yet; each prompt is given as it was written and as it is sent."""
        self.model, self.options = model, options
        self.visitors = visitors
        self.skipped: list[int] = []
        members = [
            BatchMember(
                prompt,
                TextRun(model, sent, options, secrets.token_hex(16) if visitors else ""),
            )
            for prompt, sent in prompts
        ]
        super().__init__(members, APART_S if visitors else None)

    def summary(self) -> Summary | None:
        """The figures; None unless every request has its whole text, with spans."""
        whole = [result for member in self.members if (result := member.whole)]
        results = [result for result in whole if result.spans]
        return summary(results) if len(results) == len(self.members) else None

    @property
    def outcomes(self) -> Counter[CacheOutcome]:
        """How many answers had which cache outcome."""
        return Counter(result.cache for member in self.members if (result := member.result))

    def to_json(self) -> str:
        """The finished results for a file: an object for each prompt, as `/generate` returns it."""
        return json.dumps(
            {
                "model": self.model,
                "options": self.options.to_dict(),
                "results": [_json(member) for member in self.members if member.is_done],
            },
            indent=1,
            ensure_ascii=False,
        )

    def traced(self) -> list[TracedRequest]:
        """What took how long, of each prompt that has a result."""
        return [
            TracedRequest.of(result, tuple(member.run.spans))
            for member in self.members
            if (result := member.result)
        ]

    def to_csv(self) -> str:
        """All finished results as a table that is safe to open in a spreadsheet."""
        rows = (_values(member) for member in self.members if member.is_done)
        return csv_table(_COLUMNS, [[row.get(name) for name in _COLUMNS] for row in rows])


def most_visitors(page: PageContext) -> int:
    """How many requests may arrive together here."""
    return min(MAX_ROWS, page.limits.waiting_each)


def checked(
    page: PageContext,
    model: str,
    text: str,
    options: GenerationOptions,
    system: str = "",
    visitors: int = 0,
) -> Batch:
    """A batch of the prompts in a text, all of which were checked.

    Raises:
        InvalidRequest: a prompt or a number is invalid; the message names its line.
        ModelUnavailable: the model is not offered or not available.
    """
    found, skipped = prompts_in(text)
    page.check_request(model, options=options)
    if visitors:
        _check_visitors(page, model, visitors)
        options = options.of_row()
        found = [*islice(cycle(found), visitors)]
    prompts = [(prompt, page.prompt(model, prompt.prompt, system)) for prompt in found]
    for prompt, sent in prompts:
        try:
            page.check_request(model, sent)
            mode = None if visitors else page_mode(options)
            page.backend.predict(model, sent, options, mode=mode)
        except InvalidRequest as error:
            raise InvalidRequest(f"Line {prompt.line}: {error}") from error
        except ModelUnavailable:
            # The tokenizer is not downloaded yet: the first run will fetch it, or say why not.
            break
    batch = Batch(model, prompts, options, visitors)
    batch.skipped = skipped
    return batch


def _check_visitors(page: PageContext, model: str, visitors: int) -> None:
    most = most_visitors(page)
    if not 1 <= visitors <= most:
        raise InvalidRequest(f"Visitors must be a number from 1 to {most}.")
    info = page.info(model)
    if info is not None and info.family != "decoder-only":
        raise InvalidRequest(
            f"{model_name(model)} has no pool, so its requests cannot run as rows together. Choose "
            "a decoder-only model."
        )


def _json(member: BatchMember) -> dict[str, Any]:
    given = {"line": member.prompt.line, "prompt": member.typed}
    result = member.result
    return {**given, **(result.to_json() if result else {"problem": member.problem})}


def _values(member: BatchMember) -> dict[str, object]:
    given: dict[str, object] = {"line": member.prompt.line, "prompt": member.typed}
    result = member.result
    if result is None:
        return {**given, "problem": member.problem}
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
