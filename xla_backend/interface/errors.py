"""Errors whose messages a visitor can act on.

Knows the kinds of failure that callers distinguish. Must not know where they are raised or shown:
each message is complete and says what to do next.
"""


class BackendError(Exception):
    """Base of all errors that this package raises on purpose; visitors may see their text."""


class InvalidRequest(BackendError, ValueError):
    """The request cannot be served: an option, a prompt or an audio file is wrong."""


class ContextLengthExceeded(InvalidRequest):
    """The prompt alone is longer than the model's context."""


class ModelUnavailable(BackendError):
    """The model cannot be loaded: unknown, not on the allow-list, broken, or not downloadable."""


class EngineStopped(BackendError):
    """The engine's process ended during a request; the next request starts a new one."""


class NoRoom(BackendError):
    """Too many requests wait already; the message says which limit, and to try again."""


class OutOfMemory(BackendError):
    """There was not enough memory for this request; the engine restarts after it."""


FORKED = (
    "This process was forked from the one that made this engine, and has none of its threads. Make "
    'the engine in this process, or start it with multiprocessing\'s "spawn".'
)
"""Of `EngineStopped`."""
