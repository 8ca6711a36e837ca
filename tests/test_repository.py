"""The rules that hold for the repository as a whole: arrows, pins, sizes, front matter.

Knows the layout of the checkout. Must not import any of it: it looks from outside.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import installed_browser

ROOT = Path(__file__).resolve().parent.parent
LARGEST_FILE = 10 * 1024 * 1024  # bytes; what a Space takes without Git LFS

TENSORFLOW = {"tensorflow", "tf_keras", "keras", "transformers"}
ARROWS = {
    "playground": TENSORFLOW | {"app", "benchmarks", "demo_models", "tests"},
    "xla_backend": {
        "app",
        "benchmarks",
        "demo_models",
        "fastapi",
        "gradio",
        "gradio_client",
        "playground",
        "tests",
    },
    "demo_models": {"app", "benchmarks", "gradio", "playground", "tests"},
    "benchmarks": {"app", "gradio", "playground", "tests"},
}
"""Package: what it must not import. Arrows run one way, app -> playground -> xla_backend."""


def imported_packages(source: str) -> set[str]:
    """Top-level names of every import in a module, the ones inside functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("importlib.import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            names.add(node.args[0].value.partition(".")[0])
    return names


@pytest.mark.parametrize("package", ARROWS)
def test_arrows_run_one_way(package: str) -> None:
    broken = []
    for path in sorted((ROOT / package).rglob("*.py")):
        crossing = imported_packages(path.read_text(encoding="utf-8")) & ARROWS[package]
        broken += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(crossing)]
    assert not broken


def test_the_check_of_arrows_sees_every_kind_of_import() -> None:
    source = (
        "import a.b\nfrom c.d import e\nfrom . import f\n"
        "def g():\n    import h\n    importlib.import_module('i.j')\n"
    )
    assert imported_packages(source) == {"a", "c", "h", "i"}


def test_the_page_s_side_of_the_backend_loads_no_tensorflow() -> None:
    """The page is up in seconds because its process never imports TensorFlow or Keras."""
    modules = [
        f"xla_backend.{name}"
        for name in ("process", "models", "tokenization", "prediction", "options", "results")
        if (ROOT / "xla_backend" / f"{name}.py").exists()
    ]
    script = (
        f"import sys, xla_backend, {', '.join(modules)}\n"
        "print([n for n in ('tensorflow', 'tf_keras', 'keras', 'gradio') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_page_itself_loads_no_tensorflow() -> None:
    """As it runs, not only as its imports are written: what it imports may import more."""
    script = (
        "import sys, app, playground.page\n"
        f"print([n for n in {sorted(TENSORFLOW)} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def requirement_lines(name: str) -> list[str]:
    """The requirements of a file, without comments and includes."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-r ")]


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-mcp.txt",
        "requirements-ray.txt",
        "benchmarks/requirements.txt",
    ],
)
def test_requirements_are_pinned_exactly(name: str) -> None:
    lines = requirement_lines(name)
    assert lines
    pinned = re.compile(r"[A-Za-z0-9._-]+(\[\w+\])?==[0-9][0-9A-Za-z.]*")
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_every_direct_import_is_pinned() -> None:
    """A version that nobody chose is a version that changes under us."""

    def pinned(*files: str) -> set[str]:
        lines = (line for file in files for line in requirement_lines(file))
        names = {re.split(r"\[|==", line)[0].replace("-", "_") for line in lines}
        # The one whose package has another name: `from google.protobuf import ...`.
        return (names - {"protobuf"}) | ({"google"} if "protobuf" in names else set())

    here = pinned("requirements.txt")
    # The benchmark drives a browser, and its peers have an environment of their own.
    in_benchmarks = here | pinned("requirements-dev.txt", "benchmarks/requirements.txt")
    in_benchmarks |= {"optimum"}  # what optimum-onnx installs
    with_ray = here | pinned("requirements-ray.txt")
    ours = {*ARROWS, "app"}
    loose = {}
    for path in [ROOT / "app.py", *(p for room in ARROWS for p in (ROOT / room).rglob("*.py"))]:
        if path.exists():
            names = imported_packages(path.read_text(encoding="utf-8"))
            chosen = in_benchmarks if path.is_relative_to(ROOT / "benchmarks") else here
            chosen = with_ray if is_for_ray(path) else chosen
            loose[str(path.relative_to(ROOT))] = (
                names - set(sys.stdlib_module_names) - chosen - ours - {"__future__"}
            )
    assert {path: names for path, names in loose.items() if names} == {}


def is_for_ray(path: Path) -> bool:
    """Whether a file is part of the service on Ray Serve."""
    engine = ROOT / "xla_backend"
    return path.is_relative_to(engine / "serving") or path == engine / "serve_app.py"


def test_the_default_install_and_start_are_free_of_ray() -> None:
    assert not any(line.startswith("ray") for line in requirement_lines("requirements.txt"))
    importing = [
        str(path.relative_to(ROOT))
        for path in [ROOT / "app.py", *(p for room in ARROWS for p in (ROOT / room).rglob("*.py"))]
        if "ray" in imported_packages(path.read_text(encoding="utf-8")) and not is_for_ray(path)
    ]
    assert importing == []
    modules = "app, playground, playground.page, xla_backend, xla_backend.process"
    script = f"import sys, {modules}\nprint('ray' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def tracked_files() -> list[Path]:
    """The files that git tracks; the test is skipped where the checkout is not a repository."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: the tracked files are unknown")
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_no_large_file_is_tracked() -> None:
    large = [
        f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes"
        for path in tracked_files()
        if path.is_file() and path.stat().st_size > LARGEST_FILE
    ]
    assert not large


def test_tool_settings_can_be_read() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["ruff"]["line-length"] == 100


def test_readme_front_matter_suits_spaces() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("---\n"), "Spaces reads its settings from the README's first lines"
    front = yaml.safe_load(text.split("---\n", 2)[1])
    assert front["sdk"] == "gradio"
    assert f"gradio=={front['sdk_version']}" in requirement_lines("requirements.txt")
    # YAML reads an unquoted 3.10 as the number 3.1.
    assert isinstance(front["python_version"], str)
    assert front["python_version"] in ("3.11", "3.12", "3.13")
    assert (ROOT / front["app_file"]).is_file()
    assert front["title"]
    assert len(front["short_description"]) <= 60, "Spaces refuses longer ones"
    assert front["license"] == "apache-2.0"
    colors = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {front["colorFrom"], front["colorTo"]} <= colors
    hardware = front.get("suggested_hardware")
    assert hardware is None or hardware.startswith(("cpu-", "t4-", "l4", "a10g-", "a100-", "zero-"))


def test_every_picture_of_the_readme_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text)
    pictures += re.findall(r"<img[^>]+src=\"([^\"]+)", text)
    assert [p for p in pictures if "://" not in p and not (ROOT / p).is_file()] == []


def test_ci_script_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, "chmod +x .ci/run"
    assert subprocess.run(["bash", "-n", str(script)], timeout=60).returncode == 0


def test_without_a_suitable_python_make_says_so_in_one_sentence(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").touch()
    # Under `make test` this would be a make within a make, which announces its folders.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "run", f"PYTHON={tmp_path}/no-such-python"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_a_missing_browser_fails_on_ci_and_skips_elsewhere(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(outcome, match="package chromium"):
        installed_browser()
