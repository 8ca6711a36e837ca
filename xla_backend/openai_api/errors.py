"""Errors as OpenAI's clients understand them.

Knows statuses, codes and the JSON of an error. Must not know who raises what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from xla_backend.interface.errors import (
    BackendError,
    ContextLengthExceeded,
    EngineStopped,
    InvalidRequest,
    ModelUnavailable,
    NoRoom,
    OutOfMemory,
)

RETRY_S = 2
"""Seconds in `Retry-After`."""
UNEXPECTED = "An unexpected error occurred; the server's log has the details. Try again."
_STATUSES: tuple[tuple[type[BackendError], int, str | None], ...] = (
    (ModelUnavailable, 404, "model_not_found"),
    (ContextLengthExceeded, 400, "context_length_exceeded"),
    (InvalidRequest, 400, None),
    (NoRoom, 429, "too_many_requests"),
    (EngineStopped, 503, "engine_stopped"),
    (OutOfMemory, 503, "out_of_memory"),
)
_SENTENCES = {
    "messages": "messages must be a list of objects with role and content.",
    "prompt": "prompt must be a text, a list of texts, token ids or a list of lists of token ids.",
    "stop": "stop must be a string or a list of strings.",
    "input": "input must be a text, or a list of messages and other items.",
    "system": "system must be a text, or a list of texts.",
    "state": "state must be a text, an object or a list.",
    "file": "file must be an uploaded file that has a name.",
}
"""Errors for fields with several types, for which pydantic reports one error per type."""


class NotSupported(InvalidRequest):
    """A field asks for something that this API does not support.

    Attributes:
        param: the field's name.
        code: of the error.
        status: of the answer.
    """

    def __init__(
        self, param: str, sentence: str, code: str = "unsupported_parameter", status: int = 400
    ) -> None:
        super().__init__(sentence)
        self.param = param
        self.code = code
        self.status = status


def error_object(
    status: int, message: str, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """The JSON object of an error: OpenAI's, with Anthropic's first field."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status)
    kind = kind or ("server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return {"type": "error", "error": error}


def error_body(status: int, message: str, code: str | None = None, param: str | None = None) -> str:
    """The same as text, in ASCII: an error may repeat half of a surrogate pair from the client."""
    return json.dumps(error_object(status, message, code, param))


def error_response(
    status: int, message: str, code: str | None = None, param: str | None = None
) -> Response:
    """An answer that is an error."""
    headers = {"retry-after": str(RETRY_S)} if status in (429, 503) else None
    body = error_body(status, message, code, param)
    return Response(body, status, headers, "application/json")


def describe(error: Exception) -> tuple[int, str, str | None, str | None]:
    """Status, message, code and field of an error of the engine or the queue."""
    if isinstance(error, NotSupported):
        return error.status, str(error), error.code, error.param
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return status, str(error), code, "model" if status == 404 else None
    return 500, str(error) if isinstance(error, BackendError) else UNEXPECTED, None, None


def describe_fields(
    errors: Sequence[Mapping[str, Any]], is_form: bool = False
) -> tuple[int, str, str | None, str | None]:
    """The same for the first error that pydantic found in a request's fields.

    `is_form`: whether they came as a form, not as JSON.
    """
    first = errors[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, BackendError):
        return describe(cause)
    if first["type"] == "json_invalid":
        return 400, "The body is not JSON. Send a JSON object.", "invalid_json", None
    # The first part of the location is "body", the name of an argument.
    names = [str(part) for part in first["loc"][1:]]
    if not names:
        form = (
            "a form, sent as multipart/form-data"
            if is_form
            else ("a JSON object, sent as application/json")
        )
        return 400, f"The body must be {form}.", None, None
    if first["type"] == "missing":
        return 400, f"{'.'.join(names)} is missing.", "missing_required_parameter", names[0]
    place = ".".join(names)
    sentence = _SENTENCES.get(names[0], "") if len(names) < 3 else ""
    if not sentence or first["type"] not in ("string_type", "list_type", "value_error"):
        sentence = f"{place[:100]}: {first['msg']}."
    return 400, sentence, "invalid_value", names[0]
