"""`TextStream`: a prompt in, chunks of text out, then a result with truthful timings.

Knows the phases of one request: tokens, run, text, and its account. Must not know TensorFlow, who
asks, nor with whom a run is shared: `text_runs` does.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from xla_backend.backend.kept_functions import KeptFunctions
from xla_backend.backend.stop_strings import StopStrings
from xla_backend.backend.text_runs import TextRequest, TextRuns
from xla_backend.checkpoints.prompts import encode_prompt
from xla_backend.checkpoints.tokenization import IncrementalDecoder
from xla_backend.interface.backend import AnyTextStream
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.prompt import Prompt
from xla_backend.interface.results import Finish, GenerationResult, Token
from xla_backend.interface.timing import Stopwatch
from xla_backend.scheduling.engine_access import EngineAccess

if TYPE_CHECKING:
    from xla_backend.backend.loaded_models import LoadedModels
    from xla_backend.model.engine import Engine


class TextStream(AnyTextStream):
    """A text as it comes: an iterator of chunks, which join to `result.text`.

    `result` is None until the iterator has ended; after `stop` it holds what was written. It stays
    None where the stop came while the request waited for others, so that nothing was run.
    """

    def __init__(
        self,
        models: LoadedModels,
        functions: KeptFunctions,
        runs: TextRuns,
        access: EngineAccess,
        model: str,
        prompt: Prompt,
        options: GenerationOptions,
        exact_key: bool,
        cache_salt: str,
        arrival_time: float | None,
        in_chunks: bool,
        should_start: Callable[[], bool],
    ) -> None:
        """Made by `Backend.generate` and `Backend.stream`."""
        self.result: GenerationResult | None = None
        self._models = models
        self._functions = functions
        self._runs = runs
        self._access = access
        self._model = model
        self._prompt = prompt
        self._options = options
        self._in_chunks = in_chunks
        self._watch = Stopwatch("queue", arrival_time)
        self._request = TextRequest(
            access.scheduler, self._watch, options, exact_key, cache_salt, should_start
        )
        self._chunks = self._generate()

    @property
    def has_started(self) -> bool:
        """Whether the engine has turned to it."""
        return self._request.batch is not None

    def wait_started(self) -> None:
        """Returns at once: it waits for the engine where its first chunk is asked for."""

    def __iter__(self) -> TextStream:
        """Itself."""
        return self

    def __next__(self) -> str:
        """The next chunk, never empty."""
        return next(self._chunks)

    def stop(self) -> None:
        """Ends the text after the chunk under way. May be called from any thread."""
        self._request.stop()

    def close(self) -> None:
        """Gives up a text that nobody reads on; without it, that waits for garbage collection."""
        self._chunks.close()

    def _generate(self) -> Generator[str, None, None]:
        with self._access.background.request():
            try:
                yield from self._generate_now()
            finally:  # also when nobody reads on
                self._runs.leave(self._request)
                self._runs.keep(self._request)

    def _generate_now(self) -> Generator[str, None, None]:
        request, options = self._request, self._options
        load_s = 0.0
        if (engine := self._models.find(self._model)) is None:
            with self._access.turn(request.enter, request, lambda: request.is_stopped) as is_held:
                if not (is_held and request.begins()):
                    return
                request.enter(None)
                loading = time.perf_counter()
                engine = self._models.load(self._model)
                load_s = time.perf_counter() - loading
                self._watch.pause_for("load", load_s)
        request.enter("tokenize")
        request.prompt_ids = encode_prompt(
            engine.tokenizer, self._prompt, options.max_new_tokens, engine.info
        )
        engine.check(options)
        request.wanted = self._functions.key(
            engine, len(request.prompt_ids), options, request.cache_salt
        )
        request.engine = engine
        if not self._runs.begin(request):
            return

        batch = request.batch
        assert batch is not None and batch.run is not None  # it has begun
        run = batch.run
        decoder, stops = IncrementalDecoder(engine.tokenizer), StopStrings(options.stop)
        chunks: list[str] = []
        known = 0
        # Beams settle on their text at the end: chunks of it could not be taken back.
        is_followed = (self._in_chunks or bool(options.stop)) and options.num_beams == 1
        whole = None if self._in_chunks or is_followed else options.max_new_tokens
        while not batch.has_ended(request) and not request.is_stopped:
            if is_followed:
                request.enter("detokenize")
                new_ids = run.output(request.text).tokens.tolist()[known:]
                known += len(new_ids)
                if chunk := stops.push(decoder.push(new_ids)):
                    chunks.append(chunk)
                    if self._in_chunks:
                        request.enter(None)
                        yield chunk
                if stops.is_found:
                    break
            batch.more(request, whole)
            request.look()
        is_complete = batch.has_ended(request)

        request.enter("detokenize")
        self._runs.leave(request)
        tokens = engine.tokens(run, request.text)
        ids = [token.id for token in tokens]
        rest = stops.push(decoder.push(ids[known:]) + decoder.finish()) + stops.finish()
        chunks.append(rest)
        text, generated = "".join(chunks), len(tokens)
        passes = None
        if options.prompt_lookup_num_tokens:
            passes = sum(not token.in_same_pass for token in tokens[1:])
        if stops.is_found:
            tokens = _tokens_of(text, tokens, engine)
        timing, spans = self._watch.read(), self._watch.spans()
        since_first_token_s = self._watch.since_first_token_s()
        first_call = self._functions.record(
            engine,
            request.slot,
            request.choice,
            request.wanted,
            timing,
            is_complete or stops.is_found,
        )
        self.result = GenerationResult(
            model=self._model,
            text=text,
            tokens=tokens,
            prompt_tokens=len(request.prompt_ids),
            prompt_texts=tuple(map(engine.tokenizer.token_text, request.prompt_ids)),
            key=request.choice.key,
            requested_key=request.wanted,
            cache=request.choice.outcome,
            finish="stop" if stops.is_found else _finish(is_complete, engine, ids),
            timing=timing,
            since_first_token_s=since_first_token_s,
            first_call=first_call,
            options=options,
            load_s=load_s,
            batch_size=batch.size,
            cut_tokens=generated - len(tokens),
            spans=spans,
            cached_tokens=request.reused,
            passes=passes,
            rounded_bits=engine.info.rounded_bits,
        )
        if last := rest if self._in_chunks else text:
            yield last


def _tokens_of(text: str, tokens: tuple[Token, ...], engine: Engine) -> tuple[Token, ...]:
    """The first tokens, as many as the text needs; of the last one's own text what is in it."""
    decoder, length = IncrementalDecoder(engine.tokenizer), 0
    for place, token in enumerate(tokens):
        if length >= len(text):
            return tokens[:place]
        length += len(decoder.push([token.id]))
        if (beyond := length - len(text)) > 0:
            last = dataclasses.replace(token, text=token.text[:-beyond])
            return (*tokens[:place], last)
    return tokens


def _finish(is_complete: bool, engine: Engine, ids: list[int]) -> Finish:
    if not is_complete:
        return "stopped"
    return "eos" if ids and engine.is_eos(ids[-1]) else "length"
