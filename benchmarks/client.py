"""`Client`: OpenAI's client of a server, with the times of its answers.

Knows OpenAI's protocol, and the fields of this project's answers where a server has them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from openai import OpenAI

PATIENCE_S = 600.0


@dataclass(frozen=True)
class Answer:
    """One streamed answer.

    Attributes:
        sent, first, last: times of the request and of text, by `time.perf_counter()`.
        tokens, prompt_tokens, cached_tokens: the server's counts.
        cache: this engine's outcome: "hit", "miss", "disk" or "reused".
    """

    sent: float
    first: float
    last: float
    text: str
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    cache: str = ""

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.first - self.sent

    @property
    def tpot_s(self) -> float:
        """Time of each further token."""
        return (self.last - self.first) / max(1, self.tokens - 1)


class Client:
    """Asks one model of one server."""

    def __init__(self, url: str, model: str) -> None:
        self._openai = OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
        )
        self._model = model

    def chat(self, messages: Sequence[dict[str, str]], **options: Any) -> Answer:
        """The answer to messages.

        Raises:
            openai.APIError: the server refuses, or failed.
        """
        return self._read(self._openai.chat.completions.create, messages=messages, **options)

    def complete(self, prompt: str, **options: Any) -> Answer:
        """The continuation of a text; raises as `chat` does."""
        return self._read(self._openai.completions.create, prompt=prompt, **options)

    def _read(self, create: Callable[..., Any], **arguments: Any) -> Answer:
        texts: list[str] = []
        times: list[float] = []
        timings: dict[str, Any] = {}
        sent = time.perf_counter()
        for chunk in create(
            model=self._model, stream=True, stream_options={"include_usage": True}, **arguments
        ):
            for choice in chunk.choices:
                text = choice.delta.content if hasattr(choice, "delta") else choice.text
                if text:
                    texts.append(text)
                    times.append(time.perf_counter())
            usage = chunk.usage  # the last event has it
            timings |= (chunk.model_extra or {}).get("timings") or {}
        times = times or [time.perf_counter()]
        details = usage.prompt_tokens_details
        return Answer(
            *(sent, times[0], times[-1], "".join(texts)),
            *(usage.completion_tokens, usage.prompt_tokens),
            cached_tokens=(details and details.cached_tokens) or 0,
            cache=timings.get("cache", ""),
        )


def ask_all(
    requests: Sequence[Callable[[], Answer]], gap_s: float = 0.0
) -> tuple[list[Answer], float]:
    """Sends requests at intervals, each from its own thread; returns the answers, and seconds for
    all."""
    ready = threading.Barrier(len(requests))

    def ask(number: int) -> Answer:
        ready.wait()
        time.sleep(number * gap_s)
        return requests[number]()

    with ThreadPoolExecutor(len(requests)) as threads:
        answers = list(threads.map(ask, range(len(requests))))
    return answers, max(each.last for each in answers) - min(each.sent for each in answers)
