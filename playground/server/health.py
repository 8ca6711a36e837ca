"""`/health`: the app's state, for load balancers and the operator.

Knows the state of the engine's process and of the queue. Must not know addresses, nor say anything
about a visitor, because this address needs no password.
"""

import time
from dataclasses import asdict
from typing import Any

from xla_backend import SharedBackend
from xla_backend.compilation import device
from xla_backend.process import memory
from xla_backend.process.backend_process import BackendProcess

_NOT_THERE = ("starting", "stopped")


def health(backend: SharedBackend) -> dict[str, Any]:
    """The answer; in bytes and seconds.

    `status` is "ok" if a request would be served without waiting for the engine's start, otherwise
    the engine's state. Values of the engine's process are left out if it has none.
    """
    status = backend.status
    report: dict[str, Any] = {
        "status": status.state if status.state in _NOT_THERE else "ok",
        "waiting": backend.queue.waiting,
        "running": backend.queue.running,
        "engine": {
            "state": status.state,
            "for_s": round(time.perf_counter() - status.since, 1),
            "note": status.note,
            "device": str(device.chosen()),
            "compiling_in_background": len(backend.prefetching()),
        },
        "page": {"resident_bytes": memory.resident()},
    }
    if isinstance(backend, BackendProcess):
        process = backend.health()
        report["up_s"] = round(process.up_s, 1)
        report["engine"] |= {
            "requests": process.requests,
            "resident_bytes": process.resident,
            "memory_limit_bytes": process.memory_limit,
            "restarts": process.restarts,
            "kv_memory": asdict(process.kv_memory),
        }
    return report
