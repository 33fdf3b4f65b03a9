"""A kernel for arguments of some types: its stages, its machine code, and a call of it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.kernel_printer import plan_text
from cvm.dialect.support.diagnostics import Diagnostic, Error, TargetError
from cvm.dialect.support.fp_environment import DefaultFpEnvironment
from cvm.dialect.support.python_errors import kind_of
from cvm.dialect.types.sizes import evaluate
from cvm.dialect.types.tensor_types import I64
from cvm.jit.calls import kernel_table as calls
from cvm.jit.calls.kernel_table import LARGEST, KernelCall, KernelTable
from cvm.jit.options import CompileOptions

from .blocks import FAULT
from .build import ArrayType, Built, IntegerType, ViewType
from .numbers import NumberType
from .source import FunctionSource


@dataclass
class Version:
    """A kernel for arguments of some types, by their names."""

    built: Built
    source: FunctionSource
    options: CompileOptions
    signature: Mapping[str, Any]
    overlaps: bool  # written arguments share memory with others
    number: int
    table: KernelTable | None = None  # once machine code takes its calls

    def meet(self, values: Sequence[object]) -> bool:
        """Test whether a written array may share memory with another, or elements with each
        other.
        """
        written = self.built.written
        arrays = [
            (n in written, a)
            for n, a in zip(self.signature, values, strict=True)
            if isinstance(a, np.ndarray)
        ]
        for n, (stored, a) in enumerate(arrays):
            if stored and not a.flags.c_contiguous and a.size and 0 in a.strides:
                return True
            others = (b for also, b in arrays[:n] if stored or also)
            if any(np.may_share_memory(a, b) for b in others):
                return True
        return False

    @cached_property
    def plan(self) -> Plan:
        return self._lowered(self.given)

    def _lowered(self, plan: Plan) -> Plan:
        from cvm.lowering.loops.expand_functions import expand_functions
        from cvm.lowering.loops.legalize_types import legalize_types
        from cvm.lowering.loops.prefetch import prefetch
        from cvm.lowering.pass_context import Context
        from cvm.lowering.passes import run_passes
        from cvm.lowering.storage.place_buffers import place_buffers

        passes = (expand_functions, legalize_types, prefetch, place_buffers)
        return run_passes(passes, plan, Context())

    @cached_property
    def given(self) -> Plan:
        built = self.built
        views = {
            t: home
            for t in built.results
            for home in built.inputs
            if t.name == f"{home.name}.out" and t.shape == home.shape
        }
        results = tuple(views.get(t, t) for t in built.results)
        return Plan(built.kernel.name, built.inputs, results, {}, (built.kernel,), views)

    @cached_property
    def sizing(self) -> Plan | None:
        """The program that computes the sizes of the arrays that a call makes."""
        built = self.built
        sizes = [e for made in built.made for e in made.sizes]
        if not built.made:
            return None
        shapes = ex.Tensor("kernel.shapes", (len(sizes),), I64)
        numbers = {t: built.numbers[t.name] for t in built.inputs if t.name in built.numbers}
        body = (
            *(ir.Let(var, t[()]) for t, var in numbers.items()),
            *(
                ir.Store(shapes, (ex.as_index(n),), ex.maximum(0, ex.cast(e, I64)))
                for n, e in enumerate(sizes)
            ),
        )
        kernel = ir.Kernel(built.kernel.name, (*numbers, shapes), body, scheduled=True)
        results = (*self.given.results, shapes)
        return Plan(kernel.name, built.inputs, results, {}, (kernel,))

    @cached_property
    def text(self) -> Any:
        from cvm.jit.llvm.emit import emit_plans
        from cvm.lowering.processor import compiling_for

        sizing = () if self.sizing is None else (self._lowered(self.sizing),)
        with compiling_for(self.options.cpu):
            optimize = self.options.optimize > 0
            text = emit_plans(self.plan, *sizing, optimize=optimize)
            return replace(text, pipeline="loops") if optimize else text

    @cached_property
    def library(self) -> Any:
        from cvm.jit.functions.native_function import ENTRY
        from cvm.jit.host_processor import check_runs_here
        from cvm.jit.llvm.native_code import Library
        from cvm.jit.runtime.thread_pool import imports
        from cvm.lowering.processor import compiling_for

        check_runs_here(self.options.cpu)
        entries = {name: ENTRY for name in ("entry", "entry1")[: 1 + (self.sizing is not None)]}
        with compiling_for(self.options.cpu):
            module, pipeline = self.text.module, self.text.pipeline
            imported = imports() if module.is_parallel else {}
            return Library(module, entries, (), imported, pipeline)

    def load(self) -> Any:
        """The machine code, compiled once: callers hold the lock of the kernel."""
        return self.library

    def lower(self, stage: str) -> str:
        if stage == "loops":
            return plan_text(self.given)
        from cvm.jit.targets import find_target
        from cvm.lowering.processor import compiling_for

        stages = find_target("cpu").stages
        if stage not in stages:
            raise TargetError(f"the stages of a kernel are loops, {', '.join(stages)}")
        with compiling_for(self.options.cpu):
            return stages[stage](self.text, self.options)

    # calls

    @cached_property
    def call(self) -> KernelCall:
        """The places of arguments, sizes and results in a call."""
        built, names = self.built, list(self.signature)
        made = {m.tensor.name: len(names) + n for n, m in enumerate(built.made)}
        objects = {n: k for k, n in enumerate(names) if isinstance(self.signature[n], ArrayType)}
        objects |= made
        cells = [FAULT.name] * 2  # by what is in them
        places: list[calls.Place] = []
        measures: list[calls.Measure] = []
        for t in (*built.inputs, *built.results):
            home = t.name.removesuffix(".out")
            if home in objects:
                places.append(calls.Place(calls.OBJECT, objects[home]))
            elif home in built.captured:
                address = built.captured[home].ctypes.data
                places.append(calls.Place(calls.ADDRESS, address))
            else:
                if t is not FAULT:
                    cells += [t.name] * calls.cells_of(t.element.dtype)
                places.append(calls.Place(calls.CELL, cells.index(t.name)))
                array, _, part = t.name.rpartition(".")
                if array in objects:  # a size or a stride of an array that is not contiguous
                    shift = built.arrays[array].element.bytes.bit_length() - 1
                    axis = int(part.lstrip("sizetrd"))
                    shift = -1 if part.startswith("size") else shift
                    measures.append(calls.Measure(objects[array], axis, shift, len(cells) - 1))
        atoms = {atom: -1 - n for n, atom in enumerate(self.text.sizes)}
        for name, array in built.arrays.items():
            for axis, dim in enumerate(array.tensor.shape):
                if isinstance(dim, int) or (place := atoms.get(dim.terms[0][0])) is None:
                    continue
                if name in objects:
                    whole = array.strides is not None
                    measures.append(calls.Measure(objects[name], -1 if whole else axis, -1, place))
                else:
                    measures.append(calls.Measure(-1, built.captured[name].shape[axis], -1, place))
        shapes: list[calls.New] = []
        if built.made:
            places.append(calls.Place(calls.CELL, len(cells)))
        for m in built.made:
            shapes.append(calls.New(m.tensor.element.dtype, len(m.sizes), len(cells)))
            cells += [m.tensor.name] * len(m.sizes)
        return KernelCall(
            [self._argument(n, cells) for n in names],
            places,
            measures,
            shapes,
            self._result(built.returned, "return", objects, cells),
            len(cells),
            len(atoms),
            self.overlaps,
        )

    def _argument(
        self, name: str, cells: Sequence[str]
    ) -> calls.ArrayArgument | calls.NumberArgument:
        kind = self.signature[name]
        dtype = kind.element.dtype
        if isinstance(kind, ArrayType):
            return calls.ArrayArgument(
                dtype, kind.rank, kind.contiguous, name in self.built.written
            )
        values = calls.ANY
        if kind.element is I64:
            values = calls.SMALL if isinstance(kind, IntegerType) else calls.WIDE
        type = _PYTHON[dtype] if kind.weak else dtype.type
        return calls.NumberArgument(type, dtype, cells.index(name), values)

    def _result(
        self, shape: object, name: str, objects: Mapping[str, int], cells: Sequence[str]
    ) -> calls.Result:
        match shape:
            case NumberType():
                dtype = shape.element.dtype
                kind = calls.PYTHON[dtype] if shape.weak else calls.SCALAR
                return calls.Result(kind, cells.index(name), dtype)
            case str():
                if shape in objects:
                    return calls.Result(calls.OBJECT, objects[shape])
                return calls.Result(calls.FIXED, self.built.captured[shape])
            case ViewType():
                home = self._result(shape.array, name, objects, cells)
                numbers = [
                    calls.ViewAxis(
                        *(a or (-1, 0)),
                        cells.index(f"{name}.start{n}"),
                        cells.index(f"{name}.count{n}") if a else -1,
                    )
                    for n, a in enumerate(shape.axes)
                ]
                return calls.Result(calls.VIEW, (home, shape.rank, numbers))
            case tuple():
                parts = enumerate(shape)
                found = [self._result(s, f"{name}.{n}", objects, cells) for n, s in parts]
                return calls.Result(calls.TUPLE, found)
        return calls.Result(calls.FIXED, None)

    @DefaultFpEnvironment()
    def run(self, values: Sequence[Any]) -> Any:
        """A call in Python, which reports errors in its arguments."""
        for name, value in zip(self.signature, values, strict=True):
            if name in self.built.written and not value.flags.writeable:
                place = self.source.span(self.source.tree)
                message = f"argument {name} is stored into, but the array is read-only"
                raise failure("ValueError", Diagnostic(message, place, "call.argument"))
        sizing = self.library.functions.get("entry1")
        try:
            return self.call.perform(values, self._program, sizing, self._allocate, self.report)
        except SystemError as e:  # ctypes wraps what a signal handler raised
            cause, e.__cause__, e.__context__ = e.__cause__, None, None
            raise cause or e from None

    def _program(self, pointers: object, known: int, workspace: object) -> int:
        """The program, with memory for the buffers that a schedule gives it."""
        if self.has_workspace:
            from cvm.jit.functions.native_function import aligned_memory

            count = len(self.text.sizes)
            sizes = zip(self.text.sizes, (ctypes.c_int64 * count).from_address(known), strict=True)
            memory = aligned_memory(evaluate(self.plan.workspace, dict(sizes)))
            workspace = memory.ctypes.data
        return self.library.functions["entry"](pointers, known, workspace)

    @property
    def is_direct(self) -> bool:
        """Test whether machine code takes calls: it neither allocates memory for the program, nor
        makes views or complex numbers.
        """
        built = self.built
        numbers = (t.element for t in (*built.inputs, *built.results) if not t.shape)
        return not (
            self.has_workspace
            or _has_view(built.returned)
            or any(e.kind == "complex" for e in numbers)
        )

    @property
    def has_workspace(self) -> bool:
        """Test whether a call needs memory, which machine code does not allocate."""
        return not isinstance(self.plan.workspace, int) or self.plan.workspace > 0

    @property
    def has_own_tests(self) -> bool:
        """Test whether elements of an array that a parallel loop stores into may share memory,
        which machine code does not test.
        """
        built = self.built
        arrays = (a for n, a in built.arrays.items() if n in built.written)
        return built.is_parallel and any(a.strides is not None for a in arrays)

    def made_table(self, latest: int) -> KernelTable:
        """The table for calls by machine code; `latest` is where the number of the version goes."""
        addresses = self.library.addresses
        programs = addresses["entry"], addresses.get("entry1", 0)
        return KernelTable(self.call, *programs, self.number, latest, self.report)

    def _allocate(self, n: int, shape: tuple[int, ...]) -> np.ndarray:
        made = self.built.made[n]
        try:
            if max(shape, default=0) > LARGEST:
                raise MemoryError
            return np.zeros(shape, made.tensor.element.dtype)
        except (MemoryError, ValueError):
            message = f"memory does not suffice for an array of shape {shape}"
            raise failure("MemoryError", Diagnostic(message, made.place, "run")) from None

    def report(self, status: int, *values: int) -> None:
        """Raises the error of a status, whose message names values."""
        message, span = self.text.requirements[status - 1]
        kind, _, template = message.partition(": ")
        text = template.format(*values) or kind
        raise failure(kind, Diagnostic(text, span, "run"))


def _has_view(returned: object) -> bool:
    parts = returned if isinstance(returned, tuple) else ()
    return isinstance(returned, ViewType) or any(map(_has_view, parts))


_PYTHON: dict[np.dtype[Any], type] = {np.dtype(t): t for t in (int, float, complex, bool)}


def failure(kind: str, diagnostic: Diagnostic) -> Error:
    """An error of a call that is also one of Python's exceptions."""
    return kind_of(kind)(diagnostic)
