"""Kernels as Python calls them: a version for each kind of arguments, compiled when called."""

from __future__ import annotations

import ast
import ctypes
import inspect
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from cvm.dialect.support.compilation_context import compiling
from cvm.dialect.support.diagnostics import CallError, Diagnostic, TargetError
from cvm.dialect.types.tensor_types import BY_DTYPE, I64
from cvm.jit.calls import fastcall
from cvm.jit.calls.arguments import has_internal_overlap, share_memory
from cvm.jit.calls.kernel_table import LARGEST, KernelTable
from cvm.jit.options import CompileOptions
from cvm.lowering.scheduling.apply_steps import apply_steps
from cvm.lowering.scheduling.steps import Step

from .build import ArrayType, IntegerType, build
from .numbers import NumberType, of_python
from .source import CompiledFunction, FunctionSource, read_source
from .version import Version

Kinds = tuple[object, ...]  # the types of arguments
P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from cvm.jit.functions.tune import Trial

TARGETS = ("cpu", "reference")


class Kernel(CompiledFunction, Generic[P, R]):
    """A Python function with loops, compiled from its source. `py_func` is the function itself.

    Once a version has run, machine code takes the calls that fit it, and leaves others to
    `__call__`.
    """

    def __new__(cls, function: Callable[P, R], target: str, *others: object) -> Kernel[P, R]:
        direct = target == "cpu" and fastcall.usable()
        return object.__new__(fastcall.direct(Kernel, later=True) if direct else cls)

    def __init__(
        self, function: Callable[P, R], target: str, options: CompileOptions, checks: bool
    ) -> None:
        if target not in TARGETS:
            raise TargetError(
                f"kernels from Python run on the targets {' and '.join(TARGETS)}, got {target!r}"
            )
        update_wrapper(self, function)
        self.py_func = function
        self.target, self.options, self.checks = target, options, checks
        self.steps: tuple[Step, ...] = ()
        self._versions: dict[tuple[Kinds, bool], Version] = {}
        self._latest = ctypes.c_int64(-1)  # the number of the version of the latest call
        self._tables: list[KernelTable] = []  # the chain that machine code follows
        self._lock = threading.RLock()  # a signal handler may call the kernel
        self.source: FunctionSource | None = None
        if target == "cpu":
            self.source = read_source(function)
            _check_parameters(self.source)
        self.signature = inspect.signature(function)

    def __call__(self, *given: P.args, **named: P.kwargs) -> R:
        if self.source is None:
            return self.py_func(*given, **named)
        if named or len(given) != len(self.signature.parameters):
            try:
                bound = self.signature.bind(*given, **named)
            except TypeError as e:
                message = f"{self.py_func.__name__}: {e}"
                raise CallError(Diagnostic(message, self._place, "call.arguments")) from None
            bound.apply_defaults()
            given = bound.args  # type: ignore[assignment]
        if any(type(v).__name__ == "TracedArray" for v in given):
            from .traced_calls import traced_call

            return cast("R", traced_call(self, self.source, given))
        version = self._version(given)
        self._latest.value = version.number
        with self._lock:  # a second library of the same version would free the first one's code
            version.load()
        result = version.run(given)
        if fastcall.usable() and isinstance(self, fastcall.direct_base()):
            self._serve(version)
        return cast("R", result)

    def _serve(self, version: Version) -> None:
        """Later calls that fit this version go to machine code."""
        with self._lock:
            if version.table is not None or version.has_own_tests or not version.is_direct:
                return
            if not self._tables:
                slow = MethodType(Kernel.__call__, weakref.proxy(self))
                self._tables.append(KernelTable(slow=slow))
                fastcall.take(self, ctypes.addressof(self._tables[0].words), "call_kernel")
            version.table = version.made_table(ctypes.addressof(self._latest))
            self._tables[-1].follow(version.table)
            self._tables.append(version.table)

    def _version(self, given: Sequence[object]) -> Version:
        """The version for arguments, compiled where there is none yet."""
        kinds = self.kinds(dict(zip(self.signature.parameters, given, strict=True)))
        plain = self._versions.get((kinds, False)) or self.compiled(kinds)
        if plain.built.is_parallel:
            self._check_apart(given, plain.built.written)
        if not plain.meet(given):
            return plain
        return self._versions.get((kinds, True)) or self.compiled(kinds, True)

    def _check_apart(self, given: Sequence[object], written: frozenset[str]) -> None:
        """Refuse arrays that share memory with one that a parallel kernel stores into."""
        arrays = [
            (name, value)
            for name, value in zip(self.signature.parameters, given, strict=True)
            if isinstance(value, np.ndarray)
        ]
        for n, (name, value) in enumerate(arrays):
            if name in written and has_internal_overlap(value):
                raise self._refused(name, "elements of this array share memory under cvm.prange")
            for other, earlier in arrays[:n]:
                if {name, other} & written and share_memory(value, earlier):
                    raise self._refused(
                        name,
                        f"this array shares memory with {other} under cvm.prange, and "
                        "one of them is stored into",
                    )

    @property
    def _place(self) -> Any:
        assert self.source is not None
        return self.source.span(self.source.tree)

    def kinds(self, given: Mapping[str, object]) -> Kinds:
        """The types of arguments by their names."""
        kinds: list[object] = []
        for name, value in given.items():
            if type(value) is np.ndarray and value.ndim:
                kinds.append(self._array(name, value))
            elif (number := of_python(value)) is not None:
                small = number.element is I64 and -LARGEST <= number.constant <= LARGEST
                kinds.append((IntegerType if small else NumberType)(number.element, number.weak))
            else:
                raise self._refused(name, _refusal(value))
        return tuple(kinds)

    def _array(self, name: str, value: np.ndarray) -> ArrayType:
        element = BY_DTYPE.get(value.dtype) if value.dtype.isnative else None
        if element is None:
            kind = "foreign byte order" if not value.dtype.isnative else "elements of type"
            raise self._refused(name, f"an array of {kind} {value.dtype} is not taken by kernels")
        if element.name == "bf16":
            raise self._refused(name, f"an array of {value.dtype} is not taken by kernels")
        if max(value.shape) > LARGEST:
            raise self._refused(name, f"an axis of {max(value.shape)} elements is too long")
        if value.flags.c_contiguous:
            if not value.flags.aligned:
                raise self._refused(name, "an array that is not aligned is not taken by kernels")
            return ArrayType(element, value.ndim)
        if not value.flags.aligned or any(s % value.itemsize for s in value.strides):
            raise self._refused(name, "an array that is not aligned is not taken by kernels")
        return ArrayType(element, value.ndim, False)

    def _refused(self, name: str, message: str) -> CallError:
        assert self.source is not None
        found = next(a for a in ast.walk(self.source.tree) if getattr(a, "arg", "") == name)
        return CallError(
            Diagnostic(f"argument {name}: {message}", self.source.span(found), "call.argument")
        )

    @compiling()
    def compiled(self, kinds: Kinds, overlaps: bool = False) -> Version:
        """The version for arguments of these types, whose machine code is compiled when called."""
        assert self.source is not None
        with self._lock:
            if (version := self._versions.get((kinds, overlaps))) is None:
                names = dict(zip(self.signature.parameters, cast("Any", kinds), strict=True))
                built = build(self.source, names, self.checks, overlaps)
                kernel = built.kernel
                if overlaps:  # accesses stay in their order
                    kernel = replace(kernel, aliasing=True)
                else:
                    kernel = apply_steps(kernel, self.steps)
                built = replace(built, kernel=kernel)
                number = len(self._versions)
                version = Version(built, self.source, self.options, names, overlaps, number)
                version = self._versions.setdefault((kinds, overlaps), version)
        return version

    def lower(self, stage: str = "loops", *arguments: Any) -> str:
        """Return a version at a stage of its lowering, as text.

        Args:
            stage: `"loops"`, `"llvm"`, `"llvm-opt"` or `"asm"`.
            arguments: Arguments that select the version; by default those of the latest call.

        Raises:
            TargetError: The kernel has not been called, or is for the target `"reference"`.
        """
        return self.version(*arguments).lower(stage)

    def version(self, *arguments: object) -> Version:
        """The version of the latest call, or for these arguments."""
        if self.source is None:
            raise TargetError("the target reference runs the Python function, which has no stages")
        if arguments:
            return self._version(arguments)
        if (latest := self._latest.value) < 0:
            raise TargetError("a kernel is compiled when it is called: call it, or give arguments")
        return [*self._versions.values()][latest]

    def tune(
        self,
        *arguments: object,
        seconds: float = 60,
        told: Callable[[Trial], object] = lambda trial: None,
    ) -> str:
        """Search for a schedule that makes a call faster, with the same bits.

        Args:
            arguments: Those of the call; arrays stay as they are.
            seconds: The time of the search, which Ctrl-C ends earlier with the best so far.
            told: Gets each schedule that was measured, with its steps and `seconds`.

        Returns:
            The steps as text, one a line, for `cvm.schedule(...).apply`; empty where none was
            faster.
        """
        from cvm.jit.functions.tune import search

        plan = self.version(*arguments).given
        build = lambda plan, steps: self.scheduled(steps)  # noqa: E731
        return search(plan, self, build, arguments, seconds, told).text

    def scheduled(self, steps: Sequence[Step], **options: Any) -> Kernel[P, R]:
        """The kernel whose versions have these steps of a schedule; of arguments that overlap,
        without them.
        """
        made = Kernel(self.py_func, self.target, replace(self.options, **options), self.checks)
        made.steps = (*self.steps, *steps)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return _recreated, (self.py_func.__module__, self.py_func.__qualname__)

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__qualname__} for {self.target}>"


def _recreated(module: str, name: str) -> Any:
    """The kernel of this name in a module: kernels are pickled by reference, as functions are."""
    import importlib

    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _check_parameters(source: FunctionSource) -> None:
    parameters = source.tree.args
    if unusual := parameters.vararg or parameters.kwarg:
        raise source.mistake("kernels take a fixed number of arguments, without * and **", unusual)


def _refusal(value: object) -> str:
    if isinstance(value, np.ndarray):
        return (
            "an array of rank 0, or of a class of its own, is not taken: pass a number or an array"
        )
    if isinstance(value, int):
        return f"{value} does not fit into 64 bits"
    return f"a {type(value).__name__} is not taken: kernels take numbers and NumPy arrays"
