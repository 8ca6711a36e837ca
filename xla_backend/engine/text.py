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

from xla_backend.answers.decoder import AnswerDecoder
from xla_backend.answers.reader import StopStrings, thoughts_end
from xla_backend.engine.function_resolver import FunctionResolver
from xla_backend.engine.loop import Loop
from xla_backend.engine.request import (
    Awaited,
    AwaitEngine,
    AwaitResult,
    AwaitRow,
    Request,
    Stopped,
    Stream,
)
from xla_backend.grammar.automaton import Automaton
from xla_backend.grammar.step_by_step import StepByStep
from xla_backend.interface.buckets import positions
from xla_backend.interface.decisions import Decisions
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
from xla_backend.prediction import prefix_misses
from xla_backend.prediction.prefix_misses import Parting
from xla_backend.rows.decisions import QuestionRows
from xla_backend.rows.pool import Row
from xla_backend.rows.scheduler import CHUNK_S

if TYPE_CHECKING:
    from xla_backend.engine.loaded_models import LoadedModels
    from xla_backend.engine.pools import Pools
    from xla_backend.model.functions import PaddedFunctions, PoolFunctions
    from xla_backend.model.generation import Generation
    from xla_backend.model.output import Output

BEGINNING = 60
"""Characters by which a text is found that is cached for another model."""
GRAMMAR_DRAFTS = 3
"""Where a grammar leaves little choice. With four rows, a pass takes 1.5 times as long."""
_WAYS: dict[type, GrammarWay] = {type(None): "", Automaton: "tensors", StepByStep: "step by step"}

TextStream = Stream[str, GenerationResult]


