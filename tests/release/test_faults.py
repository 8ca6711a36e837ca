"""What an engine survives, each done to a real one: it is stopped, starved, and robbed of folders.

All of it happens under a clock that was set back a day while the engine ran. Kills are in
`test_process`, the store's own accidents in `test_store`, ends and starts of the app in `test_app`.
"""

import contextlib
import os
import resource
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.checkpoints import gpt2
from xla_backend import (
    BackendError,
    BackendProcess,
    CacheOutcome,
    EngineStatus,
    EngineStopped,
    GenerationOptions,
    GenerationResult,
    ModelUnavailable,
)
from xla_backend.process import supervisor
from xla_backend.process.watchdog import Patience

SHORT = GenerationOptions(max_new_tokens=4)
LARGE = GenerationOptions(max_new_tokens=500, num_beams=8)
SET_BACK = """
import pathlib, time
began, real = time.perf_counter(), time.time

def set_back():
    if time.perf_counter() - began < 3:
        return real()
    pathlib.Path({mark!r}).touch()
    return real() - 24 * 3600

time.time = set_back
"""


@dataclass
class Robbed:
    """An engine, and what can be taken from it."""

    process: BackendProcess
    model: str
    folder: Path
    statuses: list[EngineStatus] = field(default_factory=list)
    stop_at: str = ""

    def take(self, status: EngineStatus) -> None:
        self.statuses.append(status)
        if self.stop_at and status.state == self.stop_at:
            self.stop_at = ""
            os.kill(self.process.pid, signal.SIGSTOP)

    def generate(
        self, options: GenerationOptions = SHORT, model: str = "", prompt: str = "Once"
    ) -> GenerationResult:
        result = self.process.generate(model or self.model, prompt, options)
        timing = result.timing.to_dict()
        total = timing.pop("total_s")
        assert all(seconds >= 0 for seconds in timing.values())
        assert sum(timing.values()) == pytest.approx(total, rel=1e-6)
        return result


@pytest.fixture(scope="module")
def robbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robbed]:
    folder = tmp_path_factory.mktemp("faults")
    # Many heads: what a long prompt needs of memory is theirs.
    model = str(gpt2(folder / "model", seed=41, n_positions=1100, n_head=16))
    (folder / "clock").mkdir()
    script = SET_BACK.format(mark=str(folder / "clock-was-set-back"))
    (folder / "clock" / "sitecustomize.py").write_text(script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "clock"))
        engine = Robbed(None, model, folder)  # type: ignore[arg-type]
        engine.process = BackendProcess(
            on_status=engine.take,
            default_model=model,
            store=folder / "store",
            warm_up=None,
            patience=Patience(generating_s=5.0, step_s=0.0),
        )
        engine.process.wait_ready(240)
        yield engine
        engine.process.close()


def test_a_model_s_folder_removed_while_it_is_used(robbed: Robbed) -> None:
    other = str(gpt2(robbed.folder / "other", seed=42))
    before = robbed.generate(model=other)
    shutil.rmtree(other)
    again = robbed.generate(model=other)
    assert (again.text, again.cache) == (before.text, CacheOutcome.HIT)
    with pytest.raises(ModelUnavailable, match="never-there"):
        robbed.generate(model=str(robbed.folder / "never-there"))


def test_a_hang_at_work_is_told(robbed: Robbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "NOTE_S", 600.0)  # a busy machine's restart may outlast it
    stopped = robbed.process.pid
    stored = robbed.generate(prompt="word " * 20)
    robbed.stop_at = "generating"
    behind: list[GenerationResult] = []
    with pytest.raises(EngineStopped, match=r"it sent nothing for \d+ s.*ended as hung"):
        stream = robbed.process.stream(robbed.model, "Once", SHORT)
        thread = threading.Thread(
            target=lambda: behind.append(robbed.generate(prompt="word " * 20))
        )
        thread.start()
        list(stream)
    thread.join()
    (waited,) = behind
    assert waited.text == stored.text
    assert waited.cache is CacheOutcome.DISK
    assert waited.timing.queue_s > 5, "it waited for the hang to be noticed, and for the start"
    assert robbed.process.pid != stopped
    assert not Path(f"/proc/{stopped}").exists()
    assert robbed.process.status.note == "restarted after it stopped"


