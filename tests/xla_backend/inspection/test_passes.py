"""What XLA's passes changed, from its dumps."""

from pathlib import Path

import pytest

from xla_backend.inspection.passes import SHOWN_LINES, SHOWN_WIDTH, Pass, dumping, read


def dumped(folder: Path, text: str, name: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_only_passes_that_changed_the_largest_module_are_read(tmp_path: Path) -> None:
    before = 'HloModule m\n\n  %a = f32[] add(%b, /*index=5*/%c), metadata={op_name="x{y"}\n'
    after = "HloModule m\n  %a = f32[] subtract(%b, %c)\n"
    main = "module_0002.f.1"
    dumped(tmp_path, before, f"{main}.0008.first.after_pipeline-start.before_dce.txt")
    dumped(tmp_path, before.replace("x{", "z"), f"{main}.0009.first.after_dce.before_cse.txt")
    dumped(tmp_path, after, f"{main}.0010.first.after_cse.before_pipeline-end.txt")
    dumped(tmp_path, after, f"{main}.0011.second.after_first.before_fusion.txt")
    dumped(tmp_path, "HloModule m", f"{main}.10000.copies.after_adding_copies.txt")
    dumped(tmp_path, "HloModule n", "module_0001.g.0000.first.after_pipeline-start.before_dce.txt")
    dumped(tmp_path, before * 99, f"{main}.ir-no-opt.ll")
    old, new = "  %a = f32[] add(%b, %c)", "  %a = f32[] subtract(%b, %c)"
    assert read(tmp_path) == [
        Pass("first", "cse", 1, 1, f"@@ -1,2 +1,2 @@\n HloModule m\n-{old}\n+{new}", 0),
        Pass("copies", "adding_copies", 0, 1, f"@@ -1,2 +1 @@\n HloModule m\n-{new}", 0),
    ]


def test_long_diffs_are_cut(tmp_path: Path) -> None:
    dumped(tmp_path, "", "module_1.f.0000.p.after_pipeline-start.before_dce.txt")
    lines = "\n".join("x" * 999 for _ in range(1_000))
    dumped(tmp_path, lines, "module_1.f.0001.p.after_dce.before_cse.txt")
    (one,) = read(tmp_path)
    shown = one.diff.split("\n")
    assert (one.added, one.removed, len(shown), one.left_out) == (1_000, 0, SHOWN_LINES, 601)
    assert max(map(len, shown)) == SHOWN_WIDTH + 1


def test_the_user_s_flags_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = tmp_path / "flags"
    flags.write_text("--xla_a=1", encoding="utf-8")
    for given in "--xla_a=1", str(flags):
        monkeypatch.setenv("XLA_FLAGS", given)
        assert dumping(tmp_path)["XLA_FLAGS"].startswith(f"--xla_a=1 --xla_dump_to={tmp_path} ")
