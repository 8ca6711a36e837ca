"""The app as a Hugging Face Space runs it.

Nothing but what requirements.txt installs, `SYSTEM=spaces`, a project folder that cannot be written
to, HOME in a new place, no network. Knows what a Space gives and forbids. Must not know the page.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from gradio_client import Client
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from playground.flags import FLAGS
from tests.hub import HUB_MODEL, hub_with
from tests.playground.served import ROOT, Served, free_port, start
from xla_backend.checkpoints import hub
from xla_backend.checkpoints.models import HUB_MODELS, PACKAGED_MODEL, REPOSITORIES

NOT_PUSHED = shutil.ignore_patterns(
    ".*", "__pycache__", "tests", "benchmarks", "docs", "shared", "work"
)
WITHOUT_PRIVILEGES = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
"""Root is denied nothing by permissions; without its capabilities it is a user like others."""

HOT_RELOAD = ["RuntimeError: `spaces` package is required to run hot-reloading in Spaces"]
"""Gradio starts that in a thread wherever SPACE_ID is set. Spaces install the package themselves;
it is none of our requirements, and the page does without."""


@dataclass
class Space:
    """A place like a Space, and the app running there."""

    project: Path  # a copy of the repository that cannot be written to
    home: Path  # of the user, empty in the beginning
    calls: Path  # gets a line for each attempt to reach another computer
    environment: dict[str, str]
    before: dict[str, str]  # what was in the project before the start
    served: Served | None = None

    def command(self, *arguments: str) -> list[str]:
        """Python with the privileges of a Space's user."""
        privileges = WITHOUT_PRIVILEGES if os.geteuid() == 0 else ()
        return [*privileges, sys.executable, *arguments]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory, small_gpt2: Path) -> Iterator[Space]:
    place = tmp_path_factory.mktemp("space")
    project, home, temporary = place / "app", place / "home", place / "tmp"
    shutil.copytree(ROOT, project, ignore=NOT_PUSHED)
    home.mkdir()
    temporary.mkdir()
    _set_writable(project, False)
    absent = place / "absent.json"
    absent.write_text(json.dumps(not_required()))
    port = free_port()
    with hub_with(small_gpt2) as served_hub:
        new = Space(
            project,
            home,
            calls=place / "calls",
            # All that there is: nothing is inherited.
            environment={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "TMPDIR": str(temporary),
                "PYTHONPATH": str(ROOT / "tests" / "space"),
                "SPACE_ABSENT": str(absent),
                "SPACE_CALLS": str(place / "calls"),
                "SYSTEM": "spaces",
                "SPACE_ID": "somebody/xla-playground",
                "SPACE_HOST": "somebody-xla-playground.hf.space",
                "GRADIO_SERVER_NAME": "0.0.0.0",
                "GRADIO_SERVER_PORT": str(port),
                "GRADIO_NUM_PORTS": "1",
                "GRADIO_ALLOW_FLAGGING": "never",
                "HF_HUB_ENABLE_HF_TRANSFER": "1",
                "HF_ENDPOINT": served_hub.url,
                "PLAYGROUND_MODELS": f"gpt2-stories,{HUB_MODEL}",
            },
            before=contents(project),
        )
        new.served = start(new.command("app.py"), project, new.environment, port)
        yield new
        if new.served.process.poll() is None:
            new.served.end()
    _set_writable(project, True)


@pytest.fixture(scope="module")
def client(space: Space) -> Client:
    return connect(space.served.url)


def test_such_a_place_really_forbids_what_a_space_forbids(space: Space) -> None:
    tries = {
        "a module that is not required": "import pytest",
        "its metadata": "import importlib.metadata as m; m.version('pytest')",
        "writing": "open('app.py', 'a')",
        "a new file": "open('playground/new', 'w')",
        "another computer": "import socket; socket.create_connection(('192.0.2.1', 443), 5)",
    }
    calls = space.calls.read_text() if space.calls.exists() else ""
    reported = {
        what: subprocess.run(
            space.command("-c", code),
            cwd=space.project,
            env=space.environment,
            capture_output=True,
            text=True,
        ).stderr.splitlines()[-1:]
        for what, code in tries.items()
    }
    space.calls.write_text(calls)  # this test's own attempt does not count
    assert reported == {
        "a module that is not required": ["ModuleNotFoundError: No module named 'pytest'"],
        "its metadata": [
            "importlib.metadata.PackageNotFoundError: No package metadata was found for pytest"
        ],
        "writing": ["PermissionError: [Errno 13] Permission denied: 'app.py'"],
        "a new file": ["PermissionError: [Errno 13] Permission denied: 'playground/new'"],
        "another computer": ["OSError: there is no network here, not even to 192.0.2.1"],
    }


def test_the_page_is_served_to_everybody_and_changes_nothing_for_others(space: Space) -> None:
    assert "XLA Playground" in space.served.first_page
    port = int(space.environment["GRADIO_SERVER_PORT"])
    listening = Path("/proc/net/tcp").read_text()
    assert f" 00000000:{port:04X} 00000000:0000 0A " in listening  # 0.0.0.0, state LISTEN
    assert '"elem_id":"padded_lengths"' not in space.served.first_page, "the tab for admins"


