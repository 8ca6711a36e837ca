"""The rules that hold for the repository as a whole: arrows, pins, sizes, front matter.

Knows the layout of the checkout. Must not import any of it: it looks from outside.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
import yaml

from tests.requirements_files import requirement_lines

ROOT = Path(__file__).resolve().parent.parent
DOCS = tuple(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))
LARGEST_FILE = 10 * 1024 * 1024  # bytes; what a Space takes without Git LFS

TENSORFLOW = {"tensorflow", "tf_keras", "keras", "transformers"}
ARROWS = {
    "playground": TENSORFLOW | {"app", "benchmarks", "demo_models", "tests"},
    "xla_backend": {
        "app",
        "benchmarks",
        "demo_models",
        "gradio",
        "gradio_client",
        "playground",
        "tests",
    },
    "demo_models": {"app", "benchmarks", "gradio", "playground", "tests"},
    "benchmarks": {"app", "gradio", "playground", "tests"},
}
"""Package: what it must not import. Arrows run one way, app -> playground -> xla_backend."""


ROOMS = {
    "xla_backend": (
        "interface kernels",
        "compilation",
        "child_process",
        "answers",
        "grammar",
        "checkpoints",
        "model prediction",
        "rows",
        "engine",
        "inspection",
        "process baselines",
        "retracing",
        "openai_api",
        "serving",
        "",
    ),
    "playground": (
        "ui",
        "context",
        "history walkthrough",
        "settings",
        "tabs.code",
        "tabs.generate",
        "tabs.chat tabs.speech tabs.functions tabs.batch tabs.compare tabs.shapes "
        "tabs.models tabs.inside tabs.api tabs.requests",
        "api record server",
        "",
    ),
}
"""Package: its rooms, each of which may use those before it; those that stand together, not each
other. The last one is the package's own modules."""
MAX_IN_A_ROOM = 14  # modules


def modules_of(package: str) -> dict[str, ast.Module]:
    """Every module of a package by its dotted name, without the rooms' `__init__`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports_within(package: str) -> dict[str, set[str]]:
    """What each module imports of its own package; for a type alone, or in a function, too."""
    modules = modules_of(package)
    found = {}
    for name, tree in modules.items():
        named = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found[name] = named & set(modules) - {name}
    return found


def room_of(name: str) -> str:
    """The folder of a module, of the tabs each its own; empty for the package's own."""
    folders = name.split(".")[1:-1]
    return ".".join(folders[: 2 if folders[:1] == ["tabs"] else 1])


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_use_those_below_them(package: str) -> None:
    height = {room: level for level, rooms in enumerate(ROOMS[package]) for room in rooms.split()}
    height[""] = len(ROOMS[package])
    upwards = [
        f"{name} -> {other}"
        for name, others in imports_within(package).items()
        for other in others
        if room_of(name) != room_of(other) and height[room_of(name)] <= height[room_of(other)]
    ]
    assert upwards == []


@pytest.mark.parametrize("package", ROOMS)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    left = imports_within(package)
    # Again and again without those that need nothing of what is left: a circle stays.
    while free := [name for name, others in left.items() if not others & set(left)]:
        for name in free:
            del left[name]
    assert left == {}


@pytest.mark.parametrize("package", ROOMS)
def test_a_room_can_be_looked_over(package: str) -> None:
    counted = Counter(name.rpartition(".")[0] for name in modules_of(package))
    assert {room: n for room, n in counted.items() if n > MAX_IN_A_ROOM} == {}


def test_no_test_module_imports_another() -> None:
    """What several need is in a module of helpers."""
    crossing = {
        f"{path.relative_to(ROOT)} -> {node.module}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and ".test_" in f".{node.module}"
    }
    assert crossing == set()


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


def loaded(asked: set[str], *modules: str) -> set[str]:
    """Which of these packages a new process has loaded once it has imported modules."""
    script = f"import sys, {', '.join(modules)}\nprint(sorted({asked!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout))


@pytest.mark.parametrize("package", ["xla_backend", "playground", "benchmarks"])
def test_docstrings_describe_arguments_that_exist(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            _, _, described = (ast.get_docstring(node) or "").partition("Args:\n")
            described, *_ = re.split(r"\n(?=\S)", described)
            lines = re.findall(r"^    ([\w*, ]+): ", described, re.MULTILINE)
            names = {name.strip(" *") for line in lines for name in line.split(",")}
            every = ast.walk(node.args)
            assert names <= {each.arg for each in every if isinstance(each, ast.arg)}, (
                f"{path}, {node.name}: {sorted(names)}"
            )


def test_what_the_page_and_the_engine_do_not_load() -> None:
    """The page is up in seconds because its process never imports TensorFlow or Keras."""
    modules = [
        "xla_backend.process.backend_process",
        "xla_backend.prediction.prediction",
        "xla_backend.baselines.comparison",
        *(n for n in modules_of("xla_backend") if room_of(n) in ("interface", "checkpoints")),
    ]
    assert loaded({"tensorflow", "tf_keras", "keras", "gradio"}, *modules) == set()

    # FastAPI is for who offers the API: neither the library nor an engine's process needs it.
    engine = ("xla_backend.process.engine_process", "xla_backend.engine.importing")
    assert loaded({"fastapi", "starlette", "gradio"}, "xla_backend", *engine) == set()
    # As it runs, not only as its imports are written: what it imports may import more.
    assert loaded(TENSORFLOW | {"ray"}, "app", "playground.page") == set()


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-mcp.txt",
        "requirements-ray.txt",
        "requirements-models.txt",
        "requirements-clients.txt",
        "xla_backend/baselines/requirements.txt",
        "benchmarks/requirements.txt",
    ],
)
def test_requirements_are_pinned_exactly(name: str) -> None:
    lines = requirement_lines(name)
    assert lines
    pinned = re.compile(r"[A-Za-z0-9._-]+(\[\w+\])?==[0-9][0-9A-Za-z.]*")
    assert [line for line in lines if not pinned.fullmatch(line)] == []


