"""`FakeBackend`: an engine without a model, for tests of the page.

Knows what `SharedBackend` promises, and keeps it: keys by the real rules, predictions by the real
ones, functions that are there once they were made. Only texts and times are made up. A test may
hold every step of a request: see `Script`. Must not know the page.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from tests.playground.samples import (
    NO_PHASES,
    comparison,
    entry,
    miss,
    result,
    transcription,
    window,
)
from tests.playground.script import STEPS, UNSTOPPABLE, Script
from xla_backend import (
    BucketRules,
    CacheEntry,
    CacheKey,
    CacheOutcome,
    EngineStatus,
    EngineStopped,
    FunctionComparison,
    FunctionRequest,
    GenerationOptions,
    GenerationResult,
    InvalidRequest,
    ModelInfo,
    ModelUnavailable,
    NoRoom,
    Prediction,
    SharedBackend,
    StoredKey,
    Timing,
    Token,
    TranscribedWindow,
    Transcription,
)
from xla_backend.answers.tool_format import GENERIC
from xla_backend.checkpoints.prompts import check_prompt
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.engine.request import Chunk, Stream
from xla_backend.interface.backend import Result
from xla_backend.interface.buckets import pool_key
from xla_backend.interface.decisions import Decision, Decisions, QuestionTokens
from xla_backend.interface.options import MAX_NEW_TOKENS, AudioInput
from xla_backend.interface.prompt import Prompt, TokenIds
from xla_backend.interface.request_queue import Entry, RequestQueue
from xla_backend.interface.request_record import RequestRecords
from xla_backend.interface.requests import Prepared, SpeechRequest, TextRequest
from xla_backend.interface.results import (
    Past,
    Progress,
    PromptProgress,
    RequestState,
    TextChunk,
    TimedText,
    TopLogprob,
)
from xla_backend.prediction import prediction

CONTEXT_LENGTH = 150
"""Most tokens of prompt and text together, in every model."""
TOKENS_A_WORD = 3
NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})
MODELS = (
    ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories."),
    ModelInfo("openai/whisper-tiny", "speech", "hub", "Writes down speech."),
    ModelInfo("openai-community/gpt2", "decoder-only", "hub", "GPT-2."),
    ModelInfo("t5-stories", "encoder-decoder", "bundled", "Answers."),
)
TALKER = ModelInfo("talker", "decoder-only", "bundled", "Answers.", is_instruct=True)
"""A model that the Chat tab is there for."""
AnyFake = TypeVar("AnyFake", bound="FakeStream[Any, Any]")
SPEECH_KEY = transcription().key


class FakeStream(Stream[Chunk, Result], Generic[Chunk, Result]):
    """Goes through the steps, each of which a test may hold, and gives pieces.

    Attributes:
        backend, model: whose it is.
        error: what has broken the engine meanwhile.
        is_over: whether it has ended.
        passed_s: for each step, seconds that passed on the test's clock while it was held.
    """

    def __init__(self, backend: FakeBackend, model: str) -> None:
        self.backend = backend
        self.model = model
        self.error: Exception | None = None
        self.is_over = False
        self.passed_s = dict.fromkeys(STEPS, 0.0)
        self.is_admitted = self.has_waited = False
        self.entry = Entry(backend.queue, self._admit, self.excludes, self._left_s)
        self.record = backend.requests.open(
            self.entry, self.excludes or self.kind, model, self.requested, self.stop
        )
        super().__init__()

    excludes = ""
    kind = "generate"
    requested: object = None  # as its caller made or prepared it

    def report(self, progress: Progress) -> None:
        self.record.report(progress)
        super().report(progress)

    def put(self, chunk: Chunk) -> None:
        self.record.add(chunk)
        super().put(chunk)

    def finish(self, result: Result | None) -> None:
        self.record.end(result)
        super().finish(result)

    def fail(self, error: BaseException) -> None:
        self.record.end(error)
        super().fail(error)

    @property
    def progress(self) -> Progress:
        return self.entry.placed(self._progress)

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self._progress = progress

    def _left_s(self) -> float | None:
        return None

    def _admit(self) -> None:
        self.is_admitted = True
        if self.has_waited:
            self.passed_s["turn"] += time.perf_counter() - self.arrived
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        try:
            result = self._run()
        except Exception as error:
            self._end(partial(self.fail, error))
        else:
            self._end(partial(self.finish, result))

    def _end(self, end: Callable[[], None]) -> None:
        self.is_over = True
        self.backend.rest()
        self.entry.leave()
        end()

    def _run(self) -> Result | None:
        chunks: list[Chunk] = []
        self._pass("turn")
        if self.is_stopped:
            return None
        key, outcome = self._find()
        if self.model not in self.backend.loaded:
            self._pass("load", EngineStatus("loading", self.model), "loading")
            self.backend.loaded.add(self.model)
        if outcome is CacheOutcome.MISS:
            self._pass("make", EngineStatus("compiling", str(key)), "compiling")
        self.backend.use(self.model, key)
        self._pass("prefill", EngineStatus("generating", self.model), "reading")
        own = iter(self._own())
        while (piece := self._next(own, len(chunks))) is not None:
            if not chunks:
                self.report(Progress("writing", time.perf_counter()))
            chunks.append(piece)
            self.put(piece)
        self._pass("end")
        return self._result(chunks) if chunks or not self.is_stopped else None

    def stop(self) -> None:
        super().stop()
        self.backend.tell()
        if not self.is_admitted and self.entry.leave():
            self._end(partial(self.finish, None))

    def _next(self, own: Iterator[Chunk], number: int) -> Chunk | None:
        clock = self.backend.clock
        began = clock.now_s
        piece = self.backend.next(own, lambda text: self._heard(text, number), self._ends)
        if piece is not None:
            clock.advance(self.backend.piece_s)
        self.passed_s["text"] += clock.now_s - began
        return piece

    def _ends(self) -> bool:
        return self.is_stopped or self.error is not None

    def _pass(
        self, step: str, status: EngineStatus | None = None, state: RequestState = "queued"
    ) -> None:
        if status is not None:
            self.backend.status = replace(status, since=time.perf_counter())
            self.report(Progress(state, time.perf_counter()))
        is_given_up = (lambda: self.error is not None) if step in UNSTOPPABLE else self._ends
        self.passed_s[step] += self.backend.wait(step, is_given_up)
        self._raise_error()

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _timing(self, made_up: Timing) -> Timing:
        """With what has passed on the test's clock."""
        names = {"turn": "queue_s", "make": "compile_s", "prefill": "prefill_s", "text": "decode_s"}
        phases = {
            name: getattr(made_up, name) + self.passed_s[step] for step, name in names.items()
        }
        passed_s = sum(self.passed_s[step] for step in names)
        return replace(made_up, **phases, total_s=made_up.total_s + passed_s)

    def _find(self) -> tuple[CacheKey, CacheOutcome]:
        """The function that serves it, and where that is."""
        raise NotImplementedError

    def _own(self) -> Iterable[Chunk]:
        """All pieces, where a test writes none."""
        raise NotImplementedError

    def _heard(self, text: str, number: int) -> Chunk:
        """A piece that a test has written."""
        raise NotImplementedError

    def _result(self, said: list[Chunk]) -> Result:
        """What came of it."""
        raise NotImplementedError


