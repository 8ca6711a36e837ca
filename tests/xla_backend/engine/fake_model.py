"""A `Backend` whose models are fakes: everything of the engine but XLA, with gates for its steps.

Knows what `text`, `transcription` and `function_maker` need of a `LoadedModel`. Its
tokens are characters, and its texts those of `fake_functions.text_alone`, on padded keys and in the
pool. Must not know what is tested.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.xla_backend.engine.fake_functions import (
    BLOCK_BYTES,
    END,
    VOCABULARY,
    FakeFunctions,
    text_alone,
)
from xla_backend import Backend, BucketRules, CacheOutcome, GenerationOptions, ModelUnavailable
from xla_backend.checkpoints.models import ModelFiles
from xla_backend.checkpoints.speech_input import SpeechInput, SpeechPrompt
from xla_backend.compilation import naming
from xla_backend.compilation.function_cache import Built
from xla_backend.compilation.store import Store
from xla_backend.engine import loaded_models
from xla_backend.engine.request import Stream
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.results import ModelInfo
from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.kernels.graph.grammar_operations import GrammarAddresses
from xla_backend.model.functions import PaddedFunctions
from xla_backend.model.kv_memory import KVMemory
from xla_backend.model.loaded_model import LoadedModel
from xla_backend.model.output import Output

BLOCKS_OF_ROW = 32
CONTEXT = BLOCKS_OF_ROW * BLOCK
FIRST = 32  # the character of token 0
WAIT_S = 60.0
"""Far above what any wait takes: only a hang meets it."""


def encode(text: str) -> list[int]:
    return [ord(character) - FIRST for character in text]


def said(prompt: str, most: int) -> str:
    """The text that a prompt gets, in the pool and on padded keys."""
    return "".join(chr(FIRST + id) for id in text_alone(encode(prompt), most) if id != END)


def heard_ids(prompt: SpeechPrompt) -> list[int]:
    """What a window's sound and language are to the fake: a prompt."""
    sound = int(1000 * np.abs(prompt.features).sum())
    return [id % VOCABULARY for id in (*prompt.decoder_prompt, sound)]


class Refused(Stream[Any, Any]):
    """Of a request that may not start."""

    def may_start(self) -> bool:
        return False


class Gate:
    """Holds a call until a test opens it."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    def hold(self) -> None:
        self._reached.set()
        assert self._open.wait(WAIT_S), "nobody opened the gate"

    def wait(self) -> None:
        """Returns when a call is held."""
        assert self._reached.wait(WAIT_S), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


class Steps:
    """What the fakes do, call by call.

    Attributes:
        done: the names of all calls: "load NAME", "build NAME KEY ROWS", "read", "decode",
            "prefill NAME", "advance NAME", "warm up NAME KEY".
        logprobs: of the tokens of the next texts on padded keys; 0 of all after them.
        no_speech: the probability that nobody speaks in a recording.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.logprobs: list[float] = []
        self.no_speech = 0.0
        self._hooks: list[tuple[str, Callable[[], None]]] = []

    def hold(self, name: str) -> Gate:
        """The gate at which the next call stands whose name begins so."""
        gate = Gate()
        self._hooks.append((name, gate.hold))
        return gate

    def fail(self, name: str, error: BaseException) -> None:
        """Has the next such call raise an error."""

        def fail() -> None:
            raise error

        self._hooks.append((name, fail))

    def call(self, name: str) -> None:
        self.done.append(name)
        found = next((hook for hook in self._hooks if name.startswith(hook[0])), None)
        if found is not None:
            self._hooks.remove(found)
            found[1]()

    def open_all(self) -> None:
        for _, hook in self._hooks:
            if isinstance(gate := getattr(hook, "__self__", None), Gate):
                gate.open()


class FakeTokenizer:
    is_byte_level = True
    rows = VOCABULARY
    channel_tokens: Mapping[int, str] = MappingProxyType({})

    def encode(self, prompt: Prompt, **how: Any) -> list[int]:
        if isinstance(prompt, TokenIds):
            return list(prompt.ids)
        return encode(prompt if isinstance(prompt, str) else prompt[-1].content)

    def visible(self, ids: Iterable[int], shown: Iterable[int] = ()) -> list[int]:
        return [id for id in ids if id != END or END in shown]

    def special_ids(self, texts: Iterable[str]) -> frozenset[int]:
        return frozenset([END] if "<end>" in texts else [])

    def piece_bytes(self, id: int) -> bytes:
        return chr(FIRST + id).encode()

    token_bytes = piece_bytes

    def token_text(self, id: int) -> str:
        return "<end>" if id == END else chr(FIRST + id)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self.token_text, self.visible(ids)))


class FakeGeneration:
    """A text on a padded key."""

    def __init__(
        self, on_advance: Callable[[], None], token_ids: list[int], most: int, logprob: float
    ) -> None:
        self._on_advance = on_advance
        self._logprob = logprob
        self._text = text_alone(token_ids, most)
        self.length = 0

    @property
    def is_done(self) -> bool:
        return self.length == len(self._text)

    def advance(self, steps: int) -> None:
        self._on_advance()
        self.length = min(len(self._text), self.length + steps)

    def output(self) -> Output:
        nothing, none = np.zeros([self.length, 0]), np.zeros([self.length], np.int32)
        tokens = np.array(self._text[: self.length], np.int32)
        logprobs = np.full([self.length], self._logprob)
        return Output(tokens, logprobs, nothing, nothing, none, none)


