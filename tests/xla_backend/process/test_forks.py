"""A process that was forked from one with an engine says so at once: it has none of its threads."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import tensorflow as tf

from tests.xla_backend.engine.fake_model import Steps, fake_backend
from xla_backend import BackendProcess, EngineStopped, jit
from xla_backend.compilation import xla_folder


@pytest.fixture(params=["backend", "process", "jit"])
def used(request: pytest.FixtureRequest) -> Iterator[Callable[[], object]]:
    """A call that worked before the fork, of each of the three that have threads."""
    with ExitStack() as stack:
        if request.param == "jit":
            double = jit(lambda x: 2 * x)
            double(tf.ones([2]))
            yield lambda: double(tf.ones([2]))
        elif request.param == "backend":
            backend = stack.enter_context(fake_backend(Steps()))
            backend.generate("fox", "abc")
            yield lambda: backend.generate("fox", "abc")
        else:
            process = BackendProcess(default_model=None, store="off", warm_up=None)
            stack.callback(process.close, 0)
            yield lambda: process.generate("fox", "abc")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_is_told_that_it_has_no_engine(used: Callable[[], object]) -> None:
    theirs, ours = os.pipe()
    if not (fork := os.fork()):
        try:
            used()
        except EngineStopped as error:
            os.write(ours, str(error).encode())
        finally:
            xla_folder.remove()  # as at the end of a process
            os._exit(0)
    os.close(ours)
    with os.fdopen(theirs) as said:
        assert "was forked" in said.read()
    os.waitpid(fork, 0)
    folder = os.environ["TF_XLA_FLAGS"].rpartition("=")[2]
    assert Path(folder).is_dir(), "the fork's end took its parent's folder along"
