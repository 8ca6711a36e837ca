"""Traces of requests in Chrome's Trace Event Format, which Perfetto opens, too.

Knows spans, results and the server's record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from xla_backend.interface.request_record import RequestRecord
from xla_backend.interface.results import CacheOutcome, GenerationResult
from xla_backend.interface.timing import RESTORING, Span

_PROCESSES = ("Page", "Engine")


class TracedRequest(NamedTuple):
    """One request in two processes, which share a clock.

    Attributes:
        name: of its row.
        facts: about the whole request.
        engine: its spans there.
        page: the spans of the process that sent the request.
    """

    name: str
    facts: dict[str, Any]
    engine: Sequence[Span]
    page: Sequence[Span] = ()

    @classmethod
    def of(cls, result: GenerationResult, page: Sequence[Span] = ()) -> Self:
        """A request that has its result."""
        names = RESTORING if result.cache is CacheOutcome.DISK else {}
        engine = [each._replace(name=names.get(each.name, each.name)) for each in result.spans]
        facts = {
            "cache": result.cache.value,
            "key": str(result.key),
            "prompt_tokens": result.prompt_tokens,
            "new_tokens": result.new_tokens,
            "batch_size": result.batch_size,
            "finish": result.finish,
        }
        return cls(result.model, facts, engine, page)

    @classmethod
    def recorded(cls, record: RequestRecord) -> Self:
        """A request of the server's record, which may not have ended."""
        facts = {
            "protocol": record.entry.source.protocol,
            "state": record.state,
            "cache": record.cache and record.cache.value,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "new_tokens": record.new_tokens,
        }
        known = {name: each for name, each in facts.items() if each is not None}
        return cls(record.model or record.kind, known, record.spans())


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
    for process, spans in enumerate((request.page, request.engine), 1):
        if spans:
            yield _about("thread", process, row, f"{row}: {request.name}")
            started = spans[0].started
            ended = max(span.started + span.duration_s for span in spans)
            yield _event(Span("request", started, ended - started), process, row, request.facts)
        for span in spans:
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
