"""`/metrics`: the page and its engine in Prometheus' format, for the operator.

Knows what is counted and measured, with the names of OpenTelemetry's conventions for generative
models where they exist. Must not know who asks, nor report anything that a visitor sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.routing import Route

from xla_backend.interface.prompt import TokenIds
from xla_backend.interface.results import GenerationResult
from xla_backend.process import memory
from xla_backend.process.backend_process import BackendProcess

if TYPE_CHECKING:
    from starlette.requests import Request

    from xla_backend import ModelInfo, SharedBackend
    from xla_backend.process.request_log import FinishedRequest

PATH = "/metrics"
# The boundaries that the conventions recommend; those of tokens begin lower, for small models.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.4, 1.0)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096)
_MODEL = "gen_ai_request_model"
UNKNOWN = "unknown"
"""The label of all models that do not exist."""


class Metrics:
    """The measurements since the start."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._models: Callable[[], Sequence[ModelInfo]] = lambda: ()
        self._registry = CollectorRegistry()
        self._duration = self._histogram(
            "gen_ai_server_request_duration_seconds",
            "Seconds from a request's call to its last reply; its error's kind, if it has one.",
            _SECONDS,
            "gen_ai_operation_name",
            "error_type",
        )
        self._ttft = self._histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "Seconds from a request's arrival at the engine to its first token.",
            _SECONDS,
        )
        self._tpot = self._histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "Seconds of each token after the first.",
            _TOKEN_SECONDS,
        )
        self._queue = self._histogram(
            "xla_queue_seconds",
            "Seconds that a request waited for others in the engine.",
            (0.0, *_SECONDS),
        )
        self._tokens = self._histogram(
            "gen_ai_client_token_usage",
            "Tokens of a request: input (the prompt's) or output.",
            _TOKENS,
            "gen_ai_token_type",
        )
        self._cache = Counter(
            "xla_requests",
            "Requests by where their compiled function came from: hit, miss, disk, reused.",
            [_MODEL, "cache"],
            registry=self._registry,
        )

    def _histogram(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, what, [_MODEL, *labels], registry=self._registry, buckets=buckets)

    def observe(self, finished: FinishedRequest) -> None:
        """Counts a request that has ended, from any thread."""
        model, result = self._label(finished.request.model), finished.value
        if finished.kind == "error":
            error = type(result).__name__
        else:
            error = "" if finished.kind == "result" else finished.kind
        self._duration.labels(model, _operation(finished), error).observe(finished.wall_s)
        if not isinstance(result, GenerationResult):
            return
        self._queue.labels(model).observe(result.timing.queue_s)
        self._cache.labels(model, result.cache.value).inc()
        self._tokens.labels(model, "input").observe(result.prompt_tokens)
        self._tokens.labels(model, "output").observe(result.new_tokens + result.cut_tokens)
        if result.ttft_s is not None:
            self._ttft.labels(model).observe(result.ttft_s)
        if result.tpot_s is not None:
            self._tpot.labels(model).observe(result.tpot_s)

    def _label(self, model: str) -> str:
        """A model's label: its name only if it exists, because each label is kept for ever."""
        if model and model not in self._names:
            self._names = frozenset(info.name for info in self._models())
        return model if not model or model in self._names else UNKNOWN

    def route(
        self,
        backend: SharedBackend,
        models: Callable[[], Sequence[ModelInfo]],
    ) -> Route:
        """The route, for the app that serves the page, which offers these `models`."""
        self._models = models
        self._registry.register(_Now(backend))

        def answer(request: Request) -> Response:
            del request
            return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

        return Route(PATH, answer)


class _Now(Collector):
    """The present values."""

    def __init__(self, backend: SharedBackend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        entries = self._backend.cached_functions()
        yield GaugeMetricFamily(
            "xla_waiting", "Waiting requests of the page.", self._backend.queue.waiting
        )
        yield GaugeMetricFamily(
            "xla_running", "Requests at the engine.", self._backend.queue.running
        )
        yield GaugeMetricFamily("xla_compiled_functions", "Functions in memory.", len(entries))
        up = float(self._backend.status.state not in ("starting", "stopped"))
        yield GaugeMetricFamily("xla_engine_up", "Whether requests are served now.", up)
        held = GaugeMetricFamily(
            "xla_memory_bytes", "Resident memory of a process.", labels=["process"]
        )
        held.add_metric(["page"], memory.resident() or 0)
        if isinstance(self._backend, BackendProcess):
            health = self._backend.health()
            held.add_metric(["engine"], health.resident or 0)
            if health.memory_limit is not None:
                limit = "Memory limit of the engine's process."
                yield GaugeMetricFamily("xla_memory_limit_bytes", limit, health.memory_limit)
            replaced = GaugeMetricFamily(
                "xla_engine_replacements",
                "Replacements of the engine since the start, by cause.",
                labels=["cause"],
            )
            for cause in ("memory", "stopped"):
                replaced.add_metric([cause], health.restarts.get(cause, 0))
            yield replaced
        yield held


def _operation(finished: FinishedRequest) -> str:
    request = finished.request
    if (text := request.text) is not None:
        is_text = isinstance(text.prompt, str | TokenIds)
        return "text_completion" if is_text else "chat"
    return request.kind
