"""`ClusterBackend`: the methods of `BackendProcess`, over the replicas of a Ray Serve application.

Knows how requests find a replica, how answers come back and what becomes of a request whose replica
dies. Must not import TensorFlow, nor know the page. Two things differ from one engine:

- `clear` and `clear_functions` concern every replica; while they last, all of them are away.
- Requests that leave one replica for another because it died run again from the beginning, once.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException, RequestCancelledError

from xla_backend.checkpoints import audio
from xla_backend.compilation import naming
from xla_backend.engine import prediction
from xla_backend.engine.vocabulary import Vocabulary
from xla_backend.interface import errors
from xla_backend.interface.backend import Chunk, Result
from xla_backend.interface.buckets import BucketRules, CacheKey
from xla_backend.interface.errors import BackendError, EngineStopped, ModelUnavailable
from xla_backend.interface.function_comparison import DEFAULT_CALLS, FunctionComparison, StoredKey
from xla_backend.interface.options import (
    AudioInput,
    GenerationOptions,
)
from xla_backend.interface.prompt import Prompt
from xla_backend.interface.results import (
    CacheEntry,
    CacheOutcome,
    EngineStatus,
    GenerationResult,
    ModelInfo,
    Past,
    Prediction,
    TranscribedWindow,
    Transcription,
)
from xla_backend.process.remote_backend import RemoteBackend, RemoteStream
from xla_backend.serving import snapshot as views
from xla_backend.serving.routing import Route, function_id, spill_at
from xla_backend.serving.snapshot import Snapshot
from xla_backend.serving.work import Work

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle, DeploymentResponse

ENGINES, BOARD, APPLICATION = "Engines", "Board", "default"
"""Names of the deployments, and of the application where `serve run` is given none."""
READ_S = 5.0
"""Seconds that a question to the board waits for news."""
CONNECT_S = 60.0
"""Seconds that connecting waits for a replica: it imports TensorFlow before it is ready."""
PATIENCE_S = 15.0
"""Seconds without an answer of the board after which the service counts as away."""
BETWEEN_READS_S = 0.1
"""News within this time come together."""

CLOSED = "The connection to the service was closed; it takes no more requests."
REPLICA_DIED = (
    "The replica that served this request ended before it was done. "
    "Send the request again: another one takes it."
)

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class ClusterBackend(RemoteBackend):
    """Many engines with the methods of one. Methods may be called from any thread, not from an
    event loop's.

    Requests of one key go to a replica that has its function, see `routing`. `models`, `entries`,
    `status` and, for functions in memory, `predict` answer at once, from the replicas' latest
    snapshots.
    """

    def __init__(self, engines: DeploymentHandle, board: DeploymentHandle) -> None:
        """Takes handles to the two deployments; begins to read the board."""
        super().__init__(BucketRules())
        self._engines = engines
        self._board = board
        self._vocabularies: dict[str, Vocabulary] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._news = threading.Condition()
        self._failure = ""
        self._closed = threading.Event()
        self._reading: DeploymentResponse[tuple[int, list[Snapshot]]] | None = None
        self._reader = threading.Thread(target=self._read_board, name="board", daemon=True)
        self._reader.start()

    @classmethod
    def connect(cls, address: str | None = None) -> ClusterBackend:
        """Finds the application `xla_backend.serve_app:app` on a cluster.

        Args:
            address: "host:port" of the cluster's head, to be called from one of its machines; None
                or "auto" for the cluster that runs on this machine.

        Raises:
            EngineStopped: there is no such cluster, the application does not run there, or none of
                its engines is ready.
        """
        if address is not None and address.startswith("ray://"):
            raise EngineStopped(
                "Ray's client (ray://) cannot stream. Start this on a machine of the cluster, with "
                "--ray-address auto."
            )
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            if not ray.is_initialized():
                ray.init(
                    address=address or "auto",
                    namespace="serve",
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            engines, board = (
                serve.get_deployment_handle(name, APPLICATION) for name in (ENGINES, BOARD)
            )
        except (RayError, RayServeException, ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise EngineStopped(
                f"No service was found at {address or 'auto'} ({reason}). Start it with "
                "`serve run xla_backend.serve_app:app`."
            ) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own in the place
        backend = cls(engines, board)
        if not backend.wait_ready(CONNECT_S):
            backend.close()
            raise EngineStopped(
                f"The service has no engine that is ready after {CONNECT_S:g} s: `serve status` "
                "says why."
            )
        return backend

    # --- what one replica answers ---------------------------------------------------------------

    def load(self, model: str) -> ModelInfo:
        """Loads a model on the replica that would take its first request; see `AnyBackend`."""
        return self._call(Route(function_id(model)), RemoteBackend.load, model)

    def compare_function(
        self, function: str, batch_size: int, *, pad: bool = False, calls: int = DEFAULT_CALLS
    ) -> FunctionComparison:
        route = Route(f"function {function}")
        compare = RemoteBackend.compare_function
        return self._call(route, compare, function, batch_size, pad=pad, calls=calls)

    def vocabulary(self, model: str) -> Vocabulary:
        if not isinstance(model, str):
            raise ModelUnavailable("A model is chosen by its name.")
        if model not in self._vocabularies:
            route = Route(function_id(model))
            self._vocabularies[model] = self._call(route, RemoteBackend.vocabulary, model)
        return self._vocabularies[model]

    def predict_key(
        self, model: str, wanted: CacheKey, prompt_tokens: int, exact_key: bool
    ) -> Prediction:
        """See `RemoteBackend`; on the replica to which the request would be sent."""
        here = self._predict_here(model, wanted, prompt_tokens, exact_key)
        if here.outcome in (CacheOutcome.HIT, CacheOutcome.REUSED):
            return here
        # Whether it can be restored, only a machine that sees the store can tell.
        route, predict = Route(function_id(model, wanted)), RemoteBackend.predict_key
        return self._call(route, predict, model, wanted, prompt_tokens, exact_key)

    # --- what replicas' snapshots answer --------------------------------------------------------

    @property
    def status(self) -> EngineStatus:
        """What the replica that has been busy longest is doing, and how many are busy."""
        if self._failure:
            return EngineStatus("stopped", self._failure, time.perf_counter())
        return views.merged_status(self._all()) or EngineStatus("starting")

    def replicas(self) -> list[Snapshot]:
        """The replicas that live, as they told last."""
        return self._all()

    def models(self) -> list[ModelInfo]:
        return views.merged_models(self._all())

    def cached_functions(self) -> list[CacheEntry]:
        """The compiled functions in any replica's memory."""
        return views.merged_cached_functions(self._all())

    def past(self) -> Past:
        """What each key took on any replica."""
        return views.merged_past(self._all())

    def stored_keys(self) -> list[StoredKey]:
        """The shapes that `compare_function` has compiled for on any replica."""
        return views.merged_stored_keys(self._all())

    def prefetching(self) -> list[tuple[str, CacheKey]]:
        """Models and keys that are being made ready in the background of any replica."""
        return views.merged_warming(self._all())

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        with self._news:
            return self._news.wait_for(
                lambda: any(one.status.state != "starting" for one in self._snapshots.values()),
                timeout_s,
            )

    # --- work for later, and its end ------------------------------------------------------------

    def prefetch(self, model: str, keys: Iterable[CacheKey]) -> None:
        """Has each key made ready on its home replica, in idle moments. Returns at once."""
        for key in keys:
            self._engines.prefetch.remote(Route(function_id(model, key)), model, key)

    def cancel_prefetch(self) -> None:
        """Gives up what waits in the background of any replica."""
        self._call_all(RemoteBackend.cancel_prefetch)

    def clear(
        self, model: str | None = None, key: CacheKey | None = None, disk: bool = True
    ) -> None:
        """See `ServedBackend`; on every replica: all engines end and start anew."""
        self._call_all(RemoteBackend.clear, model, key, disk)

    def clear_functions(self) -> None:
        """Has `compare_function` trace and compile everything again, on every replica."""
        self._call_all(RemoteBackend.clear_functions)

    def close(self) -> None:
        """Ends the connection; the service goes on. Later calls raise `EngineStopped`.

        A program may end Ray then: nothing here waits for an answer of it any more.
        """
        self._closed.set()
        with self._news:
            self._news.notify_all()
        if not ray.is_initialized():
            return  # It was ended first: nothing can be asked any more.
        try:
            if self._reading is not None:
                self._reading.cancel()
            self._reader.join(READ_S + PATIENCE_S)
            for handle in (self._engines, self._board):
                handle.shutdown()
        except (RayError, RayServeException, RuntimeError) as error:
            logger.debug("The service is gone already: %s", error)

    # --- inside ---------------------------------------------------------------------------------

    def _all(self) -> list[Snapshot]:
        return sorted(self._snapshots.values(), key=lambda one: one.replica)

    def _text(
        self,
        model: str,
        prompt: Prompt,
        options: GenerationOptions,
        exact_key: bool,
        cache_salt: str,
        in_chunks: bool,
    ) -> ClusterStream[str, GenerationResult]:
        try:
            wanted, tokens = self.vocabulary(model).prompt_key(
                self._rules, prompt, options, cache_salt
            )
        except ModelUnavailable:  # unknown, which a replica will say, or to be downloaded there
            route = Route(function_id(model))
        else:
            route = self._route(model, self._predict_here(model, wanted, tokens, exact_key))
            route = dataclasses.replace(route, salt=cache_salt if wanted.in_chunks else "")
        work = Work(
            uuid.uuid4().hex,
            model,
            prompt,
            options,
            is_streaming=in_chunks,
            exact_key=exact_key,
            cache_salt=cache_salt,
        )
        return ClusterStream(self, route, work)

    def _speech(
        self,
        model: str,
        recording: AudioInput,
        options: GenerationOptions | None,
        language: str | None,
        max_seconds: float,
        in_chunks: bool,
    ) -> ClusterStream[TranscribedWindow, Transcription]:
        try:
            vocabulary = self.vocabulary(model)
        except ModelUnavailable:
            self.load(model)
            vocabulary = self.vocabulary(model)
        wanted, frames = vocabulary.speech_key(self._rules, options)
        assert vocabulary.speech is not None  # it has a key
        rate = vocabulary.speech.rate
        work = Work(
            uuid.uuid4().hex,
            model,
            options=options,
            is_streaming=in_chunks,
            # The samples travel: replicas need not see the file.
            recording=(rate, audio.read(recording, rate, max_seconds)),
            language=language,
            max_seconds=max_seconds,
        )
        route = self._route(model, self._predict_here(model, wanted, frames, exact_key=False))
        return ClusterStream(self, route, work)

    def _predict_here(
        self, model: str, wanted: CacheKey, prompt_tokens: int, exact_key: bool
    ) -> Prediction:
        """What the functions in memory promise; a MISS may be a DISK."""
        entries = [entry for entry in self.cached_functions() if entry.model == model]
        in_memory = prediction.keys_of(entries)
        return prediction.predict(
            wanted=wanted,
            prompt_tokens=prompt_tokens,
            entries=entries,
            past=self.past().get(model, {}),
            missing=lambda key: naming.missing("", key, in_memory, lambda entry: False),
            exact_key=exact_key,
        )

    def _route(self, model: str, predicted: Prediction) -> Route:
        past = self.past().get(model, {}).get(predicted.key)
        first_call_s = None if past is None else past.disk_s or past.miss_s
        run_s = None if past is None else past.run_s
        return Route(function_id(model, predicted.key), spill_at=spill_at(first_call_s, run_s))

    def _call(
        self,
        route: Route,
        method: Callable[Concatenate[RemoteBackend, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Calls a method of one replica's `BackendProcess`."""
        if self._closed.is_set():
            raise EngineStopped(CLOSED)
        name = method.__name__
        return self._take(self._engines.call.remote(route, name, *arguments, **named))

    def _call_all(
        self,
        method: Callable[Concatenate[RemoteBackend, Arguments], None],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> None:
        """The same on every replica at once; one that is gone has nothing to do it to."""
        if self._closed.is_set():
            raise EngineStopped(CLOSED)
        name = method.__name__
        replies = [
            self._engines.call.remote(Route(to=replica), name, *arguments, **named)
            for replica in list(self._snapshots)
        ]
        for reply in replies:
            try:
                self._take(reply)
            except EngineStopped as error:
                logger.info("%s on a replica: %s", name, error)

    def _take(self, response: Any) -> Any:
        try:
            kind, value = response.result()
        except (RayError, RayServeException) as error:
            raise EngineStopped(REPLICA_DIED) from error
        if kind == "error":
            raise _error(*value)
        value, snapshot = value
        self._learn(snapshot)
        return value

    def _learn(self, snapshot: Snapshot) -> None:
        """Takes in a snapshot that came with an answer: it may be ahead of the board's."""
        with self._news:
            known = self._snapshots.get(snapshot.replica)
            if known is None or known.number < snapshot.number:
                self._snapshots[snapshot.replica] = snapshot.received()
                self._news.notify_all()

    def _lost(self, replica: str) -> None:
        """A replica died: what it had is gone."""
        with self._news:
            self._snapshots.pop(replica, None)

    def _read_board(self) -> None:
        """The thread that keeps the snapshots up to date."""
        version, heard = 0, time.monotonic()
        while not self._closed.is_set():
            try:
                self._reading = reading = cast(
                    "DeploymentResponse[tuple[int, list[Snapshot]]]",
                    self._board.read.remote(version, READ_S),
                )
                version, snapshots = reading.result(timeout_s=READ_S + PATIENCE_S)
            except (RayError, RayServeException, TimeoutError, RuntimeError) as error:
                logger.debug("The board does not answer: %s", error)
                if time.monotonic() - heard > PATIENCE_S:
                    with self._news:
                        self._snapshots = {}
                        self._failure = "The service on Ray does not answer."
                self._closed.wait(1.0)
                continue
            heard = time.monotonic()
            with self._news:
                before, self._failure = self._snapshots, ""
                self._snapshots = {
                    one.replica: before[one.replica]
                    if one.replica in before and before[one.replica].number >= one.number
                    else one.received()
                    for one in snapshots
                }
                self._news.notify_all()
            self._closed.wait(BETWEEN_READS_S)


class ClusterStream(RemoteStream[Chunk, Result]):
    """What a replica sends for one request as it comes.

    Attributes:
        replica: name of the replica that has it; empty before one does.
    """

    def __init__(self, backend: ClusterBackend, route: Route, work: Work) -> None:
        """Sends the request."""
        super().__init__()
        self.replica = ""
        self._backend = backend
        self._route = route
        self._work = work
        self._lock = threading.Lock()
        self._stopped = self._handed_out = False
        self._retries = 1
        self._sent = time.perf_counter()
        self._waited_s = 0.0
        self._response = self._send()

    @property
    def has_started(self) -> bool:
        """Whether a replica has taken it up."""
        return bool(self.replica)

    def wait_started(self) -> None:
        """Returns at once: what comes from the replica is read where a chunk is asked for."""

    def __next__(self) -> Chunk:
        while not self._ended:
            try:
                kind, value = next(self._response)
            except StopIteration:
                self._ended = True
            except Exception as error:
                self._recover(error)
            else:
                if kind == "taken":
                    self._taken_by(value)
                elif kind == "chunk":
                    self._handed_out = True
                    return value
                else:
                    self._end(kind, value)
        raise StopIteration

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self.replica:
                self._backend._engines.stop.remote(Route(to=self.replica), self._work.id)
            else:
                self._response.cancel()

    def _abandon(self) -> None:
        self._response.cancel()

    def _send(self) -> Any:
        if self._backend._closed.is_set():
            self._ended = True
            raise EngineStopped(CLOSED)
        return self._backend._engines.options(stream=True).run.remote(self._route, self._work)

    def _taken_by(self, replica: str) -> None:
        with self._lock:
            self._waited_s = time.perf_counter() - self._sent
            self.replica = replica
            if self._stopped:
                self._backend._engines.stop.remote(Route(to=replica), self._work.id)

    def _end(self, kind: str, value: Any) -> None:
        self._ended = True
        if kind == "error":
            raise _error(*value)
        if kind == "result":
            result, snapshot = value
            self._backend._learn(snapshot)
            # The way to the replica, and the wait for a place there, are queue time.
            self.result = result.after_waiting(self._waited_s)

    def _recover(self, error: Exception) -> None:
        """Sends the request once more if its replica died before it gave anything.

        Raises:
            EngineStopped: it cannot be sent again.
        """
        if self._stopped or isinstance(error, RequestCancelledError):
            self._ended = True
            return
        if not isinstance(error, RayError | RayServeException):
            self._ended = True
            raise error
        if self.replica:
            self._backend._lost(self.replica)
        if self._handed_out or not self._retries:
            self._ended = True
            raise EngineStopped(REPLICA_DIED) from error
        self._retries -= 1
        with self._lock:
            self.replica = ""
            self._response = self._send()


def _error(name: str, sentence: str) -> BackendError:
    return getattr(errors, name, BackendError)(sentence)
