"""What is read of the processor here, and of what Linux says about others."""

import platform
from pathlib import Path

import pytest

from xla_backend.compilation import processor


def test_the_processor_here_is_known() -> None:
    assert processor.features()


@pytest.mark.parametrize(
    ("described", "features"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t\t: sse2 avx2 fpu\n", "avx2 fpu sse2"),
        ("Features\t: fp asimd\nCPU part\t: 0xd40\n", "asimd fp"),
    ],
    ids=["x86", "ARM"],
)
def test_linux_names_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, described: str, features: str
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\n{described}\nprocessor\t: 1\n{described}\n")
    monkeypatch.setattr(processor, "_CPUINFO", path)
    assert processor.features() == features


def test_elsewhere_the_name_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "missing")
    name = "Intel64 Family 6 Model 151 Stepping 2, GenuineIntel"
    monkeypatch.setattr(platform, "processor", lambda: name)
    assert processor.features() == name
