"""`Text`: one text request, from its prompt to its result.

Knows its phases (load, tokenize, functions, prompt, tokens, characters) and its timings. Must not
know TensorFlow, who asks, nor which rows run beside it: `rows.scheduler` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from xla_backend.checkpoints.tokenization import AnswerDecoder
from xla_backend.engine.decisions import Deciding
from xla_backend.engine.function_resolver import FunctionResolver, Served
from xla_backend.engine.loop import Awaited, AwaitEngine, AwaitResult, AwaitRow, Loop, Stopped
from xla_backend.engine.stop_strings import StopStrings
from xla_backend.engine.streams import Stream
from xla_backend.grammar.automaton import Automaton
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.buckets import CacheKey, positions
from xla_backend.interface.decisions import Decisions
from xla_backend.interface.prompt import thoughts_end
from xla_backend.interface.requests import Prepared, TextRequest
from xla_backend.interface.results import (
    CacheOutcome,
    EngineStatus,
    Finish,
    GenerationResult,
    GrammarWay,
    Miss,
    PromptProgress,
    RowRun,
    TextChunk,
    Token,
)
from xla_backend.interface.timing import Stopwatch
from xla_backend.prediction.prediction import Choice
from xla_backend.prediction.prefix_misses import Parting
from xla_backend.rows.scheduler import CHUNK_S, RowRequest

if TYPE_CHECKING:
    from xla_backend.engine.loaded_models import LoadedModels
    from xla_backend.engine.pools import Pools
    from xla_backend.model.functions import PaddedFunctions, PoolFunctions
    from xla_backend.model.loaded_model import LoadedModel
    from xla_backend.model.output import Output

BEGINNING = 60
"""Characters by which a text is found that is cached for another model."""
GRAMMAR_DRAFTS = 3
"""Where a grammar leaves little choice. With four rows, a pass takes 1.5 times as long."""
_WAYS: dict[type, GrammarWay] = {type(None): "", Automaton: "tensors", StepByStep: "step by step"}

TextStream = Stream[str, GenerationResult]


class Text:
    """A request, its stream and its progress."""

    def __init__(
        self,
        request: TextRequest | Prepared,
        stream: TextStream,
        models: LoadedModels,
        functions: FunctionResolver,
        pools: Pools,
        loop: Loop,
        may_begin: Callable[[], bool],
    ) -> None:
        """A request is prepared here if its model was not loaded before it arrived."""
        self._request = request
        self._stream = stream
        self._models = models
        self._functions = functions
        self._pools = pools
        self._loop = loop
        self._may_begin = may_begin
        tokenize_s = request.tokenize_s if isinstance(request, Prepared) else 0.0
        self._watch = Stopwatch("tokenize", stream.arrived - tokenize_s)
        self._watch.enter("queue", stream.arrived)
        self._grammar: Automaton | StepByStep | None = None
        self._load_s = 0.0
        self._miss: Miss | None = None
        self._has_begun = False
        self._chunks: list[str] = []
        self._known = 0  # tokens decoded into the text so far
        self._told = 0  # tokens whose text was handed out

    def steps(self) -> Generator[Awaited, Any, None]:
        """Runs the request; yields what it waits for, see `loop`."""
        try:
            yield from self._run()
        except Stopped:
            self._stream.finish(None)

    def _begins(self) -> bool:
        if not self._has_begun and not self._stream.is_stopped and self._may_begin():
            self._has_begun = True
            self._stream.start()
        return self._has_begun

    def _run(self) -> Generator[Awaited, Any, None]:
        request, watch = self._request, self._watch
        engine = self._models.find(request.model)
        if engine is None:
            if not self._begins():
                raise Stopped
            engine, self._load_s = yield AwaitResult(self._models.load_beside(request.model))
            watch.pause_for("load", self._load_s)  # not part of the phases
        if isinstance(request, TextRequest):
            watch.enter("tokenize")
            request = yield AwaitResult(self._models.prepare_beside(request))
        self._prepared = prepared = request
        wanted = prepared.key
        self._decoder = AnswerDecoder(
            engine.tokenizer, prepared.shown, prepared.token_ids, prepared.may_think
        )
        if (grammar := prepared.options.grammar) is not None:
            watch.enter("tokenize")
            made = engine.grammars.get(grammar)
            try:
                self._grammar = yield AwaitResult(made)
            finally:
                made.cancel()  # a stopped request needs it no more
        options = prepared.options
        self._stops = StopStrings(options.stop, options.include_stop_str_in_output)
        watch.enter("queue")
        choice = self._functions.choose(engine, wanted, prepared.may_reuse)
        if not self._functions.is_ready(engine, choice) and not self._begins():
            raise Stopped
        if wanted.variants:  # rows that run beside others use no drafts
            plain = dataclasses.replace(wanted, prompt_lookup_num_tokens=0)
            yield from self._served(engine, plain, self._functions.choose(engine, plain))
        if choice.outcome is CacheOutcome.MISS:
            self._miss = self._functions.explain_miss(engine, prepared)
        served = yield from self._served(engine, wanted, choice)
        self._compiling_s = self._loop.compiling.read()
        if prepared.questions is not None:
            deciding = Deciding(prepared.request.questions, prepared.questions)
            yield from self._decide(engine, wanted, served, deciding)
        elif wanted.is_pooled:
            yield from self._run_row(engine, wanted, served)
        else:
            yield from self._run_padded(engine, wanted, served)

    def _served(
        self, engine: LoadedModel, wanted: CacheKey, choice: Choice
    ) -> Generator[Awaited, Any, Served]:
        """The chosen functions; waits until they are made."""
        served = yield AwaitResult(self._functions.serve(engine, wanted, choice, self._watch.enter))
        self._watch.enter("queue")
        return served

    # --- a row of the pool ----------------------------------------------------------------------

    def _run_row(
        self, engine: LoadedModel, wanted: CacheKey, served: Served
    ) -> Generator[Awaited, Any, None]:
        pool, prepared = self._pools.of(engine), self._prepared
        row = pool.row(
            prepared.token_ids, prepared.request.cache_salt, prepared.options, self._grammar
        )
        row.prompt_records = [] if prepared.request.with_prompt_logprobs else None

        status = EngineStatus("generating", str(wanted))

        def on_tokens() -> bool:
            self._loop.tell(status)  # other requests may have set another one
            new = row.token_ids[row.prompt_tokens + self._known :]
            if isinstance(self._grammar, StepByStep):
                self._grammar.follow(new)
            return self._write(new, engine, row.output) and not self._stream.is_stopped

        started = 0.0

        def begins() -> bool:
            nonlocal started
            started = time.perf_counter()
            if self._begins():
                self._loop.tell(status)
            return self._has_begun

        def on_read() -> None:
            if prepared.request.with_progress:
                chunk, passed = TextChunk(), time.perf_counter() - started
                chunk.progress = PromptProgress(
                    row.prompt_tokens, row.reused, min(row.in_memory, row.prompt_tokens), passed
                )
                self._stream.put(chunk)

        row_request = RowRequest(
            row,
            self._watch,
            self._drafts(),
            begins,
            on_read,
            on_tokens,
            lambda: self._stream.is_stopped,
        )
        yield AwaitRow(pool.rows, row_request)
        if not row.generated:
            raise Stopped
        passes = row.passes_of_tokens()
        result = self._result(
            engine,
            wanted,
            served,
            engine.tokens(row.output(), passes.tolist(), grammar=self._grammar),
            row.is_done,
            batch_size=max(1, row_request.rows_at_most),
            cached_tokens=row.reused,
            cached_from_disk=row.is_restored,
            prompt_logprobs=engine.prompt_tokens(row.token_ids, row.prompt_records),
            parting=row.parting,
        )
        self._stream.finish(result)

    def _drafts(self) -> int:
        """How many drafts a pass of the row may verify."""
        if isinstance(self._grammar, StepByStep):
            return 0
        asked = self._prepared.options.prompt_lookup_num_tokens
        return asked or (GRAMMAR_DRAFTS if self._grammar else 0)

    def _decide(
        self, engine: LoadedModel, wanted: CacheKey, served: Served, deciding: Deciding
    ) -> Generator[Awaited, Any, None]:
        """Reads the rows of all questions, one chunk per round."""
        yield AwaitEngine()
        if not self._begins():
            raise Stopped
        watch, started = self._watch, time.perf_counter()
        salt = self._prepared.request.cache_salt or secrets.token_hex(16)
        functions = cast("PoolFunctions", served.functions)
        steps = deciding.steps(self._pools.of(engine).pool, functions, salt)
        with contextlib.closing(steps):
            watch.enter("prefill")
            for _ in steps:
                watch.lap()
                if self._stream.is_stopped:
                    raise Stopped
                watch.enter("queue")
                yield AwaitEngine()
                self._loop.tell(EngineStatus("generating", str(wanted)))
                watch.enter("prefill")
        result = self._result(engine, wanted, served, (), True)
        fields = vars(result) | {
            "finish": "eos",
            "prompt_texts": (),
            "cached_tokens": max(0, result.prompt_tokens - deciding.computed),
        }
        found = {"decisions": deciding.decisions(started), "rows_at_once": deciding.rows_at_once}
        self._stream.finish(Decisions(**fields | found))

    # --- a padded key ---------------------------------------------------------------------------

    def _run_padded(
        self, engine: LoadedModel, wanted: CacheKey, served: Served
    ) -> Generator[Awaited, Any, None]:
        yield AwaitEngine()  # waits behind the requests that have begun
        if not self._begins():
            raise Stopped
        options, watch = self._prepared.options, self._watch
        key, functions = served.choice.key, cast("PaddedFunctions", served.functions)
        self._loop.tell(EngineStatus("generating", str(key)))
        watch.enter("prefill")
        generation = engine.start(functions, key, list(self._prepared.token_ids), options)
        steps, count = 1, 0
        # With beams the text is known only at the end.
        is_followed = options.num_beams == 1
        while True:
            started = time.perf_counter()
            generation.advance(steps)
            step_s = (time.perf_counter() - started) / steps
            watch.lap(generation.length - count)
            count, steps = generation.length, max(1, round(CHUNK_S / step_s))
            watch.enter("detokenize")
            goes_on = True
            if is_followed:
                new = generation.output().tokens.tolist()[self._known :]
                goes_on = self._write(new, engine, generation.output)
            if generation.is_done or not goes_on or self._stream.is_stopped:
                break
            watch.enter("queue")
            yield AwaitEngine()
            self._loop.tell(EngineStatus("generating", str(key)))
            watch.enter("decode")
        tokens = engine.tokens(generation.output())
        result = self._result(engine, wanted, served, tokens, generation.is_done)
        self._stream.finish(result)

    # --- the text -------------------------------------------------------------------------------

    def _write(
        self, token_ids: list[int], engine: LoadedModel, output: Callable[[], Output]
    ) -> bool:
        """Hands out the text of new tokens; returns whether the text goes on."""
        options = self._prepared.options
        self._known += len(token_ids)
        if token_ids and token_ids[-1] in options.stop_token_ids:
            token_ids = token_ids if options.include_stop_str_in_output else token_ids[:-1]
        if chunk := self._stops.push(self._decoder.push(token_ids)):
            if self._prepared.request.with_tokens and not self._stops.found:
                tokens = engine.tokens(output(), first=self._told, grammar=self._grammar)
                self._told += len(tokens)
                is_over = bool(tokens) and engine.is_end(tokens[-1].id, options)
                chunk = TextChunk.of(chunk, tokens[:-1] if is_over else tokens)
            self._chunks.append(chunk)
            self._stream.put(chunk)
        return not self._stops.found

    def _result(
        self,
        engine: LoadedModel,
        wanted: CacheKey,
        served: Served,
        tokens: tuple[Token, ...],
        is_complete: bool,
        batch_size: int = 1,
        cached_tokens: int = 0,
        cached_from_disk: bool = False,
        prompt_logprobs: tuple[Token, ...] = (),
        parting: Parting | None = None,
    ) -> GenerationResult:
        prepared, watch, stops = self._prepared, self._watch, self._stops
        prompt_ids = prepared.token_ids
        watch.enter("detokenize")
        ids = [token.id for token in tokens]
        rest = stops.push(self._decoder.push(ids[self._known :]) + self._decoder.finish())
        if rest := rest + stops.finish():
            self._chunks.append(rest)
            self._stream.put(rest)
        text, generated = "".join(self._chunks), len(tokens)
        passes = None
        if wanted.is_pooled and self._drafts():
            passes = sum(not token.in_same_pass for token in tokens[1:])

        def tokens_of(text: str) -> tuple[Token, ...]:
            anew = AnswerDecoder(engine.tokenizer, frozenset(), prompt_ids, prepared.may_think)
            return _tokens_of(text, tokens, anew)

        if stops.found:
            tokens = tokens_of(text)
        thoughts = text[: thoughts_end(text)] if isinstance(prepared.request.prompt, tuple) else ""
        reason = _reason(is_complete, bool(ids) and engine.is_end(ids[-1], prepared.options))
        timing, spans = watch.read(), watch.spans()
        is_over, row = generated > 0 and (is_complete or bool(stops.found)), None
        if wanted.is_pooled and generated and not prompt_logprobs:
            row = RowRun(
                len(prompt_ids),
                positions(len(prompt_ids) - cached_tokens),
                timing.prefill_s,
                timing.decode_s,
                generated,
                not stops.found and reason == "length",
            )
        first_call = self._functions.record(
            engine, served, wanted, timing, is_over, batch_size, row
        )
        prefix_miss = None
        if parting is not None:
            parting = self._with_other_model(parting)
            prefix_miss = self._functions.explain_prefix(engine, prepared, parting, cached_tokens)
        return GenerationResult(
            model=prepared.model,
            text=text,
            tokens=tokens,
            prompt_tokens=len(prompt_ids),
            prompt_texts=tuple(map(engine.tokenizer.token_text, prompt_ids)),
            key=served.choice.key,
            requested_key=wanted,
            cache=served.choice.outcome,
            prefix_miss=prefix_miss,
            miss=self._miss if served.choice.outcome is CacheOutcome.MISS else None,
            stop_string=stops.found,
            finish="stop" if stops.found else reason,
            timing=timing,
            since_first_token_s=watch.since_first_token_s(),
            first_call=first_call,
            options=prepared.request.options,
            load_s=self._load_s,
            batch_size=batch_size,
            cut_tokens=generated - len(tokens),
            spans=spans,
            cached_tokens=cached_tokens,
            cached_from_disk=cached_from_disk,
            prompt_logprobs=prompt_logprobs,
            passes=passes,
            rounded_bits=engine.info.rounded_bits,
            activations=engine.info.activations,
            compile_beside_s=self._loop.compiling.read() - self._compiling_s,
            grammar=_WAYS[type(self._grammar)],
            thought_tokens=len(tokens_of(thoughts)) if thoughts else 0,
        )

    def _with_other_model(self, parting: Parting) -> Parting:
        """Where nothing is cached under a salt, the model for which the same text is."""
        request = self._prepared.request
        prompt = request.prompt
        texts = [each.content for each in prompt] if isinstance(prompt, tuple) else [prompt]
        start = next((each[:BEGINNING].strip() for each in texts if isinstance(each, str)), "")
        if parting.cause != "new salt" or not start:
            return parting
        other = self._pools.other_model(self._prepared.model, request.cache_salt, start)
        return Parting("other model", 0, 0, model=other) if other else parting


def _tokens_of(text: str, tokens: tuple[Token, ...], decoder: AnswerDecoder) -> tuple[Token, ...]:
    """The first tokens, up to the text's end; the last one's own text is cut there."""
    length = 0
    for place, token in enumerate(tokens):
        if length >= len(text):
            return tokens[:place]
        length += len(decoder.push([token.id]))
        if (beyond := length - len(text)) > 0:
            last = dataclasses.replace(token, text=token.text[:-beyond])
            return (*tokens[:place], last)
    return tokens


def _reason(is_complete: bool, is_ended: bool) -> Finish:
    if not is_complete:
        return "stopped"
    return "eos" if is_ended else "length"
