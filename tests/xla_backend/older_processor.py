"""A processor of another kind, for the tests of machine code."""

import functools
from typing import Any

import pytest

TRANSLATED: list[Any] = []
"""Code that stays: a thread of XLA's may begin a task when the call that it was for is done."""


class OlderProcessor(dict):
    """What llvmlite says of a processor with 16 vector registers of 8 float32."""

    def flatten(self) -> str:
        return "+avx2,+fma,+f16c,-avx512f"


@pytest.fixture
def older_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is for it: it runs here too, as processors of today have all of it."""
    # Not above: pytest imports conftests of folders named on its command line before all else.
    from xla_backend.attention import attention
    from xla_backend.matmul import handler, machine_code, product

    older = OlderProcessor(avx2=True, fma=True, f16c=True)
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: older)
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_name", lambda: "haswell")
    own = f"_of_haswell_{len(TRANSLATED)}_"  # XLA takes a name once
    monkeypatch.setattr(product, "PRODUCT", f"product{own}")
    monkeypatch.setattr(product, "READING", f"columns{own}")
    monkeypatch.setattr(attention, "NAME", f"attention{own}")
    monkeypatch.setattr(handler, "_begun", {})
    for name in ("vector_registers", "_engine"):
        uncached = getattr(machine_code, name).__wrapped__
        monkeypatch.setattr(machine_code, name, functools.cache(uncached))
    TRANSLATED.append(machine_code._engine())  # noqa: SLF001 (what it translates goes with it)
    assert machine_code.vector_registers() == (16, 8)