OTHER_NAMES = {"protobuf": "google", "markdown_it_py": "markdown_it"}


def test_every_direct_import_is_pinned() -> None:
    """A version that nobody chose is a version that changes under us."""

    def pinned(*files: str) -> set[str]:
        lines = (line for file in files for line in requirement_lines(file))
        names = {re.split(r"\[|==", line)[0].replace("-", "_") for line in lines}
        # Those whose packages have other names: `from google.protobuf import ...`.
        return {OTHER_NAMES.get(name, name) for name in names}

    here = pinned("requirements.txt")
    # The benchmark drives a browser, and its peers have an environment of their own.
    in_benchmarks = here | pinned("requirements-dev.txt", "benchmarks/requirements.txt")
    in_benchmarks |= {"optimum"}  # what optimum-onnx installs
    with_ray = here | pinned("requirements-ray.txt")
    in_recipes = here | pinned("xla_backend/baselines/requirements.txt")
    ours = {*ARROWS, "app"}
    loose = {}
    for path in [ROOT / "app.py", *(p for room in ARROWS for p in (ROOT / room).rglob("*.py"))]:
        if path.exists():
            names = imported_packages(path.read_text(encoding="utf-8"))
            chosen = in_benchmarks if path.is_relative_to(ROOT / "benchmarks") else here
            chosen = with_ray if is_for_ray(path) else chosen
            if path.is_relative_to(ROOT / "demo_models"):
                chosen = in_recipes
            loose[str(path.relative_to(ROOT))] = (
                names - set(sys.stdlib_module_names) - chosen - ours - {"__future__"}
            )
    assert {path: names for path, names in loose.items() if names} == {}


def is_for_ray(path: Path) -> bool:
    """Whether a file is part of the service on Ray Serve."""
    engine = ROOT / "xla_backend"
    return path.is_relative_to(engine / "serving") or path == engine / "serve_app.py"


def test_the_default_install_is_free_of_ray() -> None:
    assert not any(line.startswith("ray") for line in requirement_lines("requirements.txt"))
    importing = [
        str(path.relative_to(ROOT))
        for path in [ROOT / "app.py", *(p for room in ARROWS for p in (ROOT / room).rglob("*.py"))]
        if "ray" in imported_packages(path.read_text(encoding="utf-8")) and not is_for_ray(path)
    ]
    assert importing == []


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


def test_the_notice_has_the_licences_of_packages_and_models() -> None:
    noted = dict(
        re.findall(r"^- (\S+): (.+?)(?: \(.*)?$", (ROOT / "NOTICE").read_text(), re.MULTILINE)
    )
    files = ("requirements", "requirements-mcp", "requirements-ray", "requirements-models")
    pins = [line for name in files for line in requirement_lines(f"{name}.txt")]
    pins += requirement_lines("xla_backend/baselines/requirements.txt")
    packages = {re.split(r"[\[=]", pin)[0] for pin in pins if "==" in pin}
    cards = {
        path.parent.name: re.findall(r"^license: (.+)$", path.read_text("utf-8"), re.MULTILINE)
        for path in (ROOT / "demo_models").glob("*-*/README.md")
    }
    assert noted.keys() == packages | cards.keys()
    for model, [licence] in cards.items():
        assert noted[model].lower() == licence
    for package in packages:
        with suppress(PackageNotFoundError):  # of the baseline and Ray
            if said := metadata(package).get("License-Expression"):
                assert noted[package] == said


def test_what_stands_in_two_places_is_the_same() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [setuptools] = settings["build-system"]["requires"]
    assert setuptools in requirement_lines("requirements-dev.txt")

    source = (ROOT / "xla_backend" / "__init__.py").read_text(encoding="utf-8")
    [version] = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == version

    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    [ruff] = hooks["repos"]
    assert f"ruff=={ruff['rev'].removeprefix('v')}" in requirement_lines("requirements-dev.txt")


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


PAGES = (
    "README.md",
    "DEPLOY.md",
    "demo_models/README.md",
    "xla_backend/kernels/README.md",
    *DOCS,
)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)\s#]+)", text) + re.findall(r"<img[^>]+src=\"([^\"]+)", text)
    folder = (ROOT / page).parent
    assert [name for name in linked if "://" not in name and not (folder / name).exists()] == []


def test_the_readme_is_short_and_leads_to_every_document() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 180
    assert [name for name in DOCS if f"({name})" not in text] == []


def test_ci_script_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, "chmod +x .ci/run"
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


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
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr.splitlines()[0]