class FakeTextStream(FakeStream[str, GenerationResult]):
    """Writes the backend's words.

    Attributes:
        prepared: as it came.
    """

    def __init__(
        self, backend: FakeBackend, model: str, request: TextRequest, prepared: Prepared | None
    ) -> None:
        self.request = request
        self.prepared = prepared
        self.requested = prepared or request
        self.met: Prediction | None = None
        super().__init__(backend, model)

    def _left_s(self) -> float | None:
        return self.backend.predict_text(self.prepared or self.request).expected_s

    def _find(self) -> tuple[CacheKey, CacheOutcome]:
        self.backend.raise_error(self.request.prompt)
        self.met = self.backend.predict_text(self.prepared or self.request)
        return self.met.key, self.met.outcome

    def _own(self) -> Iterable[str]:
        if self.request.with_progress:
            chunk = TextChunk()
            chunk.progress = PromptProgress(9, 2, 5, 0.25)
            yield chunk
        if self.request.questions:
            return
        yield from (self._heard(text, number) for number, text in enumerate(self.backend.words))

    def _heard(self, text: str, number: int) -> str:
        tokens = (_token(number, text),) * self.request.with_tokens
        chunk = TextChunk(text)
        chunk.tokens, chunk.generated = tokens, number + 1
        return chunk

    def _result(self, said: list[str]) -> GenerationResult:
        assert self.met is not None
        is_first = self.met.outcome in (CacheOutcome.MISS, CacheOutcome.DISK)
        made_up = (miss if is_first else result)()
        ended = replace(
            made_up,
            model=self.model,
            text="".join(said),
            tokens=tuple(_token(i, text) for i, text in enumerate(said)),
            prompt_tokens=self.met.prompt_tokens,
            prompt_texts=(texts := _prompt_texts(self.request.prompt)),
            prompt_logprobs=tuple(_token(i, text) for i, text in enumerate(texts))
            * self.request.with_prompt_logprobs,
            key=self.met.key,
            requested_key=self.met.requested_key,
            cache=self.met.outcome,
            finish="stopped" if self.is_stopped else "length",
            options=self.request.options,
            thought_tokens=self.backend.thought_tokens,
            timing=self._timing(made_up.timing),
            since_first_token_s=made_up.since_first_token_s + self.passed_s["text"],
            load_s=self.passed_s["load"],
        )
        if not self.request.questions:
            return ended
        decisions = tuple(
            # The first option is three times as likely as the next, and so on.
            Decision(each, tuple(-math.log(3) * place for place in range(len(each.options))), 0.25)
            for each in self.request.questions
        )
        return Decisions(**vars(ended), decisions=decisions)