def test_memory_that_runs_out_is_told_and_a_new_engine_serves(robbed: Robbed) -> None:
    before = robbed.generate()
    pid = robbed.process.pid
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    # Room for a thread or two; the scores of a prompt of a thousand tokens take 30 MB and more.
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 20_000_000, resource.RLIM_INFINITY))
    with pytest.raises(BackendError, match=r"memory|ended by signal|exit status") as raised:
        robbed.generate(SHORT.replace(num_beams=8), prompt="word " * 250)
    assert "Traceback" not in str(raised.value)
    assert robbed.generate().text == before.text
    assert robbed.process.pid != pid
    assert sum(robbed.process.health().restarts.values()) == 2


@dataclass
class ControlGroup:
    """A group of processes of which the kernel limits the memory, cgroup v1 or v2."""

    folder: Path

    def limit(self, size: int) -> None:
        """Bytes that its processes may take from now on."""
        version_1 = self.folder / "memory.limit_in_bytes"
        (version_1 if version_1.exists() else self.folder / "memory.max").write_text(str(size))

    def take_in(self, pid: int) -> None:
        """Moves a process here; what it holds already stays its former group's."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def killed(self) -> int:
        """How many processes the kernel has killed because there was not enough."""
        version_1 = self.folder / "memory.oom_control"
        reported = version_1 if version_1.exists() else self.folder / "memory.events"
        return int(dict(map(str.split, reported.read_text().splitlines()))["oom_kill"])


@pytest.fixture
def control_group() -> Iterator[ControlGroup]:
    at = Path("/sys/fs/cgroup")
    group = ControlGroup(
        (at / "memory" if (at / "memory").is_dir() else at) / f"test-{os.getpid()}"
    )
    try:
        group.folder.mkdir()
        group.limit(2**40)
    except OSError as error:
        with contextlib.suppress(OSError):
            group.folder.rmdir()
        pytest.skip(f"only root of the machine itself may limit a process's memory ({error})")
    yield group
    group.folder.rmdir()


def test_an_engine_killed_for_memory_is_told(robbed: Robbed, control_group: ControlGroup) -> None:
    before = robbed.generate()
    pid = robbed.process.pid
    control_group.limit(20_000_000)
    control_group.take_in(pid)
    with pytest.raises(EngineStopped, match="memory") as raised:
        robbed.generate(LARGE, prompt="word " * 100)
    assert control_group.killed() == 1
    assert "Traceback" not in str(raised.value)
    assert robbed.generate().text == before.text
    assert robbed.process.pid != pid


def test_the_store_full_of_rubbish_and_then_gone(robbed: Robbed) -> None:
    first = robbed.generate()
    entries = list((robbed.folder / "store").rglob("*.entry"))
    assert entries
    for entry in entries:
        entry.write_bytes(os.urandom(5000))
    robbed.process.clear(disk=False)
    again = robbed.generate()
    assert (again.text, again.cache) == (first.text, CacheOutcome.MISS), "rubbish serves nobody"
    shutil.rmtree(robbed.folder / "store")
    (robbed.folder / "store").write_text("a file in its place")
    assert robbed.generate(SHORT.replace(num_beams=2)).cache is CacheOutcome.MISS
    (robbed.folder / "store").unlink()
    assert robbed.generate(SHORT.replace(num_beams=3)).cache is CacheOutcome.MISS
    assert list((robbed.folder / "store").rglob("*.entry"))


def test_the_clock_really_was_set_back(robbed: Robbed) -> None:
    assert (robbed.folder / "clock-was-set-back").exists()
    sinces = [status.since for status in robbed.statuses]
    assert all(since > 0 for since in sinces)