def test_text_is_generated_and_what_was_compiled_is_kept_at_home(
    space: Space, client: Client
) -> None:
    options = {"prompt": "Once upon a time", "max_new_tokens": 8, "num_beams": 2}
    first = client.predict(**options, api_name="/generate")
    second = client.predict(**options, api_name="/generate")
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert first["text"] == second["text"] != ""
    store = space.home / ".cache" / "xla_backend"
    assert list(store.glob("*/*.entry"))


def test_a_hub_model_is_downloaded(space: Space, client: Client) -> None:
    answer = client.predict(
        prompt="The wind", max_new_tokens=4, model=HUB_MODEL, api_name="/generate"
    )
    assert answer["model"] == HUB_MODEL
    assert answer["new_tokens"] > 0
    assert list((space.home / ".cache" / "huggingface" / "hub").glob("models--*"))


def test_the_space_ends_cleanly_and_leaves_nothing(space: Space, client: Client) -> None:
    client.predict(prompt="The wind", max_new_tokens=4, api_name="/generate")
    assert space.served.end() == 0
    output = "\n".join(space.served.output)
    assert errors(output) == HOT_RELOAD
    assert "cannot be stored" not in output
    assert contents(space.project) == space.before
    assert (space.calls.read_text() if space.calls.exists() else "") == ""


def test_without_a_writable_place_one_line_says_that_nothing_is_kept(space: Space) -> None:
    """The store of a Space whose storage was mounted to be read only."""
    port = free_port()
    environment = {
        **space.environment,
        "GRADIO_SERVER_PORT": str(port),
        "XLA_BACKEND_STORE": str(space.project / "store"),
    }
    served = start(space.command("app.py"), space.project, environment, port)
    try:
        answer = connect(served.url).predict(
            prompt="The wind", max_new_tokens=4, api_name="/generate"
        )
    finally:
        served.end()
    assert answer["cache"] == "miss"
    assert len([line for line in served.output if "cannot be stored" in line]) == 1
    assert errors("\n".join(served.output)) == HOT_RELOAD


def connect(url: str) -> Client:
    """A client that bears with a machine that others use too."""
    return Client(url, verbose=False, httpx_kwargs={"timeout": 120})


def errors(output: str) -> list[str]:
    """The last lines of all tracebacks."""
    return re.findall(r"^Traceback.*\n(?: .*\n)*(\S.*)$", output, flags=re.MULTILINE)


def not_required() -> dict[str, list[str]]:
    """What is installed here and would not be by `pip install -r requirements.txt`.

    Returns:
        "modules": names at the top level; "distributions": names as their metadata spell them.
    """
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    wanted = [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]
    required: set[str] = set()
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        required.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in importlib.metadata.requires(name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    wanted.append(needed)
    required.add("pip")  # every environment has it
    modules = {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if not required & {canonicalize_name(name) for name in distributions}
    }
    names = {distribution.name for distribution in importlib.metadata.distributions()}
    return {
        "modules": sorted(modules - set(sys.stdlib_module_names)),
        "distributions": sorted(n for n in names if canonicalize_name(n) not in required),
    }


def contents(folder: Path) -> dict[str, str]:
    """Every file of a folder with its contents' hash and the time of its last change."""
    return {
        str(path.relative_to(folder)): f"{_hash(path)} {path.stat().st_mtime_ns}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _hash(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _set_writable(folder: Path, writable: bool) -> None:
    bits = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | stat.S_IWUSR if writable else mode & ~bits)


def test_deploy_md_names_what_exists() -> None:
    text = (ROOT / "DEPLOY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(PLAYGROUND_[A-Z]+)`", text))
    assert named
    assert named <= {flag.variable for flag in FLAGS}
    linked = re.findall(r"\]\((?!https?://)([^)#\s]+)", text)
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_the_front_matter_names_what_exists() -> None:
    front = yaml.safe_load((ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)[1])
    # The model of a package has a name without its owner on the Hub.
    assert tuple(front["models"]) == tuple(REPOSITORIES.get(name, name) for name in HUB_MODELS)
    [preloaded] = front["preload_from_hub"]
    repository, files = preloaded.split(" ")
    assert repository == REPOSITORIES[PACKAGED_MODEL]
    wanted = {*hub.CONFIG_FILES, *hub.TOKENIZER_FILES, "model.safetensors"}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files.split(",")) <= wanted
    address, _, path = front["thumbnail"].partition("/resolve/main/")
    assert address == "https://huggingface.co/spaces/OWNER/xla-playground"
    assert "spaces/OWNER/" in (ROOT / "DEPLOY.md").read_text(encoding="utf-8"), "who replaces it?"
    width, height = struct.unpack(">II", (ROOT / path).read_bytes()[16:24])  # of a PNG
    assert (width, height) == (1200, 630)  # what links are shown with
