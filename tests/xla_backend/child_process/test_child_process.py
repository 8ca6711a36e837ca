"""A real child process: what it answers, how its death is noticed, what is kept of it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from xla_backend.child_process import calling
from xla_backend.child_process.parent_side import LAST_LINES, ChildProcess
from xla_backend.interface.errors import EngineStopped, InvalidRequest

WORKER = "tests.xla_backend.child_process.worker"
ROOT = Path(__file__).resolve().parents[3]


def has_ended(pid: int) -> bool:
    """Also a process that nobody has asked for its exit status."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildProcess]:
    compiled_code = "--tf_xla_persistent_cache_directory=/tmp/of-this-process"
    monkeypatch.setenv("TF_XLA_FLAGS", f"--tf_xla_auto_jit=0 {compiled_code}")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    child = ChildProcess(WORKER, {"job": 1}, {"OF_ITS_OWN": "yes"})
    yield child
    child.end()


def test_it_gets_its_job_and_answers(process: ChildProcess) -> None:
    process.send("first", None)
    assert process.receive() == ("result", None, {"job": 1})
    process.send("count", 3)
    pieces = [process.receive() for _ in range(4)]
    assert pieces == [("chunk", None, n) for n in range(3)] + [("result", None, 3)]

    process.send("refuse", "the prompt is empty.")
    kind, _, error = process.receive()
    assert (kind, type(error), str(error)) == ("error", InvalidRequest, "the prompt is empty.")

    # Without the folder of compiled code: there it would find what it is to compile itself; and
    # with TensorFlow's Keras.
    for name, value in (
        ("OF_ITS_OWN", "yes"),
        ("PATH", os.environ["PATH"]),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=0"),
        ("KERAS_BACKEND", "tensorflow"),
    ):
        process.send("variable", name)
        assert process.receive() == ("result", None, value)

    process.send("first", None)
    process.receive()
    with pytest.raises(TimeoutError):
        process.receive(timeout_s=0.05)
    assert not process.has_ended()

    process.send("first", None)
    process.receive()
    os.kill(process.pid, signal.SIGSTOP)
    process.end(within_s=0.2)
    assert process.has_ended()


def test_a_kill_is_noticed_and_told(process: ChildProcess) -> None:
    process.send("first", None)
    process.receive()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises((EOFError, OSError)):
        process.receive()
    process.end(within_s=300)
    assert process.has_ended()
    assert not process.has_exited()
    assert process.cause() == "it was killed, as the system does when memory runs out"
    process.send("first", None)  # is lost without an error


def test_what_it_sent_before_its_end_arrives(process: ChildProcess) -> None:
    process.send("end", 7)
    kind, _, value = process.receive()
    assert (kind, len(value)) == ("result", 1_000_000)
    with pytest.raises((EOFError, OSError)):
        process.receive()
    process.end(within_s=300)
    assert process.has_exited()
    assert process.cause() == "it ended with exit status 7"


def test_the_last_of_what_it_printed_is_kept(process: ChildProcess) -> None:
    for number in range(LAST_LINES):
        process.send("print", number)
    process.send("end", 1)
    process.receive()
    process.end(within_s=300)
    assert len(process.last_lines) == LAST_LINES
    last = LAST_LINES - 1
    assert list(process.last_lines)[-2:] == [f"{last} to stdout", f"{last} to stderr"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("234] Unknown flag in XLA_FLAGS: --xla_no", "XLA_FLAGS .* --xla_no: remove it"),
        ("234] Unknown flags in TF_XLA_FLAGS: --a --b", "TF_XLA_FLAGS .* --a --b: remove"),
        (
            '171] Could not open file "xla_a=1" to read flags for environment variable "XLA_FLAGS"',
            "XLA_FLAGS names no flag .*: xla_a=1",
        ),
        (
            "220] Check failed: tsl::Flags::Parse() Flag parsing failed.",
            "TF_XLA_FLAGS=--tf_xla_aut",
        ),
    ],
)
def test_wrong_flags_are_told_by_name(process: ChildProcess, line: str, says: str) -> None:
    process.send("print", f"F0000 parse_flags_from_env.cc:{line}\nusage:")
    process.send("end", 1)
    process.receive()
    process.end(within_s=300)
    assert re.search(says, process.flag_error)


def test_words_of_the_system_about_memory_are_understood(process: ChildProcess) -> None:
    process.send("print", "terminate called after throwing an instance of 'std::bad_alloc'")
    process.send("end", 1)
    process.receive()
    process.end(within_s=300)
    assert process.cause() == "memory ran out"


def test_a_function_is_called_and_its_answer_or_error_returned() -> None:
    assert calling.started("math:hypot", 3.0, 4.0).answer() == 5.0
    with pytest.raises(EngineStopped, match=r"It failed \(ValueError: "):
        calling.started("math:sqrt", -1.0).answer()


@pytest.mark.parametrize(
    "start",
    [f"parent_side.ChildProcess({WORKER!r}, None, {{}})", "calling.started('time:sleep', 3600)"],
    ids=["a program", "a call"],
)
def test_it_learns_that_its_parent_was_killed(start: str) -> None:
    script = (
        "from xla_backend.child_process import calling, parent_side\n"
        f"process = {start}\n"
        "print(process.pid, flush=True)\n"
        "process.receive()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: has_ended(pid))


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(EngineStopped, match=r"cannot be started: .*No such file"):
        ChildProcess(WORKER, None, {})
