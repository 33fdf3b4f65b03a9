"""Schedules: how a kernel runs, apart from what it computes.

    s = cvm.schedule("matmul.loops")
    s.split("j", 32, into=("jo", "ji")).reorder("jo", "i", "k", "ji").vectorize("ji")
    fast = s.compile()
    print(s)

Each step is verified: one that could change a bit of a result is refused, with the two accesses,
and leaves the schedule as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cvm.dialect.kernel_ir.kernel_printer import plan_text
from cvm.dialect.support.diagnostics import Diagnostic, Error, Source, Span, VerifyError
from cvm.lowering.scheduling.apply_steps import CODE, apply_to_plan
from cvm.lowering.scheduling.steps import Refused, Step, made_step, read_step

if TYPE_CHECKING:
    from typing import Self

    from cvm.dialect.kernel_ir.execution_plan import Plan
    from cvm.kernels.python_kernel import Kernel as PythonKernel
    from cvm.lowering.processor import Processor
    from cvm.terminal.read_program import Level

Compiling = Callable[["Schedule", dict[str, Any]], Any]


def schedule(kernel: Any, *arguments: Any, name: str | None = None) -> Schedule:
    """Return a schedule, without steps yet, of a kernel.

    Args:
        kernel: The path or the text of kernels, a plan that `cvm.load` returned for one, a function
            under `@cvm.kernel`, or a compiled function.
        arguments: For a function under `@cvm.kernel`, arguments that select its version; by default
            those of the latest call.
        name: The kernel, if there are several; by default each step goes to the kernel that has the
            loops it names.

    Raises:
        Error: There is no such kernel.
    """
    from cvm.kernels.python_kernel import Kernel as PythonKernel

    if isinstance(kernel, PythonKernel):
        return _of_python(kernel, arguments)
    if arguments:
        raise Error("arguments are for functions of @cvm.kernel; of others, name a kernel")
    plan = _plan_of(kernel)
    kernels = {k.name: k for k in plan.all_kernels}
    if name is not None and name not in kernels:
        raise Error(f"there is no kernel {name}; the kernels are {', '.join(kernels) or 'none'}")
    from cvm.jit.functions.compiled_function import CompiledFunction
    from cvm.jit.functions.kernel_function import PlanFunction

    whole = isinstance(kernel, CompiledFunction) and not isinstance(kernel, PlanFunction)
    return Schedule(plan, name, _compile_program if whole else _compile_kernels)


def _compile_kernels(s: Schedule, options: Mapping[str, object]) -> Any:
    import cvm

    return cvm.compile(s.plan, **options)  # type: ignore[call-overload]


def _compile_program(s: Schedule, options: dict[str, Any]) -> Any:
    """Compile the kernels of a program, those that have no schedule scheduled as usual."""
    from cvm.jit.host_processor import resolve
    from cvm.lowering.pipeline import schedule_others
    from cvm.lowering.processor import compiling_for

    made = s.copy()
    with compiling_for(resolve(options.get("cpu", "native"))):
        made.plan = schedule_others(s.plan)
    return _compile_kernels(made, options)


def _plan_of(kernel: Any) -> Plan:
    from cvm.dialect.kernel_ir.execution_plan import Plan
    from cvm.jit.functions.compiled_function import CompiledFunction
    from cvm.jit.functions.kernel_function import PlanFunction
    from cvm.lowering.pipeline import nests

    if isinstance(kernel, Plan):
        return kernel
    if isinstance(kernel, PlanFunction):
        return kernel.given
    if isinstance(kernel, CompiledFunction):
        return nests(kernel.module, kernel.function)
    if isinstance(kernel, (str, bytes, os.PathLike)):
        import cvm

        given: object = cvm.compile(kernel)
        return _plan_of(given)
    raise Error(f"expected a kernel, or kernels as text or a path, got {type(kernel).__name__}")


def _of_python(kernel: PythonKernel[..., Any], arguments: Sequence[Any]) -> Schedule:
    version = kernel.version(*arguments)
    plan = version.given

    def compiled(s: Schedule, options: Mapping[str, object]) -> Any:
        return kernel.scheduled(s.steps, **options)

    return Schedule(plan, None, compiled)


def with_schedule(program: Level, entry: str, path: str) -> Plan:
    """The kernels of a program, or of its function, with the steps in a file."""
    from cvm.dialect.ir.module import Module
    from cvm.dialect.kernel_ir.execution_plan import Plan
    from cvm.lowering.pipeline import schedule_others
    from cvm.terminal.files import read, shown
    from cvm.terminal.read_program import compiled

    given = program if isinstance(program, Plan) else compiled(program, entry, "cpu")
    made = schedule(given).apply(read(path).decode("utf-8", "replace"), shown(path))
    return schedule_others(made.plan) if isinstance(program, Module) else made.plan


def is_refusal(error: Exception) -> bool:
    """Test whether an error is that of a step that is refused."""
    if not isinstance(error, VerifyError):
        return False
    return all(d.code == CODE for d in error.diagnostics)


class Schedule:
    """The steps that change how one kernel runs. Each method adds a step and returns the schedule.

    Loops are named by their indices; loops of one name are `i#0`, `i#1`, in the order of the text.
    A refused step raises VerifyError, which names the two accesses that would change their order,
    and leaves the schedule as it was.
    """

    def __init__(self, plan: Plan, name: str | None, compiling: Compiling) -> None:
        self.plan = plan  # the kernels, the scheduled ones among them
        self.steps: tuple[Step, ...] = ()
        self._name, self._compiling = name, compiling

    def split(
        self, loop: str, by: int, into: tuple[str, str] | None = None, tail: str = "guard"
    ) -> Self:
        """Split a loop in two: over blocks of `by` iterations, and over the iterations of a block.

        Args:
            loop: The loop.
            by: The number of iterations of a block.
            into: The names of the two loops.
            tail: If `by` does not divide the number of iterations, `"guard"` makes the last block
                shorter, `"peel"` gives the rest a loop of its own, and `"shift"` moves the last
                block back, which computes some elements twice.
        """
        return self._step("split", loop=loop, by=by, into=into, tail=tail)

    def tile(
        self,
        loops: Sequence[str],
        by: Sequence[int],
        into: Sequence[str] | None = None,
        reassociate: bool = False,
    ) -> Self:
        """Split each loop, and nest the loops over blocks around those over the iterations of a
        block.

        Args:
            loops: The loops, from the outermost.
            by: The number of iterations of a block, for each loop.
            into: The names of the new loops, first those over blocks.
            reassociate: Allow another order of float sums, and so other bits.
        """
        given = None if into is None else tuple(into)
        options = {"by": tuple(by), "into": given, "reassociate": reassociate}
        return self._step("tile", loops=tuple(loops), **options)

    def reorder(self, *loops: str, reassociate: bool = False) -> Self:
        """Nest loops in this order, the first outermost.

        Args:
            loops: The loops of a perfect nest.
            reassociate: Allow another order of float sums, and so other bits.
        """
        return self._step("reorder", loops=loops, reassociate=reassociate)

    def collapse(self, outer: str, inner: str, into: str | None = None) -> Self:
        """Collapse two loops, the inner one alone inside the outer, into one over their pairs of
        iterations.

        Args:
            outer: The outer loop.
            inner: The inner loop, of a constant number of iterations.
            into: The name of the new loop.
        """
        return self._step("collapse", loops=(outer, inner), into=into)

    def fuse(self, first: str, second: str, into: str | None = None) -> Self:
        """Fuse two loops of equal bounds, one directly after the other, into one.

        Args:
            first: The first loop.
            second: The loop after it.
            into: The name of the fused loop.
        """
        return self._step("fuse", loops=(first, second), into=into)

    def distribute(self, loop: str) -> Self:
        """Give each statement of a loop's body a loop of its own."""
        return self._step("distribute", loop=loop)

    def expand(self, array: str, loop: str) -> Self:
        """Give a buffer an element for each iteration of a loop (scalar expansion)."""
        return self._step("expand", array=array, loop=loop)

    def peel(self, loop: str, first: int | None = None, last: int | None = None) -> Self:
        """Give the first or last iterations a loop of their own; without a number, those in which
        inner loops are shorter.
        """
        return self._step("peel", loop=loop, first=first, last=last)

    def unroll(self, loop: str, by: int | None = None) -> Self:
        """Repeat the body of a loop, for all of its iterations or for `by` at a time."""
        return self._step("unroll", loop=loop, by=by)

    def unroll_and_jam(self, loop: str, by: int, reassociate: bool = False) -> Self:
        """Repeat the innermost body of a perfect nest for `by` iterations of an outer loop."""
        return self._step("unroll_and_jam", loop=loop, by=by, reassociate=reassociate)

    def vectorize(self, loop: str, by: int | None = None, tail: str | None = None) -> Self:
        """Run the iterations of a loop as the lanes of vectors, all at once or `by` at a time.

        Args:
            loop: The loop.
            by: The lanes.
            tail: `"shift"` takes the rest in a last vector that moves back, instead of one by one.
        """
        return self._step("vectorize", loop=loop, by=by, tail=tail)

    def parallelize(self, loop: str) -> Self:
        """Run the iterations of an outermost loop on all threads."""
        return self._step("parallelize", loop=loop)

    def stage(self, array: str, at: str) -> Self:
        """Copy the part of an array that an iteration of the loop `at` accesses into a buffer, and
        back where it is written.
        """
        return self._step("stage", array=array, at=at)

    def inline(self, array: str) -> Self:
        """Compute the elements of an array where they are read; after `stage`, in each tile."""
        return self._step("inline", array=array)

    def privatize(self, array: str, loop: str) -> Self:
        """Update a copy of an array for each iteration of a loop, and combine them after it."""
        return self._step("privatize", array=array, loop=loop)

    def replace(self, loop: str, by: str) -> Self:
        """Run a nest by the code of an intrinsic (`cvm.extending.intrinsic`), whose nest is the
        same.
        """
        return self._step("replace", loop=loop, by=by)

    def apply(self, text: str, filename: str = "<schedule>") -> Self:
        """Add the steps of a text, one a line; `//` begins a comment.

        Either all steps are added, or the first refused one is reported at its line.

        Args:
            text: The steps, as `print(schedule)` shows them.
            filename: The name that diagnostics give for the text.
        """
        source, offset, made = Source(filename, text), 0, self.copy()
        for line in text.splitlines(keepends=True):
            plain = line.partition("//")[0]
            if plain.strip():
                begin = offset + len(plain) - len(plain.lstrip())
                span = Span(source, begin, offset + len(plain.rstrip()))
                try:
                    made._add(read_step(plain))
                except Refused as e:
                    raise VerifyError(Diagnostic(str(e), span, CODE)) from None
            offset += len(line)
        self.plan, self.steps = made.plan, made.steps
        return self

    def copy(self) -> Schedule:
        """Return a schedule with the same steps, to continue from in another way."""
        made = Schedule(self.plan, self._name, self._compiling)
        made.steps = self.steps
        return made

    def lower(self) -> str:
        """Return the scheduled loops as text, which parses back."""
        return plan_text(self.plan)

    def compile(
        self, *, cpu: str | Processor | None = None, optimize: int | None = None
    ) -> Callable[..., Any]:
        """Compile the kernel as scheduled, into a function of the arguments that it had before.

        Args:
            cpu: The processor that the code is for; by default this machine's.
            optimize: As in `cvm.compile`.
        """
        options = {"cpu": cpu, "optimize": optimize}
        return self._compiling(self, {n: v for n, v in options.items() if v is not None})

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __repr__(self) -> str:
        return f"<schedule of {self._name or self.plan.name}: {len(self.steps)} steps>"

    def _step(self, name: str, **options: object) -> Self:
        given = {n: v for n, v in options.items() if v is not None and v is not False}
        if given.get("tail") == "guard":
            del given["tail"]
        try:
            self._add(made_step(name, given))
        except Refused as e:
            raise VerifyError(Diagnostic(str(e), self.plan.kernels[0].span, CODE)) from None
        return self

    def _add(self, step: Step) -> None:
        self.plan = apply_to_plan(self.plan, step, self._name)
        self.steps = (*self.steps, step)
