"""The wheel: what is in it, and that it serves where there is no checkout.

Knows how a wheel is built and installed without a network. Must not know the page or the engine
beyond one answer.
"""

import email
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from gradio_client import Client

import xla_backend
from tests.playground.served import ROOT, children, free_port, start
from tests.requirements_files import requirement_lines

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "work", "shared", "*.egg-info")
MODELS = ("gpt2-stories", "opt-stories", "t5-stories", "whisper-commands")


@dataclass
class Installed:
    """The wheel in an environment of its own, beside the packages that it requires."""

    scripts: Path  # the folder of its Python and its commands
    packages: Path  # the folder that the wheel was installed into, and nothing else
    away: Path  # an empty folder, to be started from

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs in the empty folder."""
        return subprocess.run(
            [self.scripts / command, *arguments],
            cwd=self.away,
            env=environment(),
            capture_output=True,
            text=True,
        )


def environment() -> dict[str, str]:
    """This one, without what could lead to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run_pip(*arguments: str | Path) -> None:
    """Runs the pip of this environment, without a network."""
    quietly = ("--quiet", "--disable-pip-version-check", "--no-input")
    subprocess.run([sys.executable, "-m", "pip", *quietly, *arguments], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: what setuptools leaves in a source folder would go into its next wheel."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, place / "source", ignore=NOT_COPIED)
    # Not isolated: the setuptools that requirements-dev.txt installed is the one that it asks for.
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    run_pip("wheel", *offline, "--wheel-dir", place, place / "source")
    [built] = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    run_pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / name / "site-packages"
    # What the wheel requires is in this environment; to install it once more takes minutes.
    (packages / "required.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(folder / "bin", packages, tmp_path_factory.mktemp("away"))


def files_below(folder: Path, names: Sequence[str]) -> set[str]:
    """The files of these parts of a folder, relative to it, without compiled Python."""
    return {
        str(path.relative_to(folder))
        for name in names
        for path in [folder / name, *(folder / name).rglob("*")]
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_program_and_the_models_and_nothing_else(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in held if ".dist-info/" in name}
    models = [f"demo_models/{name}" for name in MODELS]
    assert held - about == files_below(ROOT, ["app.py", "playground", "xla_backend", *models])


def test_the_wheel_requires_what_the_requirements_files_pin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    found: dict[str, list[str]] = {}
    for line in metadata.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition("; extra == ")
        found.setdefault(marker.strip('"'), []).append(requirement)
    tools, mcp, ray = (requirement_lines(f"requirements-{n}.txt") for n in ("dev", "mcp", "ray"))
    runtime = requirement_lines("requirements.txt")
    assert found == {"": runtime, "mcp": mcp, "ray": ray, "dev": tools + mcp + ray}


def test_its_modules_are_the_installed_ones(installed: Installed) -> None:
    script = (
        "import json, sys, app, playground.page, xla_backend\n"
        "from xla_backend.baselines import overlay\n"
        "from xla_backend.checkpoints.models import BUNDLED_FOLDER\n"
        "modules = [app.__file__, playground.page.__file__, xla_backend.__file__]\n"
        "files = [*modules, str(overlay.REQUIREMENTS), str(BUNDLED_FOLDER)]\n"
        "print(json.dumps([files, sys.path]))"
    )
    done = installed.run("python", "-c", script)
    assert done.returncode == 0, done.stderr
    files, search_path = json.loads(done.stdout)
    assert files == [
        str(installed.packages / name)
        for name in (
            "app.py",
            "playground/page.py",
            "xla_backend/__init__.py",
            "xla_backend/baselines/requirements.txt",
            "demo_models",
        )
    ]
    assert str(ROOT) not in search_path


def test_its_engine_command_runs(installed: Installed) -> None:
    version = installed.run("xla-backend", "--version")
    assert (version.returncode, version.stdout) == (0, f"xla_backend {xla_backend.__version__}\n")
    done = installed.run(
        *("xla-backend", "generate", "--json", "--max-new-tokens", "4", "Once upon a time")
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["model"], answer["new_tokens"]) == ("gpt2-stories", 4)


def test_its_page_is_served_and_generates(installed: Installed) -> None:
    port = free_port()
    command = [str(installed.scripts / "xla-playground"), "--port", str(port)]
    command += ["--models", "gpt2-stories"]  # the list's first one has to be made ready for seconds
    served = start(command, installed.away, environment(), port)
    try:
        assert "XLA Playground" in served.first_page
        answer = Client(served.url, verbose=False, httpx_kwargs={"timeout": 120}).predict(
            prompt="Once upon a time", model="gpt2-stories", max_new_tokens=4, api_name="/generate"
        )
        [engine] = children(served.process.pid)
        variables = Path(f"/proc/{engine}/environ").read_bytes().split(b"\0")
    finally:
        served.end()
    assert (answer["model"], answer["new_tokens"]) == ("gpt2-stories", 4)
    assert b"PYTHONPATH=%s" % os.fsencode(installed.packages) in variables
    assert list(installed.away.iterdir()) == []
