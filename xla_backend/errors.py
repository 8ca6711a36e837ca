"""What can go wrong, in sentences that a visitor can act on.

Knows the kinds of failure that callers tell apart. Must not know where they are raised or shown:
every message is complete in itself and says what to do next.
"""


class BackendError(Exception):
    """Base of every error that this package raises on purpose; its text may be shown as it is."""


class InvalidRequest(BackendError, ValueError):
    """The request itself cannot be served: an option, a prompt or an audio file is at fault."""


class ModelUnavailable(BackendError):
    """The model cannot be loaded: unknown, not on the allow-list, broken, or out of reach."""


class EngineStopped(BackendError):
    """The engine's process ended while it was needed; the next request starts a new one."""


class OutOfMemory(BackendError):
    """There was not enough memory for this request; the engine starts anew after it."""
