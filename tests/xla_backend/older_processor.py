"""A processor of another kind, for the tests of machine code."""

import functools
from typing import Any

import llvmlite.binding as llvm
import pytest

TRANSLATED: list[Any] = []
"""Code that stays: a thread of XLA's may begin a task when the call that it was for is done."""


class OlderProcessor(dict):
    """What llvmlite says of a processor: which of its features there are."""

    def flatten(self) -> str:
        """The features for LLVM. Where the processor at hand has AVX-VNNI's dot products only in
        AVX-512's encoding, they get that."""
        features = dict(self)
        if features.pop(AVX_VNNI, False):
            features |= {"avx512f": True, "avx512vl": True, "avx512bw": True, "avx512vnni": True}
        return ",".join(("+" if has else "-") + name for name, has in features.items())


HASWELL = "haswell"
"""16 vector registers of 8 float32."""
IVY_BRIDGE = "ivybridge"
"""16 of 4 in use, and integers multiplied one by one, as on processors that are not x86."""
ALDER_LAKE = "alderlake"
"""As Haswell, and dot products of bytes."""
AVX_VNNI = "avxvnni"
_FEATURES = {
    HASWELL: {"avx2": True, "fma": True, "f16c": True, "avx512f": False},
    ALDER_LAKE: {"avx2": True, "fma": True, "f16c": True, "avx512f": False, AVX_VNNI: True},
    IVY_BRIDGE: {"ssse3": True, "f16c": True, "avx2": False, "fma": False, "avx512f": False},
}


@pytest.fixture
def older_processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is for it: it runs here too, as processors of today have all of it.

    Haswell, or what the test's parameter says; None is the processor that there is.
    """
    name = getattr(request, "param", HASWELL)
    if name is None:
        return
    # Not above: pytest imports conftests of folders named on its command line before all else.
    from xla_backend.kernels import machine_code, registration
    from xla_backend.kernels.attention import attention
    from xla_backend.kernels.matmul import matmul

    if name == ALDER_LAKE and not llvm.get_host_cpu_features().get("avx512vnni"):
        pytest.skip("this processor has no dot products of bytes (avx512_vnni)")
    older = OlderProcessor(_FEATURES[name])
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", lambda: older)
    cpu = HASWELL if name == ALDER_LAKE else name  # which would have AVX-VNNI's own encoding
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_name", lambda: cpu)
    own = f"_of_{name}_{len(TRANSLATED)}_"  # XLA takes a name once
    monkeypatch.setattr(matmul, "MATMUL", f"product{own}")
    monkeypatch.setattr(matmul, "READING", f"columns{own}")
    monkeypatch.setattr(attention, "NAME", f"attention{own}")
    monkeypatch.setattr(registration, "_started", {})
    for cached in ("vector_registers", "_engine"):
        uncached = getattr(machine_code, cached).__wrapped__
        monkeypatch.setattr(machine_code, cached, functools.cache(uncached))
    TRANSLATED.append(machine_code._engine())  # noqa: SLF001 (what it translates goes with it)
    assert machine_code.vector_registers() == (16, 4 if name == IVY_BRIDGE else 8)
