"""`TextRuns`: which requests for a text run now, on which functions and with whom.

Knows who waits and whom one function can serve side by side. Must not know how a prompt becomes
tokens, nor how tokens become text: `text_stream` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from xla_backend.backend.function_maker import FunctionMaker
from xla_backend.backend.kept_functions import KeptFunctions
from xla_backend.compilation.function_cache import FunctionCache, Slot
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.results import EngineStatus
from xla_backend.interface.timing import Stopwatch
from xla_backend.scheduling.batch import Batch, RequestSlot, fitting
from xla_backend.scheduling.engine_access import EngineAccess
from xla_backend.scheduling.prediction import Choice
from xla_backend.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from xla_backend.backend.prefix_cache import PrefixCache
    from xla_backend.model.engine import Engine
    from xla_backend.model.families.model import Prefilled
    from xla_backend.model.functions import KeyFunctions
    from xla_backend.model.generation import Generation
    from xla_backend.model.kept_prompt import KeptPrompt


SHORT_TURN = 64
"""Tokens by which a talk may grow at each turn at least."""


class TextRequest(RequestSlot):
    """A request for a text, and what serves it.

    Attributes:
        options, exact_key, cache_salt: what is asked.
        engine: the model; None while that is still to be loaded.
        prompt_ids, wanted: what is asked of it; set with the engine.
        slot, choice: the functions that serve it; set when it begins.
        kept: what is known of its prompt; None where it runs at once. reused: how many positions
            an earlier request had computed.
        is_long: whether its prompt is run in several turns.
    """

    engine: Engine | None = None
    prompt_ids: list[int]
    wanted: CacheKey
    slot: Slot[KeyFunctions]
    choice: Choice
    kept: KeptPrompt | None = None
    reused = 0
    is_long = False

    def __init__(
        self,
        scheduler: Scheduler,
        watch: Stopwatch,
        options: GenerationOptions,
        exact_key: bool,
        cache_salt: str,
        should_start: Callable[[], bool],
    ) -> None:
        """See `RequestSlot` and `Backend.stream`."""
        super().__init__(scheduler, watch)
        self.options = options
        self.exact_key = exact_key
        self.cache_salt = cache_salt
        self._should_start = should_start
        self._has_started = False

    def begins(self) -> bool:
        """Whether it may begin, or has."""
        self._has_started = self._has_started or self._should_start()
        if not self._has_started:
            self.stop()
        return self._has_started


class TextRuns:
    """Begins runs for requests that wait, as many on one as a function in memory can serve."""

    def __init__(
        self,
        cache: FunctionCache[KeyFunctions],
        functions: KeptFunctions,
        maker: FunctionMaker,
        access: EngineAccess,
        prefixes: PrefixCache,
        batch_sizes: Collection[int],
    ) -> None:
        """Runs nothing yet; `batch_sizes` as for `Backend`."""
        self._cache = cache
        self._functions = functions
        self._maker = maker
        self._access = access
        self._prefixes = prefixes
        self._batch_sizes = frozenset(batch_sizes)

    def begin(self, request: TextRequest) -> bool:
        """Runs a request's prompt, with those of others that its function can serve.

        Returns:
            Whether there is a first token; False if the request was given up before.
        """
        while request.batch is None:
            with self._access.turn(request.enter, request, request.has_news) as is_held:
                if is_held and request.batch is None and request.begins():
                    self._take_turn(request)
            if not is_held or request.is_stopped:
                break
        if request.batch is None or (request.is_stopped and request.batch.chunks == 0):
            return False
        request.look()
        return True

    def leave(self, request: TextRequest) -> None:
        """Ends a request's part in its batch, if it has one."""
        if (batch := request.batch) is not None:
            batch.leave(request)
        self._access.leave(batch or request)

    def keep(self, request: TextRequest) -> None:
        """Keeps the keys and values of a request that has left, for those that go on from it."""
        kept, request.kept = request.kept, None
        if kept is None:
            return
        engine = request.engine
        assert engine is not None  # it has had a turn
        if request.batch is not None and (run := request.batch.run) is not None:
            known = len(request.prompt_ids) + request.options.max_new_tokens
            roomy = self._functions.key(engine, known, request.options, request.cache_salt)
            kept = run.keep(request.text, kept, roomy.padded_length)
            self._prepare_next(engine, request, len(kept.token_ids))
        self._prefixes.put(engine.identity, request.cache_salt, kept)

    def _prepare_next(self, engine: Engine, request: TextRequest, known: int) -> None:
        """Has larger functions made in an idle moment where the next turns may need them.

        A turn that finds none would have to wait for them in the middle of a talk.
        """
        turn = max(SHORT_TURN, known - request.reused)
        length = known + 2 * turn
        if engine.context_length is not None:
            length = min(length, engine.context_length)
        following = self._functions.key(engine, length, request.options, request.cache_salt)
        if following.padded_length > request.choice.key.padded_length:
            self._maker.later(engine, following)

    def _take_turn(self, request: TextRequest) -> None:
        """Begins a run for a request that has its turn, and for others that wait.

        Of a long prompt it runs a chunk, and then lets others have the engine.
        """
        engine = request.engine
        assert engine is not None  # it has its turn, and so its prompt
        if not request.is_long:
            choice = self._functions.choose(engine, request.wanted, request.exact_key)
            if not self._is_long(engine, choice.key, request):
                self._begin(engine, choice, request)
                return
            request.is_long = True
            self._serve(engine, choice, request)
        key, functions = request.choice.key, request.slot.built.function
        if not self._is_long(engine, key, request):
            self._begin(engine, request.choice, request)
            return
        self._access.tell(EngineStatus("generating", str(key)), about=request)
        request.enter("prefill")
        assert request.kept is not None  # else it would not be long
        engine.extend(functions, request.prompt_ids, request.kept)
        request.go_behind()

    def _begin(self, engine: Engine, choice: Choice, first: TextRequest) -> None:
        """Begins a run for a request, and for those who wait once its prompt has run.

        So who comes first waits for nobody, and is not alone where others come a moment later.
        """
        key, requests = choice.key, [first]
        ready = None if first.is_long else self._cache.peek(engine.info.name, key)
        if ready is None and not first.is_long:
            self._serve(engine, choice, first)
        batch = Batch(self._access.scheduler)
        batch.seat(first)
        self._access.tell(EngineStatus("generating", str(key)), about=batch)

        def run_prompt(request: TextRequest) -> Prefilled:
            self._take_kept(engine, key, request)
            functions = ready or first.slot.built.function
            return engine.prefill(functions, key, request.prompt_ids, request.kept)

        def start() -> Generation:
            first.enter("queue")  # whenever its batch is not at work; its functions are made
            prefilled = [run_prompt(first)]
            if ready is not None:
                alike = self._alike(engine, key)
                others, size = self._gather(engine, key, list(alike))
                requests.extend(request for request in others if request.begins())
                for request in requests[1:]:
                    batch.seat(request)
                prefilled.extend(map(run_prompt, requests[1:]))
                for request in requests:
                    self._serve(engine, alike.get(request, choice), request, size)
            return engine.start(
                first.slot.built.function,
                [request.prompt_ids for request in requests],
                prefilled,
                [request.options for request in requests],
            )

        batch.begin(start)

    def _serve(
        self, engine: Engine, choice: Choice, request: TextRequest, batch_size: int = 1
    ) -> None:
        request.slot, request.choice = self._functions.serve(
            engine, request.wanted, choice, request.enter, batch_size
        )

    def _take_kept(self, engine: Engine, key: CacheKey, request: TextRequest) -> None:
        """Gives a request what is known of its prompt, where its key is one in chunks."""
        if not key.in_chunks:
            return
        if (kept := request.kept) is not None:
            if kept.slots != key.padded_length:  # other functions were to serve it
                request.kept = kept.copy(len(kept.token_ids), key.padded_length)
            return
        kept = self._prefixes.take(
            engine.identity, request.cache_salt, request.prompt_ids, key.padded_length
        )
        request.kept = engine.new_prompt(key) if kept is None else kept
        request.reused = len(request.kept.token_ids)

    def _is_long(self, engine: Engine, key: CacheKey, request: TextRequest) -> bool:
        """Whether more than a chunk of its prompt is still to be run; takes what is kept of it."""
        self._take_kept(engine, key, request)
        if (kept := request.kept) is None:
            return False
        return len(request.prompt_ids) - len(kept.token_ids) > max(key.chunk_sizes)

    def _alike(self, engine: Engine, key: CacheKey) -> dict[TextRequest, Choice]:
        """The requests that wait and would be served by the same function, as they arrived."""
        choices = {
            request: self._functions.choose(engine, request.wanted, request.exact_key)
            for request in self._access.scheduler.waiting()
            if isinstance(request, TextRequest)
            and request.batch is None
            and not request.is_stopped
            and request.engine is engine
            and not request.is_long
        }
        return {
            request: choice
            for request, choice in choices.items()
            if choice.key == key and not self._is_long(engine, key, request)
        }

    def _gather(
        self, engine: Engine, key: CacheKey, others: list[TextRequest]
    ) -> tuple[list[TextRequest], int]:
        """Of those who wait, who may run beside the first, and on functions of which batch size.

        Nobody waits for a function to be made: one that would serve more of them is made in the
        background, for the next ones.
        """
        most = engine.max_batch_size(key)
        possible = {size for size in self._batch_sizes if size <= most}
        wanted = fitting(1 + len(others), possible)
        ready = self._cache.batch_sizes(engine.info.name, key) & possible
        if wanted not in ready:
            self._maker.later(engine, key, wanted)
        size = fitting(1 + len(others), ready)
        return others[: size - 1], size
