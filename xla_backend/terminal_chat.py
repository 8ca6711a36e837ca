"""`TerminalChat`: a conversation with an instruct model in a terminal.

Knows lines, signals and the line under an answer.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from xla_backend.interface.errors import InvalidRequest
from xla_backend.interface.prompt import Message
from xla_backend.interface.results import GenerationResult, ModelInfo

if TYPE_CHECKING:
    from xla_backend.engine.backend import Backend
    from xla_backend.interface.backend import AnyTextStream
    from xla_backend.interface.options import GenerationOptions

HELP = "Ctrl-C stops an answer, /new starts over, Ctrl-D or /quit ends."
SALT = "chat"
"""Any text: this process has the engine to itself."""


class TerminalChat:
    """Reads messages, streams answers, and keeps the conversation."""

    def __init__(
        self,
        backend: Backend,
        info: ModelInfo,
        options: GenerationOptions,
        system: str,
        out: IO[str],
    ) -> None:
        """`run` starts it.

        Args:
            backend: with the model loaded.
            info: the model.
            options: of every answer; new tokens are limited to half of the context.
            system: the system prompt; if empty, the chat template's.
            out: for answers; prompts go to stdout, which may be another terminal.
        """
        if info.context_length is not None:
            most = max(1, info.context_length // 2)
            options = options.replace(max_new_tokens=min(options.max_new_tokens, most))
        self._backend = backend
        self._model = info.name
        self._options = options
        self._out = out
        self._start = (Message("system", system),) if system else ()
        self._messages: tuple[Message, ...] = self._start

    def run(self) -> None:
        """Runs until the end of the input, or /quit."""
        print(f"{self._model}: {HELP}", file=sys.stderr)
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                return
            except KeyboardInterrupt:  # drops the line
                print(f"\n{HELP}", file=sys.stderr)
                continue
            if line == "/quit":
                return
            if line == "/new":
                self._messages = self._start
            elif line:
                self._answer(line)

    def _answer(self, line: str) -> None:
        messages = (*self._messages, Message("user", line))
        try:
            stream = self._backend.stream(self._model, messages, self._options, cache_salt=SALT)
            with _stopped_by_ctrl_c(stream):
                for chunk in stream:
                    print(chunk, end="", file=self._out, flush=True)
        except InvalidRequest as error:
            print(f"error: {error} /new starts over.", file=sys.stderr, flush=True)
            return
        if (result := stream.result) is None:  # stopped before it began
            return
        print(f"\n{describe(result)}", file=self._out, flush=True)
        if result.text.strip():
            self._messages = (*messages, Message("assistant", result.text))


@contextmanager
def _stopped_by_ctrl_c(stream: AnyTextStream) -> Iterator[None]:
    """Lets Ctrl-C stop the stream, instead of raising an exception inside the engine's work."""
    before = signal.signal(signal.SIGINT, lambda number, frame: stream.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def describe(result: GenerationResult) -> str:
    """The line under an answer."""
    parts = [result.cache.value.upper()]
    if result.ttft_s is not None:
        parts.append(f"TTFT {result.ttft_s:.3f} s")
    if result.tpot_s is not None:
        parts.append(f"TPOT {result.tpot_s:.4f} s")
    parts.append(f"{result.new_tokens} token{'s' * (result.new_tokens != 1)}")
    parts.append(f"reused {result.cached_tokens} of {result.prompt_tokens} prompt tokens")
    if result.finish == "stopped":
        parts.append("stopped")
    return f"[{' · '.join(parts)}]"