class FakeWindows(FakeStream[TranscribedWindow, Transcription]):
    """Hears the same in each window of four seconds."""

    kind = "transcribe"

    def __init__(
        self, backend: FakeBackend, model: str, recording: AudioInput, language: str | None
    ) -> None:
        self.recording = recording
        self.language = language
        self.outcome = CacheOutcome.HIT
        super().__init__(backend, model)

    def _find(self) -> tuple[CacheKey, CacheOutcome]:
        self.backend.raise_error(Path(str(self.recording)).name)
        self.outcome = self.backend.predict_speech(self.model).outcome
        return SPEECH_KEY, self.outcome

    def _own(self) -> Iterable[TranscribedWindow]:
        return [self._heard(window().text, number) for number in range(self.backend.windows)]

    def _heard(self, text: str, number: int) -> TranscribedWindow:
        cache = CacheOutcome.HIT if number else self.outcome
        start_s, end_s = 4.0 * number, 4.0 * (number + 1)
        segments = (TimedText(start_s, end_s, text, (7, 8)),)
        return window(text=text, start_s=start_s, end_s=end_s, cache=cache, segments=segments)

    def _result(self, said: list[TranscribedWindow]) -> Transcription:
        return transcription(
            model=self.model,
            text=" ".join(each.text for each in said),
            cache=self.outcome,
            windows=tuple(said),
            audio_s=4.0 * len(said),
            language=self.language,
            finish="stopped" if self.is_stopped else "eos",
            timing=self._timing(transcription().timing),
        )


class FakeReservation(FakeStream[str, GenerationResult]):
    """Keeps others from running until it is stopped."""

    def __init__(self, backend: FakeBackend, what: str, left_s: Callable[[], float | None]) -> None:
        self.excludes = what
        self._expected = left_s
        self._released = threading.Event()
        super().__init__(backend, "")

    def _left_s(self) -> float | None:
        return self._expected()

    def _run(self) -> None:
        self.report(Progress("reserved", time.perf_counter()))
        self._released.wait()

    def stop(self) -> None:
        super().stop()
        self._released.set()


def _token(place: int, text: str) -> Token:
    others = (TopLogprob(100 + other, f" other{other}", -2.0 - other) for other in range(4))
    return Token(place, text, -0.5, (TopLogprob(place, text, -0.5), *others))


def _prompt_texts(prompt: Prompt) -> tuple[str, ...]:
    """Each word, and the two tokens more that it is counted as."""
    if not isinstance(prompt, str):
        return ()
    return tuple(text for word in prompt.split() for text in (f" {word}", ".", "."))


