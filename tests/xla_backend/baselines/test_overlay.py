"""The baseline overlay: what installs it, who sees it, and what is said where it is missing."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests import small_package
from xla_backend.__main__ import main
from xla_backend.baselines import overlay
from xla_backend.baselines.comparison import OF_TRANSFORMERS, Baseline, variables_for
from xla_backend.baselines.overlay import BaselineMissing
from xla_backend.child_process.parent_side import ChildProcess

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the overlay would be, and is not."""
    monkeypatch.setenv(overlay.FOLDER_VARIABLE, str(tmp_path / "overlay"))
    return tmp_path / "overlay"


@pytest.fixture
def small(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Requirements that ask for one small package, which needs no network."""
    file = small_package.requirements(tmp_path)
    monkeypatch.setattr(overlay, "REQUIREMENTS", file)
    return file


def python(code: str, *, sees_it: bool = False) -> subprocess.CompletedProcess[str]:
    environment = overlay.environment([str(ROOT)]) if sees_it else None
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_pip_fills_the_folder_and_tells_how_far_it_is(small: Path, folder: Path) -> None:
    assert not overlay.is_installed()
    reported = list(overlay.install())
    assert [each.elapsed_s for each in reported] == sorted(each.elapsed_s for each in reported)
    assert overlay.is_installed()
    assert (folder / "tiny.py").read_text() == "size = 1\n"
    assert [path.name for path in folder.parent.glob("overlay*")] == ["overlay"]

    (folder / "leftover").write_text("of an older version")
    small.write_text(small.read_text() + "# newer\n")
    assert not overlay.is_installed(), "it holds what another file says"
    list(overlay.install())
    assert overlay.is_installed()
    assert not (folder / "leftover").exists()


def test_what_cannot_be_installed_leaves_the_folder_as_it_was(small: Path, folder: Path) -> None:
    list(overlay.install())
    before = small.read_text()
    small.write_text(before.replace("sha256:", "sha256:00")[:-3] + "\n")
    with pytest.raises(BaselineMissing, match=r"could not be installed \(ERROR: .*Run|run: python"):
        list(overlay.install())
    assert [path.name for path in folder.parent.glob("overlay*")] == ["overlay"]
    small.write_text(before)
    assert overlay.is_installed()


def test_pip_ends_when_nobody_reads_on(small: Path, folder: Path) -> None:
    progress = overlay.install()
    next(progress)
    progress.close()
    assert list(folder.parent.glob("overlay*")) == []


@pytest.mark.parametrize("where", ["file", "missing"])
def test_a_folder_that_cannot_be_written_is_said(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / "file").write_text("")
    place = {"file": tmp_path / "file" / "overlay", "missing": Path("/proc/none/overlay")}[where]
    monkeypatch.setenv(overlay.FOLDER_VARIABLE, str(place))
    with pytest.raises(BaselineMissing, match="installed"):
        list(overlay.install())


def test_where_it_is_missing_one_command_is_named(folder: Path) -> None:
    for needs in (overlay.check_installed, overlay.use, lambda: overlay.environment([])):
        with pytest.raises(
            BaselineMissing, match=r"\(18 MB .* Run: python -m xla_backend baseline"
        ):
            needs()


@pytest.mark.parametrize("is_there", [False, True])
def test_the_command_installs_it(
    small: Path, folder: Path, capfd: pytest.CaptureFixture[str], is_there: bool
) -> None:
    if is_there:
        list(overlay.install())
        small.with_name("tiny-1-py3-none-any.whl").unlink()  # nothing is fetched a second time
    assert main(["baseline"]) == 0
    assert capfd.readouterr().out == f"The baseline is in {folder}\n"
    assert overlay.is_installed()


def test_only_transformers_baselines_see_it() -> None:
    of_environment = metadata.version("transformers")
    version = "import transformers; print(transformers.__version__)"
    assert python(version).stdout.strip() == of_environment
    of_overlay = python(version, sees_it=True).stdout.strip()
    assert f"transformers=={of_overlay} " in overlay.REQUIREMENTS.read_text()
    assert of_overlay != of_environment
    for baseline in Baseline:
        process = ChildProcess(
            "tests.xla_backend.child_process.worker", None, variables_for(baseline)
        )
        process.send("version", "transformers")
        seen = of_overlay if baseline in OF_TRANSFORMERS else of_environment
        assert process.receive() == ("result", None, seen)
        process.end()


@pytest.mark.release
def test_a_program_can_use_it_before_it_imports_anything_else() -> None:
    done = python(
        "from xla_backend.baselines import overlay; overlay.use(); overlay.use()\n"
        "import tf_keras, transformers\nprint(transformers.TFGPT2LMHeadModel.__name__)"
    )
    assert done.stdout == "TFGPT2LMHeadModel\n", done.stderr
    late = python("import tokenizers\nfrom xla_backend.baselines import overlay; overlay.use()")
    assert (
        "tokenizers is imported already: call xla_backend.baselines.overlay.use() first."
        in late.stderr
    )
