"""`REQUEST_ID`: what a server calls the request that is served now.

Knows only the name, so that what logs a run can tell which request it was for.
"""

from __future__ import annotations

from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Empty where nobody has named it."""
