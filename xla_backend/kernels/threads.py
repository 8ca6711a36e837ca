"""Units of work that the threads of XLA's pool take one by one.

Knows XLA's pool and the threads' shared state. Must not know what a unit computes. Units are not
assigned to threads, so a late or slow thread delays only one unit, or one run of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from xla_backend.kernels import ffi, machine_code
from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import LONG, POINTER, Builder, ForLoop, Value, long


class Job:
    """The threads' shared values: addresses and numbers of 8 bytes, by name."""

    def __init__(self, names: str) -> None:
        """`names`: of the values for units, separated by spaces."""
        every = ["units", "run", "next", "done", "users", *names.split()]
        self._places = {name: 8 * place for place, name in enumerate(every)}

    def place(self, builder: Builder, job: Value, name: str) -> Value:
        """The address of a value."""
        return builder.at(job, self._places[name])

    def get(self, builder: Builder, job: Value, names: str, kind: ir.Type = LONG) -> list[Value]:
        return [builder.load(self.place(builder, job, name), typ=kind) for name in names.split()]

    def wait(self, builder: Builder, job: Value, units: Value) -> None:
        """Waits until this many units are done; threads must have taken all of them.

        The wait is short, because only the last units are left. On a busy machine their threads may
        need this core.
        """
        wait, ready = builder.append_basic_block("wait"), builder.append_basic_block("ready")
        builder.branch(wait)
        builder.position_at_end(wait)
        done = builder.load_atomic(self.place(builder, job, "done"), "acquire", 8, typ=LONG)
        builder.cbranch(builder.icmp_unsigned(">=", done, units), ready, wait)
        builder.position_at_end(ready)

    def share(
        self,
        handler: Handler,
        unit: ir.Function,
        values: Mapping[str, Value],
        units: Value,
        is_small: Value,
        runs: int | None = None,
    ) -> None:
        """Runs all units of a call, `unit(job, number)` each, and waits for them.

        Args:
            handler: of the call.
            unit: called with unit numbers in ascending order.
            values: by the names of this job.
            units: how many, at least one.
            is_small: whether waking other threads does not pay.
            runs: about how many times a thread takes units, several neighbours at once: memory that
                they read from end to end is read faster. None: it takes them one by one.
        """
        builder, module = handler, handler.module
        work, leave = self._work(module, unit), self._leave(module)
        task = Builder(module, "task", [POINTER])
        task.call(work, task.arguments)
        task.call(leave, task.arguments)
        task.ret_void()
        threads = builder.select(is_small, long(1), _threads(handler))
        users = builder.least(threads, units)
        job = builder.intrinsic("malloc", POINTER, [long(8 * len(self._places))])
        run = long(1)
        if runs is not None:
            run = builder.udiv(units, builder.mul(users, long(runs)))
            run = builder.greatest(run, long(1))
        own = {"units": units, "run": run, "next": long(0), "done": long(0), "users": users}
        for name, value in {**values, **own}.items():
            builder.store(value, self.place(builder, job, name))
        builder.fence("release")
        with builder.if_then(builder.icmp_unsigned(">", users, long(1))):
            schedule = builder.get(handler.api, POINTER, ffi.API_SCHEDULE)
            arguments = _structure(builder, [handler.context, task.function, job])
            others = ForLoop(builder, long(1), users, 1)
            builder.call_at(schedule, [arguments], POINTER)
            others.close()
        builder.call(work, [job])
        self.wait(builder, job, units)
        builder.call(leave, [job])

    def _work(self, module: ir.Module, unit: ir.Function) -> ir.Function:
        """`work(job)`: takes units until none is left."""
        builder = Builder(module, "work", [POINTER])
        (job,) = builder.arguments
        units, run = self.get(builder, job, "units run")
        take, do, end = (builder.append_basic_block(name) for name in ("take", "do", "end"))
        builder.branch(take)
        builder.position_at_end(take)
        following = self.place(builder, job, "next")
        number = builder.atomic_rmw("add", following, run, "monotonic")
        builder.cbranch(builder.icmp_unsigned("<", number, units), do, end)
        builder.position_at_end(do)
        each = ForLoop(builder, number, builder.least(builder.add(number, run), units), 1)
        builder.call(unit, [job, each.index])
        builder.atomic_rmw("add", self.place(builder, job, "done"), long(1), "release")
        each.close()
        builder.branch(take)
        builder.position_at_end(end)
        builder.ret_void()
        return builder.function

    def _leave(self, module: ir.Module) -> ir.Function:
        """`leave(job)`: the last user frees it. A task may start only after all work is done."""
        builder = Builder(module, "leave", [POINTER])
        (job,) = builder.arguments
        users = builder.atomic_rmw("sub", self.place(builder, job, "users"), long(1), "acq_rel")
        with builder.if_then(builder.icmp_unsigned("==", users, long(1))):
            builder.intrinsic("free", machine_code.VOID, [job])
        builder.ret_void()
        return builder.function


def _threads(handler: Handler) -> Value:
    """Number of threads in XLA's pool; 1 if a call has no pool."""
    builder = handler
    count = builder.room(LONG, 1)
    builder.store(long(1), count)
    ask = builder.get(handler.api, POINTER, ffi.API_NUM_THREADS)
    error = builder.call_at(ask, [_structure(builder, [handler.context, count])], POINTER)
    with builder.if_then(builder.icmp_unsigned("!=", error, ir.Constant(POINTER, None))):
        destroy = builder.get(handler.api, POINTER, ffi.API_DESTROY_ERROR)
        builder.call_at(destroy, [_structure(builder, [error])], machine_code.VOID)
    return builder.load(count, typ=LONG)


def _structure(builder: Builder, values: Sequence[Value]) -> Value:
    """The argument structure of a function in XLA's table: its size, no extension, the values."""
    place = builder.room(LONG, 2 + len(values))
    fields = [long(8 * (2 + len(values))), long(0), *values]
    for at, value in enumerate(fields):
        builder.store(value, builder.at(place, 8 * at))
    return place
