"""`Ingress`: the service over HTTP, with the command line's JSON.

Knows paths, status codes and the shapes of requests. Must not know how an answer comes about:
`ClusterBackend` does that, in threads, because its methods wait.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import soundfile
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from xla_backend.checkpoints.models import DEFAULT_SPEECH_MODEL
from xla_backend.interface.errors import (
    BackendError,
    EngineStopped,
    InvalidRequest,
    ModelUnavailable,
    OutOfMemory,
)
from xla_backend.interface.options import WINDOW_TOKENS, GenerationOptions
from xla_backend.openai_api.app import create_api
from xla_backend.openai_api.errors import error_response
from xla_backend.openai_api.outside import PATH, Outside, is_for_api
from xla_backend.process.remote_backend import RemoteStream
from xla_backend.serving.cluster_backend import ClusterBackend
from xla_backend.serving.openai_host import ServiceHost
from xla_backend.serving.settings import first_model

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

MAX_WAITING = 200
"""Requests that one ingress carries at once; each waits in a thread."""
MAX_BODY = 200 * 1024 * 1024  # bytes; ten minutes of sound as 48 kHz stereo of 24 bits fit
MAX_TIMEOUT_S = 3600.0
TOO_LARGE = f"The body is larger than {MAX_BODY // 1024**2} MB: send less."
RETRY_AFTER_S = 1

Value = TypeVar("Value")


class RunTooLong(BackendError):
    """The request did not end within the time that it allowed itself."""


STATUS = {
    InvalidRequest: 400,
    ModelUnavailable: 404,
    EngineStopped: 503,
    OutOfMemory: 503,
    RunTooLong: 504,
}
"""HTTP status codes of errors; of others, 500."""


class Ingress:
    """Answers HTTP requests.

    | path | answers |
    | --- | --- |
    | POST /generate | the command line's JSON object |
    | POST /stream | lines of JSON whose `text` grows; the last one is the object of /generate |
    | POST /predict | what the same request would meet now |
    | POST /transcribe | the text of the recording that is the body; options are in the query |
    | GET /models, /entries | models; compiled functions of all replicas |
    | GET /status | what the service does, and its replicas |
    | /v1/... | OpenAI's protocol |

    The body of a POST is a JSON object: `prompt`, and optionally `model`, `exact_key`, `timeout_s`
    and every option of `GenerationOptions`. An error is {"error": sentence}. A caller who goes away
    stops the work; so does `timeout_s`, with status 504.
    """

    def __init__(
        self, models: tuple[str, ...], engines: DeploymentHandle, board: DeploymentHandle
    ) -> None:
        """Connects to the replicas; `models` as in `ServeSettings`."""
        self._offers = models
        self._backend = ClusterBackend(engines, board)
        self._threads = ThreadPoolExecutor(MAX_WAITING, thread_name_prefix="ingress")
        self._host = ServiceHost(self._backend, models, at_once=MAX_WAITING)
        self._api = Outside(Router([Mount(PATH, create_api(self._host))]))
        self._routes: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            ("POST", "/generate"): self._generate,
            ("POST", "/stream"): self._stream,
            ("POST", "/predict"): self._predict,
            ("POST", "/transcribe"): self._transcribe,
            ("GET", "/models"): self._models,
            ("GET", "/entries"): self._entries,
            ("GET", "/status"): self._status,
        }

    async def __call__(self, request: Request) -> Response:
        """Answers one request."""
        path = request.url.path.removeprefix(request.scope.get("root_path", "")).rstrip("/")
        if is_for_api(path):
            return _OfApp(self._api)
        route = self._routes.get((request.method, path))
        if route is None:
            paths = ", ".join(f"{method} {known}" for method, known in self._routes)
            return _error(404, f"There is nothing at {request.method} {path or '/'}: try {paths}.")
        try:
            return await route(request)
        except BackendError as error:
            return _to_response(error)

    # --- the paths ------------------------------------------------------------------------------

    async def _generate(self, request: Request) -> Response:
        stream, timeout_s = await self._open(request)
        return JSONResponse((await self._finish(stream, timeout_s)).to_json())

    async def _stream(self, request: Request) -> Response:
        stream, timeout_s = await self._open(request)
        lines = self._lines(stream, timeout_s)
        try:
            first = await anext(lines)  # so that a request at fault still gets its status
        except BackendError:
            await lines.aclose()
            raise
        return StreamingResponse(_following(first, lines), media_type="application/x-ndjson")

    async def _predict(self, request: Request) -> Response:
        model, prompt, options, exact_key, _ = self._read(await _json(request))
        predicted = await self._wait(
            lambda: self._backend.predict(model, prompt, options, exact_key=exact_key)
        )
        return JSONResponse(predicted.to_json())

    async def _transcribe(self, request: Request) -> Response:
        values: dict[str, Any] = {
            name: _number(text) for name, text in request.query_params.items()
        }
        language = values.pop("language", None)
        timeout_s = _timeout(values.pop("timeout_s", None))
        model = self._offered(values.pop("model", DEFAULT_SPEECH_MODEL))
        options = GenerationOptions.from_dict({"max_new_tokens": WINDOW_TOKENS, **values})
        body = await _body(request)
        sound = await self._wait(lambda: _decode(body))
        stream = await self._wait(
            lambda: self._backend.transcribe_windows(model, sound, options, language=language)
        )
        return JSONResponse((await self._finish(stream, timeout_s)).to_json())

    async def _models(self, request: Request) -> Response:
        return JSONResponse([dataclasses.asdict(info) for info in self._host.models()])

    async def _entries(self, request: Request) -> Response:
        return JSONResponse([entry.to_json() for entry in self._backend.cached_functions()])

    async def _status(self, request: Request) -> Response:
        status = self._backend.status
        return JSONResponse(
            {
                "state": status.state,
                "detail": status.detail,
                "replicas": [
                    {
                        "replica": one.replica,
                        "state": one.status.state,
                        "detail": one.status.detail,
                        "functions": len(one.entries),
                    }
                    for one in self._backend.replicas()
                ],
            }
        )

    # --- inside ---------------------------------------------------------------------------------

    async def _open(self, request: Request) -> tuple[RemoteStream[str, Any], float | None]:
        model, prompt, options, exact_key, timeout_s = self._read(await _json(request))
        stream = await self._wait(
            lambda: self._backend.stream(model, prompt, options, exact_key=exact_key)
        )
        return stream, timeout_s

    def _read(
        self, values: dict[str, Any]
    ) -> tuple[str, str, GenerationOptions, bool, float | None]:
        """Model, prompt, options, exact_key and timeout_s of a request's JSON."""
        model = self._offered(values.pop("model", ""))
        prompt = values.pop("prompt", "")
        exact_key = values.pop("exact_key", False)
        if not isinstance(exact_key, bool):
            raise InvalidRequest("exact_key must be true or false.")
        timeout_s = _timeout(values.pop("timeout_s", None))
        return model, prompt, GenerationOptions.from_dict(values), exact_key, timeout_s

    def _offered(self, model: object) -> str:
        """The model's name, the default one's for none.

        Raises:
            ModelUnavailable: it is not offered here, even if the engines could run it.
        """
        if not model:
            return first_model(self._offers)
        if not isinstance(model, str) or (self._offers and model not in self._offers):
            raise ModelUnavailable(
                f"There is no model {str(model)[:80]!r} here; GET /models lists them."
            )
        return model

    async def _lines(
        self, stream: RemoteStream[str, Any], timeout_s: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The lines of /stream. An error after the first line is the last line."""
        text, started = "", False
        try:
            async for chunk in self._chunks(stream, timeout_s):
                text, started = text + chunk, True
                yield _line({"text": text})
            yield _line(_result(stream).to_json())
        except BackendError as error:
            if not started:
                raise
            yield _line({"error": str(error)})

    async def _finish(self, stream: RemoteStream[Any, Any], timeout_s: float | None) -> Any:
        async for _ in self._chunks(stream, timeout_s):
            pass
        return _result(stream)

    async def _chunks(
        self, stream: RemoteStream[Any, Any], timeout_s: float | None
    ) -> AsyncIterator[Any]:
        """The chunks as they come.

        Raises:
            RunTooLong: they came for too long; the run was stopped.
        """
        late = threading.Event()

        def end() -> None:
            late.set()
            self._threads.submit(stream.stop)

        timer = asyncio.get_running_loop().call_later(timeout_s, end) if timeout_s else None
        try:
            while (chunk := await self._wait(lambda: next(stream, None))) is not None:
                yield chunk
        finally:
            if timer is not None:
                timer.cancel()
            # Also when the caller has gone away, which cancels this coroutine.
            self._threads.submit(stream.close)
        if late.is_set():
            raise RunTooLong(
                f"The request did not end within {timeout_s:g} s and was stopped. Ask for fewer "
                "tokens, or give it more time in timeout_s."
            )

    async def _wait(self, function: Callable[[], Value]) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


class _OfApp(Response):
    """What an app answers to the request."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if int(Headers(scope=scope).get("content-length", 0)) > MAX_BODY:
            await error_response(413, TOO_LARGE)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _result(stream: RemoteStream[Any, Any]) -> Any:
    if stream.result is None:
        raise EngineStopped("The request was stopped before an engine took it up.")
    return stream.result


async def _following(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line


async def _body(request: Request) -> bytes:
    if int(request.headers.get("content-length", 0)) > MAX_BODY:
        raise InvalidRequest(TOO_LARGE)
    return await request.body()


async def _json(request: Request) -> dict[str, Any]:
    try:
        values = json.loads(await _body(request))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise InvalidRequest('The body must be a JSON object like {"prompt": "Once upon a time"}.')
    return values


def _decode(body: bytes) -> tuple[int, Any]:
    """The recording in a body: rate in Hz and samples.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        samples, rate = soundfile.read(io.BytesIO(body), dtype="float32")
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise InvalidRequest(
            "The body must be a recording as WAV, FLAC, OGG or MP3: this cannot be read."
        ) from error
    return rate, samples


def _timeout(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest("timeout_s must be a number of seconds.")
    if not 0 < value <= MAX_TIMEOUT_S:
        raise InvalidRequest(f"timeout_s must be above 0 and at most {MAX_TIMEOUT_S:g}.")
    return float(value)


def _number(text: str) -> Any:
    """A query's value: JSON where it is, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _to_response(error: BackendError) -> Response:
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    return _error(status, str(error))


def _error(status: int, sentence: str) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return JSONResponse({"error": sentence}, status, headers)
