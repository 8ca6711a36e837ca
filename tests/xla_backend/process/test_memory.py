"""Tests of `memory` and `memory_bound`: what the kernel says, and marks."""

import logging
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from xla_backend.process import memory
from xla_backend.process.memory_bound import (
    AHEAD,
    MIN_RESERVE,
    MIN_ROOM,
    REMEMBERED,
    WARM_SHARE,
    MemoryBound,
)

GB = 10**9
MB = 10**6
KIB_OF_MACHINE = 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("3GB", 3 * GB),
        ("3 gb", 3 * GB),
        ("1.5G", GB * 3 // 2),
        ("1500MiB", 1500 * 2**20),
        ("2Gi", 2 * 2**30),
        ("123456789", 123456789),
        ("50%", 2 * GB),
        ("100 %", 4 * GB),
        ("250%", 4 * GB),
        ("off", None),
        ("disabled", None),
        (" OFF ", None),
    ],
)
def test_a_limit_reads_as_it_is_written(text: str, amount: int | None) -> None:
    assert memory.limit_from(text, of=4 * GB) == amount


def test_a_share_or_a_system_without_accounts_is_no_limit(tmp_path: Path) -> None:
    assert memory.limit_from("50%", of=None) is None
    assert memory.limit_from("1GB", of=None) == GB
    assert memory.total(tmp_path) is None
    assert memory.total() > 0

    bound = MemoryBound(None, at_start=GB)
    bound.note_request(50 * GB, 50 * GB)
    assert bound.may_warm(50 * GB)
    assert not bound.is_above_soft_limit(50 * GB)
    assert not bound.is_above_hard_limit(50 * GB)


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "0%", "1PB", "1 2", "1e9", "GB", "٣GB!"])
def test_what_is_no_amount_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="3GB, 1500MiB, 60%"):
        memory.limit_from(text, of=4 * GB)


def test_what_a_process_holds_is_told() -> None:
    held = "block = b'x' * 100_000_000; print(len(block), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"100000000\n"
        assert 100e6 < memory.resident(process.pid) < 150e6
        assert 100e6 < memory.peak(process.pid) < 150e6
        process.communicate(b"\n")
    assert memory.resident() > 0
    assert memory.resident(2**22 + 1) is None, "there is no such process"


def test_mappings_are_counted_as_a_share_of_those_allowed(tmp_path: Path) -> None:
    assert memory.mapped_share(machine(tmp_path, {})) == 0
    files = {"proc/sys/vm/max_map_count": "200\n", "proc/self/maps": "7f00-7f01 r--p\n" * 30}
    assert memory.mapped_share(machine(tmp_path, files)) == 0.15
    before = memory.mapped_share()
    held = [mmap.mmap(-1, mmap.PAGESIZE, prot=1 + number % 2) for number in range(2_000)]
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert memory.mapped_share() - before == pytest.approx(len(held) / most, rel=0.1)


def machine(root: Path, files: dict[str, str]) -> Path:
    """A machine of 16 GiB, with more files."""
    meminfo = f"MemTotal: {KIB_OF_MACHINE} kB\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "total"),
    [
        ({}, 16),
        # Version 2, inside a container: its own group is the top one.
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": str(4 * 2**30),
            },
            4,
        ),
        # Version 2, outside: the group around it is the narrow one.
        (
            {
                "proc/self/cgroup": "0::/user/app\n",
                "sys/fs/cgroup/user/app/memory.max": "max\n",
                "sys/fs/cgroup/user/memory.max": str(2 * 2**30),
            },
            2,
        ),
        # Version 1, beside groups that are about other things.
        (
            {
                "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/1\n0::/\n",
                "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": str(6 * 2**30),
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            6,
        ),
        ({"proc/self/cgroup": "rubbish\n0::/\n", "sys/fs/cgroup/memory.max": "rubbish"}, 16),
    ],
)
def test_a_container_s_limit_counts(files: dict[str, str], total: int, tmp_path: Path) -> None:
    assert memory.total(machine(tmp_path, files)) == total * 2**30


# --- the marks ------------------------------------------------------------------------------------


