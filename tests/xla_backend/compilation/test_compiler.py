"""Tests of `compiler`: what is taken from the store, what goes there, and that the two
calls of TensorFlow's which are not public still do what that takes.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef

from tests import checkpoints
from xla_backend import Backend, CacheOutcome, GenerationOptions
from xla_backend.compilation import compiler as compiler_module
from xla_backend.compilation import traced_function, xla_folder
from xla_backend.compilation.compiler import Compiler
from xla_backend.compilation.store import Store
from xla_backend.compilation.traced_function import TracedFunction

WEIGHTS = {"factor": tf.Variable(3.0)}


def square(x: tf.Tensor) -> tf.Tensor:
    return WEIGHTS["factor"] * x * x


def function(name: str, python: Callable[[tf.Tensor], tf.Tensor] = square) -> TracedFunction:
    """Whatever has the same name must do the same: every test takes names of its own."""
    return TracedFunction(
        name, python, [tf.TensorSpec([None], tf.float32)], WEIGHTS, structure=tf.constant(0)
    )


def numbers(size: int) -> tf.Tensor:
    return tf.range(size, dtype=tf.float32)


def compiles(compiler: Compiler, traced: TracedFunction, size: int) -> bool:
    """Whether the machine code came from the store."""
    entry = f"{traced.name}.{size}"
    run, is_restored = compiler.compile(traced, entry, [numbers(size)])
    for _ in range(2):
        assert run(numbers(size)).numpy().tolist() == [3.0 * i * i for i in range(size)]
    return is_restored


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_compiled_function_is_stored_and_taken_from_the_store(store: Store) -> None:
    compiler = Compiler(store)
    first = function("compiler_test_stored")
    assert not compiler.trace(first)
    assert compiler.trace(first), "it is traced already"
    assert not compiles(compiler, first, 3)
    assert not compiles(compiler, first, 5)
    names = ["compiler_test_stored.3", "compiler_test_stored.5", "compiler_test_stored.trace"]
    assert store.names() == names

    def never(x: tf.Tensor) -> tf.Tensor:
        raise AssertionError("it was traced")

    second = function("compiler_test_stored", never)
    other = Compiler(Store(store.root))
    assert other.trace(second)
    assert compiles(other, second, 5)
    assert compiles(other, second, 3)
    assert store.names() == names
    assert xla_folder.collect("compiler_test_stored") == {}

    compiler = Compiler(None)
    traced = function("compiler_test_no_store")
    assert not compiler.trace(traced)
    assert not compiles(compiler, traced, 3)
    assert xla_folder.collect("compiler_test_no_store") == {}, "nothing is left behind"


def test_definitions_without_xla_s_folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_folder, "is_ready", lambda: False)
    compiler = Compiler(store)
    traced = function("compiler_test_no_folder")
    assert not compiler.trace(traced)
    assert not compiles(compiler, traced, 3)
    assert store.names() == ["compiler_test_no_folder.trace"]
    monkeypatch.undo()
    xla_folder.collect("compiler_test_no_folder")


@pytest.mark.parametrize(
    ("description", "blobs"),
    [
        ({}, [b""]),
        ({"captures": [], "outputs": []}, []),
        ({"captures": ["unknown"], "outputs": [[[None], "float32"]]}, [b""]),
        ({"captures": ["factor"], "outputs": [[[None], "no dtype"]]}, [b""]),
        ({"captures": ["factor"], "outputs": [[[None], "float32"]]}, [b"no function"]),
        ({"captures": 5, "outputs": 5}, [b""]),
    ],
)
def test_a_definition_that_does_not_fit_is_made_anew(
    store: Store,
    description: dict,
    blobs: list[bytes],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"compiler_test_unfit_{abs(hash(request.node.name))}"
    compiler = Compiler(store)
    store.save(f"{name}.trace", description, blobs)
    traced = function(name)
    with caplog.at_level(logging.WARNING, logger="xla_backend"):
        assert not compiler.trace(traced)
    assert "does not fit" in caplog.text
    assert not compiles(compiler, traced, 3)
    assert Compiler(store).trace(function(name)), "what was made anew took its place"


@pytest.mark.parametrize(
    "description", [{}, {"hlo_stub": "a", "file": 5}, {"hlo_stub": "a", "file": "a"}]
)
@pytest.mark.parametrize("blobs", [[], [b"code"], [b"no function", b"code"]])
def test_code_that_does_not_fit_is_made_anew(
    store: Store,
    description: dict,
    blobs: list[bytes],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"compiler_test_code_{abs(hash(request.node.name))}"
    compiler = Compiler(store)
    traced = function(name)
    compiler.trace(traced)
    store.save(f"{name}.3", description, blobs)
    with caplog.at_level(logging.WARNING, logger="xla_backend"):
        assert not compiles(compiler, traced, 3)
    assert "cannot be used" in caplog.text
    assert compiles(Compiler(store), traced, 3)


def test_a_hlo_stub_that_was_compiled_itself_is_set_aside_and_the_function_made_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here because TensorFlow remembers it; elsewhere because XLA would look under another name
    (what XLA refuses: `test_restoring`)."""
    traced = function("compiler_test_itself")
    compiler = Compiler(store)
    compiler.trace(traced)
    assert not compiles(compiler, traced, 3)
    monkeypatch.setattr(compiler_module, "_stored_here", set())
    with caplog.at_level(logging.WARNING, logger="xla_backend"):
        assert not compiles(Compiler(store), traced, 3)
    (record,) = caplog.records
    assert "compiler_test_itself.3.entry is set aside: XLA looks for it" in record.getMessage()
    assert store.names() == ["compiler_test_itself.trace"]
    assert not compiles(Compiler(store), traced, 4)
    assert xla_folder.collect("compiler_test_itself") == {}


