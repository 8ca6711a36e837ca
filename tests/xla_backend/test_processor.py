"""What is read of the processor here, and of what Linux says about others."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from xla_backend import processor


@pytest.fixture(autouse=True)
def known_anew() -> Iterator[None]:
    processor.is_intel.cache_clear()
    yield
    processor.is_intel.cache_clear()


def test_the_processor_here_is_known() -> None:
    assert processor.features()
    assert processor.vendor()


@pytest.mark.parametrize(("vendor", "is_intel"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_linux_names_vendor_and_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, is_intel: bool
) -> None:
    one = f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: sse2 avx2 fpu\n\n"
    (tmp_path / "cpuinfo").write_text(one + one.replace(": 0", ": 1"))
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    assert processor.vendor() == vendor
    assert processor.features() == "avx2 fpu sse2"
    assert processor.is_intel() is is_intel


def test_an_arm_has_features_and_is_not_intel_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd40\n")
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    assert processor.features() == "asimd fp"
    assert not processor.is_intel()


@pytest.mark.parametrize(
    ("name", "is_intel"),
    [("Intel64 Family 6 Model 151 Stepping 2, GenuineIntel", True), ("arm", False), ("", False)],
)
def test_elsewhere_the_name_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_intel: bool
) -> None:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "missing")
    monkeypatch.setattr(platform, "processor", lambda: name)
    assert processor.features() == processor.vendor() == name
    assert processor.is_intel() is is_intel
