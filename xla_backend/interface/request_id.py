"""`REQUEST_ID`: the server's id of the current HTTP request, for logs."""

from __future__ import annotations

from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Empty outside a request."""
