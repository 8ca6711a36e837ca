"""`python -m xla_backend chat`: what is typed, what is answered, and Ctrl-C."""

import io
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checkpoints import instruct
from tests.playground.samples import result
from xla_backend import GenerationOptions, GenerationResult, Message, ModelInfo
from xla_backend.__main__ import main
from xla_backend.terminal_chat import TerminalChat

LINE = re.compile(
    r"\[(MISS|HIT|DISK|REUSED) · TTFT [\d.]+ s( · TPOT [\d.]+ s)? · (\d+) tokens?"
    r" · reused (\d+) of (\d+) prompt tokens( · stopped)?\]"
)


def typed(patch: pytest.MonkeyPatch, *lines: str) -> None:
    """Lines of a keyboard, and then the end of the input."""
    left = iter(lines)

    def read(_: str = "") -> str:
        if (line := next(left, None)) is None:
            raise EOFError
        return line

    patch.setattr("builtins.input", read)


def reported(output: str) -> list[tuple[str, int, int, int, bool]]:
    """Outcome, tokens, reused and prompt tokens, and whether it was stopped, of each answer."""
    return [
        (found[1], int(found[3]), int(found[4]), int(found[5]), found[6] is not None)
        for found in LINE.finditer(output)
    ]


def test_each_turn_says_what_it_reused_where_there_is_a_template(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    small_gpt2: Path,
) -> None:
    model = str(instruct(tmp_path / "model"))
    lines = ("hello", "", "and then", "/new", "hello", "word " * 600, "/quit", "never read")
    typed(monkeypatch, *lines)
    asked = ("--system", "Be brief.", "--max-new-tokens", "8")
    assert main(["chat", "--no-store", "--model", model, *asked]) == 0
    shown, told = capfd.readouterr()
    first, second, anew = reported(shown)
    assert (first[0], first[2]) == ("MISS", 0)
    assert second[0] == "HIT"
    assert second[3] > second[2] >= first[3] - 1
    # The same words: all but their last token are known.
    assert anew[2:4] == (first[3] - 1, first[3])
    assert "shorten it by" in told

    assert main(["chat", "--no-store", "--model", str(small_gpt2)]) == 2
    assert "has no chat template" in capfd.readouterr().err


class Answer:
    """A stream that Ctrl-C is pressed in after its first word, unless it is the last answer."""

    def __init__(self, is_interrupted: bool) -> None:
        self._is_interrupted = is_interrupted
        self.result: GenerationResult | None = None

    def __iter__(self) -> Iterator[str]:
        yield "one"
        if self._is_interrupted:
            signal.raise_signal(signal.SIGINT)
        if self.result is None:
            yield " two"
            self.result = result(text="one two")

    def stop(self) -> None:
        self.result = result(text="one", finish="stopped")


def test_ctrl_c_stops_an_answer_and_the_talk_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Message, ...]] = []

    def stream(model: str, messages: tuple[Message, ...], *_: Any, **__: Any) -> Answer:
        asked.append(messages)
        return Answer(is_interrupted=len(asked) == 1)

    typed(monkeypatch, "hello", "again")
    info, out = ModelInfo("talker", "decoder-only", "bundled", "", 128), io.StringIO()
    engine: Any = SimpleNamespace(stream=stream)
    TerminalChat(engine, info, GenerationOptions(), "", out).run()
    first, second = reported(out.getvalue())
    assert (first[4], second[4]) == (True, False)
    talk = [("user", "hello"), ("assistant", "one"), ("user", "again")]
    assert asked[1] == tuple(Message(*each) for each in talk)
