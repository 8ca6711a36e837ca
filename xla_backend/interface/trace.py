"""Traces of requests in Chrome's Trace Event Format, which Perfetto opens, too.

Knows spans and results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from xla_backend.interface.results import CacheOutcome, GenerationResult
from xla_backend.interface.timing import RESTORING, Span

_PROCESSES = ("Page", "Engine")


class TracedRequest(NamedTuple):
    """One request in two processes, which share a clock.

    Attributes:
        result: of the engine, with its spans.
        page: the spans of the process that sent the request.
    """

    result: GenerationResult
    page: Sequence[Span] = ()


def document(requests: Iterable[TracedRequest]) -> str:
    """All requests as one JSON document, with a row per request in both processes."""
    events = [
        event for row, request in enumerate(requests, 1) for event in request_events(request, row)
    ]
    return json.dumps({"traceEvents": [*process_events(), *events], "displayTimeUnit": "ms"})


def process_events() -> Iterator[dict[str, Any]]:
    """The events that name the two processes; once in a trace."""
    for process, name in enumerate(_PROCESSES, 1):
        yield _about("process", process, 0, name)


def request_events(request: TracedRequest, row: int) -> Iterator[dict[str, Any]]:
    """One request's events; times in microseconds.

    Args:
        request: the request.
        row: its number, from 1, unique in the trace.
    """
    result = request.result
    name = f"{row}: {result.model}"
    names = RESTORING if result.cache is CacheOutcome.DISK else {}
    facts = {
        "cache": result.cache.value,
        "key": str(result.key),
        "prompt_tokens": result.prompt_tokens,
        "new_tokens": result.new_tokens,
        "batch_size": result.batch_size,
        "finish": result.finish,
    }
    for process, spans in enumerate((request.page, result.spans), 1):
        if spans:
            yield _about("thread", process, row, name)
            started = spans[0].started
            ended = max(span.started + span.duration_s for span in spans)
            yield _event(Span("request", started, ended - started), process, row, facts)
        for span in spans:
            span = span._replace(name=names.get(span.name, span.name))
            yield _event(span, process, row, {"tokens": span.tokens} if span.tokens else {})


def _about(what: str, process: int, row: int, name: str) -> dict[str, Any]:
    event = {"ph": "M", "name": f"{what}_name", "pid": process, "tid": row}
    return {**event, "args": {"name": name}}


def _event(span: Span, process: int, row: int, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "pid": process,
        "tid": row,
        "ts": round(span.started * 1e6, 3),
        "dur": round(span.duration_s * 1e6, 3),
        "args": facts,
    }