class FakeTokenizer(Tokenizer):
    """Counts tokens as the engine without a model does, and knows its words by their places."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    tool_format = GENERIC
    is_byte_level = True

    def encode(
        self,
        prompt: Prompt,
        special: bool = True,
        tools: Sequence[dict[str, Any]] = (),
        template: Mapping[str, Any] = NO_VARIABLES,
    ) -> list[int]:
        if isinstance(prompt, TokenIds):
            return list(prompt.ids)
        said = [each.content for each in prompt] if isinstance(prompt, tuple) else [prompt]
        return list(range(TOKENS_A_WORD * sum(len(text.split()) for text in said)))

    def fill_in(self, prefix: str, suffix: str) -> list[int]:
        return [90, *self.encode(prefix), 91, *self.encode(suffix), 92]

    def decode(self, ids: Sequence[int], shown: Iterable[int] = ()) -> str:
        return "".join(map(self.token_text, ids))

    def token_text(self, id: int) -> str:
        words = self._backend.words
        return words[id % len(words)]

    def visible(self, ids: Iterable[int], shown: Iterable[int] = ()) -> list[int]:
        return list(ids)

    def piece_bytes(self, id: int) -> bytes:
        return self.token_text(id).encode()

    def token_bytes(self, id: int) -> bytes:
        return self.piece_bytes(id)

    @property
    def chat_template(self) -> str:
        return "{{ messages }}"


class FakeBackend(Script, SharedBackend):
    """An engine without a model.

    Attributes:
        status: what it says that it does.
        words: what it writes after every prompt, a token each. thought_tokens: how many it says
            are thoughts.
        windows: how many of them every recording has.
        piece_s: seconds that a word or a window takes, on the test's clock.
        errors: prompt, or name of a recording's file or of an example function -> what a request
            for it raises.
        on_disk: models and keys that can be restored.
        in_background: what is being made ready; nothing is before `make_ready` says so.
        history: what keys took before.
        asked: the arguments of the requests for texts and recordings, in their order.
        streams: what they got, in the same order.
        loaded: models that are in memory.
        known: models that there are.
        queue, requests: their order and their record, the real ones.
        has_pool: whether requests with a salt are rows of a pool.
    """

    status: EngineStatus = EngineStatus("ready")

    def __init__(
        self, words: Iterable[str] = (" there", " was", " a"), models: Sequence[ModelInfo] = MODELS
    ) -> None:
        super().__init__()
        self.words = tuple(words)
        self.thought_tokens = 0
        self.windows = 1
        self.piece_s = 0.0
        self.errors: dict[str, Exception] = {}
        self.on_disk: set[tuple[str, CacheKey]] = set()
        self.in_background: list[tuple[str, CacheKey]] = []
        self.history: Past = {}
        self.asked: list[tuple[Any, ...]] = []
        self.streams: list[FakeStream[Any, Any]] = []
        self.loaded: set[str] = set()
        self.known = list(models)
        self.queue = RequestQueue()
        self.requests = RequestRecords()
        self.has_pool = False
        self._is_closed = False
        self._in_memory: dict[tuple[str, CacheKey], CacheEntry] = {}
        self._shapes: dict[tuple[str, int], StoredKey] = {}

    # ---- what tests and streams do with it

    def make_ready(self, model: str, key: CacheKey) -> None:
        """A function is in memory from here on, and none that is being made."""
        self._in_memory[model, key] = entry(model=model, key=key, hits=0, cached=None)
        self.in_background = [each for each in self.in_background if each != (model, key)]

    def use(self, model: str, key: CacheKey) -> None:
        """A call of a function, which is made if it is not there."""
        there = self._in_memory.get((model, key))
        if there is None:
            self.make_ready(model, key)
        else:
            self._in_memory[model, key] = replace(there, hits=there.hits + 1)

    def crash(self) -> None:
        """The engine's process dies of what runs; another one comes up in its place."""
        running = [stream for stream in self.streams if not stream.is_over]
        assert running, "no request would notice"
        self._in_memory.clear()
        self.loaded.clear()
        for stream in running:
            stream.error = EngineStopped("The engine stopped.")
        self.tell()

    def rest(self) -> None:
        """A request is over: the engine is idle, if that was the last."""
        if all(stream.is_over for stream in self.streams):
            self.status = EngineStatus("ready")

    def raise_error(self, request: Prompt) -> None:
        """Raises what the test has set for it."""
        if request in self.errors:
            raise self.errors[request]

    # ---- what every engine does

    def models(self) -> list[ModelInfo]:
        return list(self.known)

    def load(self, model: str) -> ModelInfo:
        if self._is_closed:
            raise EngineStopped("The engine was closed.")
        for info in self.known:
            if info.name == model:
                return info
        raise ModelUnavailable(f"There is no model {model!r} here.")

    def submit(self, request: TextRequest | Prepared) -> FakeTextStream:
        prepared = request if isinstance(request, Prepared) else None
        if isinstance(request, Prepared):
            request = request.request
        self.asked.append((request.model, request.prompt, request.options))
        stream = FakeTextStream(self, request.model, request, prepared)
        return self._entered(stream)

    def submit_speech(self, request: SpeechRequest) -> FakeWindows:
        asked = (request.recording, request.options, request.language, request.max_seconds)
        self.asked.append((request.model, *asked))
        stream = FakeWindows(self, request.model, request.recording, request.language)
        return self._entered(stream)

    def reserve(
        self, what: str, left_s: Callable[[], float | None] = lambda: None
    ) -> FakeReservation:
        return self._entered(FakeReservation(self, what, left_s))

    def _entered(self, stream: AnyFake) -> AnyFake:
        self.streams.append(stream)
        try:
            self.queue.enter(stream.entry)
        except NoRoom as error:
            self.streams.remove(stream)
            stream.record.end(error)
            raise
        stream.has_waited = not stream.is_admitted
        return stream

    def prepare(self, request: TextRequest) -> Prepared:
        model, prompt, options = request.model, request.prompt, request.options
        if self.load(model).family == "speech":
            raise InvalidRequest(f"{model} takes recordings.")
        check_prompt(prompt, self.load(model))
        encode = FakeTokenizer(self).encode
        ids = tuple(encode(prompt, tools=request.tools, template=request.template))
        if request.questions:
            for question in request.questions:
                ids += tuple(encode(question.prompt_for("")))
            questions = QuestionTokens((ids,), (((0,),),), ())
            key = pool_key(CONTEXT_LENGTH)
            return Prepared(request, options, key, ids, frozenset(), questions, 0.0)
        tokens = len(ids)
        room, new_tokens = CONTEXT_LENGTH - tokens, options.max_new_tokens
        if new_tokens == MAX_NEW_TOKENS:  # as many as there is room for
            new_tokens = max(1, room)
        if new_tokens > room:
            raise InvalidRequest(f"The model has room for {CONTEXT_LENGTH} tokens.")
        needed = BucketRules().key_for(tokens, options.num_beams, new_tokens, CONTEXT_LENGTH)
        info = replace(self.load(model), context_length=CONTEXT_LENGTH)
        if self.has_pool and request.mode_with(info) == "rows":
            needed = pool_key(CONTEXT_LENGTH)
        return Prepared(request, options, needed, ids, frozenset(), None, 0.0)

    def predict_text(self, request: TextRequest | Prepared) -> Prediction:
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        tokens = len(prepared.token_ids)
        return self._predict(prepared.model, prepared.key, tokens, prepared.options.may_reuse)

    def predict_speech(self, model: str, options: GenerationOptions | None = None) -> Prediction:
        if self.load(model).family != "speech":
            raise InvalidRequest(f"{model} takes text.")
        return self._predict(model, SPEECH_KEY, SPEECH_KEY.padded_length)

    def _predict(
        self, model: str, needed: CacheKey, tokens: int, may_reuse: bool = False
    ) -> Prediction:
        return prediction.predict(
            needed,
            tokens,
            [entry for entry in self.cached_functions() if entry.model == model],
            self.history.get(model, {}),
            lambda key: [] if (model, key) in self.on_disk else ["decode"],
            may_reuse,
        )

    def compare(self, request: FunctionRequest) -> FunctionComparison:
        batch_size = request.batch_size
        self.raise_error(request.function)
        place = request.function, request.rows
        before = self._shapes.get(place)
        sizes = {batch_size} | set(before.batch_sizes if before else ())
        self._shapes[place] = StoredKey(*place, tuple(sorted(sizes)), NO_PHASES, NO_PHASES)
        return comparison(request=request, cache=CacheOutcome.HIT if before else CacheOutcome.MISS)

    def stored_keys(self) -> list[StoredKey]:
        return list(self._shapes.values())

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        self.in_background += [(model, key) for key in keys]

    def prefetching(self) -> list[tuple[str, CacheKey]]:
        return list(self.in_background)

    def cancel_prefetch(self) -> None:
        self.in_background.clear()

    def past(self) -> Past:
        return self.history

    def cached_functions(self) -> list[CacheEntry]:
        return list(self._in_memory.values())

    def close(self, within_s: float = 0.0) -> None:
        self.status = EngineStatus("stopped")
        self._is_closed = True
        self.requests.close()

    def identity(self, model: str) -> str:
        return self.load(model).name

    def tokenizer(self, model: str) -> FakeTokenizer:
        self.load(model)
        return FakeTokenizer(self)

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        return self.status.state != "starting"

    def clear(
        self, model: str | None = None, key: CacheKey | None = None, disk: bool = True
    ) -> None:
        self._in_memory.clear()
        if disk:
            self.on_disk -= {
                place for place in self.on_disk if model is None or place == (model, key)
            }
