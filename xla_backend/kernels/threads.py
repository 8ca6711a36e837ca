"""Units of work that the threads of XLA's pool take one by one.

Knows XLA's pool and the threads' shared state. Units are not assigned to threads, so a late or slow
thread delays only one unit, or one run of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from xla_backend.kernels import ffi, machine_code
from xla_backend.kernels.handler import Handler
from xla_backend.kernels.machine_code import LONG, POINTER, WORD, Builder, ForLoop, Value, long

_PAUSES, _YIELDS, _SLEEP_US = 2048, 64, 50
"""How often a wait pauses, some 40 µs; how often it then gives way; and how long it then sleeps."""


class Job:
    """The threads' shared values: addresses and numbers of 8 bytes, by name."""

    def __init__(self, names: str) -> None:
        """`names`: of the values for units, separated by spaces."""
        every = ["units", "run", "next", "done", "users", "failed", *names.split()]
        self._places = {name: 8 * place for place, name in enumerate(every)}

    def place(self, builder: Builder, job: Value, name: str) -> Value:
        """The address of a value."""
        return builder.at(job, self._places[name])

    def get(self, builder: Builder, job: Value, names: str, kind: ir.Type = LONG) -> list[Value]:
        return [builder.load(self.place(builder, job, name), typ=kind) for name in names.split()]

    def wait(self, builder: Builder, job: Value, units: Value) -> None:
        """Waits until this many units are done; threads must have taken all of them.

        The wait is mostly short, because only the last units are left: pauses are enough. Where
        their threads wait for a core, they get this one.
        """
        wait, again = builder.append_basic_block("wait"), builder.append_basic_block("again")
        ready, before = builder.append_basic_block("ready"), builder.block
        builder.branch(wait)
        builder.position_at_end(wait)
        rounds = builder.phi(LONG)
        rounds.add_incoming(long(0), before)
        done = builder.load_atomic(self.place(builder, job, "done"), "acquire", 8, typ=LONG)
        builder.cbranch(builder.icmp_unsigned(">=", done, units), ready, again)
        builder.position_at_end(again)
        with builder.if_else(builder.icmp_unsigned("<", rounds, long(_PAUSES))) as (pause, rest):
            with pause:
                builder.pause()
            with rest:
                is_late = builder.icmp_unsigned("<", rounds, long(_PAUSES + _YIELDS))
                with builder.if_else(is_late) as (give_way, sleep):
                    with give_way:
                        builder.intrinsic("sched_yield", WORD, [])
                    with sleep:
                        builder.intrinsic("usleep", WORD, [ir.Constant(WORD, _SLEEP_US)])
        rounds.add_incoming(builder.add(rounds, long(1)), builder.block)
        builder.branch(wait)
        builder.position_at_end(ready)

    def allocate(self, builder: Builder, job: Value, size: Value) -> Value:
        """The address of `size` bytes for a unit, which frees them; without memory it returns."""
        place = builder.intrinsic("malloc", POINTER, [size])
        is_none = builder.icmp_unsigned("==", place, ir.Constant(POINTER, None))
        with builder.if_then(is_none, likely=False):
            builder.store(long(1), self.place(builder, job, "failed"))
            builder.ret_void()
        return place

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

        Ends the call if one of them had no memory.

        Args:
            unit: called with unit numbers in ascending order.
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
        threads = builder.select(is_small, long(1), handler.threads())
        users = builder.least(threads, units)
        job = handler.allocate(long(8 * len(self._places)), until_close=False)
        run = long(1)
        if runs is not None:
            run = builder.udiv(units, builder.mul(users, long(runs)))
            run = builder.greatest(run, long(1))
        own = {"units": units, "run": run, "users": users}
        own |= dict.fromkeys(("next", "done", "failed"), long(0))
        for name, value in {**values, **own}.items():
            builder.store(value, self.place(builder, job, name))
        builder.fence("release")
        with builder.if_then(builder.icmp_unsigned(">", users, long(1))):
            schedule = builder.get(handler.api, POINTER, ffi.API_SCHEDULE)
            arguments = handler.structure([handler.context, task.function, job])
            others = ForLoop(builder, long(1), users, 1)
            builder.call_at(schedule, [arguments], POINTER)
            others.close()
        builder.call(work, [job])
        self.wait(builder, job, units)
        (failed,) = self.get(builder, job, "failed")
        builder.call(leave, [job])
        handler.end_without_memory(builder.icmp_unsigned("!=", failed, long(0)))

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