def warmed(held: int) -> MemoryBound:
    """An engine with 1 of 3 GB at its start, and so much after its first request."""
    bound = MemoryBound(3 * GB, at_start=GB)
    bound.note_request(held, held)
    return bound


def marks(bound: MemoryBound, limit: int) -> tuple[int, int, int]:
    """From which size on it is warm, soft, hard, to the megabyte."""
    sizes = range(GB, limit, MB)
    return (
        min(size for size in sizes if not bound.may_warm(size)),
        min(size for size in sizes if bound.is_above_soft_limit(size)),
        min(size for size in sizes if bound.is_above_hard_limit(size)),
    )


def test_the_marks_come_one_after_the_other_also_with_little_room() -> None:
    warm, soft, hard = marks(MemoryBound(3 * GB, at_start=GB), limit=3 * GB)
    assert hard == pytest.approx(3 * GB - MIN_RESERVE, abs=2 * MB)
    assert soft == pytest.approx(hard - AHEAD, abs=2 * MB)
    assert warm == pytest.approx(GB + WARM_SHARE * (soft - GB), abs=2 * MB)
    assert GB < warm < soft < hard

    limit = GB + MIN_ROOM
    warm, soft, hard = marks(MemoryBound(limit, at_start=GB), limit)
    assert hard == pytest.approx(limit - MIN_RESERVE, abs=2 * MB)
    assert soft == pytest.approx((GB + hard) / 2, abs=2 * MB)
    assert GB < warm < soft < hard


@pytest.mark.parametrize("limit", [None, 3 * GB])
def test_mappings_have_the_same_marks_with_and_without_a_limit(limit: int | None) -> None:
    bound = MemoryBound(limit, at_start=GB)
    for mapped, marks_passed in ((0.69, 0), (0.7, 1), (0.79, 1), (0.8, 2), (0.89, 2), (0.9, 3)):
        assert [
            not bound.may_warm(GB, mapped),
            bound.is_above_soft_limit(GB, mapped),
            bound.is_above_hard_limit(GB, mapped),
        ] == [mark < marks_passed for mark in range(3)]


def test_a_new_engine_keeps_room_for_the_first_that_compiles() -> None:
    # Seen in a soak: an engine that had only restored, in steps of 20 MB, stood 100 MB below its
    # limit when a request came that compiled: 162 MB.
    bound = MemoryBound(3 * GB, at_start=GB)
    for held in range(GB, int(2.7 * GB), 20 * MB):
        bound.note_request(held, held)
    assert bound.is_above_hard_limit(int(2.8 * GB))
    assert not bound.is_above_hard_limit(int(2.7 * GB))


def test_room_is_kept_for_another_request_like_the_largest_of_late() -> None:
    bound = warmed(GB)
    bound.note_request(int(1.5 * GB), int(1.5 * GB))
    assert not bound.is_above_hard_limit(int(2.49 * GB))
    assert bound.is_above_hard_limit(int(2.51 * GB))
    _, soft, hard = marks(bound, limit=3 * GB)
    assert soft == pytest.approx(hard - AHEAD, abs=2 * MB)

    bound = warmed(GB)
    bound.note_request(held=int(1.1 * GB), peak=int(1.8 * GB))
    assert bound.is_above_hard_limit(int(2.25 * GB))
    assert not bound.is_above_hard_limit(int(2.15 * GB))

    bound = warmed(2 * GB)
    assert not bound.is_above_hard_limit(int(2.7 * GB))
    assert bound.is_above_hard_limit(int(2.8 * GB))

    bound = warmed(GB)
    bound.note_request(2 * GB, 2 * GB)
    assert bound.is_above_hard_limit(int(2.5 * GB))
    for _ in range(REMEMBERED):
        bound.note_request(2 * GB, 2 * GB)
    assert not bound.is_above_hard_limit(int(2.5 * GB))


def test_a_limit_that_leaves_no_room_is_raised_and_told(caplog: pytest.LogCaptureFixture) -> None:
    bound = MemoryBound(GB // 2, at_start=GB)
    assert bound.limit == GB + MIN_ROOM
    assert not bound.is_above_hard_limit(GB)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "--memory-limit" in record.getMessage()
