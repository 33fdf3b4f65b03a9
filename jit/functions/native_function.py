"""A function as native code: machine code, constants, workspaces, and the entry point for
Python.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...dialect.ir.deferred_size_limits import LARGEST
from ...dialect.ir.function import Function
from ...dialect.ir.module import Module
from ...dialect.support.compilation_context import USER_TRACEBACK
from ...dialect.types.sizes import Size, evaluate, product
from ...lowering.processor import Processor, compiling_for
from ..cache import disk_cache
from ..cache.keys import name_of
from ..cache.measured_costs import measured_host
from ..calls import fastcall
from ..calls.arguments import size_place
from ..calls.dispatch_table import CallTable, DispatchEntry, atoms_of
from ..host_processor import check_runs_here, host_processor
from ..llvm.native_code import Library, fresh_object_code
from ..llvm.range_check import checked_text, declared
from ..options import DEFAULT, CompileOptions
from ..runtime.thread_pool import imports
from . import cache_entry
from .compiled_function import CompiledFunction

if TYPE_CHECKING:
    from ...dialect.ir.deferred_size_limits import DeferredChecks, SizeSteps
    from ...dialect.kernel_ir.execution_plan import Plan
    from ...dialect.kernel_ir.loops import Kernel
    from .cache_entry import Compiled
    from .signature import Signature
    from .tune import Trial

Program: TypeAlias = Callable[[], tuple[Module, Function]]  # read when it is asked for

ALIGNMENT = 64  # bytes, as the plan's: its module is not loaded for functions from the disk cache
LARGEST_KEPT = 1 << 24  # bytes of workspace that a function with a direct entry keeps
WORTH_RELEASING = 50_000  # operations and bytes of a call from which on other threads run meanwhile
ENTRY = (
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
)  # the entry's parameters: pointers, sizes, workspace


class NativeFunction(CompiledFunction):
    """Runs native code made by LLVM. Thread-safe; the GIL is released while it runs."""

    target = "cpu"

    def __init__(
        self, module: Module, function: Function, options: CompileOptions = DEFAULT
    ) -> None:
        super().__init__(module, function, options)
        check_runs_here(options.cpu)
        self.kept_as = (
            None if disk_cache.folder() is None else name_of(module, self.computed, options)
        )
        if (
            made := cache_entry.load(self.kept_as, self.computed)
            if self.kept_as is not None
            else None
        ) is None:
            made = self._compile()
            if self.kept_as is not None:
                cache_entry.store(self.kept_as, self.computed, made)
        self._serve(made)

    def recall(
        self, head: Signature, compiled: Compiled, program: Program, options: CompileOptions
    ) -> None:
        """Take the place of `__init__` for a function from the cache, whose program is read on
        first use.
        """
        self._read = program
        self.options = options
        self.left_open = head.left_open
        self._called_as(head.function, head.overwritten, head.returned)
        self._serve(compiled)

    @cached_property
    def _program(self) -> tuple[Module, Function]:
        return self._read()

    def _serve(self, compiled: Compiled) -> None:
        """Loads the machine code, and calls go there."""
        function = self.head
        self._made = compiled
        self._workspace = compiled.workspace
        self._computed_in_place = compiled.in_place
        self._constant_pointers = [c.ctypes.data for c in compiled.constants]
        checked = ("checked",) if compiled.within else ()
        self.library = Library(
            compiled.images, {"entry": ENTRY}, checked, imports() if compiled.parallel else {}
        )
        self._atoms = [] if self.is_static else atoms_of(function.argument_types, compiled.sizes)
        self._size_places = {atom: size_place(function, atom) for atom in self._atoms}
        self._scratch = threading.local()
        self.table: CallTable | None = None  # of a function that can be called directly
        if self.options.optimize and fastcall.usable() and isinstance(self, fastcall.direct_base()):
            self._call_directly()

    def __reduce__(self) -> tuple[object, ...]:
        return native_function, (self.module, self.function, self.options)

    @property
    def compiled_for(self) -> Processor:
        # the plain way chooses nothing by costs
        return self.options.cpu or (measured_host() if self.options.optimize else host_processor())

    def _compile(self) -> Compiled:
        with compiling_for(self.compiled_for):
            return (
                self._compile_in_units() if self.options.optimize else self._compile_unoptimized()
            )

    def _compile_unoptimized(self) -> Compiled:
        from ..llvm.emit import emit_plans

        plan = self.plan
        text = emit_plans(plan, optimize=False)
        return cache_entry.Compiled(
            (fresh_object_code(text.module, passes=False),),
            tuple(np.ascontiguousarray(c) for c in plan.data.values()),
            plan.workspace,
            text.sizes,
            text.requirements,
            in_place=frozenset(),
            release=True,
            parallel="@parallel" in text.module.definitions,
            within=False,
        )

    def _compile_in_units(self) -> Compiled:
        from ...lowering.analysis.cost import estimated_work
        from ..llvm.emit import Emission
        from .codegen_units import Parts

        plain = self._plain
        emission = Emission(plain)
        looked = (
            declared(self.function) if self._is_direct else {}
        )  # the ranges of arguments, for direct calls
        checked = (
            checked_text(looked, atoms_of(self.function.argument_types, emission.sizes))
            if looked
            else None
        )
        with Parts(emission, checked) as parts:
            self.plan = plan = self._scheduled(plain, parts.add)
            parts.end(plan)
            constants = tuple(np.ascontiguousarray(c) for c in plan.data.values())
            moved = sum(c.nbytes for c in constants)  # a part of the estimated work
            return cache_entry.Compiled(
                parts.images(),
                constants,
                plan.workspace,
                emission.sizes,
                tuple(emission.requirements.listed),
                frozenset(
                    n for n, k in self.overwritten.items() if plan.results[n] is plan.arguments[k]
                ),
                moved > WORTH_RELEASING or estimated_work(plan) > WORTH_RELEASING,
                parts.parallel,
                checked is not None,
            )

    @property
    def _plain(self) -> Plan:
        from ...lowering.pipeline import nests

        return nests(self.module, self.computed)

    def _scheduled(self, plain: Plan, ready: Callable[[Kernel], None]) -> Plan:
        from ...lowering.pipeline import schedule

        return schedule(plain, self.compiled_for, ready, self.options.sanitize)

    @cached_property
    def plan(self) -> Plan:
        from ...lowering.pipeline import lower, unoptimized

        if not self.options.optimize:
            return unoptimized(self.module, self.computed, self.options.sanitize)
        with compiling_for(self.compiled_for):
            return lower(
                self.module, self.computed, self.compiled_for, checks=self.options.sanitize
            )

    def tune(
        self,
        *arguments: object,
        seconds: float = 60,
        told: Callable[[Trial], object] = lambda trial: None,
    ) -> str:
        """Search for a schedule that makes this call faster, with the same bits, and keep it.

        Args:
            arguments: Those of the call.
            seconds: The time of the search, which Ctrl-C ends earlier with the best so far.
            told: Gets each schedule that was measured, with its steps and `seconds`.

        Returns:
            The steps as text, one a line, for `cvm.schedule(...).apply` and `--schedule`; empty
            where none was faster. Kernels take them from the disk cache when they are first called
            with arrays of the same shapes.
        """
        from .tune import tuned

        return tuned(self, arguments, seconds, told).text

    @property
    def _is_direct(self) -> bool:
        """Test whether calls can bypass Python: the checks of arguments are simple."""
        function = self.head
        asked = {k for a in function.arguments for k in a.attributes}
        sizes = [d for t in function.argument_types for d in t.array_shape if isinstance(d, Size)]
        asked |= {"valid" for t in function.argument_types if t.element.needs_check}
        return bool(
            not asked - {"range", "inplace"} and function.results and all(d.is_atom for d in sizes)
        )

    def _call_directly(self) -> None:
        """Calls of this object go to machine code, which leaves to `__call__` of this class what it
        does not take.
        """
        slow = MethodType(NativeFunction.__call__, weakref.proxy(self))
        in_place = set(self.overwritten) == set(self._computed_in_place)
        if self._is_direct and in_place and len(self.head.results) == self.returned:
            self.table = self._table()
            if not self.is_static:
                self._plan(self.table)
        self._way = DispatchEntry(slow, self.table)
        self._way.serve(self)

    def _table(self) -> CallTable:
        function, made = self.head, self._made
        addresses = self.library.addresses
        types = function.argument_types, function.result_types
        table = CallTable(
            addresses["checked" if made.within else "entry"],
            *types,
            made.constants,
            self._atoms,
            self.overwritten,
            MethodType(NativeFunction._failed, weakref.proxy(self)),
        )
        if self.is_static:
            assert isinstance(made.workspace, int)
            shapes: list[Any] = [t.array_shape for t in (*types[0], *types[1])]
            if made.workspace < LARGEST_KEPT and self._memory(types[1], []) <= self.limits.memory:
                table.know(shapes, made.workspace, made.release)
        elif isinstance(made.workspace, Size) or 0 < made.workspace < LARGEST_KEPT:
            table.make_room(LARGEST_KEPT)  # the system gives pages as they are used
        return table

    def _failed(self, status: int) -> None:
        """Raise the error of a direct call that overwrote arguments, which cannot run again."""
        with USER_TRACEBACK:
            self.report(status, self._made.requirements)

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        sizes = self.sizes_of(arrays)
        known = (ctypes.c_int64 * len(sizes))(*sizes.values())
        needed = evaluate(self._made.workspace, sizes)
        memory = self._take_workspace(needed) if needed else None
        workspace = None if memory is None else memory.ctypes.data
        try:
            status = self.library.functions["entry"](
                self.pointers([*arrays, *outputs]), known, workspace
            )
        except SystemError as e:
            raise _raised_by_handler(e) from None
        finally:
            if memory is not None:
                self._scratch.memory = memory
        self.report(status, self._made.requirements)
        if self.table is not None and not self.is_static:
            self._plan(self.table)

    def _plan(self, table: CallTable) -> None:
        """Let calls of new sizes that pass the checks known by now be direct."""
        if table.planned != len(self.size_checks):
            table.plan([self._plan_of(checks) for checks in self.size_checks])

    def _plan_of(self, checks: DeferredChecks) -> tuple[SizeSteps, int, list[list[int]]]:
        """The steps of calls whose sizes pass these checks: those that give whether the GIL is
        released, and the sizes and bytes of each array.
        """
        steps = checks.steps(self._atoms)
        types = (*checks.arguments, *checks.results)
        workspace = self._made.workspace
        counts = [product(t.array_shape) * t.element.bytes for t in types]
        needed = sum(counts[len(checks.arguments) :], workspace)
        moved = sum(counts, workspace + sum(c.nbytes for c in self._made.constants))
        steps.add("<", steps.of(workspace), steps.of(LARGEST_KEPT))
        steps.add("<", steps.of(needed), steps.of(min(self.limits.memory + 1, LARGEST)))
        release = steps.of(moved // (WORTH_RELEASING // 10 + 1))
        arrays = [
            [*map(steps.of, (*t.array_shape, count))]
            for t, count in zip(types, counts, strict=True)
        ]
        return steps, release, arrays

    def pointers(self, arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
        """The table that the entry takes: arguments and results, then the constants."""
        addresses = [*(a.ctypes.data for a in arrays), *self._constant_pointers]
        return (ctypes.c_void_p * len(addresses))(*addresses)

    def _take_workspace(self, needed: int) -> np.ndarray:
        """Take the thread's memory for intermediate arrays, or new memory in a nested call, as in a
        signal handler.
        """
        held: np.ndarray | None = self._scratch.__dict__.pop("memory", None)
        return held if held is not None and held.size >= needed else aligned_memory(needed)


def _raised_by_handler(error: SystemError) -> BaseException:
    """The exception of a signal handler, which ctypes finds set after a call and wraps; a circle of
    the two would keep arrays.
    """
    cause = error.__cause__
    error.__cause__ = None
    error.__context__ = None
    return cause or error


def aligned_memory(size: int) -> np.ndarray:
    """Bytes that begin on a cache line; the array keeps them."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def native_function(
    module: Module, function: Function, options: CompileOptions = DEFAULT
) -> NativeFunction:
    """A native function that Python calls without a detour, where its objects lie in memory as
    expected.
    """
    return _kind(options)(module, function, options)


def recalled_function(
    head: Signature, compiled: Compiled, program: Program, options: CompileOptions
) -> NativeFunction:
    """Restore a compiled function from the cache."""
    function = object.__new__(_kind(options))
    function.recall(head, compiled, program, options)
    return function


def _kind(options: CompileOptions) -> type[NativeFunction]:
    return (
        fastcall.direct(NativeFunction)
        if options.optimize and fastcall.usable()
        else NativeFunction
    )
