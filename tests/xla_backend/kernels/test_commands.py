"""`python -m xla_backend.kernels`: what is listed, shown and measured."""

import itertools

import pytest

from xla_backend.kernels import __main__ as commands
from xla_backend.kernels import bench, catalog, dump
from xla_backend.kernels.matmul import matmul
from xla_backend.kernels.matmul.blocks import FORMATS
from xla_backend.kernels.matmul.packing import FLOATS


def test_the_catalog_has_the_names_of_products() -> None:
    for name, eight, split in itertools.product((*FLOATS, *FORMATS), *[(False, True)] * 2):
        form = {"in_eight_bits": eight and name in FORMATS, "is_split": split}
        assert matmul.name_of(name, **form) in catalog.NAMES
        assert matmul.columns_name_of(name) in catalog.NAMES
    made = matmul.build("Q6_K", in_eight_bits=True, is_split=True, name="matmul_int8_split_Q6_K")
    assert str(catalog.build("matmul_int8_split_Q6_K")) == str(made)


def test_instructions_are_counted_by_function_and_by_innermost_loop() -> None:
    text = """
first:
\tpushq\t%rbp
.LBB0_1:
\taddq\t$1, %rax
.LBB0_2:
\tvpdpbusd\t%zmm0, %zmm1, %zmm2
\tvpdpbusd\t%zmm0, %zmm1, %zmm3
\tjb\t.LBB0_2
\tjne\t.LBB0_1
\tje\t.LBB0_3
.LBB0_3:
\tretq
second:
\tretq
"""
    counts = [line for line in dump._counted(text.splitlines()) if "#" in line]  # noqa: SLF001
    assert counts == [
        "\n# 8 instructions: 2 vpdpbusd, 1 pushq, 1 addq, 1 jb, 1 jne, 1 je",
        "# innermost loop: 3 instructions: 2 vpdpbusd, 1 jb",
        "\n# 1 instructions: 1 retq",
    ]


def run(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("sys.argv", ["kernels", *line.split()])
    commands.main()


def test_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "_TILES", 2)
    monkeypatch.setattr(bench, "_STEPS", 100)
    monkeypatch.setattr(bench, "_READ", 2**12)
    run(monkeypatch, "list")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*catalog.NAMES]
    run(monkeypatch, "dump Q4_K --rows 3")
    assert "micro_kernel3_Q4_K:" in capsys.readouterr().out
    run(monkeypatch, "dump earlier --ir")
    assert 'define ptr @"earlier"(ptr' in capsys.readouterr().out
    run(monkeypatch, "bench Q4_1 bfloat16 --rows 2")
    limits, _, _, *rows = capsys.readouterr().out.splitlines()
    assert "GB/s" in limits
    assert [row.split()[:2] for row in rows] == [["Q4_1", "2"], ["bfloat16", "2"]]


@pytest.mark.parametrize("line", ["dump", "dump nothing", "dump earlier --rows 1", "bench Q9"])
def test_wrong_names_are_refused(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, line)
