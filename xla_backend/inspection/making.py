"""`make`: compiles a key's functions into the store, for an inspection.

Knows how the engine does it. Must not know what is inspected.
"""

from __future__ import annotations

from xla_backend.engine.backend import Backend
from xla_backend.inspection.jobs import MakeJob


def make(job: MakeJob) -> None:
    """Compiles what is not in the store.

    Raises:
        InvalidRequest, ModelUnavailable: the model or the key is wrong.
    """
    backend = Backend(job.registry, store=job.store)
    try:
        backend.load(job.model)
        backend.warm(job.model, [job.key])
    finally:
        backend.close()
