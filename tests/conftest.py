"""What every test shares: a cache folder of its own, a quiet TensorFlow, one engine, one oracle,
one browser.

Knows how tests are run. Must not know what any of them checks.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG

if TYPE_CHECKING:
    from xla_backend import Backend

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_configure(config: pytest.Config) -> None:
    """Sets the environment before any test module, and with it any library, is imported."""
    from tests import oracle
    from xla_backend.baselines import overlay
    from xla_backend.compilation import xla_folder

    # Said now: without a virtual environment it is in the cache folder, which is another one below.
    os.environ[overlay.FOLDER_VARIABLE] = str(overlay.folder())
    cache = tempfile.TemporaryDirectory(prefix="xla-backend-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["XDG_CACHE_HOME"] = cache.name  # never the user's own
    os.environ["XLA_BACKEND_STORE"] = "off"  # a miss is a miss; tests of the store name a folder
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # never a call home
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # After five seconds httpx would give up, in Gradio's client too; what hangs, pytest ends.
    vars(DEFAULT_TIMEOUT_CONFIG).update(connect=None, read=None, write=None, pool=None)
    if not hasattr(config, "workerinput"):  # one for this process and the workers that it starts
        config.add_cleanup(oracle.start(cache.name))
    # Before any test module imports TensorFlow, which reads only once where compiled code goes.
    xla_folder.prepare()


def pytest_collection_finish() -> None:
    """What was imported for the tests stays: garbage need not be looked for among it ever again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    """One engine in this process for the whole session: what it compiled stays compiled.

    Tests that count traces or look at outcomes must therefore use keys of their own, or an engine
    of their own.
    """
    from xla_backend import Backend

    engine = Backend()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def small_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small GPT-2 with random weights: loads and compiles fast, writes nonsense.

    Wide and long enough that 1000 tokens take a good part of a second, to be stopped in.
    """
    from tests.checkpoints import gpt2

    folder = tmp_path_factory.mktemp("models") / "small-gpt2"
    return gpt2(folder, n_positions=1100, n_embd=128, n_layer=3, n_head=4)


@pytest.fixture(scope="session")
def browser_executable() -> str:
    """The path of the system's Chromium."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    pytest.fail("no browser: install the Debian package chromium (apt-get install chromium)", False)
