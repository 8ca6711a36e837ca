"""The process of an inspection: does one job and ends.

Knows which module does which job. Must not know who asks. Run by `inspector`: the first message is
the job, and whether it has low priority, for use beside a serving engine, which it never touches.
Its answer is a "result" or an "error".
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Any

from xla_backend.child_process.child_side import connect, end, reporting_errors
from xla_backend.inspection.jobs import Job, MakeJob, MeasureJob, ReadJob, TextsJob

SHORT_WORK, LONG_WORK = 5, 19
"""Niceness of jobs. Reading takes half a second of one core, and somebody waits for it."""


def main() -> None:
    """Does the parent's job."""
    channel, (job, gives_way) = connect()
    if gives_way:
        os.nice(SHORT_WORK if isinstance(job, ReadJob) else LONG_WORK)
    with reporting_errors(channel):
        channel.send(("result", None, _answer(job)))
    end(channel)


def _answer(job: Job) -> Any:
    if isinstance(job, ReadJob):
        from xla_backend.compilation.store import Store
        from xla_backend.inspection.hlo.reading import read
        from xla_backend.inspection.inspection import Inspection

        start = time.perf_counter()
        prefill, decode = read(Store(job.store), job.identity, job.key)
        took_s = time.perf_counter() - start
        return Inspection(job.model, job.key, prefill, decode, took_s)
    from xla_backend.engine.importing import import_engine

    import_engine()
    if isinstance(job, MakeJob):
        from xla_backend.engine.backend import Backend

        with closing(Backend(job.registry, store=job.store)) as backend:
            backend.load(job.model)
            backend.warm(job.model, [job.key])
        return None
    if isinstance(job, MeasureJob):
        from xla_backend.inspection.measuring import measure

        return measure(job)
    from xla_backend.inspection import texts

    return texts.write(job) if isinstance(job, TextsJob) else texts.passes(job)


if __name__ == "__main__":
    main()