class FakeBuilder:
    """See `FunctionBuilder`. What it "compiles" it leaves in the store, under the true names."""

    decoder = SimpleNamespace(model=SimpleNamespace(vocabulary_size=VOCABULARY))
    blocks_of_row = BLOCKS_OF_ROW

    def __init__(self, info: ModelInfo, steps: Steps, store: Store | None) -> None:
        self._name, self._steps, self._store = info.name, steps, store
        self._made: set[CacheKey] = set()
        self._pool = FakeFunctions(on_call=lambda name, rows: steps.call(name))

    def trace(self, key: CacheKey, rows: int = 1) -> tuple[float, bool]:
        return 0.0, self._is_stored(key)

    def build(self, key: CacheKey, on_step: Callable[[Any], None], rows: int = 1) -> Built[Any]:
        on_step("trace")
        started = time.perf_counter()
        self._steps.call(f"build {self._name} {key} {rows}")
        on_step("compile")
        is_stored = self._is_stored(key)
        if self._store is not None:
            decode = naming.decode_function(self._name, key)
            prompt = naming.read_function if key.is_pooled else naming.prefill_function
            for entry in (
                naming.decode_code_entry(self._name, key),
                *naming.prompt_code_entries(self._name, key),
                *map(naming.trace_entry, (decode, prompt(self._name))),
            ):
                self._store.save(entry, {}, [])
        self._made.add(key)
        functions = self._pool.compiled(rows) if key.is_pooled else PaddedFunctions(*[None] * 3)  # type: ignore[arg-type]
        outcome = CacheOutcome.DISK if is_stored else CacheOutcome.MISS
        return Built(functions, outcome, time.perf_counter() - started, 1e-9)

    def warm_up(self, functions: Any, key: CacheKey) -> None:
        self._steps.call(f"warm up {self._name} {key}")

    def _is_stored(self, key: CacheKey) -> bool:
        store = self._store
        return store is not None and not naming.missing(self._name, key, self._made, store.holds)


class FakeModel:
    """See `LoadedModel`. A speech model's input is real."""

    tokenizer = FakeTokenizer()
    tokens = LoadedModel.tokens
    prompt_tokens = LoadedModel.prompt_tokens
    is_end = LoadedModel.is_end
    eos_token_ids = (END,)

    def __init__(self, files: ModelFiles, steps: Steps, store: Store | None, kv_bytes: int) -> None:
        steps.call(f"load {files.info.name}")
        self._steps = steps
        self.info = dataclasses.replace(files.info, loaded=True)
        self.identity = files.info.name
        self.context_length = files.info.context_length
        self.functions = FakeBuilder(files.info, steps, store)
        self.speech = None
        if files.info.family == "speech":
            self.speech = SpeechInput.load(files.folder, files.generation_config, files.config)
        self.has_pool = self.speech is None
        least = (self.functions.blocks_of_row + 1) * BLOCK_BYTES
        self.memory = KVMemory(BLOCK_BYTES, max(kv_bytes, least))
        self.row_grammars = GrammarAddresses()

    def start(
        self, functions: Any, key: CacheKey, prompt: Any, options: GenerationOptions
    ) -> FakeGeneration:
        self._steps.call(f"prefill {self.info.name}")
        if isinstance(prompt, SpeechPrompt):
            prompt = heard_ids(prompt)
        assert len(prompt) <= key.padded_length
        assert options.max_new_tokens <= key.max_new_tokens
        advance = f"advance {self.info.name}"
        logprob = self._steps.logprobs.pop(0) if self._steps.logprobs else 0.0
        return FakeGeneration(
            lambda: self._steps.call(advance), prompt, options.max_new_tokens, logprob
        )

    def no_speech_probability(self, generation: FakeGeneration) -> float:
        """What `Steps` says."""
        return self._steps.no_speech

    def check(self, options: GenerationOptions) -> None:
        """Nothing can be wrong."""

    def detected_language(self, generation: FakeGeneration) -> str:
        """Always German."""
        return "de"


class FakeRegistry:
    """Has every model but "unknown"."""

    weights, activations, kernels = "auto", "exact", "own"

    def list(self) -> list[ModelInfo]:
        return []

    def locate(self, name: str, on_progress: Any = None) -> ModelFiles:
        if name == "unknown":
            raise ModelUnavailable("there is no model 'unknown'.")
        info = ModelInfo(name, "decoder-only", "folder", "", context_length=CONTEXT)
        return ModelFiles(info, Path(name), None, None)  # type: ignore[arg-type]


@contextlib.contextmanager
def fake_models(steps: Steps, store: Path | str = "off") -> Iterator[None]:
    """Within it, models that are loaded are fakes; their weights nobody reads."""
    kept = None if store == "off" else Store(Path(store))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            loaded_models,
            "LoadedModel",
            lambda files, _, kv_bytes: FakeModel(files, steps, kept, kv_bytes),
        )
        yield
        steps.open_all()


@contextlib.contextmanager
def fake_backend(
    steps: Steps,
    store: Path | str = "off",
    rules: BucketRules | None = None,
    registry: Any = None,
    **how: Any,
) -> Iterator[Backend]:
    """An engine over fake models, of any name or those of a registry."""
    with fake_models(steps, store):
        backend = Backend(registry or FakeRegistry(), rules or BucketRules(), store=store, **how)
        yield backend
        steps.open_all()
        backend.close()