class Text(Request):
    """A request for a text. While it has a row, it is the scheduler's `RowRequest`."""

    def __init__(
        self,
        request: TextRequest | Prepared,
        stream: TextStream,
        models: LoadedModels,
        functions: FunctionResolver,
        pools: Pools,
        loop: Loop,
    ) -> None:
        """A request is prepared here if its model was not loaded before it arrived."""
        super().__init__(stream)
        self._request = request
        self._models = models
        self._functions = functions
        self._pools = pools
        self._loop = loop
        tokenize_s = request.tokenize_s if isinstance(request, Prepared) else 0.0
        self.watch = Stopwatch("tokenize", stream.arrived - tokenize_s)
        self.watch.enter("queue", stream.arrived)
        self._grammar: Automaton | StepByStep | None = None
        self._load_s = 0.0
        self._miss: Miss | None = None
        self._chunks: list[str] = []
        self._decoded = 0  # tokens whose text the decoder has
        self._sent = 0  # tokens that were sent with their chunks
        self.drafts = 0
        self.rows_at_most = 0
        self.error: Exception | None = None
        self._read_from = 0.0  # when its row began to be read
        self._tokens_read = -1  # of the prompt, as was last reported

    def _run(self) -> Generator[Awaited, Any, None]:
        request, watch = self._request, self.watch
        model = self._models.find(request.model)
        if model is None or isinstance(request, TextRequest):
            load = self._models.load_for(request, lambda: self.enter("loading"))
            model, request, self._load_s, ended = yield AwaitResult(load)
            watch.pause_for("load", self._load_s, ended)  # not part of the phases
            watch.enter("tokenize")
        self._model, self._prepared = model, request
        key, options = request.key, request.options
        self._decoder = AnswerDecoder(
            model.tokenizer, request.shown, request.token_ids, request.opening
        )
        if options.grammar is not None:
            watch.enter("tokenize")
            made = model.grammars.get(options.grammar)  # in another thread
            try:
                self._grammar = yield AwaitResult(made)
            finally:
                made.cancel()  # a stopped request needs it no more
        self._stops = StopStrings(options.stop, options.include_stop_str_in_output)
        watch.enter("queue")
        # Rows that run beside others use no drafts.
        keys = dict.fromkeys([dataclasses.replace(key, prompt_lookup_num_tokens=0), key])
        for each in keys:
            self._chosen = yield from self._functions.obtain(model, each, options, self.makes)
            watch.enter("queue")
        self._compiling_s = self._loop.compiling.read()
        if request.questions is not None:
            yield from self._decide(QuestionRows(request.request.questions, request.questions))
        elif key.is_pooled:
            yield from self._run_row()
        else:
            yield from self._run_padded()

    def makes(self, outcome: CacheOutcome) -> Callable[[str], None]:
        if outcome is CacheOutcome.MISS:
            self._miss = self._functions.explain_miss(self._model, self._prepared)
        return super().makes(outcome)

    # --- a row of the pool ----------------------------------------------------------------------

    def _run_row(self) -> Generator[Awaited, Any, None]:
        pool, prepared, model = self._pools.of(self._model), self._prepared, self._model
        drafts = prepared.options.prompt_lookup_num_tokens
        is_stepwise = isinstance(self._grammar, StepByStep)
        self.drafts = 0 if is_stepwise else drafts or (GRAMMAR_DRAFTS if self._grammar else 0)
        self._status = EngineStatus("generating", str(prepared.key))
        token_ids, salt = list(prepared.token_ids), prepared.request.cache_salt
        self.row = row = Row(token_ids, len(token_ids), salt, prepared.options, self._grammar)
        row.prompt_records = [] if prepared.request.with_prompt_logprobs else None
        yield AwaitRow(pool.rows)
        if not row.generated:
            raise Stopped
        passes = row.passes_of_tokens().tolist()
        self.finish(
            self._result(
                model.tokens(row.output(), passes, grammar=self._grammar),
                row.is_done,
                batch_size=max(1, self.rows_at_most),
                cached_tokens=row.reused,
                prompt_logprobs=model.prompt_tokens(row.token_ids, row.prompt_records),
                parting=row.parting,
            )
        )

    def admit(self) -> bool:
        """See `RowRequest`."""
        self._read_from = self._read_from or time.perf_counter()
        try:
            self.enter("reading")
        except Stopped:
            return False
        self._loop.set_status(self._status)
        return True

    def read(self) -> None:
        """See `RowRequest`."""
        if not self._prepared.request.with_progress:
            return
        row, passed = self.row, time.perf_counter() - self._read_from
        count = min(row.in_memory, row.prompt_tokens)
        if count > self._tokens_read:  # a row that was paused is read again
            self._tokens_read = count
            chunk = TextChunk()
            chunk.progress = PromptProgress(row.prompt_tokens, row.reused, count, passed)
            self.stream.put(chunk)

    def write(self) -> bool:
        """See `RowRequest`."""
        self._loop.set_status(self._status)  # other requests may have set another one
        new = self.row.token_ids[self.row.prompt_tokens + self._decoded :]
        if isinstance(self._grammar, StepByStep):
            self._grammar.follow(new)
        return self._write(new, self.row.output)

    def _decide(self, asking: QuestionRows) -> Generator[Awaited, Any, None]:
        """Reads the rows of all questions, one chunk per round."""
        yield AwaitEngine()
        self.enter("reading")
        watch, started = self.watch, time.perf_counter()
        salt = self._prepared.request.cache_salt or secrets.token_hex(16)
        functions = cast("PoolFunctions", self._chosen.functions)
        steps = asking.steps(self._pools.of(self._model).pool, functions, salt)
        status = EngineStatus("generating", str(self._prepared.key))
        with contextlib.closing(steps):
            watch.enter("prefill")
            for _ in steps:
                watch.lap()
                if self.stream.is_stopped:
                    raise Stopped
                watch.enter("queue")
                yield AwaitEngine()
                self._loop.set_status(status)
                watch.enter("prefill")
        result = self._result((), True)
        fields = vars(result) | {
            "finish": "eos",
            "prompt_texts": (),
            "cached_tokens": max(0, result.prompt_tokens - asking.computed),
        }
        found = {
            "decisions": asking.decisions(started),
            "rows_at_once": asking.rows_at_once,
        }
        self.finish(Decisions(**fields | found))

    # --- a padded key ---------------------------------------------------------------------------

    def _run_padded(self) -> Generator[Awaited, Any, None]:
        yield AwaitEngine()  # waits behind the requests that have started
        self.enter("reading")
        options, watch = self._prepared.options, self.watch
        key = self._chosen.choice.key
        functions = cast("PaddedFunctions", self._chosen.functions)
        status = EngineStatus("generating", str(key))
        self._loop.set_status(status)
        watch.enter("prefill")
        generation = self._model.start(functions, key, list(self._prepared.token_ids), options)

        def write() -> bool:
            if options.num_beams > 1:  # the text is known only at the end
                return not self.stream.is_stopped
            new = generation.output().tokens.tolist()[self._decoded :]
            return self._write(new, generation.output) and not self.stream.is_stopped

        yield from in_chunks(self, self._loop, generation, status, write)
        tokens = self._model.tokens(generation.output())
        self.finish(self._result(tokens, generation.is_done))

    # --- the text -------------------------------------------------------------------------------

    def _write(self, token_ids: list[int], output: Callable[[], Output]) -> bool:
        """Hands out the text of new tokens; returns whether the text goes on."""
        self.enter("writing")
        options = self._prepared.options
        self._decoded += len(token_ids)
        if token_ids and token_ids[-1] in options.stop_token_ids:
            token_ids = token_ids if options.include_stop_str_in_output else token_ids[:-1]
        if chunk := self._stops.push(self._decoder.push(token_ids)):
            tokens: tuple[Token, ...] = ()
            if self._prepared.request.with_tokens and not self._stops.found:
                tokens = self._model.tokens(output(), first=self._sent, grammar=self._grammar)
                self._sent += len(tokens)
                is_over = bool(tokens) and self._model.is_end(tokens[-1].id, options)
                tokens = tokens[:-1] if is_over else tokens
            self._chunks.append(chunk)
            sent = TextChunk(chunk)
            sent.tokens, sent.generated = tokens, self._decoded
            self.stream.put(sent)
        return not self._stops.found

    def _result(
        self,
        tokens: tuple[Token, ...],
        is_complete: bool,
        batch_size: int = 1,
        cached_tokens: int = 0,
        prompt_logprobs: tuple[Token, ...] = (),
        parting: Parting | None = None,
    ) -> GenerationResult:
        prepared, watch, stops = self._prepared, self.watch, self._stops
        model, chosen, key = self._model, self._chosen, prepared.key
        prompt_ids = prepared.token_ids
        watch.enter("detokenize")
        ids = [token.id for token in tokens]
        rest = stops.push(self._decoder.push(ids[self._decoded :]) + self._decoder.finish())
        if rest := rest + stops.finish():
            self._chunks.append(rest)
            self.stream.put(rest)
        text, generated = "".join(self._chunks), len(tokens)
        passes = None
        if key.is_pooled and self.drafts:
            passes = sum(not token.in_same_pass for token in tokens[1:])

        def tokens_of(text: str) -> tuple[Token, ...]:
            fresh = AnswerDecoder(model.tokenizer, frozenset(), prompt_ids, prepared.opening)
            return _tokens_of(text, tokens, fresh)

        if stops.found:
            tokens = tokens_of(text)
        thoughts = text[: thoughts_end(text)] if isinstance(prepared.request.prompt, tuple) else ""
        reason = _reason(is_complete, bool(ids) and model.is_end(ids[-1], prepared.options))
        timing, spans = watch.read(), watch.spans()
        is_over, row = generated > 0 and (is_complete or bool(stops.found)), None
        if generated and not prompt_logprobs:
            row = RowRun(
                len(prompt_ids),
                positions(len(prompt_ids) - cached_tokens),
                timing.prefill_s,
                timing.decode_s,
                generated,
                not stops.found and reason == "length",
            )
        first_call = self._functions.record(model, chosen, key, timing, is_over, batch_size, row)
        prefix_miss = None
        if parting is not None:
            parting = self._with_other_model(parting)
            prefix_miss = prefix_misses.explain(
                parting, prepared, cached_tokens, model.tokenizer, timing.prefill_s
            )
        return GenerationResult(
            model=prepared.model,
            text=text,
            tokens=tokens,
            prompt_tokens=len(prompt_ids),
            prompt_texts=tuple(map(model.tokenizer.token_text, prompt_ids)),
            key=chosen.choice.key,
            requested_key=key,
            cache=chosen.choice.outcome,
            prefix_miss=prefix_miss,
            miss=self._miss if chosen.choice.outcome is CacheOutcome.MISS else None,
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
            prompt_logprobs=prompt_logprobs,
            passes=passes,
            rounded_bits=model.info.rounded_bits,
            activations=model.info.activations,
            background_compile_s=self._loop.compiling.read() - self._compiling_s,
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


def in_chunks(
    request: Request,
    loop: Loop,
    generation: Generation,
    status: EngineStatus,
    write: Callable[[], bool],
) -> Generator[Awaited, Any, None]:
    """Runs functions of padded sizes until the text ends, or `write` wants no more of it, which is
    called after each chunk."""
    steps, count, watch = 1, 0, request.watch
    while True:
        started = time.perf_counter()
        generation.advance(steps)
        step_s = (time.perf_counter() - started) / steps
        watch.lap(generation.length - count)
        request.enter("writing")
        count, steps = generation.length, max(1, round(CHUNK_S / step_s))
        watch.enter("detokenize")
        if not write() or generation.is_done:
            return
        watch.enter("queue")
        yield AwaitEngine()
        loop.set_status(status)
        watch.enter("decode")


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