@pytest.mark.parametrize("python", [lambda x: x > 1.0, lambda x: x[:0]])
def test_a_function_that_no_hlo_stub_fits_is_not_stored(
    store: Store,
    python: Callable[[tf.Tensor], tf.Tensor],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"compiler_test_no_hlo_stub_{abs(hash(request.node.name))}"
    traced, compiler = function(name, python), Compiler(store)
    compiler.trace(traced)
    with caplog.at_level(logging.WARNING, logger="xla_backend"):
        run, is_restored = compiler.compile(traced, f"{name}.3", [numbers(3)])
    assert not is_restored
    assert run(numbers(3)).numpy().tolist() == python(numbers(3)).numpy().tolist()
    assert f"{name}.3 cannot be stored" in caplog.text
    assert store.names() == [f"{name}.trace"]


def test_a_compilation_that_fails_twice_fails(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.length(tf.strings.as_string(x))  # XLA knows no strings

    compiler = Compiler(store)
    traced = function("compiler_test_fails", fails)
    compiler.trace(traced)
    with (
        caplog.at_level(logging.WARNING, logger="xla_backend"),
        pytest.raises(tf.errors.InvalidArgumentError),
    ):
        compiler.compile(traced, "compiler_test_fails.3", [numbers(3)])
    assert caplog.text.count("trying once more") == 1
    assert store.names() == ["compiler_test_fails.trace"]


def test_one_function_is_worked_on_once_at_a_time(store: Store) -> None:
    compiler = Compiler(store)
    count, begin = [], threading.Barrier(4)

    def counted(x: tf.Tensor) -> tf.Tensor:
        count.append(1)
        return square(x)

    traced = function("compiler_test_threads", counted)

    def trace(_: int) -> bool:
        begin.wait()
        return compiler.trace(traced)

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(trace, range(4))) == [False, True, True, True]
    assert len(count) == 1


# --- TensorFlow's calls that are not public -------------------------------------------------------


def test_tensorflow_still_has_what_the_store_is_built_on() -> None:
    """Fails when an upgrade of TensorFlow takes away what restoring needs: see
    `TracedFunction.adopt`. Everything else goes on then, but every start compiles anew.
    """
    from tensorflow.python.eager import context

    running = context.context()
    for name in ("add_function_def", "has_function", "call_function"):
        assert callable(getattr(running, name, None)), f"TensorFlow's context lost {name}"

    @tf.function(autograph=False)
    def twice(x: tf.Tensor) -> tf.Tensor:
        return 2.0 * x * WEIGHTS["factor"]

    concrete = twice.get_concrete_function(tf.TensorSpec([None], tf.float32))
    definition = FunctionDef()
    definition.CopyFrom(concrete.function_def)
    definition.signature.name = "compiler_test_named_by_us"
    assert not running.has_function("compiler_test_named_by_us")
    running.add_function_def(definition)
    assert running.has_function("compiler_test_named_by_us")
    (result,) = running.call_function(
        b"compiler_test_named_by_us", [tf.constant([1.0, 2.0]), WEIGHTS["factor"].handle], 1
    )
    assert result.numpy().tolist() == [6.0, 12.0]

    # And XLA writes its code where it is told to, under a name that does not change.
    traced = function("compiler_test_upgrade")
    traced.trace()
    assert traced.definition is not None, "functions cannot be renamed any more"
    traced(numbers(2))
    assert xla_folder.collect("compiler_test_upgrade"), (
        "XLA left no code that names the function: its persistent cache has changed"
    )


def test_without_tensorflow_s_private_calls_everything_works_but_restoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tensorflow.python.eager.context import Context

    model = str(checkpoints.gpt2(tmp_path / "m", seed=51, n_layer=1, n_embd=32, n_head=2))
    options = GenerationOptions(max_new_tokens=4)
    traced_function.warn_of_numbered_names.cache_clear()
    with monkeypatch.context() as upgraded, caplog.at_level(logging.WARNING, logger="xla_backend"):
        upgraded.delattr(Context, "add_function_def")
        backend = Backend(store=tmp_path / "store")
        result = backend.generate(model, "The owl", options, mode="padded")
        assert result.cache is CacheOutcome.MISS
        assert backend.generate(model, "The owl", options, mode="padded").cache is CacheOutcome.HIT
        backend.close()
    traced_function.warn_of_numbered_names.cache_clear()
    (record,) = caplog.records
    assert "does not let functions be renamed" in record.getMessage()
    assert Store(tmp_path / "store").names() == []
    right = Backend(store="off").generate(model, "The owl", options, mode="padded")
    assert [token.id for token in result.tokens] == [token.id for token in right.tokens]
