"""Where machine code of our own cannot run, XLA alone serves rows: which is chosen, and that one
function serves every length, grammar and question, with the texts of padded shapes.

Rows, prefixes, states and memory that is short, by both kernels: `test_pool`.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import checkpoints
from xla_backend import Backend, GenerationOptions, Grammar, InvalidRequest
from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.models import Registry
from xla_backend.interface.prompt import TokenIds
from xla_backend.kernels import ffi, machine_code

OPTIONS = GenerationOptions(max_new_tokens=9)
QUESTION = {"long": {"type": "yes_no", "instructions": "Is it long?"}}


@pytest.fixture(params=["no library", "no F16C"])
def without_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TensorFlow's library is hidden, or the processor cannot convert float16."""
    if request.param == "no library":
        monkeypatch.setattr(ffi, "_library", lambda: Path("/nowhere"))
    else:
        monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", dict)
    for cached in (ffi.are_possible, machine_code.suits):
        cached.cache_clear()
    yield
    for cached in (ffi.are_possible, machine_code.suits):
        cached.cache_clear()


@pytest.mark.usefixtures("without_own")
def test_xla_alone_is_chosen_where_nothing_else_runs() -> None:
    assert Registry().kernels == Registry(kernels=kinds.AUTO).kernels == kinds.XLA
    with pytest.raises(InvalidRequest, match="--kernels xla"):
        Registry(kernels=kinds.OWN)


@pytest.fixture(scope="module")
def engine() -> Iterator[Backend]:
    with contextlib.closing(Backend(Registry(kernels=kinds.XLA), store="off")) as backend:
        yield backend


@pytest.fixture(scope="module")
def own_engine() -> Iterator[Backend]:
    with contextlib.closing(Backend(Registry(kernels=kinds.OWN), store="off")) as backend:
        yield backend


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoints.gpt2(tmp_path_factory.mktemp("model"), seed=5, n_positions=300))


def test_one_function_serves_rows_of_every_length(engine: Backend, model: str) -> None:
    def text(length: int, **how: Any) -> list[int]:
        prompt = TokenIds(tuple(3 + 7 * at % 250 for at in range(length)))
        return [token.id for token in engine.generate(model, prompt, OPTIONS, **how).tokens]

    texts = [text(length, cache_salt="row") for length in (5, 64, 130, 250)]
    assert [key.is_pooled for key in (entry.key for entry in engine.cached_functions())] == [True]
    assert engine.load(model).kernels == kinds.XLA
    assert [text(length, mode="padded") for length in (5, 64, 130, 250)] == texts


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_follow_grammars(engine: Backend, model: str, temperature: float) -> None:
    """A table, and one that is found token by token; the function is that of other rows."""
    for grammar, form in (
        (Grammar.regex(r"\d{3}-\d{4}"), r"\d{3}-\d{4}"),
        (Grammar.gbnf('root ::= "(" root ")" | [a-c]'), r"\(*[abc]?\)*"),
    ):
        options = GenerationOptions(max_new_tokens=30, temperature=temperature, grammar=grammar)
        result = engine.generate(model, "Once", options, cache_salt="row")
        assert re.fullmatch(form, result.text), result.text


def _chat(engine: Backend, model: str) -> object:
    """Two turns, the second over what the first left in memory."""
    first = engine.generate(model, "Once upon a time", OPTIONS, cache_salt="chat")
    more = f"Once upon a time{first.text} and"
    second = engine.generate(model, more, OPTIONS, cache_salt="chat")
    assert second.cached_tokens > 0
    return first.text, second.text


def _beams(engine: Backend, model: str) -> object:
    return engine.generate(model, "Once", OPTIONS.replace(num_beams=4)).text


def _speech(engine: Backend, model: str) -> object:
    sound = np.float32(0.3 * np.sin(np.arange(32_000) ** 1.3))
    return engine.transcribe(model, (16_000, sound), OPTIONS.replace(num_beams=2)).text


def _decisions(engine: Backend, model: str) -> object:
    decided = engine.decide(model, "A text.", QUESTION)
    return decided.decisions[0].logprobs


@pytest.mark.parametrize(
    ("ask", "make"),
    [
        (_chat, checkpoints.gpt2),
        (_beams, checkpoints.gpt2),
        pytest.param(_beams, checkpoints.t5, marks=pytest.mark.release),
        (_speech, checkpoints.whisper),
        (_decisions, checkpoints.gpt2),
    ],
)
def test_other_requests_are_answered_as_by_own_kernels(
    engine: Backend,
    own_engine: Backend,
    ask: Callable[[Backend, str], object],
    make: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folder = str(make(tmp_path / "model", seed=5))
    assert ask(engine, folder) == pytest.approx(ask(own_engine, folder), abs=1e-3)
