"""`make`: compiles a key's functions into the store, for an inspection of them afterwards.

Knows how the engine is asked to. Must not know what is looked for.
"""

from __future__ import annotations

from xla_backend.engine.backend import Backend
from xla_backend.inspection.jobs import MakeJob


def make(job: MakeJob) -> None:
    """Has the store hold them; does nothing that is done already.

    Raises:
        InvalidRequest, ModelUnavailable: the model or the key is at fault.
    """
    backend = Backend(job.registry, store=job.store)
    try:
        backend.load(job.model)
        backend.warm(job.model, [job.key])
    finally:
        backend.close()
