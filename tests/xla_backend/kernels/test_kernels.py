"""The folder as a whole: what it needs, and what it shares with others."""

import json
import subprocess
import sys
from pathlib import Path

import xla_backend.kernels
from xla_backend.interface.options import MAX_DRAFTS
from xla_backend.kernels.attention.recurrence import RECENT

FOLDER = Path(xla_backend.kernels.__file__).parent


def test_the_folder_stands_alone() -> None:
    """Its modules import neither the rest of the product nor, but for graphs, TensorFlow."""
    names = [
        ".".join(("xla_backend.kernels", *path.relative_to(FOLDER).with_suffix("").parts))
        for path in FOLDER.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    ]
    graph = [name for name in names if ".graph." in name or ".xla." in name]
    assert graph
    script = """
import importlib, json, sys, types
package = types.ModuleType("xla_backend")  # without what its `__init__` imports
package.__path__ = [sys.argv[1]]
sys.modules["xla_backend"] = package
others, graph = json.loads(sys.argv[2])
for name in others:
    importlib.import_module(name)
assert "tensorflow" not in sys.modules
for name in graph:
    importlib.import_module(name)
print(json.dumps([name for name in sys.modules if name.startswith("xla_backend.")]))
"""
    given = json.dumps([[name for name in names if name not in graph], graph])
    command = [sys.executable, "-c", script, str(FOLDER.parent), given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert set(names) <= set(loaded)
    assert [name for name in loaded if not name.startswith("xla_backend.kernels")] == []


def test_states_hold_as_many_drafts_as_a_request_may_have() -> None:
    assert RECENT == 1 + MAX_DRAFTS
