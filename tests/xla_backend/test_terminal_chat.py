"""`python -m xla_backend chat`, run as users run it: through pipes, and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import instruct

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(
    r"\[(MISS|HIT|DISK|REUSED) · TTFT [\d.]+ s( · TPOT [\d.]+ s)? · (\d+) tokens?"
    r" · reused (\d+) of (\d+) prompt tokens( · stopped)?\]"
)
PATIENCE_S = 240


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    model = instruct(tmp_path_factory.mktemp("chat") / "model")
    return [sys.executable, "-m", "xla_backend", "chat", "--no-store", "--model", str(model)]


def reported(output: str) -> list[tuple[str, int, int, int, bool]]:
    """Outcome, tokens, reused and prompt tokens, and whether it was stopped, of each answer."""
    return [
        (found[1], int(found[3]), int(found[4]), int(found[5]), found[6] is not None)
        for found in LINE.finditer(output)
    ]


def test_each_turn_says_what_it_reused(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "--system", "Be brief.", "--max-new-tokens", "8"],
        input="hello\n\nand then\n/new\nhello\n" + "word " * 600 + "\n/quit\nnever read\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    first, second, anew = reported(done.stdout)
    assert (first[0], first[2]) == ("MISS", 0)
    assert second[0] == "HIT"
    assert second[3] > second[2] >= first[3] - 1
    # The same words: all but their last token are known.
    assert anew[2:4] == (first[3] - 1, first[3])
    assert "too long" in done.stderr
    assert "never read" not in done.stdout + done.stderr


def test_without_a_chat_template_it_says_what_to_do(small_gpt2: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xla_backend", "chat", "--model", str(small_gpt2)],
        input="hello\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert "has no chat template" in done.stderr


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self._near, far = pty.openpty()
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=far, stdout=far, stderr=far, start_new_session=True
        )
        os.close(far)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._near, keys.encode())

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Reads until the pattern was shown so many times."""
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, self.shown)) < times:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._near], [], [], 1.0)[0]:
                self.shown += os.read(self._near, 4096).decode(errors="replace")

    def close(self) -> None:
        os.close(self._near)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def terminal(command: list[str], tmp_path: Path) -> Iterator[Terminal]:
    # Large enough that an answer takes seconds, in which it can be stopped; none ends by itself.
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12}
    model = instruct(tmp_path / "slow", max_position_embeddings=1100, **sizes)
    end = json.loads((model / "config.json").read_text())["eos_token_id"]
    endless = ["--max-new-tokens", "400", "--logit-bias", f"{end}=-100"]
    opened = Terminal([*command[:-1], str(model), *endless])
    yield opened
    opened.close()


def test_ctrl_c_stops_an_answer_and_the_talk_goes_on(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("hello\n")
    terminal.wait_for("hello\r\n.{20}")  # the answer has begun
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.wait_for(re.escape("prompt tokens"))
    terminal.type("again\n")
    terminal.wait_for(re.escape("prompt tokens"), 2)
    terminal.type("\x04")  # Ctrl-D
    assert terminal.process.wait(PATIENCE_S) == 0
    first, second = reported(terminal.shown)
    assert first[1] < 400
    assert first[4], "it was stopped"
    assert second[2] >= first[3] - 1
